"""Readings with a code: what the firmware signs is told the same by column and one by one.
Forgeries are among the attacks."""

import pyarrow as pa
from decode_kit import rows as bronze
from pipeline_kit import EPOCH, run, senml
from signed_readings import GOOD, TOPIC
from umqtt_pipeline.decode import firmware, firmware_packs, rows
from umqtt_pipeline.decode.signed import NO_KEYS


def test_a_signed_pack_is_read_by_column_as_one_by_one(signers):
    found, known = firmware_packs.readings(bronze(*GOOD), signers)
    slow = rows.decode(bronze(*GOOD), keys=signers).select(found.column_names)
    assert known.all() and found.to_pylist() == slow.to_pylist()
    raw, starts, ends = firmware.contiguous(pa.array(GOOD, pa.binary()))
    readable, epochs, sequences, _ = firmware.identities(raw, starts, ends)
    assert list(sequences[readable]) == [1, 2, 3, 4] and bytes(raw[epochs[0] :][:8]) == EPOCH


def test_an_older_reader_takes_a_signed_pack_for_what_it_says():
    assert [row["reason"] for row in rows.decode(bronze(*GOOD)).to_pylist()] == [None] * 4


def test_devices_without_a_key_are_read_as_ever(signers):
    held = bronze(("fleet/g/dev2/telemetry", senml(1, device="dev2")))
    assert rows.decode(held, keys=signers).to_pylist()[0]["reason"] is None
    assert firmware_packs.readings(held, signers)[1].all()


def test_no_file_no_check():
    assert not NO_KEYS and NO_KEYS.fault(TOPIC, b"") is None


def test_the_commands_refuse_a_file_that_cannot_be_used(tmp_path):
    (tmp_path / "keys").write_text("{")
    (tmp_path / "keys").chmod(0o600)
    done = run("bridge", "--broker", "127.0.0.1:1", "--spool", tmp_path / "spool",
               "--telemetry-keys", tmp_path / "keys")  # fmt: skip
    assert done.returncode == 2 and "--telemetry-keys" in done.stderr and "no JSON" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "spool").exists()
