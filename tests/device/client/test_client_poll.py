"""Programs of umqtt.simple that poll the socket themselves, and call wait_msg() when it can be
read: what the client has read and not handed out would wake nobody."""

import time

import machine
import softtimer
from harness import Bench, raises
from strict_broker import CONNECT, PINGREQ, PUBLISH, SUBSCRIBE, UNSUBSCRIBE
from umqtt_min import RAMStore

POLLIN = 1


def can_be_read(b):
    return b.net.stream.ready(POLLIN) & POLLIN != 0


def loop(b, rounds=50):
    """while poll(): wait_msg(); how many messages each round has brought."""
    found = []
    while can_be_read(b) and len(found) < rounds:
        count = len(b.got)
        op = b.client.wait_msg()
        assert (op is None) == (len(b.got) == count)
        found.append(len(b.got) - count)
    return found


def test_each_message_wakes_the_program():
    for qos in (0, 1, 2):
        b = Bench().subscribe()
        for n in range(5):
            b.broker.publish(b"t", b"%d" % n, qos)
        assert loop(b)[:5] == [1] * 5
        assert [m for _, m in b.got] == [b"%d" % n for n in range(5)]


def test_messages_of_all_lengths():
    """Around a step of the buffer, all of it, and what is received apart."""
    lengths = (0, 1, 2, 10, 11, 12, 13, 14, 59, 60, 61, 120, 121, 122, 123, 124, 300, 20000)
    b = Bench(buffer_size=64).subscribe()
    for n in lengths:
        b.broker.publish(b"t", b"x" * n, 1)
    for n in lengths:
        assert can_be_read(b) and b.client.wait_msg() == 0x32
        assert [len(m) for _, m in b.got] == [n], (n, b.got)
        del b.got[:]
    assert not can_be_read(b)


def test_an_answer_is_no_message():
    """PINGRESP wakes the program, and wait_msg() returns; it does not wait for a message then."""
    b = Bench().subscribe()
    b.client.ping()
    assert loop(b) == [0]
    b.client.ping()
    b.client.ping()
    b.broker.publish(b"t", b"x")
    assert loop(b) == [1]


def test_acknowledgements_are_no_messages():
    b = Bench(store=RAMStore()).subscribe()
    for n in range(3):
        b.client.publish(b"u", b"%d" % n, qos=1 + n % 2, wait=False)
    found = loop(b)
    assert set(found) == {0} and b.client.inflight() == 0


def test_what_is_too_long_for_the_callback_is_no_message():
    b = Bench(max_message=500, buffer_size=64).subscribe()
    sizes = []
    b.client.on_oversize = sizes.append
    b.broker.publish(b"t", b"x" * 501, 1)
    assert loop(b) == [0] and sizes == [501]
    b.broker.publish(b"t", b"x" * 500, 1)
    assert loop(b) == [1] and sizes == [501]


def test_what_follows_an_acknowledgement_wakes_it():
    """A broker may send both in one piece."""
    message = b"\x30\x04\x00\x01tm"
    for kind, call in (
        (SUBSCRIBE, lambda c: c.subscribe(b"t")),
        (UNSUBSCRIBE, lambda c: c.unsubscribe(b"t")),
        (PUBLISH, lambda c: c.publish(b"u", b"x", qos=1)),
        (CONNECT, lambda c: c.connect()),
    ):
        b = Bench()
        if kind != CONNECT:
            b.connect()
        b.broker.when(kind, lambda answer: answer + message)
        call(b.client)
        assert b.got == [] and loop(b) == [1], kind
        assert b.got == [(b"t", b"m")]


def test_a_tick_leaves_it_what_is_there():
    """The keep-alive's timer reads what the broker answers to it, and no message."""
    timer = machine.Timer(-1)
    b = Bench(keepalive=10, timer=timer).subscribe()
    for wait in (100, 6000, 6000):
        b.broker.publish(b"t", b"m", 1)
        for _ in range(3):
            softtimer.jump(wait // 3)
            timer.fire()
        assert can_be_read(b) and loop(b)[0] == 1
    assert b.client.connected and len(b.got) == 3


def read_calls(b, function):
    """How many calls of readinto() it takes."""
    calls = [0]

    def count(where):
        calls[0] += where == "read"

    b.net.hook = count
    function()
    b.net.hook = None
    return calls[0]


def test_one_read_takes_each_message_of_a_queue():
    """The length of the next one comes with the one at hand."""
    for qos in (0, 1):
        b = Bench().subscribe()
        for n in range(20):
            b.broker.publish(b"t", b"x" * (n * 11 + 9), qos)
        assert b.client.wait_msg()  # whose length nobody knew
        assert read_calls(b, lambda b=b: [b.client.wait_msg() for _ in range(19)]) == 19
        assert [len(m) for _, m in b.got] == [n * 11 + 9 for n in range(20)]


def test_at_most_three_bytes_are_read_ahead():
    for qos in (0, 1):
        b = Bench().subscribe()
        for _ in range(5):
            b.broker.publish(b"t", b"x" * 20, qos)
        size = 2 + 3 + 2 * qos + 20
        for left in (4, 3, 2, 1, 0):
            assert b.client.wait_msg()
            assert len(b.net.stream.conn.out) >= left * size - 3, left
        assert len(b.got) == 5


def test_the_rest_of_what_was_read_ahead_may_come_in_pieces():
    for limit in range(1, 30):
        b = Bench().subscribe()
        b.broker.publish(b"t", b"x" * 20)
        b.broker.publish(b"t", b"y" * 20, 1)
        assert b.client.wait_msg() == 0x30
        b.net.max_read = limit
        assert b.client.wait_msg() == 0x32
        assert b.got == [(b"t", b"x" * 20), (b"t", b"y" * 20)]


def test_what_is_read_ahead_leaves_the_rest_to_be_seen():
    """Around the lengths that a Remaining Length of one and of two bytes can tell."""
    lengths = (0, 1, 0, 121, 125, 128, 0, 16379, 16383, 2, 0, 0, 200, 20000, 1)
    for qos in (0, 1, 2):
        b = Bench(max_message=1000, store=RAMStore()).subscribe()
        sizes = []
        b.client.on_oversize = sizes.append
        for i, n in enumerate(lengths):
            b.broker.publish(b"t", b"x" * n, qos)
            if i % 4 == 2:
                b.client.publish(b"u", b"x", qos=1, wait=False)
        while can_be_read(b):
            b.client.wait_msg()
        assert [len(m) for _, m in b.got] == [n for n in lengths if n <= 1000]
        assert sizes == [n for n in lengths if n > 1000]
        assert b.client.inflight() == 0


def test_an_answer_that_the_program_looks_for_is_not_read_ahead():
    """ping(), and what can be read then is a sign of life."""
    b = Bench().subscribe()
    b.broker.publish(b"t", b"x")
    b.client.ping()
    assert b.client.wait_msg() == 0x30
    assert can_be_read(b)
    assert b.client.wait_msg() is None and len(b.got) == 1
    assert not can_be_read(b)
    b.broker.publish(b"t", b"y" * 20)
    b.broker.publish(b"t", b"z")
    assert b.client.wait_msg() == 0x30  # and the beginning of the next one
    b.client.ping()
    assert b.client.wait_msg() == 0x30
    assert can_be_read(b)
    assert b.client.wait_msg() is None and len(b.got) == 3


def test_check_msg_goes_on_where_wait_msg_stopped():
    b = Bench().subscribe()
    for n in range(9):
        b.broker.publish(b"t", b"%d" % n * (n + 1) * 30, n % 3)
    while len(b.got) < 9:
        b.client.wait_msg()
        b.client.check_msg()
    assert [m for _, m in b.got] == [b"%d" % n * (n + 1) * 30 for n in range(9)]


def test_the_stream_ends_behind_what_was_read_ahead():
    b = Bench().subscribe()
    b.broker.publish(b"t", b"x")
    b.broker.publish(b"t", b"y")
    b.net.cut_after_read = 6 + 3
    assert b.client.wait_msg() == 0x30
    assert can_be_read(b)
    raises(OSError, b.client.wait_msg)
    assert b.got == [(b"t", b"x")]


def test_what_was_read_ahead_hides_no_dead_link():
    """Half open: nothing can be read, so nothing wakes the program. The timer finds out."""
    b = Bench(keepalive=10, timer=None).subscribe()
    b.broker.publish(b"t", b"x")
    b.broker.publish(b"t", b"y")
    assert b.client.wait_msg() == 0x30
    b.net.black_hole = True
    time.sleep(20)
    assert not b.client.connected


def read_ahead(qos=0, b=None):
    """A bench on which wait_msg() has read the beginning of a second message of that QoS."""
    b = b or Bench(keepalive=10).subscribe()
    b.broker.publish(b"t", b"x" * 20)
    b.broker.publish(b"t", b"y", qos)
    assert b.client.wait_msg() == 0x30
    return b


def test_with_what_was_read_ahead_pingreq_goes_out_in_time():
    b = read_ahead()
    softtimer.jump(5001)
    assert b.client.wait_msg() == 0x30
    assert b.broker.count(PINGREQ) == 1


def test_what_was_read_ahead_is_a_sign_of_life():
    b = read_ahead(qos=1)
    softtimer.jump(3000)
    assert b.client.wait_msg() == 0x32
    softtimer.jump(3000)
    b.client.tick()
    assert b.broker.count(PINGREQ) == 0


def test_with_what_was_read_ahead_goes_out_what_a_tick_could_not_send():
    b = read_ahead()
    softtimer.jump(5001)
    b.net.write_stalls = 1
    b.client.tick()
    assert b.broker.count(PINGREQ) == 0
    assert b.client.wait_msg() == 0x30
    assert b.broker.count(PINGREQ) == 1


def test_with_what_was_read_ahead_goes_out_what_its_callback_asks_for():
    b = Bench(store=RAMStore(hold=True)).subscribe()
    b.client.publish(b"u", b"held", qos=1)
    read_ahead(b=b)

    def callback(topic, msg):
        assert b.client.republish(1, 1) == 1

    b.client.set_callback(callback)
    del b.broker.publishes[:]
    assert b.client.wait_msg() == 0x30
    assert [m.payload for m in b.broker.publishes] == [b"held"]
