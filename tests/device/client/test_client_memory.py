"""A broker that sends more than there is memory for: an error or a drained message, never a
MemoryError, and the client goes on.

Knows: MicroPython's heap.  Must not know: how large messages are received.
"""
# only: micropython
# heap: 384K

import gc
import sys

import micropython
from harness import raises
from umqtt_min import MQTTClient, MQTTException

CONNACK = b"\x20\x02\x00\x00"


class Long:
    """A stream that plays CONNACK, and a packet's beginning with many bytes behind it."""

    def __init__(self):
        self.head = b""
        self.left = 0
        self.acks = 0

    def connect(self, host, port, timeout_ms):
        self.head = CONNACK
        self.left = 0
        return self

    def play(self, head, n):
        """Let these bytes be read, then n more."""
        self.head = head
        self.left = n

    def setblocking(self, flag):
        """Never blocks."""

    def close(self):
        """Nothing is open."""

    def ready(self, mask):
        return mask if self.head or self.left else mask & 4

    def write(self, buf, off=0, n=-1):
        self.acks += buf[off] == 0x40
        return len(buf) if n < 0 else n

    def readinto(self, buf, n):
        n = min(len(buf), n, len(self.head) or self.left)
        if self.head:
            buf[:n] = self.head[:n]
            self.head = self.head[n:]
        else:
            for i in range(n):
                buf[i] = 120
            self.left -= n
        return n or None


def connected(**options):
    """(client, stream, what was received)"""
    stream = Long()
    client = MQTTClient(b"d", "b", timer=False, connector=stream.connect, **options)
    got = []
    client.set_callback(lambda topic, msg: got.append((topic, len(msg))))
    client.connect()
    return client, stream, got


class Full:
    """While it is entered the heap is full, but for a hole of 24,000 bytes and one of 8,000."""

    # One list for all: the collector is conservative and may take an older one for alive.
    ballast = [None] * 2000

    def __enter__(self):
        gc.collect()
        holes = [bytearray(24000), bytearray(8000)]
        try:
            for i in range(len(self.ballast)):
                self.ballast[i] = bytearray(256)
        except MemoryError:
            del holes[:]
            gc.collect()
            return
        raise AssertionError("the heap is too large for this test")

    def __exit__(self, *_):
        for i in range(len(self.ballast)):
            self.ballast[i] = None


def works(client, stream, got):
    """A message comes through."""
    del got[:]
    stream.play(b"\x30\x05\x00\x01tok", 0)
    client.check_msg()
    assert got == [(b"t", 2)]


def test_a_topic_for_which_there_is_no_memory():
    client, stream, got = connected()
    with Full():
        # 65,002 bytes with a topic of 65,000
        stream.play(b"\x30\xea\xfb\x03\xfd\xe8", 65000)
        e = raises(MQTTException, client.check_msg)
        assert "memory" in str(e) and not client.connected
        client.connect()
        works(client, stream, got)


def test_a_payload_that_fits_once_and_not_twice():
    client, stream, got = connected()
    drained = []
    client.on_oversize = drained.append
    with Full():
        # 20,005 bytes, QoS 1
        stream.play(b"\x32\xa5\x9c\x01\x00\x01t\x00\x07", 20000)
        for _ in range(2 + 20000 // 256):
            client.check_msg()
        assert (got, drained, stream.acks) == ([], [20000], 1)
        works(client, stream, got)


def unloaded():
    """As in a program that has just begun: what is loaded at its first use is not there."""
    for name in ("subscribe", "publisher", "inbox", "counters", "special"):
        sys.modules.pop("umqtt_min." + name, None)


def exhausted(f, client, free):
    """f(client) with so many free blocks of 32 bytes and nothing else; what it raised."""
    error = None
    chain = None
    room = bytearray(32 * free)
    gc.collect()
    try:
        while True:
            chain = [chain]
    except MemoryError:
        pass
    del room
    gc.collect()
    try:
        f(client)
    except Exception as e:
        error = e
    finally:
        chain = None
        gc.collect()
    return error


def test_a_heap_that_is_full_for_one_moment_leaves_nobody_waiting():
    calls = (
        lambda c: c.check_msg(),
        lambda c: c.tick(),
        lambda c: c.publish(b"t", b"x"),
        lambda c: c.publish(b"t", b"x", qos=1),
        lambda c: c.publish(b"t", b"x" * 300),
        lambda c: c.subscribe(b"t", 1),
        lambda c: c.ping(),
    )
    failed = 0
    for arrives in (b"", b"\x30\x05\x00\x01tok", b"\x50\x02\x00\x07", b"\xf0\x01x"):
        for call in calls:
            for free in (0, 1, 2, 3, 5, 8, 12, 20, 40):
                client, stream, _ = connected(keepalive=60, timeout=0.05)
                unloaded()
                gc.collect()
                stream.play(arrives, 0)
                failed += isinstance(exhausted(call, client, free), MemoryError)
                if client.connected:  # nobody has the stream
                    client.publish(b"t", b"after")
                else:
                    # 103: it was the callback, which appends to a list, that had no memory.
                    assert raises(OSError, client.check_msg).args[0] in (103, 104, 107)
                client.connect()
                client.publish(b"t", b"x")
    assert failed > 50


def test_no_memory_for_a_payload_is_no_error_of_the_callback():
    client, stream, _ = connected()
    stream.play(b"\x30\xcb\x01\x00\x01t", 200)
    assert isinstance(exhausted(lambda c: c.check_msg(), client, 6), MemoryError)
    assert raises(OSError, client.check_msg).args[0] == 104  # 103 is the callback's


def test_an_import_for_which_there_was_no_room_can_be_made_again():
    client, stream, got = connected()
    for name in ("connect", "counters", "publisher"):
        unloaded()
        path = "umqtt_min." + name
        sys.modules.pop(path, None)
        micropython.heap_lock()
        try:
            __import__(path)
            room = True
        except MemoryError:
            room = False
        finally:
            micropython.heap_unlock()
        assert not room and path in sys.modules and sys.modules.get(path) is None
        client.connect()
        client.ping()
        client.publisher(b"t")(b"x")
        assert client.counters.sent > 0
        stream.play(b"\x30\x04\x00\x01tx", 0)
        client.check_msg()
        stream.play(b"\x30\xac\x02\x00\x01t", 297)
        client.wait_msg()
        assert got == [(b"t", 1), (b"t", 297)], name
        got.clear()


def test_the_first_tick_needs_no_memory():
    """An interrupt may come with the heap locked, and nobody has named tick() before."""
    client, stream, got = connected(keepalive=60)
    micropython.heap_lock()
    try:
        client.tick()
    finally:
        micropython.heap_unlock()
    assert client.connected
