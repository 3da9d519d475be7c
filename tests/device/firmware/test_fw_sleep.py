"""Deep sleep: what one waking does, when it ends, what waits for the next. Both interpreters."""

import json

import machine
import resets
import sleeper
import softtimer
from fw_board import Board
from umqtt_min.store.ram import RAMStore


class Asleep(BaseException):
    """machine.deepsleep() was called: no line of the program runs after it."""


def sleep(ms):
    raise Asleep(ms)


def waking(store, before=None, **changes):
    """One waking of a board with this store: (the Board, milliseconds awake, asleep)."""
    settings = {"deep_sleep": True, "awake_s": 5, "interval_ms": 60000, "readings": 0}
    settings.update(changes)
    board = Board(store, **settings)
    if before:
        before(board)
    saved = getattr(machine, "deepsleep", None)
    machine.deepsleep = sleep
    start = softtimer.ticks_ms()
    try:
        board.app.run()
    except Asleep as ended:
        return board, softtimer.ticks_diff(softtimer.ticks_ms(), start), ended.args[0]
    finally:
        if saved:
            machine.deepsleep = saved
        board.__exit__()


def published(board, level):
    return [packet for packet in board.broker.packets
            if packet.type == 3 and packet.topic.endswith(level)]


def test_a_waking_publishes_one_reading_and_its_clock_and_sleeps_the_rest():
    store = RAMStore(16384)
    board, awake, asleep = waking(store)
    assert len(published(board, b"/telemetry")) == 2 and store.live == 0
    assert awake < 2000 and abs(awake + asleep - 60000) < 100
    last = published(board, b"/status")[-1]
    assert json.loads(bytes(last.payload)) == {"online": False, "asleep_ms": asleep, "stored": 0}
    assert not board.app.client.connected


def test_without_a_broker_it_sleeps_in_time_and_delivers_the_next_time():
    def refuse(board):
        board.net.refuse = 10000

    store = RAMStore(16384)
    for n in (1, 2):
        board, awake, asleep = waking(store, refuse)
        assert store.live == 2 * n
        assert 5000 <= awake < 5500 and abs(awake + asleep - 60000) < 100
    board, awake, asleep = waking(store)
    assert store.live == 0 and len(published(board, b"/telemetry")) == 6


def test_link_that_takes_nothing_does_not_keep_it_awake():
    def swallow(board):
        board.net.black_hole = True

    store = RAMStore(16384)
    board, awake, asleep = waking(store, swallow, connect_s=3)
    # One attempt may be under way when the time is over.
    assert 5000 <= awake < 5000 + 3500 and store.live == 2


def test_sensor_that_fails_costs_one_try():
    def broken(board):
        def sample():
            raise OSError(19)

        board.app.sensor.sample = sample

    store = RAMStore(16384)
    board, awake, asleep = waking(store, broken)
    assert board.app.sensor_errors == 1 and awake < 2000
    assert len(published(board, b"/telemetry")) == 1, "the clock record"


def test_next_reading_overdue_means_a_short_sleep():
    _, awake, asleep = waking(RAMStore(16384), interval_ms=10)
    assert asleep == sleeper.SHORTEST_MS


def test_sleeping_ends_a_row_of_crashes():
    def crashed(board):
        resets.began("wdt")
        assert resets.row() == 1

    rows = []
    saved = resets.lasted

    def lasted():
        saved()
        rows.append(resets.row())

    resets.lasted = lasted
    try:
        waking(RAMStore(16384), crashed)
    finally:
        resets.lasted = saved
    assert rows == [0]


def test_held_readings_of_earlier_wakings_come_again_once_per_stall():
    store = RAMStore(16384, hold=True)
    again = []

    def booted(board):
        store.boot += 1  # in RAM it is one boot for all of them

    for _ in range(6):
        board, _, _ = waking(store, booted, confirm="pipeline", stall_s=120)
        again.append(board.app.confirm.republished)
    # Two wakings are two minutes: what nobody has confirmed comes in every second one.
    assert again == [0, 0, 4, 0, 8, 0] and store.held == 12


class Going:
    """An update that goes on until a time."""

    def __init__(self, until):
        self.until = until

    @property
    def busy(self):
        return softtimer.ticks_diff(self.until, softtimer.ticks_ms()) > 0

    def step(self):
        return False

    def tell(self):
        pass


def test_an_update_keeps_it_awake_and_no_longer():
    def going(board):
        board.app.remote._update = Going(softtimer.ticks_ms() + 20000)

    _, awake, asleep = waking(RAMStore(16384), going)
    assert 20000 <= awake < 21000 and abs(awake + asleep - 60000) < 100
