"""The state file: whole or not at all. Both interpreters."""

import json
import os

import remote
import state
from commands import sign

PATH = "fw_state_test.json"
SETTINGS = {"device": "oven", "group": "g", "command_key": "00" * 16, "interval_ms": 5}


class Aside:
    """The board's own state file stays out of a test: its state lies in PATH meanwhile."""

    def __enter__(self):
        self._saved, state.PATH = state.PATH, PATH
        clean()

    def __exit__(self, *_):
        state.PATH = self._saved
        clean()


def clean():
    for name in (PATH, PATH + ".new"):
        try:
            os.remove(name)
        except OSError:
            pass


def test_nothing_saved_yet():
    clean()
    assert state.load(PATH) == {}


def test_saved_and_replaced():
    clean()
    try:
        state.save({"count": 1}, PATH)
        state.save({"count": 2, "interval_ms": 5}, PATH)
        assert state.load(PATH) == {"count": 2, "interval_ms": 5}
    finally:
        clean()


def test_cut_before_the_rename_leaves_the_old_one():
    clean()
    try:
        state.save({"count": 1}, PATH)
        with open(PATH + ".new", "w") as file:
            file.write('{"cou')
        assert state.load(PATH) == {"count": 1}
        state.save({"count": 2}, PATH)
        assert state.load(PATH) == {"count": 2}
    finally:
        clean()


def test_damage_is_told_apart_from_absence():
    try:
        for text in (b"", b"{", b"[]", b"7", b"\xff\xfe"):
            with open(PATH, "wb") as file:
                file.write(text)
            try:
                state.load(PATH)
                raise AssertionError("accepted %r" % text)
            except state.StateError as error:
                assert PATH in str(error)
    finally:
        clean()


def test_only_a_file_that_is_not_there_was_never_saved():
    # A folder stands for a file that the filesystem finds and cannot read.
    os.mkdir(PATH)
    try:
        state.load(PATH)
        raise AssertionError("taken for none")
    except state.StateError as error:
        assert PATH in str(error) and "cannot be read" in str(error)
    finally:
        os.rmdir(PATH)


def test_commands_are_refused_and_it_is_told_while_the_counter_cannot_be_read():
    said = []
    with Aside():
        fresh = remote.Remote(SETTINGS, {}, None, None, said.append, None)
        assert fresh.off == "" and len(fresh.topics) == 2 and said == []
        os.mkdir(PATH)
        try:
            lost = remote.Remote(SETTINGS, {}, None, None, said.append, None)
        finally:
            os.rmdir(PATH)
        assert "cannot be read" in lost.off and lost.topics == []
        assert len(said) == 1 and "commands stay off" in said[0]
        unset = dict(SETTINGS, command_key="")
        assert remote.Remote(unset, {}, None, None, said.append, None).off == "no command_key"


def test_a_restart_waits_for_the_commands_that_came_with_it():
    """They are acknowledged and counted: nobody would send them again."""
    done = []
    with Aside():
        made = remote.Remote(SETTINGS, {"report": done.append}, None,
                             lambda why: done.append("restart by " + why), done.append,
                             None)  # fmt: skip
        for name in ("restart", "report", "restart", "report"):
            made._todo.append((name, name))
        for _ in range(6):
            made.step()
        assert done == ["report", "report", "restart by command", "restart by command"]


def test_numbers_that_nobody_has_saved_are_not_used():
    """As in a copy that somebody has changed: the board goes on at its settings' pace."""
    with Aside():
        for kept, interval, commands in (
            ({"count": 7, "interval_was": 5, "interval_ms": 50}, 50, True),
            ({"count": 7, "interval_was": 5}, 5, True),
            ({"count": 7, "interval_was": 5, "interval_ms": "x"}, 5, True),
            ({"count": 7, "interval_was": 5, "interval_ms": 0}, 5, True),
            ({"count": 7, "interval_was": 5, "interval_ms": 1 << 60}, 5, True),
            ({"count": "x"}, 5, False), ({"count": -1}, 5, False), ({"count": None}, 5, False),
        ):  # fmt: skip
            said = []
            state.save(kept)
            made = remote.Remote(SETTINGS, {}, None, None, said.append, None)
            assert made.interval == interval, kept
            assert bool(made.topics) is commands is not bool(said), kept


def reported(made):
    said = json.loads(made.sealed(b"status", {}))
    return said["count"], said["before"]


def test_a_report_names_the_commands_obeyed_before_the_last_one_over_restarts_too():
    """Else who has given one of them takes it for refused, and the board obeys it twice."""
    topic = b"fleet/g/oven/cmd/report"
    said = []
    with Aside():
        for boot in range(3):
            made = remote.Remote(SETTINGS, {}, None, None, said.append, Uptime())
            assert reported(made)[0] == 1000 * boot, said
            for count in range(1000 * boot + 998, 1000 * boot + 1001):
                made.received(topic, sign(bytes(16), topic, b'{"count":%d}' % count))
        assert said == [] and reported(made) == (3000, [2999, 2998, 2000, 1999])
        # One whose counter cannot be kept is not obeyed, and no later report says that it was.
        os.mkdir(PATH + ".new")
        try:
            made.received(topic, sign(bytes(16), topic, b'{"count":3001}'))
        finally:
            os.rmdir(PATH + ".new")
        assert len(said) == 1 and reported(made) == (3000, [2999, 2998, 2000, 1999])
        made.received(topic, sign(bytes(16), topic, b'{"count":3002}'))
        assert reported(made) == (3002, [3000, 2999, 2998, 2000])
        state.save({"count": 7, "before": "x"})
        assert reported(remote.Remote(SETTINGS, {}, None, None, said.append, Uptime())) == (7, [])


def test_a_command_that_is_not_above_the_counter_is_answered_with_it():
    """Its sender may have missed the command of another one, and goes on above that."""
    topic = b"fleet/g/oven/cmd/restart"
    said, told = [], []
    with Aside():
        state.save({"count": 7})
        made = remote.Remote(SETTINGS, {"report": told.append}, None, None, said.append, Uptime())
        for count in (7, 6, 5):
            made.received(topic, sign(bytes(16), topic, b'{"count":%d}' % count))
        made.received(topic, sign(b"another key, 16 b", topic, b'{"count":8}'))
        for _ in range(4):
            made.step()
        assert told == [None] and len(said) == 4


class Uptime:
    s = 5
