"""A send that stands still for ten seconds, as rp2's lwIP may hold one: no crash, and no reset.

The whole application on a clock that does not wait, with a watchdog that notes how long it was not
fed. The stalled write runs timers meanwhile, as on a chip.
"""

import resets
import softtimer
import watchdog
from fw_board import HARDWARE_MS, Board


def test_sends_that_stall_starve_no_watchdog_and_are_no_crash():
    with Board() as board:
        board.run(lambda: board.app.client.counters.acked > 5)
        board.stall(8)
        board.run(lambda: board.app._finished)
        assert board.left == 0
        assert board.machine.longest < HARDWARE_MS, board.machine.longest
        assert resets.counts() == {"power": 1, "watchdog": 0, "request": 0, "crash": 0,
                                   "other": 0, "row": 0}
        assert board.app.client.counters.acked == 61 and board.app.troubles == 0


def test_connections_that_stall_at_every_step_are_none_either():
    # CONNECT, SUBSCRIBE and each part of the report: together more than watchdog_s.
    with Board(confirm="pipeline") as board:
        for n in (1, 2, 3):
            board.stall(5, 15000)
            board.run(lambda n=n: board.app.client.counters.connects == n and board.left == 0)
            board.net.cut()
        assert board.machine.longest < HARDWARE_MS, board.machine.longest
        assert resets.row() == 0


def test_missed_intervals_are_left_out_and_counted():
    with Board(interval_ms=50, readings=0) as board:
        board.app.step()
        taken = board.app.sensor.taken
        softtimer.sleep_ms(500)
        board.app.step()
        board.app.step()
        assert board.app.sensor.taken == taken + 1 and board.app.late == 1


def test_a_main_loop_that_stands_still_is_not_fed():
    with Board() as board:
        board.run(lambda: board.app.client.counters.acked > 5)
        softtimer.sleep_ms(60000)
        assert board.machine.longest < HARDWARE_MS
        last = board.machine.fed
        softtimer.sleep_ms(HARDWARE_MS)
        assert softtimer.ticks_diff(softtimer.ticks_ms(), last) >= HARDWARE_MS - 1000
        assert board.machine.fed == last


def test_a_new_set_gets_its_time_and_no_more_though_its_loop_goes_round():
    with Board() as board:
        board.run(lambda: board.app.client.counters.acked > 5)
        watchdog.trial(20)
        start = softtimer.ticks_ms()
        board.run(lambda: softtimer.ticks_diff(softtimer.ticks_ms(), start) > 40000)
        assert softtimer.ticks_diff(board.machine.fed, start) <= 20000
        watchdog.trial(0)
        board.run(lambda: softtimer.ticks_diff(softtimer.ticks_ms(), start) > 45000)
        assert softtimer.ticks_diff(board.machine.fed, start) > 40000
