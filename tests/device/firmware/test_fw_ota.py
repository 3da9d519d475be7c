"""Updates: what is taken, what is refused, where it goes on. Both interpreters, plain files."""
# heap: 2M

import os

import loader
import ota
import resets
import state
import trial
from ota_kit import Set, files
from updated import Board

SIZES = (700, 3000, 9000, 1, 512)


def small(seed=1, **more):
    return Set(files(seed, SIZES), **more)


def test_a_set_comes_piece_by_piece_and_is_put_in_force():
    with Board() as board:
        made = small()
        board.update.begin(made.body)
        assert board.last == {"id": made.id, "state": "receiving", "have": 0,
                              "size": len(made.run)}
        board.give(made)
        assert loader.pointer() == {"slot": 0}
        assert board.finish() and board.last["state"] == "restarting"
        found = loader.pointer()
        assert (found["slot"], found["id"], found["left"]) == (1, made.id, 3)
        assert made.lies_in(loader.place(1)) and not board.update.busy


def test_the_next_set_goes_into_the_other_slot_and_keeps_the_one_that_runs():
    with Board() as board:
        one, two, three = small(1), small(2), small(3)
        for made, slot in ((one, 1), (two, 2), (three, 1)):
            board.install(made)
            loader.healthy()
            assert loader.pointer()["slot"] == slot and made.lies_in(loader.place(slot))
        assert two.lies_in(loader.place(2))


def test_it_goes_on_after_a_reset_where_it_was_synced():
    with Board() as board:
        made = small()
        half = len(made.pieces) // 2
        board.update.begin(made.body)
        board.give(made, 0, half)
        board.start()
        have = board.have()
        step = 120 - 24
        assert ota.SYNC <= have <= half * step and have % step == 0
        board.give(made, have // step)
        assert board.finish() and made.lies_in(loader.place(1))


def test_the_same_command_again_does_not_begin_anew():
    with Board() as board:
        made = small()
        board.update.begin(made.body)
        board.give(made, 0, 60)
        have = board.have()
        assert have == 60 * 96
        board.update.begin(made.body)
        assert board.last["have"] == have


def test_another_set_takes_the_place_of_one_that_is_on_its_way():
    with Board() as board:
        one, two = small(1), small(2)
        board.update.begin(one.body)
        board.give(one, 0, 50)
        board.install(two)
        assert loader.pointer()["id"] == two.id and two.lies_in(loader.place(1))


def test_forged_swapped_and_foreign_pieces_change_nothing():
    with Board() as board:
        made, other = small(1), small(2)
        board.update.begin(made.body)
        board.give(made, 0, 5)
        good = made.pieces[5]
        for i in range(len(good)):
            board.update.piece(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        board.update.piece(good[:-1])
        board.update.piece(good + b"\0")
        board.update.piece(other.pieces[5])
        board.update.piece(made.pieces[7])
        board.update.piece(made.pieces[2])
        board.update.piece(b"")
        assert board.have() == 5 * 96 and board.update.forged > 100
        board.give(made, 5)
        assert board.finish() and made.lies_in(loader.place(1))


def test_a_piece_out_of_turn_makes_the_board_say_what_it_has():
    with Board() as board:
        made = small()
        board.update.begin(made.body)
        board.update._told -= ota._TELL_MS
        board.update.piece(made.pieces[3])
        before = len(board.reports)
        board.update.step()
        assert board.reports[before:] == [
            {"id": made.id, "state": "receiving", "have": 0, "size": len(made.run)}]


def refusal(board, made):
    board.update.begin(made.body)
    assert board.last["state"] == "refused", board.last
    assert not board.update.busy and loader.pointer() == {"slot": 0}
    return board.last["why"]


def test_a_command_that_cannot_be_obeyed_is_refused_with_the_reason():
    with Board() as board:
        for why, change in (
            ('"sha" is', {"sha": "ab"}), ('"chain" is missing', {"chain": 5}),
            ('"size" is 0', {"size": 0}), ('"piece" is 385', {"piece": 385}),
            ('"boots" is missing', {"boots": True}), ('"need" is missing', {"need": None}),
            ("needs loader 3, this board has 2", {"loader": 3}),
        ):
            assert why in refusal(board, small(**change)), why
        made = small()
        made.body["sha"] = "x" * 64
        refusal(board, made)


def test_files_for_another_mpy_version_are_refused():
    import sys

    if hasattr(sys.implementation, "_mpy"):
        with Board() as board:
            why = refusal(board, small(mpy=5))
            assert why.startswith("files for .mpy version 5, this MicroPython loads"), why


def test_too_little_flash_is_refused_in_numbers():
    with Board() as board:
        saved, ota.free = ota.free, lambda: 100000
        try:
            assert refusal(board, small(need=90000)) == (
                "needs 114576 bytes of flash, 100000 are free")
            board.update.begin(small(need=60000).body)
            assert board.last["state"] == "receiving"
        finally:
            ota.free = saved


def test_where_two_updates_do_not_fit_the_cables_set_takes_the_next():
    with Board() as board:
        one, two = small(1, need=50000), small(2, need=60000)
        board.install(one)
        loader.healthy()
        saved = ota.free
        try:
            ota.free = lambda: 20000
            board.update.begin(two.body)
            assert board.last["why"] == "needs 84576 bytes of flash, 20000 are free"
            assert loader.pointer()["slot"] == 1 and not board.update.step()
            ota.free = lambda: 40000
            board.update.begin(two.body)
            assert board.last["state"] == "making room" and board.update.step()
            assert loader.pointer() == {"slot": 0}
            # The board has started again, and is asked again.
            board.start()
            ota.free = lambda: 40000 if loader.exists(loader.place(1)) else 90000
            board.install(two)
        finally:
            ota.free = saved
        assert loader.pointer()["before"] == {"slot": 0} and two.lies_in(loader.place(1))


def test_a_set_that_is_not_what_was_signed_never_boots():
    # The holder of the key made it wrong: chain right, whole or index wrong.
    with Board() as board:
        for change, why in (
            ({"sha": "..."}, "SHA-256 of the whole"),
            ({"index": 5}, "no app.mpy"),
        ):
            made = small()
            made.body.update(change)
            if "sha" in change:
                made.body["sha"] = made.id + "00" * 28
            board.update.begin(made.body)
            board.give(made)
            assert not board.finish()
            assert board.last["state"] == "refused", board.lines
            assert why in board.last["why"], board.last
            assert loader.pointer() == {"slot": 0}


def test_a_set_that_is_not_the_application_is_refused():
    with Board() as board:
        made = Set({"other.mpy": b"x" * 50, "sensors/app.mpy": b"y" * 50})
        board.update.begin(made.body)
        board.give(made)
        assert not board.finish() and "no app.mpy" in board.last["why"], board.last
        assert loader.pointer() == {"slot": 0}


def test_a_set_that_rots_in_flash_is_found_before_the_swap():
    with Board() as board:
        made = small()
        board.update.begin(made.body)
        board.give(made)
        with open(loader.place(1), "r+b") as file:
            file.seek(4000)
            file.write(b"\xff")
        assert not board.finish() and "SHA-256 of the whole" in board.last["why"]
        assert loader.pointer() == {"slot": 0}


def test_no_update_during_a_trial():
    with Board() as board:
        board.install(small(1))
        board.update.begin(small(2).body)
        assert board.last["why"] == "the last update is still on trial"
        loader.healthy()
        board.update.begin(small(2).body)
        assert board.last["state"] == "receiving"


def test_the_set_that_runs_is_not_taken_again():
    with Board() as board:
        board.install(small(1))
        loader.healthy()
        before = len(board.reports)
        assert board.update.begin(small(1).body) is True, "the status answers"
        assert len(board.reports) == before and not board.update.busy


def test_damaged_progress_begins_anew_instead_of_failing():
    with Board() as board:
        for text in ("{", '{"sha":"ab"}',
                     '{"slot":1,"index":5,"have":9,"next":"00","sha":"abcd"}'):
            if not loader.exists(loader.ROOT):
                os.mkdir(loader.ROOT)
            with open(loader.ROOT + "/get.json", "w") as file:
                file.write(text)
            board.start()
            assert not board.update.busy, text
        board.install(small())


# The loader's side


def test_a_healthy_set_stays():
    with Board() as board:
        made = small()
        board.install(made)
        assert trial.try_once()["left"] == 2 and loader.healthy()
        for _ in range(5):
            assert trial.try_once() == {"slot": 1, "id": made.id, "version": "9.9", "need": 0,
                                        "index": made.body["index"], "sha": made.body["sha"][:32],
                                        "security": 0, "before": {"slot": 0}}
        assert not loader.healthy()


def test_a_set_that_never_gets_healthy_is_taken_back():
    with Board() as board:
        one, two = small(1), small(2)
        board.install(one)
        loader.healthy()
        board.install(two)
        for left in (2, 1, 0):
            assert trial.try_once()["left"] == left and loader.pointer()["slot"] == 2
        found = trial.try_once()
        assert found["slot"] == 1 and found["id"] == one.id and one.lies_in(loader.place(1))
        why = "its trial did not end in its starts: no acknowledged reading, or no commit"
        assert found["failed"] == {"id": two.id, "why": why}
        assert trial.try_once() == found
        board.install(small(3))
        assert "failed" not in loader.pointer()


def test_a_pointer_that_is_no_good_means_what_the_cable_put():
    with Board() as board:
        board.install(small())
        for text in ("", "{", "[]", '{"slot": 3}', '{"slot": "1"}', '{"slot": true}', "{}",
                     '{"slot": 2, "index": 9}', '{"slot": 1}', '{"slot": 1, "index": "9"}'):
            with open(loader.ROOT + "/boot.json", "w") as file:
                file.write(text)
            assert loader.pointer() == {"slot": 0}, text


def test_the_search_path_has_the_set_in_force_first_and_no_other():
    import sys

    with Board() as board:
        trial.choose()  # what another test has left
        saved = list(sys.path)
        try:
            assert sys.path == saved
            board.install(small(1))
            trial.choose()
            assert sys.path == [loader.MOUNT] + saved
            trial.choose()
            assert sys.path == [loader.MOUNT] + saved
            trial.choose({"slot": 0})
            assert sys.path == saved
        finally:
            trial.choose({"slot": 0})


def test_a_set_that_cannot_be_read_is_taken_back_at_once():
    with Board() as board:
        one, two = small(1), small(2)
        board.install(one)
        loader.healthy()
        board.install(two)
        for slot, id in ((2, two.id), (1, one.id)):
            os.remove(loader.place(slot))
            os.mkdir(loader.place(slot))  # what opens, but not as a file
            try:
                trial.choose()
                assert loader.pointer()["failed"]["id"] == id
                assert loader.pointer()["failed"]["why"].startswith("cannot be read")
            finally:
                os.rmdir(loader.place(slot))
        assert loader.pointer()["slot"] == 0


def test_a_full_filesystem_does_not_keep_the_board_from_starting():
    def full(data, path):
        raise OSError(28)

    with Board() as board:
        board.install(small(1))
        saved, loader.state.save = state.save, full
        try:
            assert trial.try_once()["slot"] == 0
        finally:
            loader.state.save = saved


def test_each_kind_of_start_is_counted_apart():
    for cause, asked, platform, kind in (
        ("pwron", None, "rp2", "power"), ("brownout", None, "esp32", "power"),
        ("wdt", None, "rp2", "watchdog"), ("wdt", "command", "rp2", "request"),
        ("hard", None, "esp32", "crash"), ("hard", None, "linux", "other"),
        ("hard", "update", "esp32", "request"), ("soft", None, "rp2", "request"),
        ("deepsleep", None, "esp32", None), ("hard", "crash", "esp32", None),
        ("unknown", None, "rp2", "other"),
    ):
        assert resets.kind_of(cause, asked, platform) == kind, (cause, asked, platform)


class Resets:
    """The counters in a file of their own."""

    def __enter__(self):
        self.saved = resets.PATH
        resets.PATH = "fw_resets_test.json"
        ota.remove(resets.PATH)
        return self

    def __exit__(self, *args):
        ota.remove(resets.PATH)
        resets.PATH = self.saved
        resets._data = {}


def test_only_crashes_in_a_row_make_a_row():
    with Resets():
        for cause, row in (("pwron", 0), ("wdt", 1), ("wdt", 2), ("pwron", 2), ("deepsleep", 2),
                           ("wdt", 3), ("soft", 0), ("wdt", 1)):
            resets.began(cause)
            assert resets.row() == row, cause
        assert resets.counts() == {"power": 2, "watchdog": 4, "request": 1, "crash": 0,
                                   "other": 0, "row": 1}
        resets.lasted()
        resets.began("pwron")
        assert resets.row() == 0


def test_a_crash_is_counted_once_and_a_request_ends_the_row():
    with Resets():
        resets.began("pwron")
        for n in (1, 2, 3):
            resets.crashed()
            resets.began("wdt" if n & 1 else "hard")  # as the port reports machine.reset()
            assert resets.row() == n and resets.counts()["crash"] == n
        assert resets.counts()["watchdog"] == 0
        resets.asked("command")
        resets.began("wdt")
        assert resets.row() == 0 and resets.counts()["request"] == 1


def test_damaged_counters_start_from_zero():
    with Resets():
        with open(resets.PATH, "w") as file:
            file.write("{")
        resets.began("wdt")
        assert resets.row() == 1
