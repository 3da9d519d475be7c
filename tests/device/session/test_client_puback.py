"""PUBACK for several messages of one read: one write, in order, whatever happens between two.

Knows: the client's API, the strict broker, which checks the order and that nothing is
acknowledged that was not read.  Must not know: where the client keeps what it is to send.
"""
# heap: 2M

import time

from harness import Bench, raises
from strict_broker import CLOSE, publish
from strict_wire import PINGREQ, PUBACK, PUBLISH, PUBREC


def packets(count, first=1, qos=1):
    """So many short messages, identifiers from `first` on."""
    return b"".join(publish(4, b"t", b"m%d" % i, qos, pid=i) for i in range(first, first + count))


def acked(b):
    """Identifiers of the PUBACKs that came."""
    return [p.pid for p in b.broker.packets if p.type == PUBACK]


def callback_at(b, n, action):
    """Count messages; at the n-th call action()."""
    calls = []

    def callback(topic, msg):
        calls.append(bytes(msg))
        if len(calls) == n:
            action()

    b.client.set_callback(callback)
    return calls


def test_one_write_for_what_came_with_one_read():
    b = Bench().subscribe()
    del b.net.stream.writes[:]
    b.conn.send(packets(5))
    b.client.check_msg()
    assert acked(b) == [1, 2, 3, 4, 5]
    assert b.net.stream.writes == [20]


def test_also_behind_a_connection_on_which_a_publish_waited():
    b = Bench()
    b.connect(False)
    b.client.subscribe(b"t", 1)
    b.broker.when(PUBLISH, CLOSE)
    raises(OSError, b.client.publish, b"u", b"x", qos=1)
    b.connect(False)
    del b.net.stream.writes[:]
    b.conn.send(packets(3))
    b.client.check_msg()
    assert acked(b) == [1, 2, 3]
    assert b.net.stream.writes == [12]


def test_each_split_point_and_each_size_of_a_read():
    data = packets(3) + publish(4, b"t", b"zero") + b"\xd0\x00" + packets(4, 4)
    for split in range(1, len(data)):
        b = Bench(buffer_size=64).subscribe()
        b.conn.send(data[:split])
        b.pump(3)
        # What was delivered is acknowledged.
        assert len(acked(b)) == len([m for _, m in b.got if m != b"zero"])
        b.conn.send(data[split:])
        b.pump(3)
        assert acked(b) == [1, 2, 3, 4, 5, 6, 7], split
    for limit in range(1, 70):
        b = Bench(buffer_size=64).subscribe()
        b.net.max_read = limit
        b.conn.send(data)
        b.pump(3)
        assert acked(b) == [1, 2, 3, 4, 5, 6, 7], limit


def test_check_msg_leaves_none_unsent_in_a_flood():
    b = Bench().subscribe()
    b.conn.send(packets(500))
    while len(b.got) < 500:
        b.client.check_msg()
        assert len(acked(b)) == len(b.got)


def test_written_in_pieces_and_refused_at_first():
    for limit in (1, 2, 3, 5, 7):
        b = Bench().subscribe()
        b.net.max_write = limit
        b.net.write_stalls = 2
        b.conn.send(packets(6))
        b.pump(2)
        assert acked(b) == [1, 2, 3, 4, 5, 6]


def test_an_exception_between_two_leaves_those_before_it_acknowledged():
    for n in (1, 2, 4):
        b = Bench()
        b.connect(False)
        b.client.subscribe(b"t", 1)
        calls = callback_at(b, n, lambda: {}["application"])
        for i in range(4):
            b.broker.publish(b"t", b"%d" % i, 1)
        raises(KeyError, b.client.check_msg)
        assert not b.client.connected and b.net.stream.closed
        assert len(acked(b)) == n - 1
        b.connect(False)
        b.pump()
        assert calls == [b"%d" % i for i in range(n)] + [b"%d" % i for i in range(n - 1, 4)]
        assert b.conn.owed() == []


def test_an_exception_of_a_callback_with_views_does_the_same():
    b = Bench().subscribe()
    calls = []

    def callback(topic, payload, flags, left):
        calls.append(bytes(payload))
        if len(calls) == 3:
            raise KeyError("application")

    b.client.set_view_callback(callback)
    b.conn.send(packets(4))
    raises(KeyError, b.client.check_msg)
    assert acked(b) == [1, 2]


def test_an_exception_while_nothing_can_be_written_waits_for_nothing():
    for stalled in (True, False):
        b = Bench()
        b.connect(False)
        b.client.subscribe(b"t", 1)

        def fail(b=b, stalled=stalled):
            if stalled:
                b.net.write_stalls = 1000
            else:
                b.net.cut()
            raise KeyError("application")

        calls = callback_at(b, 2, fail)
        for i in range(3):
            b.broker.publish(b"t", b"%d" % i, 1)
        begun = time.ticks_ms()
        raises(KeyError, b.client.check_msg)
        assert time.ticks_diff(time.ticks_ms(), begun) < 1000
        assert not b.client.connected
        assert acked(b) == []
        b.net.write_stalls = 0
        b.connect(False)
        b.pump()
        assert calls == [b"0", b"1", b"0", b"1", b"2"]
        assert len(acked(b)) == 3


def test_nothing_follows_half_a_packet():
    b = Bench().subscribe()

    def stall(where):
        if where == "written":
            b.net.write_stalls = 1 << 20

    def half():
        b.net.max_write = 3
        b.net.hook = stall
        del b.net.stream.writes[:]
        b.client.publish(b"answer", b"xx")

    callback_at(b, 2, half)
    b.conn.send(packets(3))
    raises(OSError, b.client.check_msg)
    assert not b.client.connected
    assert set(b.net.stream.writes) == {12, 9}
    b.net.hook = None
    b.net.max_write = b.net.write_stalls = 0
    b.connect()
    b.conn.send(packets(1, first=9))
    b.client.check_msg()
    assert acked(b) == [9]  # none of the last connection's


def test_a_link_that_ends_between_two():
    b = Bench()
    b.connect(False)
    b.client.subscribe(b"t", 1)
    calls = callback_at(b, 2, b.net.cut)
    for i in range(3):
        b.broker.publish(b"t", b"%d" % i, 1)
    raises(OSError, b.pump)
    assert not b.client.connected
    b.connect(False)
    b.pump()
    assert calls[-3:] == [b"0", b"1", b"2"]
    assert len(acked(b)) == 3


def test_a_protocol_error_behind_them():
    b = Bench().subscribe()
    b.conn.send(packets(3) + b"\xff\x00")
    raises(Exception, b.client.check_msg)
    assert not b.client.connected
    assert acked(b) == [1, 2, 3]


def test_publishing_from_the_callback_in_between():
    b = Bench().subscribe()

    def say():
        b.client.publish(b"answer", b"x" * 200)

    callback_at(b, 2, say)
    b.conn.send(packets(3))
    b.client.check_msg()
    assert acked(b) == [1, 2, 3]
    assert [p.payload for p in b.broker.packets if p.type == PUBLISH] == [b"x" * 200]


def test_beside_qos_2_and_a_message_larger_than_the_buffer():
    b = Bench(buffer_size=64).subscribe()
    b.conn.send(packets(2) + packets(1, 3, 2) + packets(2, 4))
    b.conn.send(publish(4, b"t", b"z" * 500, 1, pid=6) + packets(2, 7))
    b.pump(3)
    assert [(p.type, p.pid) for p in b.broker.packets] == (
        [(PUBACK, 1), (PUBACK, 2), (PUBREC, 3)] + [(PUBACK, i) for i in range(4, 9)]
    )
    assert b.got[5] == (b"t", b"z" * 500)


def test_while_a_publish_waits_for_its_own_acknowledgement():
    b = Bench().subscribe()
    b.conn.send(packets(4))
    b.client.publish(b"u", b"x", qos=1)
    assert acked(b) == [1, 2, 3, 4][: len(b.got)]
    b.pump(2)
    assert acked(b) == [1, 2, 3, 4]


def test_wait_msg_has_acknowledged_the_message():
    b = Bench().subscribe()
    b.conn.send(packets(3))
    for i in (1, 2, 3):
        b.client.wait_msg()
        assert acked(b) == list(range(1, i + 1))


def test_a_tick_between_two():
    b = Bench(keepalive=2).subscribe()

    def later():
        time.sleep_ms(1100)
        b.client.tick()

    callback_at(b, 2, later)
    b.conn.send(packets(3))
    b.client.check_msg()
    assert acked(b) == [1, 2, 3]
    assert b.broker.count(PINGREQ) == 1
