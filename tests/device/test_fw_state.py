"""The state file: whole or not at all. Both interpreters."""

import os

import state

PATH = "fw_state_test.json"


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
        for text in ("", "{", "[]", "7"):
            with open(PATH, "w") as file:
                file.write(text)
            try:
                state.load(PATH)
                raise AssertionError("accepted %r" % text)
            except state.StateError as error:
                assert PATH in str(error)
    finally:
        clean()
