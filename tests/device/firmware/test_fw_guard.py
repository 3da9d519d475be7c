"""No way back: the lowest security version, a set that rots in flash, crashes after the trial.

Both interpreters, plain files. What a cut leaves of it is in test_fw_cuts.py.
"""
# heap: 2M
# deadline: 60

import os
import sys

import guard
import loader
import release
import remote
import resets
import signed as signed_module
import state
import trial
from ota_kit import Set, files
from signed_kit import FIRST, PROJECT, signed
from updated import Board

MADE = {}


class NoTime:
    def unix_s(self):
        return 0


class Keyed(Board):
    """A board with a signing key, that has counters of resets in a file of its own."""

    def __init__(self):
        signed_module.clock = NoTime()
        self._resets, resets.PATH = resets.PATH, "fw_guard_resets.json"
        resets._data = {}
        super().__init__([FIRST.print], PROJECT)

    def __exit__(self, *args):
        super().__exit__(*args)
        trial.choose({"slot": 0})
        remove(resets.PATH)
        resets.PATH = self._resets
        resets._data = {}


def remove(path):
    try:
        os.remove(path)
    except OSError:
        pass


def small(seed, security):
    # Made once: to sign takes longer than all else here.
    if (seed, security) not in MADE:
        made = Set(files(seed, (300, 900, 2500)))
        MADE[seed, security] = signed(made, FIRST, security=security)
    return MADE[seed, security]


def passed(board, seed, security):
    """Install a set of that security version, and let it pass its trial."""
    made = small(seed, security)
    board.install(made)
    trial.try_once()
    assert loader.healthy()
    return made


def refusal(board, made):
    board.prove(made)
    assert board.last["state"] == "refused", board.last
    return board.last["why"]


def copy(number):
    return loader.ROOT + ".floor%d" % number


def spoil(path, text="{"):
    with open(path, "w") as file:
        file.write(text)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def test_an_older_set_is_refused_as_soon_as_a_newer_one_has_passed_its_trial():
    with Keyed() as board:
        passed(board, 1, 1)
        board.install(small(2, 3))
        trial.try_once()
        assert guard.floor() == 1
        assert loader.healthy() and guard.floor() == 3
        pointer = loader.pointer()
        for security in (2, 1, 0):
            why = refusal(board, small(4, security))
            assert why == "security version %d, this board takes 3 and later" % security
        assert loader.pointer() == pointer and not board.update.busy
        passed(board, 5, 3)
        passed(board, 6, 4)
        assert guard.floor() == 4 and state.load(copy(1)) == state.load(copy(2)) == {"security": 4}


def test_a_set_that_fails_its_trial_raises_nothing():
    with Keyed() as board:
        one = passed(board, 1, 1)
        board.install(small(2, 9))
        for _ in range(4):
            trial.try_once()
        assert loader.pointer()["id"] == one.id and guard.floor() == 1
        passed(board, 3, 1)


def test_what_the_cable_put_is_a_bound_too():
    with Keyed() as board:
        saved, release.SECURITY = release.SECURITY, 2
        try:
            sys.modules["release"] = release  # the board lets go of it each time
            why = "security version 1, this board takes 2 and later"
            assert refusal(board, small(1, 1)) == why
            sys.modules["release"] = release
            board.install(small(1, 2))
        finally:
            release.SECURITY = saved


def test_a_board_without_keys_has_no_bound_and_writes_none():
    with Board() as board:
        for seed in (1, 2):
            board.install(Set(files(seed, (300, 900))))
            trial.try_once()
            assert loader.healthy()
        assert guard.floor() == 0
        assert not loader.exists(copy(1)) and not loader.exists(copy(2))


def test_one_copy_is_enough_and_is_put_right_at_the_next_start():
    with Keyed() as board:
        passed(board, 1, 3)
        loader.point({"slot": 0})  # the set that runs would say it, too
        for number in (1, 2):
            for text in ("", "{", "[]", '{"security":"9"}', '{"security":2}', "{}"):
                spoil(copy(number), text)
                assert guard.floor() == 3, text
                assert refusal(board, small(2, 2)).startswith("security version 2")
                trial.try_once()
                assert state.load(copy(number)) == {"security": 3}, text
            os.remove(copy(number))
            assert guard.floor() == 3
            trial.try_once()
            assert state.load(copy(number)) == {"security": 3}


def test_with_both_copies_lost_the_set_that_runs_says_it_and_else_none_is_taken():
    with Keyed() as board:
        passed(board, 1, 3)
        for number in (1, 2):
            spoil(copy(number))
        assert guard.floor() == 3
        pointer = loader.pointer()
        loader.point({"slot": 0})
        trial.try_once()  # it puts nothing right that it does not know
        assert refusal(board, small(2, 9)) == "the lowest security version cannot be read"
        assert not guard.allows({"slot": 0}) and not guard.allows(pointer)
        loader.point(pointer)
        trial.try_once()
        loader.point({"slot": 0})
        assert guard.floor() == 3


def test_a_set_with_a_flipped_bit_never_starts_and_the_one_before_does():
    with Keyed() as board:
        one = passed(board, 1, 1)
        two = passed(board, 2, 1)
        pointer = loader.pointer()
        size = len(two.run)
        for at in (0, 5, size // 2, size - 1):
            flip(loader.place(2), at)
            trial.choose()
            found = loader.pointer()
            assert (found["slot"], found["id"]) == (1, one.id), at
            assert found["failed"] == {"id": two.id, "why": "its SHA-256 is wrong"}
            flip(loader.place(2), at)
            loader.point(pointer)
        trial.choose()
        assert loader.pointer() == pointer


def test_with_both_sets_damaged_what_the_cable_put_starts():
    with Keyed() as board:
        passed(board, 1, 1)
        two = passed(board, 2, 1)
        for slot in (1, 2):
            flip(loader.place(slot), 9)
        trial.choose()
        assert loader.pointer() == {"slot": 0, "failed": {"id": two.id,
                                                          "why": "its SHA-256 is wrong"}}


def test_a_set_that_older_code_has_put_in_force_starts_without_a_hash():
    with Keyed() as board:
        passed(board, 1, 1)
        found = loader.pointer()
        del found["sha"], found["security"], found["before"]
        loader.point(found)
        trial.choose()
        assert trial.try_once() == found


def test_three_crashes_in_a_row_after_the_trial_bring_back_the_set_before():
    with Keyed() as board:
        one = passed(board, 1, 1)
        two = passed(board, 2, 1)
        for row in (0, 1, 2):
            resets._data["row"] = row
            assert trial.try_once()["id"] == two.id
        resets._data["row"] = 3
        found = trial.try_once()
        assert found["id"] == one.id and found == loader.pointer() and resets.row() == 0
        assert found["failed"] == {"id": two.id, "why": "3 crashes in a row"}
        # There is none before that one: it stays, whatever it does.
        resets._data["row"] = 9
        assert trial.try_once()["id"] == one.id
        # The next update is as any other.
        passed(board, 3, 1)
        assert "failed" not in loader.pointer()


def test_crashes_bring_back_what_the_cable_put_where_nothing_else_ran():
    with Keyed() as board:
        made = passed(board, 1, 1)
        resets._data["row"] = 3
        assert trial.try_once()["slot"] == 0
        assert loader.pointer()["failed"]["id"] == made.id


def test_crashes_bring_back_none_below_the_lowest_version():
    with Keyed() as board:
        passed(board, 1, 1)
        two = passed(board, 2, 2)
        resets._data["row"] = 3
        assert trial.try_once()["id"] == two.id and resets.row() == 3
    with Keyed() as board:
        made = passed(board, 1, 2)  # the cable's release.py says 1
        resets._data["row"] = 3
        assert trial.try_once()["id"] == made.id


def test_a_set_of_which_an_update_has_taken_the_place_does_not_come_back():
    with Keyed() as board:
        passed(board, 1, 1)
        two = passed(board, 2, 1)
        three = small(3, 1)
        board.prove(three)
        board.give(three, three.head, -1)
        resets._data["row"] = 3
        assert trial.try_once()["id"] == two.id
        board.give(three, -1)
        assert board.finish() and loader.pointer()["before"]["id"] == two.id
        assert "before" not in loader.pointer()["before"]


def test_the_command_commit_ends_the_trial_of_the_set_that_it_names():
    settings = {"device": "oven", "group": "g", "command_key": "00" * 16, "interval_ms": 5}
    saved, state.PATH = state.PATH, "fw_guard_state.json"
    said, told = [], []
    try:
        with Keyed() as board:
            made = remote.Remote(settings, {"report": told.append}, None, None, said.append, None)
            two = small(2, 2)
            board.install(two)
            for body in ({}, {"set": None}, {"set": "00000000"}, {"set": 7}):
                made._obey("commit", body)
                assert loader.on_trial(loader.pointer()) and "commit" in said[-1], body
            made._obey("commit", {"set": two.id})
            assert not loader.on_trial(loader.pointer()) and guard.floor() == 2
            assert said[-1] == "update is healthy, and stays" and len(told) == 5
            made._obey("commit", {"set": two.id})
            assert "commit" in said[-1] and len(told) == 6
    finally:
        remove(state.PATH)
        state.PATH = saved
