"""A thief of a backup or of the operator's folder. A copy that he has changed names no other file
of this computer or of a board. With the boards' keys alone he gets no firmware onto a board with a
signing key, neither his own nor an older release."""

import hashlib
import json
import os

import pytest
from attack_kit import strange
from bench import Subscriber
from patience import wait_until
from signed_kit import FIRST
from umqtt_board import boards as board_files
from umqtt_board.backup import copies, known
from umqtt_board.errors import BoardError
from umqtt_board.ota import fileset
from umqtt_board.paths import FIRMWARE
from umqtt_board.release import bundle, signing_key
from update_kit import NEW, Sending, changed, fleet, run_cli

UNIX = board_files.load("unix")
SETTINGS = b'{"broker.host":"h"}'
# Healthy for as long as it is on trial.
FRAGILE = """
import loader
if not loader.on_trial(loader.pointer()):
    raise RuntimeError("bomb")
"""

def copy_with(folder, files):
    """A copy of these files, {path: content}, whole by its manifest."""
    (folder / "files" / "mqtt").mkdir(parents=True)
    for path, data in files.items():
        place = folder / f"files/{path}"
        if "\0" not in path and len(path) < 200 and path not in ("", "/mqtt/..", "/mqtt/"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    sums = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    manifest = {"board": "unix", "made": "today", "files": sums, "region": None}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("number", range(len(strange(""))))
def test_a_copy_with_another_name_in_it_is_refused(tmp_path, number):
    name = strange(tmp_path)[number]
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS, name: b"print('mine now')"})
    with pytest.raises(BoardError, match="is no copy of a board .*is no file that a copy holds"):
        copies.load(copy, UNIX)


@pytest.mark.parametrize("files", [7, "x", ["/settings.json"], {"/settings.json": 7}, None])
def test_a_manifest_of_another_shape_is_refused(tmp_path, files):
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS})
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "journal.img").write_bytes(b"")
    region = {"size": "0", "sha256": hashlib.sha256(b"").hexdigest()}
    for other in (manifest | {"files": files}, manifest | {"region": 7}, [], 7,
                  manifest | {"region": region}, manifest | {"made": 7}, manifest | {"key": 7}):
        (copy / "manifest.json").write_text(json.dumps(other))
        with pytest.raises(BoardError, match="is no copy of a board|is damaged"):
            copies.load(copy, UNIX)
    (copy / "manifest.json").write_text("[" * 200000)
    with pytest.raises(BoardError, match="is no copy of a board"):
        copies.load(copy, UNIX)


@pytest.mark.parametrize("place", ["files/settings.json", "files", "manifest.json"])
def test_a_copy_follows_no_link(tmp_path, place):
    """What is behind it would go to the board, and from there to whoever holds that."""
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS})
    copies.load(copy, UNIX)
    (copy / place).rename(tmp_path / "secret")
    (copy / place).symlink_to(tmp_path / "secret")
    with pytest.raises(BoardError, match="is no copy of a board .* is a link"):
        copies.load(copy, UNIX)


def test_a_copy_with_what_is_no_plain_file_makes_nobody_wait(tmp_path):
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS})
    (copy / "files" / "settings.json").unlink()
    os.mkfifo(copy / "files" / "settings.json")
    with pytest.raises(BoardError, match="is no copy of a board"):
        copies.load(copy, UNIX)
    (copy / "files" / "settings.json").unlink()
    (copy / "files" / "settings.json").mkdir()
    with pytest.raises(BoardError, match="settings.json is no file of a board"):
        copies.load(copy, UNIX)
    (copy / "files" / "settings.json").rmdir()
    with open(copy / "files" / "settings.json", "wb") as file:
        file.truncate(known.LARGEST + 1)
    with pytest.raises(BoardError, match="is no copy of a board"):
        copies.load(copy, UNIX)

def test_a_fleet_with_keys_takes_signed_sets_alone(home, boards, broker, tmp_path):
    key = signing_key.SigningKey.new()
    trusted = {"key": FIRST.print, "spare": signing_key.fingerprint(key.modulus)}
    one, two = fleet(boards, broker.port, "b1", "b2", update=trusted)
    made = changed(tmp_path)
    with Sending(broker.port, made, "b1", "b2") as sending:
        pass
    assert sending.states == {"b1": "refused", "b2": "refused"}
    assert "not signed" in sending.session.members["b1"].why
    bundle.sign(made, signing_key.SigningKey.new(), bundle.Limits())
    with Sending(broker.port, made, "b1", "b2") as sending:
        pass
    assert sending.states == {"b1": "refused", "b2": "refused"}
    assert "does not trust" in sending.session.members["b2"].why
    for board in (one, two):
        assert "bytes to come" not in board.printed()
    bundle.sign(made, key, bundle.Limits())
    with Sending(broker.port, made, "b1", "b2") as sending:
        sending.await_part("b1", 0.2)
        one.cut()
        one.power_on()
    assert sending.states == {"b1": "done", "b2": "done"}
    status = sending.session.members["b1"].status
    assert (status["version"], status["set"]) == (NEW, made.id)


def released(made, security):
    """Sign a set."""
    text = bundle.manifest(made, bundle.Limits(security=security))
    made.seal(FIRST.modulus + FIRST.sign(text) + text)
    return made


def test_an_older_set_stays_out_and_one_that_crashes_after_its_trial_goes(
    home, boards, broker, tmp_path, capsys
):
    # The crashes that count are the program's, not the watchdog's on a busy computer.
    (board,) = fleet(boards, broker.port, "b1", watchdog_s=0,
                     update={"key": FIRST.print, "trial": "commit"})  # fmt: skip
    commit = ["command", "--device", "b1", "--group", "test", "commit"]
    fragile = (FIRMWARE / "telemetry.py").read_text() + FRAGILE
    good = released(changed(tmp_path / "1", "9.9.1"), 2)
    bad = released(changed(tmp_path / "2", "9.9.2", telemetry=fragile), 2)
    with Subscriber(broker.port) as subscriber:
        for made in (good, bad):
            with Sending(broker.port, made, "b1", boots=9) as sending:
                wait_until(lambda: sending.states == {"b1": "on trial"}, 60, "a trial")
                board.wait_for("first publish acknowledged", 20, board.printed().rfind("in force"))
                status, said = run_cli(capsys, *commit, "0" * 8)
                assert status == 1 and "not that set" in said
                board.wait_for("commit: not for a set on trial here", 20)
                assert sending.states == {"b1": "on trial"}
                run_cli(capsys, *commit, made.id)
            assert sending.states == {"b1": "done"}
        older = released(fileset.Set({"app.mpy": b"a" * 900}, "9.0"), 1)
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
