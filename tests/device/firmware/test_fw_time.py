"""NTP and the clock record: asked for until it answers, told once per boot. Both interpreters."""

import app
import clock
import safe
import settings
import softtimer
from fw_board import Board


class Server:
    """A module ntptime whose server answers from the third time on."""

    def __init__(self):
        self.asked = []
        self.host = None

    def settime(self):
        self.asked.append(self.host)
        if len(self.asked) < 3:
            raise OSError(110)


def with_server(test, **changes):
    import sys

    server = Server()
    saved, app.clock.is_set = clock.is_set, lambda: len(server.asked) >= 3
    sys.modules["ntptime"] = server
    try:
        with Board(**changes) as board:
            test(board, server)
    finally:
        app.clock.is_set = saved
        del sys.modules["ntptime"]


def test_time_server_is_asked_until_it_answers_and_the_time_is_told_once():
    def test(board, server):
        board.run(lambda: board.app._finished)
        assert server.asked == ["time.example"] * 3
        assert len([line for line in board.lines if line.startswith("ntp: OSError")]) == 2
        # 60 readings and one clock record
        assert board.app.client.counters.acked == 61

    with_server(test, ntp="time.example")


def test_without_a_server_nobody_is_asked():
    def test(board, server):
        board.run(lambda: board.app._finished)
        assert server.asked == [] and board.app.client.counters.acked == 60

    with_server(test, ntp="")


def test_nobody_is_asked_before_there_is_a_network():
    def test(board, server):
        board.app.link.wifi.joined = lambda: False
        board.run(lambda: board.app.sensor.taken == 30)
        assert server.asked == [] and board.app.client.counters.connects == 0
        del board.app.link.wifi.joined
        board.run(lambda: board.app._finished)
        assert len(server.asked) == 3 and board.app.client.counters.acked == 61

    with_server(test, ntp="time.example")


def test_safe_mode_asks_too_for_no_certificate_is_valid_in_the_year_2000():
    def test(board, server):
        flat = {"device": "oven", "broker.host": "broker", "ntp": "time.example", "watchdog_s": 60,
                "command_key": "00" * 16}  # fmt: skip
        mode = safe.Safe(settings.complete(flat), "5 crashes in a row")
        connects = []
        mode.client.connector = lambda *args: connects.append(clock.is_set()) or board.net(*args)
        for _ in range(2000):
            mode.step()
            softtimer.sleep_ms(20)
        assert server.asked == ["time.example"] * 3
        assert mode.client.connected and connects == [False]
        assert len([line for line in board.lines if line.startswith("ntp: OSError")]) == 2
        mode.client.disconnect()

    with_server(test, ntp="")
