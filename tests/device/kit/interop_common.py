"""What the tests against real brokers share.

Knows: where the broker is (environment), the client's API.  Must not know: which broker it is.
"""

import os
import socket
import time

from umqtt_min import MQTTClient

HOST = os.getenv("BROKER_HOST")
PORT = int(os.getenv("BROKER_PORT") or 0)


def unique(name):
    """A name that no other test of this session uses."""
    return "%s-%d" % (name, time.ticks_us() & 0xFFFFFF)


def client(name=None, **options):
    """A client that collects (topic, msg) in the list returned beside it."""
    settings = {"keepalive": 30, "timeout": 30, "timer": False}
    settings.update(options)
    c = MQTTClient(name or unique("c"), HOST, PORT, **settings)
    got = []
    c.set_callback(lambda topic, msg: got.append((topic, msg)))
    return c, got


def wait(c, got, n, seconds=40):
    """Pump until n messages are there; AssertionError after so many seconds."""
    end = time.ticks_add(time.ticks_ms(), seconds * 1000)
    while len(got) < n and time.ticks_diff(end, time.ticks_ms()) > 0:
        c.check_msg()
        time.sleep_ms(5)
    assert len(got) == n, "%d messages of %d" % (len(got), n)


def quiet(c, got, n, ms=300):
    """Pump for a while: no more than n messages may be there."""
    end = time.ticks_add(time.ticks_ms(), ms)
    while time.ticks_diff(end, time.ticks_ms()) > 0:
        c.check_msg()
        time.sleep_ms(10)
    assert len(got) == n, "%d messages, not %d" % (len(got), n)


def echo(sizes, **options):
    """Publish at every QoS what the same client has subscribed to, and compare."""
    c, got = client(**options)
    c.connect()
    topic = unique("echo").encode()
    c.subscribe(topic, 2)
    sent = []
    for qos in (0, 1, 2):
        for n in sizes:
            sent.append((topic, bytes((97 + qos,)) * n))
            c.publish(topic, sent[-1][1], qos=qos)
            wait(c, got, len(sent))
    assert got == sent
    c.unsubscribe(topic)
    c.publish(topic, b"not wanted", qos=1)
    quiet(c, got, len(sent), 100)
    c.disconnect()


def offline(**options):
    """What is published while a subscriber is away is there when it comes back."""
    name, topic = unique("off"), unique("offline")
    c, got = client(name, **options)
    assert not c.connect(False)
    c.subscribe(topic, 2)
    c.disconnect()
    other, _ = client()
    other.connect()
    for i in range(20):
        other.publish(topic, b"%d" % i, qos=1 + i % 2)
    other.disconnect()
    present = c.connect(False)
    wait(c, got, 20)
    assert sorted(int(m) for _, m in got) == list(range(20))
    c.disconnect()
    c.connect(True)
    c.disconnect()
    return present


def unacknowledged(qos):
    """A message whose callback raised comes again; (flags of the two deliveries, present)."""
    name, topic = unique("un"), unique("again")
    c, _ = client(name)
    seen = []

    def callback(topic, payload, flags, left):
        seen.append(flags)
        if len(seen) == 1:
            raise KeyError("application")

    c.set_view_callback(callback)
    c.connect(False)
    c.subscribe(topic, qos)
    other, _ = client()
    other.connect()
    other.publish(topic, b"x", qos=qos)
    other.disconnect()
    try:
        wait(c, seen, 2)
    except KeyError:
        pass
    present = c.connect(False)
    wait(c, seen, 2)
    c.disconnect()
    return seen, present


def will():
    """The will of a client that is cut off arrives."""
    watcher, got = client()
    watcher.connect()
    topic = unique("will").encode()
    watcher.subscribe(topic, 1)
    c, _ = client()
    c.set_last_will(topic, b"gone", qos=1)
    c.connect()
    c.sock.close()
    wait(watcher, got, 1)
    assert got == [(topic, b"gone")]
    watcher.disconnect()


def retained():
    """A retained message greets a new subscriber, until an empty one deletes it."""
    topic = unique("kept").encode()
    c, got = client()
    c.connect()
    c.publish(topic, b"last", retain=True, qos=1)
    c.subscribe(topic, 1)
    wait(c, got, 1)
    c.publish(topic, b"", retain=True, qos=1)
    wait(c, got, 2)
    other, nothing = client()
    other.connect()
    other.subscribe(topic, 1)
    quiet(other, nothing, 0)
    other.disconnect()
    c.disconnect()


def silent():
    """Somebody who listens and says nothing: the socket, to be closed, and its port."""
    listener = socket.socket()
    for port in range(30000 + time.ticks_us() % 20000, 60000):
        try:
            listener.bind(socket.getaddrinfo("127.0.0.1", port)[0][-1])
            break
        except OSError:
            continue
    listener.listen(1)
    return listener, port
