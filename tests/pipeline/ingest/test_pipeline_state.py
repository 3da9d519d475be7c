"""The state of ingest, by what each batch adds: nothing is forgotten, little written twice."""

import random

import numpy as np
import pyarrow as pa
import pytest
from umqtt_pipeline.decode.firmware_packs import buckets_of
from umqtt_pipeline.ingest import dedup, state
from umqtt_pipeline.ingest.batch_tasks import Work
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.tables.schema import CLOCKS, SEEN, UNCLOCKED, arrow_schema
from umqtt_pipeline.tables.storage import Storage


class Batches:
    """Batches that add ranges to `seen`, as tasks of two buckets each do it; `seen` is a plain set
    of the same numbers."""

    def __init__(self, root, little=0, buckets=3):
        self.storage, self.little, self.buckets = Storage(root), little, buckets
        self.number, self.held, self.seen, self.written = 0, {}, set(), 0

    def _parts(self):
        work = Work(self.storage, "_staging/x", self.number, self.buckets, self.little)
        numbers = list(range(self.buckets))
        return [state.Part(work, "seen", self.held.get("seen", ()), mine)
                for mine in (numbers[:2], numbers[2:]) if mine]  # fmt: skip

    def add(self, numbers, whole=False):
        """numbers: [(device, sequence)], all new; whole: all is written anew."""
        self.number += 1
        rows = ranges([(device, n, n) for device, n in numbers])
        made, gone = [], []
        for part in self._parts():
            mine = np.isin(buckets_of(rows, self.buckets), part.mine)
            came = rows.filter(pa.array(mine))
            both = dedup.joined_seen(pa.concat_tables([part.of(), came]))
            for _, name, count, taken in (part.replace(both) if whole
                                          else part.add(came, dedup.joined_seen)):  # fmt: skip
                made += [("seen", name)] if name else []
                gone += taken
                self.written += count
        old, self.held = self.held, state.after(self.held, made, gone)
        state.forget(self.storage, old, self.held)
        self.seen.update(numbers)

    def known(self, devices):
        """What the state says of some devices, as a set of (device, sequence)."""
        named = pa.array(devices)
        rows = [row for part in self._parts() for row in part.of(named).to_pylist()]
        return {(row["device"], n) for row in rows
                for n in range(row["first"], row["last"] + 1)}  # fmt: skip


def ranges(rows):
    made = [{"group": "g", "device": device, "epoch": "e", "first": a, "last": b}
            for device, a, b in rows]  # fmt: skip
    return pa.Table.from_pylist(made, arrow_schema(SEEN))


@pytest.mark.parametrize("seed", range(4))
def test_the_state_knows_what_a_plain_set_knows(seed, tmp_path):
    choose, batches = random.Random(seed), Batches(tmp_path)
    devices = [f"d{n}" for n in range(40)]
    for _ in range(25):
        if choose.random() < 0.1:
            batches.buckets = choose.randint(1, 4)
        some = choose.sample(devices, choose.randint(1, 12))
        new = {(device, choose.randint(1, 50)) for device in some} - batches.seen
        batches.add(sorted(new), whole=choose.random() < 0.2)
        asked = choose.sample(devices, 10)
        assert batches.known(asked) == {each for each in batches.seen if each[0] in asked}
    assert batches.known(devices) == batches.seen
    kept = {p.relative_to(tmp_path).as_posix() for p in (tmp_path / "_state").rglob("*.parquet")}
    assert kept == set(batches.held["seen"])


def test_a_batch_writes_what_it_adds_and_files_stay_few(tmp_path):
    """A thousand devices, of which each batch has ten: rows are written a few times each, not once
    for each batch, and what a batch has to look through is a few files."""
    batches = Batches(tmp_path, little=20, buckets=1)
    batches.add([(f"d{n}", 1) for n in range(1000)])
    for number in range(1, 101):
        batches.add([(f"d{(10 * number + n) % 1000}", 1 + (10 * number + n) // 1000 * 2 + 2)
                     for n in range(10)])  # fmt: skip
        assert len(batches.held["seen"]) <= 8
    assert batches.written < 1000 * 12  # 101,000 if all were written each time
    assert batches.known([f"d{n}" for n in range(1000)]) == batches.seen


def test_a_flipped_bit_is_told_before_it_counts(tmp_path):
    batches = Batches(tmp_path, buckets=1)
    batches.add([("d1", 1)])
    path = tmp_path / batches.held["seen"][0]
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(SpoolError, match="its bytes are not those that were written"):
        batches.known(["d1"])
    path.unlink()
    with pytest.raises(SpoolError, match="No such file"):
        batches.known(["d1"])


def test_a_boot_waits_for_its_clock_however_its_rows_are_dealt_out():
    def boots(kinds, *rows):
        made = [{"group": "g", "device": "d", "epoch": "e", "boot": boot, **more}
                for boot, more in rows]  # fmt: skip
        return pa.Table.from_pylist(made, arrow_schema(kinds))

    waiting = boots(UNCLOCKED, (1, {"first_batch": 4, "last_batch": 5}),
                    (2, {"first_batch": 3, "last_batch": 3}),
                    (1, {"first_batch": 2, "last_batch": 2}))  # fmt: skip
    clock = {"clock_time": 0, "clock_uptime_ms": 0}
    came = boots(CLOCKS, (1, clock), (3, clock))
    (due,) = dedup.due(waiting, came).to_pylist()
    assert (due["boot"], due["first_batch"], due["last_batch"]) == (1, 2, 5)
    left = dedup.joined_unclocked(waiting, came).to_pylist()
    assert [(row["boot"], row["first_batch"], row["last_batch"]) for row in left] == [(2, 3, 3)]
    both = dedup.joined_unclocked(waiting, came[:0]).to_pylist()
    assert sorted((row["boot"], row["first_batch"]) for row in both) == [(1, 2), (2, 3)]
