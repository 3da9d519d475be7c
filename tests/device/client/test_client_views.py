"""The zero-copy callback: f(topic, payload, flags, left), long messages in pieces.

Knows: the client's README.  Must not know: its buffers.
"""
# heap: 4M

from harness import Bench, raises
from strict_broker import publish
from strict_wire import PUBACK, PUBREC


def viewing(**options):
    """A bench whose client collects (topic, payload, flags, left) as bytes."""
    b = Bench(**options).subscribe()
    b.pieces = []

    def callback(topic, payload, flags, left):
        b.pieces.append((bytes(topic), bytes(payload), flags, left))

    b.client.set_view_callback(callback)
    return b


def test_topic_payload_retain_qos_and_dup():
    b = viewing()
    b.conn.send(publish(4, b"a/b", b"x", 0, retain=True))
    b.conn.send(publish(4, b"t", b"", 1, pid=5, dup=True))
    b.conn.send(publish(4, b"t", b"yz", 2, pid=6))
    b.pump()
    assert b.pieces == [(b"a/b", b"x", 1, 0), (b"t", b"", 8 | 2, 0), (b"t", b"yz", 4, 0)]
    assert b.kinds() == [PUBACK, PUBREC]


def test_long_messages_come_in_pieces_and_are_acknowledged_once():
    for qos in (0, 1, 2):
        for limit in (0, 1, 33, 100):
            b = viewing(buffer_size=64, max_message=100)
            b.net.max_read = limit
            body = bytes(i & 127 for i in range(1000))
            b.conn.send(publish(4, b"t", body, qos, pid=5))
            b.conn.send(publish(4, b"t", b"after"))
            b.pump(1200)
            assert b"".join(p[1] for p in b.pieces) == body + b"after"
            assert all(p[0] == b"t" for p in b.pieces)
            lefts = [p[3] for p in b.pieces]
            assert lefts.count(0) == 2
            done = 0
            for _, piece, _, left in b.pieces[:-1]:
                done += len(piece)
                assert left == 1000 - done
            assert len(b.broker.packets) == (1 if qos else 0)


def test_a_repeated_qos_2_message_is_not_handed_out_again():
    b = viewing(buffer_size=64)
    for size in (10, 500):
        for dup in (False, True, True):
            b.conn.send(publish(4, b"t", b"x" * size, 2, pid=size, dup=dup))
            b.pump(60)
    assert sum(len(p[1]) for p in b.pieces) == 510
    assert b.client.counters.duplicates == 4


def test_an_exception_passes_on_and_nothing_is_acknowledged():
    b = viewing()

    def callback(topic, payload, flags, left):
        raise KeyError("application")

    b.client.set_view_callback(callback)
    b.broker.publish(b"t", b"x", 1)
    raises(KeyError, b.pump)
    assert b.broker.packets == []
    assert not b.client.connected


def test_publish_from_the_view_callback():
    b = viewing()

    def callback(topic, payload, flags, left):
        b.client.publish(b"echo", payload)

    b.client.set_view_callback(callback)
    b.broker.publish(b"t", b"one", 1)
    b.broker.publish(b"t", b"two", 0)
    b.pump()
    assert b.broker.payloads() == [b"one", b"two"]


def test_where_a_piece_stands_is_0_for_what_comes_whole():
    b = viewing(buffer_size=64)
    at = []
    b.client.set_view_callback(lambda t, p, flags, left: at.append((b.client.piece, len(p), left)))
    b.conn.send(publish(4, b"t", b"x" * 300, 1, pid=5))
    b.conn.send(publish(4, b"t", b"short"))
    b.pump(40)
    assert at[-1] == (0, 5, 0)
    done = 0
    for piece, n, left in at[:-1]:
        assert piece == done and left == 300 - done - n
        done += n
    del at[:]
    b.conn.send(publish(4, b"t", b"x" * 300, 1, pid=6)[:200])
    b.pump(40)
    assert at[-1][0] > 0
    b.connect()
    b.client.subscribe(b"t", 0)
    b.conn.send(publish(4, b"t", b"short"))
    b.pump()
    assert at[-1] == (0, 5, 0)
