"""No way back, on the virtual board: an older signed set, a trial that waits for a command, and a
set that crashes after its trial."""

import shutil

import pytest
from bench import Subscriber
from patience import wait_until
from signed_kit import FIRST
from umqtt_board.ota import fileset, keys
from umqtt_board.paths import FIRMWARE
from umqtt_board.release import bundle
from update_kit import Sending, changed, fleet, run_cli

# Healthy for as long as it is on trial.
FRAGILE = """
import loader
if not loader.on_trial(loader.pointer()):
    raise RuntimeError("bomb")
"""


@pytest.fixture(autouse=True)
def no_keys_of_other_tests():
    shutil.rmtree(keys.root(), ignore_errors=True)


def release(made, security):
    """Sign a set."""
    text = bundle.manifest(made, bundle.Limits(security=security))
    made.seal(FIRST.modulus + FIRST.sign(text) + text)
    return made


def test_an_older_set_stays_out_and_one_that_crashes_after_its_trial_goes(
    boards, broker, tmp_path, capsys
):
    # The crashes that count are the program's, not the watchdog's on a busy computer.
    (board,) = fleet(boards, broker.port, "b1", watchdog_s=0,
                     update={"key": FIRST.print, "trial": "commit"})  # fmt: skip
    commit = ["command", "--device", "b1", "--group", "test", "commit"]
    fragile = (FIRMWARE / "telemetry.py").read_text() + FRAGILE
    good = release(changed(tmp_path / "1", "9.9.1"), 2)
    bad = release(changed(tmp_path / "2", "9.9.2", telemetry=fragile), 2)
    with Subscriber(broker.port) as subscriber:
        for made in (good, bad):
            with Sending(broker.port, made, "b1", boots=9) as sending:
                wait_until(lambda: sending.states == {"b1": "on trial"}, 60, "a trial")
                board.wait_for("first publish acknowledged", 20, board.printed().rfind("in force"))
                run_cli(capsys, *commit, "0" * 8)
                board.wait_for("commit: not for a set on trial here", 20)
                assert sending.states == {"b1": "on trial"}
                run_cli(capsys, *commit, made.id)
            assert sending.states == {"b1": "done"}
        older = release(fileset.Set({"app.mpy": b"a" * 900}, "9.0"), 1)
        with Sending(broker.port, older, "b1") as sending:
            pass
        why = sending.session.members["b1"].why
        assert (sending.states["b1"], why) == (
            "refused", "security version 1, this board takes 2 and later")  # fmt: skip
        board.reset()
        board.wait_for(f"update {bad.id} taken back: 3 crashes in a row", 30)
        wait_until(lambda: subscriber.status[-1].get("set") == good.id, 30, "the set before")
        assert subscriber.status[-1]["failed"] == {"id": bad.id, "why": "3 crashes in a row"}
        assert subscriber.status[-1]["resets"]["crash"] == 3
        subscriber.await_readings(len(subscriber.ordinals()) + 3)


def test_a_commit_names_a_set(capsys):
    for given in ([], ["xyz"], ["0123abcde"]):
        status, said = run_cli(capsys, "command", "--device", "b1", "commit", *given)
        assert status == 2 and "commit: expected the name of the set" in said
