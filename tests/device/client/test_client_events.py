"""on_connect, on_disconnect and log: each connection and each end is told, once and in order.

Knows: the client's API, a broker that plays along.  Must not know: how the client notices.
"""
# heap: 4M

import time

from harness import Bench, raises
from umqtt_min import MQTTClient, MQTTException, RAMStore
from umqtt_min.errors import PROTOCOL


class Diary:
    """What the hooks were told, and the log."""

    def __init__(self):
        self.told = []
        self.lines = []

    def options(self):
        """The constructor's arguments."""
        return {"on_connect": self._connected, "on_disconnect": self._ended, "log": self._line}

    def _connected(self, present):
        self.told.append(("connected", present))

    def _ended(self, reason):
        self.told.append(("ended", reason))

    def _line(self, line):
        assert isinstance(line, str)
        self.lines.append(line)


def test_a_connection_and_its_end_are_told():
    d = Diary()
    b = Bench(store=RAMStore(), **d.options())
    b.connect()
    assert d.told == [("connected", False)]
    b.client.disconnect()
    assert d.told == [("connected", False), ("ended", 0)]
    b.connect()
    assert d.told[2:] == [("connected", True)]
    assert len(d.lines) == 3
    assert "broker:1883" in d.lines[0] and "new session" in d.lines[0]
    assert d.lines[1] == "connection ended: disconnect()"
    assert "session kept" in d.lines[2] and "0 unacknowledged" in d.lines[2]


def test_a_lost_link_is_told_once_with_its_number():
    d = Diary()
    b = Bench(**d.options())
    b.connect()
    b.net.cut()
    raises(OSError, b.client.check_msg)
    raises(OSError, b.client.check_msg)
    raises(OSError, b.client.publish, b"t", b"x")
    assert d.told == [("connected", False), ("ended", 104)]
    assert "ECONNRESET" in d.lines[-1] or "104" in d.lines[-1]


def test_an_on_connect_that_raises_leaves_the_client_closed():
    def raising(present):
        raise RuntimeError("mine")

    b = Bench(on_connect=raising)
    raises(RuntimeError, b.connect)
    assert b.client.sock is None and not b.client.connected


def test_a_log_that_raises_is_not_called_again():
    lines = []

    def raising(line):
        lines.append(line)
        raise RuntimeError("mine")

    b = Bench(log=raising)
    raises(RuntimeError, b.connect)
    b.connect()
    b.client.disconnect()
    assert len(lines) == 1 and b.client.sock is None


def test_a_dead_link_that_the_timer_finds_is_told():
    d = Diary()
    b = Bench(keepalive=10, timer=None, **d.options())
    b.connect()
    b.net.black_hole = True
    time.sleep(12)
    assert d.told == [("connected", False), ("ended", 110)], d.told


def test_what_breaks_the_protocol_is_told_by_its_reason():
    d = Diary()
    b = Bench(**d.options())
    b.connect()
    b.conn.send(b"\xd0\x01\x00")
    raises(MQTTException, b.client.check_msg)
    assert d.told[1:] == [("ended", 1000 + PROTOCOL)]
    assert "broke the protocol" in d.lines[-1]


def test_an_attempt_that_fails_is_logged_and_no_hook_is_called():
    d = Diary()

    def refuse(host, port, timeout):
        raise OSError(111)

    c = MQTTClient(b"dev", "broker", timer=False, connector=refuse, **d.options())
    raises(OSError, c.connect)
    assert d.told == []
    assert len(d.lines) == 1 and "no connection to broker:1883" in d.lines[0]


def test_on_connect_may_subscribe_and_publish():
    b = Bench(store=RAMStore())

    def begin(present):
        if not present:
            b.client.subscribe(b"cmd", 1)
        b.client.publish(b"hello", b"1", qos=1)

    b.make(store=RAMStore(), on_connect=begin)
    b.connect()
    assert b.broker.messages and b.broker.messages[-1].topic == b"hello"
    b.broker.publish(b"cmd", b"on", 1)
    b.pump()
    assert b.got == [(b"cmd", b"on")]


def test_a_connection_that_another_connect_ends_is_told():
    d = Diary()
    b = Bench(**d.options())
    b.connect()
    b.connect()
    assert d.told == [("connected", False), ("ended", 0), ("connected", False)]


def test_what_cannot_be_called_is_refused():
    for name in ("on_connect", "on_disconnect", "log"):
        e = raises(ValueError, MQTTClient, b"dev", "broker", **{name: 7})
        assert name in str(e)
