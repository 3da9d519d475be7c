"""Receiving: however the bytes arrive, however large the message, whatever the callback does.

Knows: the client's API, the strict broker.  Must not know: the client's parser.
"""
# heap: 2M

from harness import Bench, raises, reason
from strict_broker import publish
from strict_wire import PINGREQ, PUBACK, PUBCOMP, PUBREC
from umqtt_min.errors import PROTOCOL


def stream_of_packets():
    """Every kind of packet a broker may send unasked, and what of it is delivered."""
    data = b""
    want = []
    for i, n in enumerate((0, 1, 30, 57, 58, 59, 60, 61, 62, 63, 64, 65, 120, 127, 128, 200, 300)):
        qos = i % 3
        msg = bytes((97 + i,)) * n
        want.append(msg)
        data += publish(4, b"t", msg, qos, pid=100 + i)
        if qos == 2:
            data += bytes((0x62, 2, 0, 100 + i))
        if i % 4 == 3:
            data += b"\xd0\x00"
    return data, want


def test_every_chunk_size():
    data, want = stream_of_packets()
    for buffer_size in (64, 256):
        for limit in (1, 2, 3, 5, 7, 8, 9, 13, 31, 32, 33, 63, 64, 65, 100, 1000):
            b = Bench(buffer_size=buffer_size).subscribe()
            b.net.max_read = limit
            b.conn.send(data)
            b.pump(len(data) // limit + 60)
            assert [m for _, m in b.got] == want, (buffer_size, limit)
            assert b.conn.owed() == []


def test_every_split_point():
    data, want = stream_of_packets()
    for split in range(1, len(data)):
        b = Bench(buffer_size=64).subscribe()
        b.conn.send(data[:split])
        b.pump(40)
        b.conn.send(data[split:])
        b.pump(40)
        assert [m for _, m in b.got] == want, split
        assert b.conn.owed() == []


def test_nothing_there_costs_nothing():
    b = Bench()
    b.connect()
    assert b.client.check_msg() is None
    assert b.got == []


def test_check_msg_and_wait_msg_return_what_umqtt_simple_users_test_for():
    b = Bench().subscribe()
    b.broker.publish(b"t", b"x", 1)
    assert b.client.check_msg()
    assert b.client.check_msg() is None
    b.broker.publish(b"t", b"y", 0)
    b.client.wait_msg()
    assert [m for _, m in b.got] == [b"x", b"y"]


def test_wait_msg_delivers_one_message_as_umqtt_simple_does():
    b = Bench().subscribe()
    for i in range(3):
        b.broker.publish(b"t", b"%d" % i, i)
    for i in range(3):
        b.client.wait_msg()
        assert [m for _, m in b.got] == [b"%d" % k for k in range(i + 1)]


def test_wait_msg_waits_and_a_dead_link_ends_it():
    b = Bench(keepalive=10).subscribe()
    b.net.black_hole = True
    raises(OSError, b.client.wait_msg)
    assert not b.client.connected


def test_interleaved_with_every_kind_of_answer():
    b = Bench().subscribe()
    b.conn.send(publish(4, b"t", b"a", 1, pid=1))
    pid = b.client.publish(b"u", b"x", qos=2)
    b.conn.send(publish(4, b"t", b"b", 2, pid=pid))
    b.client.subscribe(b"v", 1)
    b.conn.send(bytes((0x62, 2, pid >> 8, pid & 255)))
    b.client.unsubscribe(b"v")
    assert [m for _, m in b.got] == [b"a", b"b"]
    assert b.conn.owed() == []


def test_larger_than_the_buffer_up_to_max_message():
    for qos in (0, 1, 2):
        for n in (300, 5000, 30000):
            b = Bench().subscribe()
            b.net.max_read = 700
            b.broker.publish(b"t", b"z" * n, qos)
            b.broker.publish(b"t", b"after", qos)
            b.pump(200)
            assert [len(m) for _, m in b.got] == [n, 5]
            assert b.conn.owed() == []


def test_larger_than_max_message_is_drained_acknowledged_and_counted():
    for qos, kinds in ((0, []), (1, [PUBACK]), (2, [PUBREC, PUBCOMP])):
        b = Bench(max_message=1000).subscribe()
        reported = []
        b.client.on_oversize = reported.append
        b.broker.publish(b"t", b"z" * 5000, qos)
        b.broker.publish(b"t", b"after", 0)
        b.pump(200)
        assert b.got == [(b"t", b"after")]
        assert b.client.counters.oversize == 1
        assert len(reported) == 1 and reported[0] >= 5000
        assert b.kinds() == kinds
        assert b.conn.owed() == []


def test_oversize_split_at_every_byte_of_its_head():
    packet = publish(4, b"topic", b"z" * 2000, 2, pid=77)
    for split in range(1, 30):
        b = Bench(buffer_size=64, max_message=500).subscribe()
        b.conn.send(packet[:split])
        b.client.check_msg()
        b.conn.send(packet[split:] + publish(4, b"t", b"after"))
        b.pump(100)
        assert b.got == [(b"t", b"after")]
        assert [p.pid for p in b.broker.packets if p.type == PUBREC] == [77]


def test_keep_alive_goes_on_while_a_large_message_trickles_in():
    b = Bench(keepalive=4).subscribe()
    b.conn.send(publish(4, b"t", b"z" * 600))
    b.net.max_read = 3
    import time

    for _ in range(250):
        time.sleep_ms(100)
        b.client.check_msg()
    assert [len(m) for _, m in b.got] == [600]
    assert b.broker.count(PINGREQ) >= 5


def test_an_exception_in_the_callback_is_passed_on_unacknowledged_and_the_message_comes_again():
    for qos in (1, 2):
        b = Bench()
        b.connect(False)
        b.client.subscribe(b"t", 2)
        fail = [True]

        def callback(topic, msg, b=b, fail=fail):
            if fail.pop(0):
                raise KeyError("application")
            b.got.append(bytes(msg))

        b.client.set_callback(callback)
        b.broker.publish(b"t", b"x", qos)
        raises(KeyError, b.pump)
        assert not b.client.connected
        assert b.net.stream.closed
        fail.append(False)
        b.connect(False)
        b.pump()
        assert b.got == [b"x"]
        assert [m.payload for m in b.broker.acknowledged] == [b"x"]


def test_disconnect_from_the_callback_is_refused_or_clean():
    b = Bench().subscribe()
    seen = []

    def callback(topic, msg):
        try:
            b.client.disconnect()
        except Exception as e:
            seen.append(e)

    b.client.set_callback(callback)
    b.broker.publish(b"t", b"x", 1)
    b.pump(3)
    assert len(seen) == 1
    assert b.client.connected


def test_a_qos_2_id_is_not_forgotten_by_many_others():
    b = Bench().subscribe()
    for pid in range(1, 101):
        b.conn.send(publish(4, b"t", b"%d" % pid, 2, pid=pid))
    b.pump(60)
    for pid in range(1, 101):
        b.conn.send(publish(4, b"t", b"%d" % pid, 2, dup=True, pid=pid))
    b.pump(60)
    assert len(b.got) == 100
    assert b.client.counters.duplicates == 100


def test_malformed_publish():
    for data in (b"\x30\x00", b"\x30\x01\x00", b"\x30\x02\x00\x00", b"\x30\x02\x00\x01",
                 b"\x30\x03\x00\x02t", b"\x32\x03\x00\x01t", b"\x32\x04\x00\x01t\x00",
                 b"\x30\x05\x00\x03a/#", b"\x36\x05\x00\x01t\x00\x01"):  # fmt: skip
        b = Bench().subscribe()
        b.conn.send(data)
        assert reason(b.client.check_msg) == PROTOCOL, data
        assert b.got == []
        assert b.net.stream.closed


class Copies:
    """A buffer that counts what is copied inside it."""

    def __init__(self, buf):
        self.buf = buf
        self.count = 0

    def __len__(self):
        return len(self.buf)

    def __getitem__(self, i):
        return self.buf[i]

    def __setitem__(self, i, value):
        self.buf[i] = value
        self.count += 1


def test_half_a_packet_is_not_copied_when_nothing_comes_behind_it():
    b = Bench().subscribe()
    rx = b.client._rx
    rx.buf = Copies(rx.buf)

    def few():
        b.net.read_stalls = 4
        return 5

    b.net.max_read = few
    b.broker.publish(b"t", b"x" * 20)
    b.pump(1)
    assert b.net.read_stalls and not b.got
    before = rx.buf.count
    b.pump(2)
    assert rx.buf.count == before
    b.net.read_stalls = 0
    b.pump()
    assert b.got == [(b"t", b"x" * 20)] and rx.buf.count > before


def test_a_connection_that_ends_in_the_callback_does_not_repeat_a_qos_2_message():
    for views in (False, True):
        for size in (5, 500):
            b = Bench(buffer_size=64)
            got = []

            def callback(topic, payload, flags=0, left=0, b=b, got=got):
                if left == 0:
                    got.append(topic)
                    b.net.cut()
                    raises(OSError, b.client.publish, b"answer", b"x")

            if views:
                b.client.set_view_callback(callback)
            else:
                b.client.set_callback(callback)
            b.client.connect(False)
            b.client.subscribe(b"t", 2)
            b.broker.publish(b"t", b"x" * size, 2)
            raises(OSError, b.pump)
            assert len(got) == 1 and not b.client.connected
            assert b.client.connect(False)
            b.pump()
            assert len(got) == 1 and b.client.counters.duplicates == 1
            assert b.kinds()[-2:] == [PUBREC, PUBCOMP] and not b.conn.session.outgoing
