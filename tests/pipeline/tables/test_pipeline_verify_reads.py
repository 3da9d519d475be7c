"""How `verify` reads many files: several at a time, and each is looked at in its turn."""

import datetime
import json
import threading
from threading import Lock

import pytest
from patience import PATIENCE
from pipeline_tables import files, put
from umqtt_pipeline.tables import commits as reading
from umqtt_pipeline.tables import verifying
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.storage import Storage
from umqtt_pipeline.tables.store import Tables
from umqtt_pipeline.tables.table_look import TableLook


class Gate(Storage):
    """A store in which reads of files with a name of this `end` end when `together` of them are
    under way. most: how many were."""

    def __init__(self, root, together, end):
        super().__init__(root)
        self.end = end
        self.barrier, self.lock = threading.Barrier(together, timeout=PATIENCE * 10), Lock()
        self.now = self.most = 0

    def read(self, name):
        if not name.endswith(self.end):
            return super().read(name)
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.barrier.wait()
        with self.lock:
            self.now -= 1
        return super().read(name)


def test_commits_are_read_together_and_looked_at_in_their_order(tmp_path):
    """An object store takes its time for each, and a month of batches has many."""
    log = tmp_path / "silver" / "_delta_log"
    log.mkdir(parents=True)
    count = 3 * reading.AT_ONCE
    for version in range(count):
        told = json.dumps({"txn": {"appId": "a", "version": version}})
        (log / f"{version:020d}.json").write_text("no JSON" if version == 5 else told)
    gate, found = Gate(tmp_path, reading.AT_ONCE, ".json"), verifying.Verified()
    commits = reading.Log(found, gate, "silver").commits()
    read = [(version, actions[0][1]["version"]) for _, version, actions in commits]
    assert gate.most == reading.AT_ONCE > 1
    assert read == [(version, version) for version in range(count) if version != 5]
    assert [line.partition(":")[0] for line in found.wrong] == [str(log / f"{5:020d}.json")]


@pytest.mark.parametrize("room,together", [(1 << 20, reading.AT_ONCE), (1, 1)])
def test_data_files_are_read_together_as_far_as_there_is_room(
        tmp_path, monkeypatch, room, together):  # fmt: skip
    """room: bytes of all that may be read at a time; one file is read in any case."""
    monkeypatch.setattr(reading, "READ_BYTES", room)
    count = 2 * reading.AT_ONCE
    rows = [{"batch": n, "date": datetime.date(2026, 1, 1 + n)} for n in range(count)]
    put(tmp_path, "batches", ALL["batches"], *rows)
    damaged = files(tmp_path, "batches")[5]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    held, found = Tables(tmp_path, {"batches": ALL["batches"]}), verifying.Verified()
    held.storage = Gate(tmp_path, together, ".parquet")
    TableLook(found, held, "batches", []).look()
    assert (held.storage.most, found.files) == (together, count)
    assert [line.partition(":")[0] for line in found.wrong] == [str(damaged)]


class _Held:
    """A storage whose second read lasts until it is let go."""

    def __init__(self):
        self.go, self.begun = threading.Event(), threading.Event()

    def read(self, name):
        if name == "held":
            self.begun.set()
            assert self.go.wait(60)
        return b""


def test_who_leaves_before_all_is_read_waits_for_nobody():
    """Python ends a generator wherever it collects garbage: to wait for a thread there hangs, if
    it is where a thread starts."""
    storage = _Held()
    reads = reading.read_ahead(storage, [("free", 1), ("held", 1), ("free", 1)])
    assert next(reads).result() == b"" and storage.begun.wait(60)
    left = threading.Thread(target=reads.close, daemon=True)
    left.start()
    left.join(20)
    waits = left.is_alive()
    storage.go.set()
    assert not waits
