"""Programs written for umqtt.robust, but for the import: what they override is used.

Knows: how such programs are made, what mosquitto does with two clients of one name.
Must not know: the client's inside.
"""
# needs: mosquitto
# heap: 2M

import time

import interop_common as common
from umqtt_min import RAMStore
from umqtt_min.robust import MQTTClient


class Subscriber(MQTTClient):
    """Knows what it asked for, and asks again in a session that has not got it."""

    DELAY = 0.1

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.wanted = []
        self.asked = 0

    def connect(self, clean_session=True):
        if super().connect(clean_session):
            return True
        for topic in self.wanted:
            self.subscribe(topic)
        return False

    def subscribe(self, topic):
        self.asked += 1
        super().subscribe(topic)
        if topic not in self.wanted:
            self.wanted.append(topic)


class Announced(MQTTClient):
    """Its state is a retained message: here, or gone, which is its will."""

    DELAY = 0.1
    state = b""

    def connect(self, clean_session=True):
        self.set_last_will(self.state, b"gone", retain=True)
        try:
            return super().connect(clean_session)
        finally:
            self.publish(self.state, b"here", retain=True)


def push_out(name):
    """Another client of that name takes the connection, and the session if it was kept."""
    other, _ = common.client(name)
    other.connect()
    other.disconnect()
    time.sleep_ms(200)


def made(kind, **options):
    name = common.unique("robust")
    c = kind(name, common.HOST, common.PORT, keepalive=30, timer=False, **options)
    got = []
    c.set_callback(lambda topic, msg: got.append(msg))
    return name, c, got


def test_subscribes_again_by_a_connect_of_its_own():
    for options in ({}, {"store": RAMStore()}):
        name, c, got = made(Subscriber, **options)
        topic = common.unique("again").encode()
        c.connect()
        c.subscribe(topic)
        push_out(name)
        c.check_msg()
        c.publish(topic, b"one")
        common.wait(c, got, 1)
        push_out(name)
        c.publish(b"x", b"y", qos=1)
        c.publish(topic, b"two")
        common.wait(c, got, 2)
        assert got == [b"one", b"two"]
        assert c.asked == 3
        c.disconnect()


def test_is_announced_again_by_a_connect_of_its_own():
    name, c, _ = made(Announced)
    c.state = common.unique("state").encode()
    watcher, heard = common.client()
    watcher.connect()
    watcher.subscribe(c.state)
    c.connect()
    for n, call in enumerate((c.check_msg, lambda: c.publish(b"x", b"y", qos=1))):
        push_out(name)
        call()
        common.wait(watcher, heard, 3 + 2 * n)
    assert [msg for _, msg in heard] == [b"here", b"gone", b"here", b"gone", b"here"]
    c.publish(c.state, b"", retain=True, qos=1)
    c.disconnect()
    watcher.disconnect()
