"""Numbers that a 64-bit host never finds large: identifiers, check values, the end of the clock.

Knows: where small ints end on the chips (2**30 - 1).  Must not know: how the library avoids more.
"""
# also: micropython32

import binascii
import sys

import softtimer
import umqtt_min.store.segment_log as bits
from harness import Bench, raises
from umqtt_min import MQTTException, RAMStore
from umqtt_min.store.scan import get4

MICROPYTHON = sys.implementation.name == "micropython"


def taken(f):
    """Bytes that ten calls take from the heap, even for a moment."""
    import micropython

    f()
    total = micropython.mem_total()
    for _ in range(10):
        f()
    return micropython.mem_total() - total


def test_check_values_are_those_of_crc32_and_take_nothing():
    data = bytes([i * 37 & 255 for i in range(200)])
    state = bytearray(4)
    high = 0
    for n in range(0, 200, 7):
        state[:] = bytes(4)
        bits.crc32(state, data, 0, n // 2)
        bits.crc32(state, data, n // 2, n - n // 2)
        value = binascii.crc32(data[:n])
        assert state == value.to_bytes(4, "big")
        high += value >= 1 << 30
    assert high > 5, "no check value was beyond a small int: nothing is shown"
    if MICROPYTHON:
        assert taken(lambda: bits.crc32(state, data, 0, 200)) == 0


def test_four_bytes_up_to_the_last_small_int():
    buf = bytearray(6)
    for value in (0, 1, 255, 256, 65535, 1 << 24, (1 << 30) - 1):
        buf[1:5] = value.to_bytes(4, "big")
        assert get4(buf, 1) == value
    for first in (0x40, 0x80, 0xFF):
        buf[1] = first
        assert get4(buf, 1) == -1


def test_identifiers_come_round_and_leave_out_what_is_in_flight():
    b = Bench(store=RAMStore(), window=4)
    b.client.pid = 65533
    b.connect()
    assert [b.client.publish(b"t", b"", qos=1) for _ in range(4)] == [65534, 65535, 1, 2]
    b.net.black_hole = True
    raises(MQTTException, b.client.publish, b"t", b"kept", qos=1)
    b.client.pid = 2
    assert b.client.publish(b"t", b"", qos=1, wait=False) == 4
    b.net.black_hole = False


def test_sequence_numbers_up_to_the_last_small_int():
    store = RAMStore(256)
    store.open()
    store.seq = store.low = store._first = (1 << 30) - 4
    for i in range(3):
        seq = store.put(i + 1, 2, b"t", bytes(60))
        store.mark(seq)
        assert store.next(0) == seq and store.find(seq) == 65
        store.done(seq)
    assert seq == (1 << 30) - 2


def test_the_keep_alive_over_the_end_of_the_clock():
    b = Bench(keepalive=60)
    softtimer.jump(((1 << 30) - 20000 - softtimer.ticks_ms()) & (1 << 30) - 1)
    b.connect()
    del b.broker.packets[:]
    for _ in range(9):
        softtimer.jump(5000)
        b.client.check_msg()
    assert softtimer.ticks_ms() < 100000
    assert b.kinds() == [12], "one PINGREQ in 45 s"
