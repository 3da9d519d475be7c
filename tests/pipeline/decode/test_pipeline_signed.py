"""Readings with a code: what the firmware signs is told the same by column and one by one, and
nothing else of a device that signs is a reading, or moves its mark."""

import hashlib
import hmac
import json
import pickle

import pyarrow as pa
import pytest
from decode_kit import rows as bronze
from pipeline_kit import EPOCH, flat, publish, run, senml
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.decode import firmware, firmware_packs, rows
from umqtt_pipeline.decode.signed import NO_KEYS, NONE, WRONG, TelemetryKeys

KEY, OTHER = bytes(range(32)), bytes(32)
TOPIC = b"fleet/g/dev1/telemetry"
ONE, TWO = [("t", "Cel", 21)], [("t", "Cel", 21), ("n", None, 7)]


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"fleet/g/dev1": KEY.hex()}))
    file.chmod(0o600)
    return TelemetryKeys(file)


def signed(payload, key=KEY, topic=TOPIC):
    """As firmware/telemetry.py signs a pack of senml(); the last map gets one pair more."""
    last = 1 if payload[0] == 0x81 else payload.rindex(b"\x00\x61n") - 1
    body = payload[:last] + bytes([payload[last] + 1]) + payload[last + 1 :] + b"\x62mc\x48"
    return body + hmac.new(key, topic + b"\n" + body, hashlib.sha256).digest()[:8]


GOOD = [signed(senml(n, fields)) for n, fields in enumerate(
    (ONE, TWO, [("t", None, 1)], [("n", None, 1), ("n", "m", 2)]), 1)]  # fmt: skip


def forged():
    """(payload, reason) of what somebody without the key may publish who has recorded GOOD[0]."""
    good = GOOD[0]
    yield senml(9), NONE
    yield flat(9, x=1), NONE
    yield b"", NONE
    yield b"\xff", NONE
    yield good[:-12], NONE
    yield good + b"\x00", NONE
    yield signed(senml(9), OTHER), WRONG
    yield signed(senml(9), topic=b"fleet/h/dev1/telemetry"), WRONG
    yield signed(senml(9), topic=b"fleet/g/dev2/telemetry"), WRONG
    yield senml(9) + b"\x62mc\x48" + bytes(8), WRONG
    for at in range(len(good)):
        yield good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], None


def test_a_signed_pack_is_read_by_column_as_one_by_one(keys):
    found, known = firmware_packs.readings(bronze(*GOOD), keys)
    slow = rows.decode(bronze(*GOOD), keys=keys).select(found.column_names)
    assert known.all() and found.to_pylist() == slow.to_pylist()
    raw, starts, ends = firmware.contiguous(pa.array(GOOD, pa.binary()))
    readable, epochs, sequences, _ = firmware.identities(raw, starts, ends)
    assert list(sequences[readable]) == [1, 2, 3, 4] and bytes(raw[epochs[0] :][:8]) == EPOCH


def test_an_older_reader_takes_a_signed_pack_for_what_it_says():
    assert [row["reason"] for row in rows.decode(bronze(*GOOD)).to_pylist()] == [None] * 4


def test_every_forgery_is_in_quarantine_with_its_reason(keys):
    payloads, reasons = zip(*forged())
    found = rows.decode(bronze(*payloads), keys=keys).to_pylist()
    for payload, reason, row in zip(payloads, reasons, found):
        assert row["reason"] in ({reason} if reason else {NONE, WRONG}), payload
    _, known = firmware_packs.readings(bronze(*payloads, *GOOD), keys)
    assert list(known) == [False] * len(payloads) + [True] * 4


def test_devices_without_a_key_are_read_as_ever(keys):
    held = bronze(("fleet/g/dev2/telemetry", senml(1, device="dev2")))
    assert rows.decode(held, keys=keys).to_pylist()[0]["reason"] is None
    assert firmware_packs.readings(held, keys)[1].all()


def test_no_forgery_moves_a_mark_and_it_is_told(keys, caplog):
    marks = Marks(keys=pickle.loads(pickle.dumps(keys)))
    payloads = [payload for payload, _ in forged()]
    marks.feed(b"".join(publish(each) for each in payloads))
    assert not marks.marks and marks.unsigned == len(payloads)
    assert "moves no mark: it has no code" in caplog.text
    assert caplog.text.count("moves no mark") == len(payloads).bit_length()
    marks.feed(b"".join(publish(each) for each in (GOOD[0], senml(5, low=5), GOOD[1])))
    assert [mark.upto for mark in marks.marks.values()] == [2]
    marks.feed(publish(senml(7, device="dev2"), "dev2"))
    assert len(marks.marks) == 2


def test_no_file_no_check():
    assert not NO_KEYS and NO_KEYS.fault(TOPIC, b"") is None


def test_the_commands_refuse_a_file_that_cannot_be_used(tmp_path):
    (tmp_path / "keys").write_text("{")
    (tmp_path / "keys").chmod(0o600)
    done = run("bridge", "--broker", "127.0.0.1:1", "--spool", tmp_path / "spool",
               "--telemetry-keys", tmp_path / "keys")  # fmt: skip
    assert done.returncode == 2 and "--telemetry-keys" in done.stderr and "no JSON" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "spool").exists()
