"""The ground that device code stands on: what both interpreters must do alike in these tests.

Knows: stream, poll, ticks and timer semantics of MicroPython.
Must not know: the client.
"""

import select
import socket
import time

import machine
import softtimer


def _pair():
    # Two connected TCP sockets; neither interpreter's socketpair is on the other.
    listener = socket.socket()
    listener.bind(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
    listener.listen(1)
    return listener


PORT = 0


def _connected():
    # MicroPython cannot ask a socket for its port, so a free one is looked for.
    global PORT
    for port in range(20000 + time.ticks_us() % 20000, 60000):
        PORT = port
        try:
            listener = _pair()
            break
        except OSError:
            continue
    a = socket.socket()
    a.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
    b, _ = listener.accept()
    listener.close()
    return a, b


def arrived(stream):
    """Wait until there is something to read, its end too."""
    p = select.poll()
    p.register(stream, select.POLLIN)
    assert p.poll(30000)


def until(condition):
    """Sleep in small steps until it is so."""
    for _ in range(10000):
        if condition():
            return
        time.sleep_ms(5)
    raise AssertionError("not within 50 s")


def test_nonblocking_read_gives_none_then_bytes_then_eof():
    a, b = _connected()
    a.setblocking(False)
    buf = bytearray(8)
    assert a.readinto(buf) is None
    assert a.read(1) is None
    b.write(b"abc")
    arrived(a)
    assert a.readinto(buf, 2) == 2
    assert bytes(buf[:2]) == b"ab"
    assert a.readinto(buf) == 1
    b.close()
    arrived(a)
    assert a.readinto(buf) == 0
    assert a.read(1) == b""
    a.close()


def test_write_takes_offset_and_length():
    a, b = _connected()
    assert a.write(b"abcdef", 2, 3) == 3
    assert a.write(b"xyz", 2) == 2
    assert b.read(5) == b"cdexy"
    a.close()
    b.close()


def test_write_to_a_full_socket_is_partial_then_none():
    a, b = _connected()
    a.setblocking(False)
    block = bytes(65536)
    total = 0
    for _ in range(1000):
        n = a.write(block)
        if n is None:
            break
        total += n
    assert n is None
    assert total > 0
    a.close()
    b.close()


def test_poll_reports_readable():
    a, b = _connected()
    p = select.poll()
    p.register(a, select.POLLIN)
    assert p.poll(0) == []
    b.write(b"x")
    for entry in p.ipoll(1000):
        assert entry[0] is a
        assert entry[1] & select.POLLIN
        break
    else:
        raise AssertionError("not readable")
    p.unregister(a)
    assert p.poll(0) == []
    a.close()
    b.close()


def test_ticks_wrap_at_two_to_the_thirty():
    assert 0 <= time.ticks_ms() < 1 << 30
    assert time.ticks_add((1 << 30) - 1, 1) == 0
    assert time.ticks_diff(2, (1 << 30) - 3) == 5
    assert time.ticks_diff((1 << 30) - 3, 2) == -5


def test_timer_runs_inside_sleep_and_poll():
    fired = []
    timer = machine.Timer(-1)
    timer.init(period=5, mode=machine.Timer.PERIODIC, callback=fired.append)
    until(lambda: len(fired) >= 2)
    after_sleep = len(fired)
    assert fired[0] is timer
    for _ in range(1000):
        select.poll().poll(50)
        if len(fired) > after_sleep:
            break
    timer.deinit()
    assert len(fired) > after_sleep
    stopped = len(fired)
    time.sleep_ms(20)
    assert len(fired) == stopped


def test_timer_one_shot_fires_once():
    fired = []
    timer = machine.Timer(-1)
    timer.init(period=5, mode=machine.Timer.ONE_SHOT, callback=fired.append)
    until(lambda: fired)
    time.sleep_ms(40)
    assert len(fired) == 1


def test_timer_callback_is_never_nested():
    depth = []
    seen = []

    def callback(t):
        depth.append(1)
        seen.append(len(depth))
        time.sleep_ms(20)  # another period falls due meanwhile
        depth.pop()

    timer = machine.Timer(-1)
    timer.init(period=5, callback=callback)
    until(lambda: len(seen) > 1)
    timer.deinit()
    assert max(seen) == 1


def test_timer_callback_error_does_not_reach_the_program():
    fired = []

    def callback(t):
        fired.append(t)
        raise ValueError("expected in the output")

    timer = machine.Timer(-1)
    timer.init(period=5, mode=machine.Timer.ONE_SHOT, callback=callback)
    until(lambda: fired)


def test_rp2_and_esp32_limits_of_timers():
    for bad in ({"id": 0}, {"id": -1, "hard": True, "period": 5}):
        try:
            machine.Timer(**bad)
        except ValueError:
            continue
        raise AssertionError(bad)


def test_virtual_clock_moves_instead_of_waiting():
    fired = []
    timer = machine.Timer(-1)
    softtimer.set_virtual(True)
    try:
        start = time.ticks_ms()
        timer.init(period=1000, callback=fired.append)
        time.sleep(3600)
        assert 3600000 <= time.ticks_diff(time.ticks_ms(), start) < 3610000
        assert 3599 <= len(fired) <= 3601
    finally:
        softtimer.set_virtual(False)
        timer.deinit()
