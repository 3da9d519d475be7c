"""Gold reads what has changed, and is then what it would be if it were made anew."""

import datetime
import random
import shutil

import pytest
from deltalake import DeltaTable
from pipeline_kit import DAY_US, NOON, clock, fill, publish, put_back, senml
from pipeline_tables import arrow, clock_of_tables, files, ingest
from umqtt_pipeline.decode import Reading
from umqtt_pipeline.decode.own import Decoders
from umqtt_pipeline.gold import build, fleet, schema
from umqtt_pipeline.gold.fleet import minute
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.ingest.ledger import Ledger
from umqtt_pipeline.tables import compaction, maintenance
from umqtt_pipeline.tables.lock import InUse
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import Tables
from umqtt_runtime import progress

FIRST = datetime.date(2026, 1, 1)
BASE = NOON // 1_000_000


def rows(root):
    """All that gold has made, in a fixed order. No mean depends on an order: values are whole."""
    return {name: sorted(map(str, arrow(root, name).to_pylist())) for name in build.MADE}


def anew(spark, root, where):
    """What gold makes of a copy of these tables when it keeps nothing."""
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(root, where)
    build.build(spark, where, anew=True)
    return rows(where)


def decisions(root):
    """How many commits the log of gold's intents has."""
    return DeltaTable(str(root / build.NAME)).version()


def minutes(spark, root):
    """gold_minute, made of all of silver at once."""
    found = minute(Tables(root, ALL).read(spark, "silver")).toArrow().to_pylist()
    return sorted(map(str, found))


def csv_decoders():
    """Of lines csv;DEVICE;SEQUENCE."""
    def csv(topic, payload):  # within a function: Spark's workers cannot import this module
        if not payload.startswith(b"csv;"):
            return None
        device, sequence = payload[4:].decode().split(";")
        return Reading(device, bytes(range(8)), int(sequence), 1, 5000, None, [("t", None, 2.0)])

    return Decoders((csv,))


class Fleet:
    """Three devices whose packets come in any order, some twice, some days late, some not at all,
    some with another value; `step` does one thing with their tables."""

    def __init__(self, spark, root, seed):
        self.spark, self.root, self.spool = spark, root / "tables", root / "spool"
        self.choose, self.day = random.Random(seed), 0
        self.late, self.next = [], {}

    def packet(self, device):
        n = self.next[device] = self.next.get(device, 0) + 1
        said = {"device": device, "epoch": bytes(range(8)), "boot": 1 + n // 15}
        value = [("t", "Cel", n), ("battery", "V", n % 7)]
        if n % 15 == 9:
            return publish(clock(n, BASE + self.day * 86_400 + n, **said), device)
        if n % 11 == 4:
            return publish(b"csv;%s;%d" % (device.encode(), n), device)
        if n % 13 == 2:
            value.append(("clock", "s", BASE + self.day * 86_400 + n))
        return publish(senml(n, value, **said), device)

    def sent(self):
        """A batch of a day, or of the next one."""
        self.day += self.choose.choice((0, 1, 1))
        packets, self.late = self.late, []
        for _ in range(24):
            device = self.choose.choice(("dev1", "dev2", "dev3"))
            packet, fate = self.packet(device), self.choose.random()
            if fate < 0.2:
                self.late.append(packet)
            elif fate > 0.9:
                continue
            packets += [packet] * (2 if fate > 0.8 else 1)
            if fate > 0.85:
                copy = senml(self.next[device], [("t", "Cel", 1000)], device=device,
                             epoch=bytes(range(8)))  # fmt: skip
                self.late.append(publish(copy, device))
        self.choose.shuffle(packets)
        fill(self.spool, packets, NOON + self.day * DAY_US, per_block=5)
        with clock_of_tables(NOON):  # so that `clean` finds all old enough that looks so
            ingest(self.spark, self.spool, self.root)

    def compacted(self):
        held = Tables(self.root, ALL)
        ledger = Ledger(held)
        ledger.recover()
        with clock_of_tables(NOON):
            compaction.run(self.spark, held, ledger, 2)

    def replayed(self):
        replay.run(self.spark, self.root, csv_decoders())

    def cleaned(self):
        held = Ledger(Tables(self.root, ALL))
        held.recover()
        keep = {name: self.choose.randint(1, self.day + 1)
                for name in self.choose.sample(["silver", "clock", "duplicates", "batches"], 2)}
        today = FIRST + datetime.timedelta(days=self.day)
        maintenance.expire(held.tables, held, keep, today)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.campaign)
                                       for seed in (3, 4))])  # fmt: skip
def test_whatever_happened_it_is_as_if_made_anew(spark, tmp_path, seed):
    fleet = Fleet(spark, tmp_path, seed)
    fleet.sent()
    fleet.sent()
    build.build(spark, fleet.root)
    for step in ([fleet.sent, fleet.replayed, fleet.cleaned],
                 [fleet.compacted, fleet.sent, fleet.sent]):  # fmt: skip
        for each in step:
            each()
        build.build(spark, fleet.root)
        made, whole = rows(fleet.root), anew(spark, fleet.root, tmp_path / "anew")
        for name in build.MADE:
            assert made[name] == whole[name], (name, [each.__name__ for each in step])
        assert made["gold_minute"] == minutes(spark, fleet.root)
    assert seed > 2 or all(
        whole[name] for name in ("gaps", "restarts", "conflicts", "clock_corrections"))


@pytest.fixture(scope="module")
def days(spark, tmp_path_factory):
    """Tables of three days, and gold of them."""
    root = tmp_path_factory.mktemp("days")
    for day in range(3):
        sent = [publish(senml(n)) for n in range(10 * day + 1, 10 * day + 11)]
        fill(root / "spool", [*sent, sent[3]], NOON + day * DAY_US)
        ingest(spark, root / "spool", root / "tables")
    build.build(spark, root / "tables")
    return root


@pytest.fixture
def copy(days, tmp_path):
    shutil.copytree(days, tmp_path / "copy")
    return tmp_path / "copy" / "tables"


def next_day(spark, root, *numbers):
    """The day after, with readings of these numbers."""
    fill(root.parent / "spool", [publish(senml(n)) for n in numbers], NOON + 3 * DAY_US)
    ingest(spark, root.parent / "spool", root)


def test_what_has_not_changed_is_not_read(spark, copy, tmp_path):
    """The files of earlier days are gone from the disk, and nobody misses them. A copy of a
    reading of the second day is looked up in that day alone."""
    next_day(spark, copy, *range(31, 41), 15)
    whole = anew(spark, copy, tmp_path / "anew")
    for name in build.DAILY:
        for path in files(copy, name):
            if path.parent.name in ("date=2026-01-01", "date=2026-01-03"):
                path.unlink()
    build.build(spark, copy)
    assert rows(copy) == whole
    before = {name: DeltaTable(str(copy / name)).version() for name in build.MADE}
    build.build(spark, copy)  # there is nothing to do
    assert before == {name: DeltaTable(str(copy / name)).version() for name in build.MADE}


def test_days_of_minutes_whose_readings_are_the_same_stay(spark, copy):
    before = files(copy, "gold_minute")
    held = Tables(copy, ALL)
    again = held.read(spark, "silver").repartition(2)
    held.replace("silver", held.store(again, "silver", 900))
    next_day(spark, copy, 32)
    build.build(spark, copy)
    after = files(copy, "gold_minute")
    assert len(before) == 3 and len(after) == 4 and set(before) < set(after)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_killed_at_any_operation(spark, copy, cuts, tmp_path, every):
    """Just before the decision, when all is made once more, right after it, at the last operation
    and at some, or each, of those between them."""
    next_day(spark, copy, *range(33, 41), 12)
    whole, before = anew(spark, copy, tmp_path / "anew"), decisions(copy)
    left = cuts(copy, lambda: build.build(spark, copy))
    assert rows(copy) == whole
    decided = next(n for n, each in enumerate(left) if decisions(each) > before)
    assert len(left) - decided > 2 * len(build.MADE)
    between = range(decided + 1, len(left) - 1)
    between = between if every else random.Random(4).sample(between, 1)
    for n in (decided - 1, decided, *sorted(between), len(left) - 1):
        put_back(left[n], copy)
        build.build(spark, copy)
        assert rows(copy) == whole, f"killed at operation {n} of {len(left)}"


def spoiled(root, how):
    if how == "a table":
        shutil.rmtree(root / "gold_minute")
    elif how == "a damaged intent":
        last = sorted((root / "_gold" / "intents" / "_delta_log").glob("*.json"))[-1]
        last.write_text(last.read_text().replace('"intent"', '"other"'))


@pytest.mark.parametrize("how", ["a table", "a damaged intent"])
def test_what_somebody_has_taken_away_is_made_anew(spark, copy, days, how):
    spoiled(copy, how)
    build.build(spark, copy)
    assert rows(copy) == rows(days / "tables")


def test_an_older_copy_of_a_table_is_made_anew(spark, copy, tmp_path):
    shutil.copytree(copy / "gold_boot_day", tmp_path / "old")
    next_day(spark, copy, 31, 34)
    build.build(spark, copy)
    whole = rows(copy)
    shutil.rmtree(copy / "gold_boot_day")
    shutil.copytree(tmp_path / "old", copy / "gold_boot_day")
    build.build(spark, copy)
    assert rows(copy) == whole


def test_a_new_column_is_there_for_days_that_have_not_changed(spark, copy, monkeypatch):
    """In tables of a version without it, it would else be null until somebody says --anew."""
    columns = {name: kind for name, kind in schema.DEVICES.items() if name != "restarts"}
    next_day(spark, copy, 32)
    with monkeypatch.context() as earlier:
        earlier.setattr(fleet, "DEVICES", columns)
        earlier.setitem(schema.MADE, "gold_device", columns)
        build.build(spark, copy)
    assert "restarts" not in arrow(copy, "gold_device").column_names
    build.build(spark, copy)
    assert arrow(copy, "gold_device")["restarts"].to_pylist() == [0]


def test_of_two_at_once_one_says_so(spark, copy, tmp_path, monkeypatch):
    next_day(spark, copy, 31, 34)
    real = progress.Watch.doing

    def other_first(watch, what):
        if what.startswith("gold_device,"):
            monkeypatch.setattr(progress.Watch, "doing", real)
            build.build(spark, copy)
        real(watch, what)

    monkeypatch.setattr(progress.Watch, "doing", other_first)
    with pytest.raises(InUse, match="another gold"):
        build.build(spark, copy)
    assert rows(copy) == anew(spark, copy, tmp_path / "anew")
