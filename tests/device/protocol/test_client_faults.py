"""A broker that breaks the protocol: every answer it can get wrong, at every step.

Knows: what each step expects (MQTT 3.1.1, chapter 3).  Must not know: the client's parser.
After every fault the client has raised OSError or MQTTException, has closed, and connects again.
"""

import time

from harness import Bench, raises
from strict_broker import CLOSE, DROP, publish
from strict_wire import CONNECT, PINGREQ, PUBLISH, PUBREL, SUBSCRIBE, UNSUBSCRIBE
from umqtt_min import MQTTException, RAMStore

# What may come in place of any answer: (bytes, must it end the connection).
WRONG = (
    (b"\x00\x00", True),
    (b"\x10\x00", True),
    (b"\x20\x02\x00\x00", True),
    (b"\x80\x02\x00\x01", True),
    (b"\x82\x02\x00\x01", True),
    (b"\xa2\x02\x00\x01", True),
    (b"\xc0\x00", True),
    (b"\xe0\x00", True),
    (b"\xf0\x00", True),
    (b"\xff\xff\xff\xff\xff\xff", True),
    (b"\xd0\xff\xff\xff\x7f", True),
    (b"\xd0\xff\xff\xff\xff", True),
    (b"\xd0\x80\x00", True),
    (b"\xd0\x01\x00", True),
    (b"\xd1\x00", True),
    (b"\x40\x00", True),
    (b"\x40\x01\x01", True),
    (b"\x40\x03\x00\x01\x00", True),
    (b"\x4f\x02\x00\x01", True),
    (b"\x50\x00", True),
    (b"\x62\x01\x00", True),
    (b"\x70\x03\x00\x01\x00", True),
    (b"\x90\x02\x00\x01", True),
    (b"\x90\x00", True),
    (b"\xb0\x03\x00\x01\x00", True),
    (b"\xb0\x00", True),
    (b"\x30\x01\x00", True),
    (b"\x32\x02\x00\x00", True),
    (b"\x36\x05\x00\x01t\x00\x01", True),
    (b"\x40", False),
    (b"\x40\x02", False),
    (b"\x40\x02\x00", False),
    (b"\x30\x85", False),
)


def play(b, step):
    """Do what provokes the step's answer."""
    if step == CONNECT:
        b.connect()
    elif step == PUBLISH:
        b.client.publish(b"t", b"x", qos=1)
    elif step == PUBREL:
        b.client.publish(b"t", b"x", qos=2)
    elif step == SUBSCRIBE:
        b.client.subscribe(b"t", 1)
    elif step == UNSUBSCRIBE:
        b.client.unsubscribe(b"t")
    else:
        b.client.ping()
        for _ in range(50):
            time.sleep(1)
            b.client.check_msg()


STEPS = (CONNECT, PUBLISH, PUBREL, SUBSCRIBE, UNSUBSCRIBE, PINGREQ)


def recovers(b):
    """The client works after connect()."""
    del b.broker._script[:]
    b.connect()
    b.client.publish(b"t", b"recovered", qos=2)
    assert b.broker.payloads()[-1] == b"recovered"


def test_wrong_answers_at_every_step():
    for step in STEPS:
        for data, ends in WRONG:
            if step == CONNECT and data == b"\x20\x02\x00\x00":
                continue
            b = Bench(keepalive=10)
            if step != CONNECT:
                b.connect()
            b.broker.when(step, data)
            b.broker.when(PINGREQ, DROP, 0)
            raises((OSError, MQTTException), play, b, step)
            assert not ends or not b.client.connected, (step, data)
            recovers(b)


def test_closing_at_every_step():
    for step in STEPS:
        for reset in (False, True):
            b = Bench(keepalive=10)
            b.net.reset = reset
            if step != CONNECT:
                b.connect()
            b.broker.when(step, CLOSE)
            raises((OSError, MQTTException), play, b, step)
            assert not b.client.connected
            recovers(b)


def test_silence_at_every_step_ends_in_time():
    for step in STEPS:
        b = Bench(keepalive=10, timeout=5)
        if step != CONNECT:
            b.connect()
        b.broker.when(step, DROP, 0)
        start = time.ticks_ms()
        raises((OSError, MQTTException), play, b, step)
        assert time.ticks_diff(time.ticks_ms(), start) <= 16000, step


def test_a_half_open_link_at_every_step_ends_in_time():
    for step in STEPS:
        b = Bench(keepalive=10, timeout=5)
        if step != CONNECT:
            b.connect()
        b.net.black_hole = True
        start = time.ticks_ms()
        raises((OSError, MQTTException), play, b, step)
        assert time.ticks_diff(time.ticks_ms(), start) <= 16000, step
        b.net.black_hole = False
        recovers(b)


def test_connect_has_its_own_timeout():
    b = Bench(timeout=30)
    b.broker.when(CONNECT, DROP)
    start = time.ticks_ms()
    raises(MQTTException, b.client.connect, True, 2)
    assert time.ticks_diff(time.ticks_ms(), start) < 4000
    assert not b.client.connected
    recovers(b)


def test_ctrl_c_while_a_write_stands_still_ends_the_connection():
    def pressed(mask):
        raise KeyboardInterrupt

    for call in (
        lambda client: client.publish(b"t", b"x"),
        lambda client: client.publish(b"t", b"x", qos=1),
        lambda client: client.publish(b"t", b"x" * 500),
        lambda client: client.subscribe(b"t"),
        lambda client: client.ping(),
    ):
        b = Bench()
        b.connect()
        b.net.write_stalls = 9
        b.net.stream.ready = pressed
        raises(KeyboardInterrupt, call, b.client)
        assert not b.client.connected
        assert raises(OSError, b.client.check_msg).args[0] == 104
        b.net.write_stalls = 0
        recovers(b)


def test_connack_one_byte_at_a_time():
    b = Bench()
    b.net.max_read = 1
    assert b.connect() is False


def test_messages_right_behind_connack():
    b = Bench()
    b.broker.when(CONNECT, lambda a: a + publish(4, b"t", b"at once", 1, pid=3))
    b.connect()
    b.pump()
    assert b.got == [(b"t", b"at once")]
    assert b.conn.owed() == []


def test_a_refused_connection_raises_oserror_and_the_next_works():
    b = Bench()
    b.net.refuse = 2
    for _ in range(2):
        raises(OSError, b.connect)
        assert not b.client.connected
    b.connect()


def test_a_broker_that_hangs_up_instead_of_connack_gets_a_hint_about_keep_alive_0():
    b = Bench(keepalive=0)
    b.broker.when(CONNECT, CLOSE)
    e = raises(MQTTException, b.connect)
    assert "keepalive" in str(e)


def test_what_a_callback_raises_comes_out_of_a_publish_that_waits():
    """Its message comes with the acknowledgement awaited, before it or behind it."""
    for qos, step in ((1, PUBLISH), (2, PUBREL)):
        for before in (True, False):
            for error in (OSError(28), OSError(104), ValueError("of the callback")):
                b = Bench(store=RAMStore(2048)).subscribe()

                def callback(topic, msg, error=error):
                    raise error

                b.client.set_callback(callback)
                pid = b.client.pid % 65535 + 1
                ack = bytes((0x40 if qos == 1 else 0x70, 2, pid >> 8, pid & 255))
                msg = publish(4, b"t", b"m", 1, pid=7)
                b.broker.when(step, msg + ack if before else ack + msg)
                assert raises(type(error), b.client.publish, b"u", b"x", False, qos) is error
                assert not b.client.connected
                b.client.set_callback(None)
                b.client.connect(False)
                b.client.flush()
                assert not b.client.inflight()


def test_a_link_that_ends_in_a_publish_that_waits_is_no_error_of_a_callback():
    b = Bench(store=RAMStore(2048)).subscribe()
    b.conn.send(publish(4, b"t", b"m"))
    b.broker.when(PUBLISH, CLOSE)
    e = raises(MQTTException, b.client.publish, b"u", b"x", False, 1)
    assert e.args[0] == 18 and e.stored and b.got == [(b"t", b"m")]
