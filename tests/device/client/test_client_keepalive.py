"""The keep-alive: with and without a timer, asleep, at any instant, over half-open links.

Knows: the client's API, machine.Timer, the strict broker (which is never to be left in silence).
Must not know: how the client reckons.
"""
# also: micropython32
# heap: 1M

import time

import machine
import softtimer
from harness import Bench, raises
from strict_broker import DROP, HOLD, publish
from strict_wire import PINGREQ, PUBLISH
from umqtt_min import RAMStore


def elapsed(function, *args):
    """Virtual milliseconds that function takes until it raises OSError."""
    start = time.ticks_ms()
    raises(OSError, function, *args)
    return time.ticks_diff(time.ticks_ms(), start)


def test_asleep_the_timer_keeps_the_link_alive():
    for keepalive in (1, 2, 10, 60, 3600):
        b = Bench(keepalive=keepalive, timer=None)
        b.connect()
        time.sleep(keepalive * 20)
        assert b.broker.count(PINGREQ) >= 20
        b.client.publish(b"t", b"still here", qos=1)
        b.client.disconnect()


def test_a_timer_of_the_application_is_used():
    timer = machine.Timer(-1)
    b = Bench(keepalive=10, timer=timer)
    b.connect()
    assert timer in softtimer.timers
    time.sleep(100)
    assert b.broker.count(PINGREQ) >= 10
    b.client.disconnect()
    assert timer not in softtimer.timers


def test_without_a_timer_check_msg_does_it():
    b = Bench(keepalive=10, timer=False)
    b.connect()
    for _ in range(200):
        time.sleep(0.5)
        b.client.check_msg()
    assert b.broker.count(PINGREQ) >= 10


def test_pingreq_goes_out_after_half_the_keep_alive_and_not_before():
    """A third would keep the link alive as well, and cost radio."""
    for timer in (None, False):
        b = Bench(keepalive=10, timer=timer)
        b.connect()
        for _ in range(200):
            time.sleep(0.5)
            b.client.check_msg()
        assert 15 <= b.broker.count(PINGREQ) <= 20, b.broker.count(PINGREQ)


def test_wait_msg_does_it():
    b = Bench(keepalive=10, timer=False).subscribe()
    start = time.ticks_ms()
    timer = machine.Timer(-1)
    timer.init(period=100000, callback=lambda t: b.broker.publish(b"t", b"at last"))
    assert b.client.wait_msg() == 0x30  # not with a PINGRESP that nobody asked for
    assert time.ticks_diff(time.ticks_ms(), start) >= 100000
    assert b.broker.count(PINGREQ) >= 10


def test_the_answer_to_ping_ends_wait_msg_and_the_keep_alives_does_not():
    """The broker answers in order: the one that is meant is known by its place."""
    b = Bench(keepalive=10, timer=False).subscribe()
    timer = machine.Timer(-1)
    for asked in (12000, 31000):
        start = time.ticks_ms()
        timer.init(mode=timer.ONE_SHOT, period=asked, callback=lambda t: b.client.ping())
        assert b.client.wait_msg() is None
        assert time.ticks_diff(time.ticks_ms(), start) >= asked
    timer.init(mode=timer.ONE_SHOT, period=50000, callback=lambda t: b.broker.publish(b"t", b"x"))
    assert b.client.wait_msg() == 0x30 and b.broker.count(PINGREQ) > 10


def test_no_keep_alive_sends_nothing():
    b = Bench(keepalive=0, timer=None)
    b.connect()
    for _ in range(20):
        time.sleep(1000)
        b.client.check_msg()
    assert b.broker.count(PINGREQ) == 0
    assert softtimer.timers == []


def test_pingreq_also_when_much_is_sent_but_nothing_received():
    b = Bench(keepalive=10)
    b.connect()
    for _ in range(60):
        time.sleep(1)
        b.client.publish(b"t", b"x")
        b.client.check_msg()
    assert b.broker.count(PINGREQ) >= 5


def test_pingreq_also_when_much_is_received_but_nothing_sent():
    b = Bench(keepalive=10).subscribe()
    for _ in range(60):
        time.sleep(1)
        b.broker.publish(b"t", b"x", 0)
        b.client.check_msg()
    assert b.broker.count(PINGREQ) >= 5


def test_a_half_open_link_is_noticed_within_one_keep_alive():
    for timer in (None, False):
        b = Bench(keepalive=10, timer=timer).subscribe()
        b.net.black_hole = True
        assert elapsed(b.client.wait_msg) <= 12500
        assert not b.client.connected
        assert b.net.stream.closed


def test_a_half_open_link_is_noticed_asleep():
    b = Bench(keepalive=10, timer=None)
    b.connect()
    b.net.black_hole = True
    time.sleep(12)
    assert not b.client.connected
    raises(OSError, b.client.check_msg)
    b.net.black_hole = False
    b.connect()


def test_no_pingresp_closes():
    b = Bench(keepalive=10)
    b.connect()
    b.broker.when(PINGREQ, DROP, 0)
    assert elapsed(b.client.wait_msg) <= 12500


def test_any_packet_is_as_good_as_pingresp():
    b = Bench(keepalive=10).subscribe()
    b.broker.when(PINGREQ, DROP, 0)
    for _ in range(60):
        b.broker.publish(b"t", b"x", 0)
        b.client.check_msg()
        time.sleep(1)
    assert b.client.connected


def test_a_message_nobody_reads_does_not_kill_the_link_while_asleep():
    b = Bench(keepalive=10, timer=None).subscribe()
    b.broker.publish(b"t", b"waiting", 1)
    time.sleep(100)
    assert b.client.connected
    assert b.got == []
    b.pump()
    assert b.got == [(b"t", b"waiting")]


def test_ticks_at_every_write_and_read_never_break_a_packet():
    for limit, ms in ((1, 10), (2, 20), (3, 30), (7, 60), (0, 200)):
        timer = machine.Timer(-1)
        b = Bench(keepalive=2, buffer_size=64, timeout=60, timer=timer)

        def hook(where, timer=timer, ms=ms):
            softtimer.jump(ms)
            timer.fire()

        b.connect()
        b.client.subscribe(b"t", 2)
        b.net.max_write = b.net.max_read = limit
        b.net.hook = hook
        for i in range(12):
            b.client.publish(b"t", b"%d" % i * 15, qos=i % 3)
            b.client.check_msg()
        b.pump(300)
        b.net.hook = None
        b.pump(300)
        assert b.broker.payloads() == [b"%d" % i * 15 for i in range(12)]
        assert [m for _, m in b.got] == [b"%d" % i * 15 for i in range(12)]
        assert b.broker.count(PINGREQ) > 3


def test_ticks_between_two_bytes_with_stalls():
    timer = machine.Timer(-1)
    b = Bench(keepalive=4, buffer_size=64, timeout=60, timer=timer)
    b.connect()
    stalls = [0]

    def hook(where):
        softtimer.jump(20)
        stalls[0] += 1
        if where == "written" and stalls[0] % 3 == 0:
            b.net.write_stalls = 1
        timer.fire()

    b.net.max_write = 5
    b.net.hook = hook
    b.client.publish(b"t", b"x" * 100)
    b.client.publish(b"t", b"y" * 40, qos=1)
    b.net.hook = None
    assert b.broker.payloads() == [b"x" * 100, b"y" * 40]


def test_ticks_inside_the_callback_only_ping():
    b = Bench(keepalive=2, timer=None).subscribe()

    def callback(topic, msg):
        b.got.append(bytes(msg))
        time.sleep(10)

    b.client.set_callback(callback)
    b.broker.publish(b"t", b"1", 1)
    b.broker.publish(b"t", b"2", 1)
    b.pump()
    assert b.got == [b"1", b"2"]
    assert b.client.connected
    assert b.broker.count(PINGREQ) >= 8


def test_a_tick_never_calls_the_application_and_never_raises():
    timer = machine.Timer(-1)
    b = Bench(keepalive=10, timer=timer).subscribe()
    b.broker.publish(b"t", b"x", 2)
    for _ in range(20):
        timer.fire()
    assert b.got == []
    b.pump(3)
    assert b.got == [(b"t", b"x")]
    b.conn.send(b"\xf0\x00")
    timer.fire()
    raises(OSError, b.client.check_msg)
    timer.fire()


def test_ticks_do_not_wait_for_room_to_write():
    timer = machine.Timer(-1)
    b = Bench(keepalive=10, timer=timer)
    b.connect()
    softtimer.jump(9000)
    b.net.write_stalls = 3
    start = time.ticks_ms()
    timer.fire()
    assert time.ticks_diff(time.ticks_ms(), start) < 100
    for _ in range(4):
        timer.fire()
    assert b.broker.count(PINGREQ) == 1


def test_a_tick_whose_answer_has_no_room_does_not_wait_to_ping():
    timer = machine.Timer(-1)
    b = Bench(keepalive=10, timer=timer, store=RAMStore())
    b.connect()
    b.broker.when(PUBLISH, HOLD)
    b.client.publish(b"t", b"x", qos=2, wait=False)
    softtimer.jump(5001)
    b.broker.release()
    b.net.write_stalls = 3
    start = time.ticks_ms()
    timer.fire()  # it reads PUBREC; PUBREL does not go out, and PINGREQ is due
    assert time.ticks_diff(time.ticks_ms(), start) < 100
    assert b.client.flush(5)


def test_ticks_inside_the_callback_do_not_wait_for_it_either():
    timer = machine.Timer(-1)
    b = Bench(keepalive=10, timer=timer).subscribe()
    waited = []

    def callback(topic, msg):
        b.net.write_stalls = 4
        for _ in range(3):
            softtimer.jump(5001)
            start = time.ticks_ms()
            timer.fire()
            waited.append(time.ticks_diff(time.ticks_ms(), start))

    b.client.set_callback(callback)
    b.broker.publish(b"t", b"x")
    b.client.check_msg()
    assert len(waited) == 3 and max(waited) < 100, waited
    assert b.client.connected


def test_clock_jumps_and_lightsleep():
    b = Bench(keepalive=10, timer=None)
    b.connect()
    machine.lightsleep(4000)
    b.client.publish(b"t", b"1", qos=1)
    machine.lightsleep(6000)
    b.client.check_msg()
    b.pump()
    b.client.publish(b"t", b"2", qos=1)
    assert b.client.connected
    assert b.broker.payloads() == [b"1", b"2"]


def test_the_clock_may_wrap():
    b = Bench(keepalive=10, timer=None)
    b.connect()
    for _ in range(5):
        time.sleep(9)
    left = (1 << 30) - time.ticks_ms()
    b.client.disconnect()
    while left > 30000:
        step = min(left - 20000, (1 << 29) - 1)
        softtimer.jump(step)
        left -= step
    b.connect()
    before = b.broker.count(PINGREQ)
    for _ in range(8):
        time.sleep(9)
        b.client.publish(b"t", b"x", qos=1)
    assert time.ticks_ms() < 1 << 29
    assert b.broker.count(PINGREQ) > before


def test_disconnect_and_errors_stop_the_timer():
    b = Bench(keepalive=10, timer=None)
    b.connect()
    b.client.disconnect()
    assert softtimer.timers == []
    b.connect()
    b.net.cut()
    raises(OSError, b.pump)
    assert softtimer.timers == []
    b.connect()
    assert len(softtimer.timers) == 1
    b.connect()
    assert len(softtimer.timers) == 1


def test_a_message_in_the_buffer_and_a_dead_link():
    b = Bench(keepalive=10, timer=None).subscribe()
    b.conn.send(publish(4, b"t", b"x", 0))
    time.sleep(2)
    b.net.black_hole = True
    time.sleep(60)
    try:
        b.client.check_msg()
    except OSError:
        pass
    assert len(b.got) <= 1
    if b.client.connected:
        raises(OSError, b.client.wait_msg)
    assert b.broker.count(PUBLISH) == 0
