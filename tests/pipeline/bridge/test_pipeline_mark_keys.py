"""Signed marks: the file of keys, and what the bridge does when it changes or cannot be used."""

import json
import os

import pytest
from pipeline_kit import run
from umqtt_pipeline.bridge.mark_keys import MarkKeys

KEY = "ab" * 32
TOPIC, MARK = b"fleet/g/oven/ack", b'{"epoch":"00","upto":7,"missing":[]}'


@pytest.fixture
def file(tmp_path):
    """A function that writes the file of keys; returns its path."""
    path = tmp_path / "keys.json"

    def write(data, mode=0o600):
        path.unlink(missing_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        path.chmod(mode)
        return path

    return write


def test_without_a_file_and_without_a_key_marks_are_as_they_are(file):
    assert MarkKeys(None).seal(TOPIC, MARK) == MARK
    MarkKeys(None).refresh()
    assert MarkKeys(file({"fleet/g/other": KEY})).seal(TOPIC, MARK) == MARK


def test_a_signed_mark_is_still_the_mark(file):
    sealed = json.loads(MarkKeys(file({"fleet/g/oven": KEY})).seal(TOPIC, MARK))
    assert len(bytes.fromhex(sealed.pop("code"))) == 32
    assert sealed == json.loads(MARK)


def test_a_file_that_changes_is_read_again_and_one_that_cannot_be_used_changes_nothing(
    file, caplog
):
    made = MarkKeys(file({}))
    file({"fleet/g/oven": KEY})
    assert made.seal(TOPIC, MARK) == MARK
    made.refresh()
    first = made.seal(TOPIC, MARK)
    assert first != MARK
    for wrong in ("{", "[]", {"fleet/g/oven": "short"}):
        file(wrong)
        made.refresh()
        made.refresh()
        assert made.seal(TOPIC, MARK) == first
    assert caplog.text.count("the keys read before stay in use") == 3
    file({"fleet/g/oven": KEY}).unlink()
    made.refresh()
    assert made.seal(TOPIC, MARK) == first
    file({"fleet/g/oven": "cd" * 32})
    made.refresh()
    assert made.seal(TOPIC, MARK) not in (first, MARK)


def test_nobody_waits_for_a_pipe_in_the_place_of_the_file(file, caplog):
    path = file({"fleet/g/oven": KEY})
    made = MarkKeys(path)
    first = made.seal(TOPIC, MARK)
    path.unlink()
    os.mkfifo(path, 0o600)
    made.refresh()
    assert made.seal(TOPIC, MARK) == first
    assert f"{path} cannot be read: it is no plain file, but a pipe; the keys" in caplog.text
    with pytest.raises(ValueError, match="no plain file"):
        MarkKeys(path)


def test_devices_that_fall_out_of_the_file_are_told(file, caplog):
    """Its bridge would sign no mark for them: they keep what they hold."""
    made = MarkKeys(file({"fleet/g/oven": KEY, "fleet/g/lamp": KEY}))
    file({"fleet/g/lamp": KEY})
    made.refresh()
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "1 devices are no longer in it, such as fleet/g/oven" in warning


@pytest.mark.parametrize("data, mode, said", [
    ({"fleet/g/oven": KEY}, 0o640, "others may read it: `chmod 600"),
    ("{", 0o600, "is no JSON"), ("[" * 100000, 0o600, "is no JSON"), ([], 0o600, "no object"),
    ({"oven": KEY}, 0o600, "'oven': expected"), ({"fleet/g/oven": KEY[1:]}, 0o600, "64 digits"),
    ({"fleet/g/oven": 7}, 0o600, "64 digits"), ({"fleet/g/a/b": KEY}, 0o600, "expected"),
    ({"fleet/g/oven": []}, 0o600, "64 digits"), ({"file": [7]}, 0o600, "not of `umqtt-board mark"),
    ({"file": "telemetry-keys", "fleet/g/oven": KEY}, 0o600, "the file of `umqtt-board telemetry"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_a_sentence(file, data, mode, said):
    with pytest.raises(ValueError, match=said) as raised:
        MarkKeys(file(data, mode))
    assert KEY not in str(raised.value)


def test_the_bridge_does_not_start_without_the_keys_that_it_was_given(file, tmp_path):
    for path in (file("{"), tmp_path / "none"):
        done = run("bridge", "--broker", "127.0.0.1:1", "--spool", tmp_path / "spool",
                   "--mark-keys", path)  # fmt: skip
        assert done.returncode == 2 and "Error: --mark-keys: " in done.stderr
        assert "Traceback" not in done.stderr and not (tmp_path / "spool").exists()
