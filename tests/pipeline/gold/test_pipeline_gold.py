"""Gold's functions, the gold command's tables, and the report."""

import datetime
import logging
import shutil
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from matplotlib.dates import num2date
from pipeline_kit import EPOCH, NOON, clock, fill, publish, run, senml
from pipeline_tables import arrow, ingest, put
from pyspark.sql import functions as F
from umqtt_pipeline.gold import build, days, fleet, schema
from umqtt_pipeline.ingest.query import COLUMNS, Runner
from umqtt_pipeline.report import page as report
from umqtt_pipeline.report import plots
from umqtt_pipeline.tables.schema import (
    BATCHES,
    CLOCK_ROWS,
    DUPLICATES,
    QUARANTINE,
    SILVER,
    ddl,
)
from umqtt_pipeline.tables.store import Tables

UTC = datetime.UTC


def at(seconds):
    return datetime.datetime.fromtimestamp(NOON / 1e6 + seconds, UTC)


@pytest.fixture
def rows(spark):
    """Silver rows of (device, epoch, sequence, boot, seconds, [(name, value)])."""

    def make(*data):
        return spark.createDataFrame(
            [("g", device, epoch, sequence, boot, 0, at(seconds), "clock", at(seconds + 2), 1,
              [(name, "u", float(value)) for name, value in values], "s", sequence, 0,
              at(0).date())
             for device, epoch, sequence, boot, seconds, values in data],
            ddl(SILVER),
        )  # fmt: skip

    return make


def empty(spark, columns):
    return spark.createDataFrame([], ddl(columns))


def test_minutes(rows):
    made = fleet.minute(rows(
        ("d", "e", 1, 1, 0, [("t", 1), ("h", 5)]), ("d", "e", 2, 1, 59, [("t", 3)]),
        ("d", "e", 3, 1, 60, [("t", 8)]), ("d2", "e", 1, 1, 1, [("t", 100)]),
    ))  # fmt: skip
    assert made.columns == list(schema.MINUTE)
    found = {(r.device, r.minute.astimezone(UTC), r["name"]): (r["count"], r.min, r.mean, r.max)
             for r in made.collect()}  # fmt: skip
    assert found == {("d", at(0), "t"): (2, 1, 2, 3), ("d", at(0), "h"): (1, 5, 5, 5),
                     ("d", at(60), "t"): (1, 8, 8, 8), ("d2", at(0), "t"): (1, 100, 100, 100)}


HUGE = 1.7e308


@pytest.mark.parametrize("values,mean", [
    ([HUGE, HUGE, -HUGE], HUGE / 3), ([-HUGE] * 3, -HUGE), ([sys.float_info.max] * 7,
     sys.float_info.max), ([5e-324] * 3, 5e-324), ([0.1] * 3, 0.1),
])  # fmt: skip
def test_a_mean_is_within_its_range(rows, values, mean):
    """A sum of finite numbers may be infinite, or, of many, not a number."""
    (found,) = fleet.minute(rows(*(("d", "e", n, 1, 0, [("t", value)])
                                  for n, value in enumerate(values)))).collect()  # fmt: skip
    assert found.mean == pytest.approx(mean) and found.min <= found.mean <= found.max


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Tables from a spool: two boots, a gap, duplicates, a device that sends only rubbish."""
    root = tmp_path_factory.mktemp("gold")
    sent = [publish(clock(1, NOON // 1_000_000 - 10, boot=1, uptime_ms=0))]
    sent += [publish(senml(n, [("t", "Cel", Decimal(n))], boot=1 + n // 10, uptime_ms=n * 1000))
             for n in (2, 3, 4, 7, 8, 9, 10, 11, 3, 4)]  # fmt: skip
    sent += [publish(b"rubbish", "<b>odd")]
    fill(root / "spool", sent)
    Runner(spark, str(root / "spool"), str(root / "tables"), once=True).run()
    build.build(spark, root / "tables")
    build.build(spark, root / "tables")  # again: replaced, not added to
    return root / "tables"


def test_devices(made):
    found = {r["device"]: r for r in arrow(made, "gold_device").to_pylist()}
    d = found["dev1"]
    assert (d["readings"], d["first_sequence"], d["last_sequence"], d["gaps"], d["missing"],
            d["duplicates"], d["restarts"], d["epochs"]) == (8, 1, 11, 1, 2, 2, 1, 1)
    assert d["latency_p50_s"] == pytest.approx(4, abs=1)  # only boot 1 has a clock
    odd = found["<b>odd"]
    assert (odd["readings"], odd["quarantined"], odd["last_sequence"]) == (0, 1, None)


def test_the_epoch_heard_last_of_one_read(spark, rows):
    """The packets of one read have one time of receipt: their place tells which was the last."""
    held = rows(("d", "new", 2, 1, 0, [("t", 1)]), ("d", "old", 70, 1, 0, [("t", 1)]),
                ("d", "new", 1, 1, 0, [("t", 1)]), ("d", "old", 9, 1, -9, [("t", 1)]))
    place = {("new", 1): 40, ("new", 2): 500, ("old", 9): 900, ("old", 70): 60}
    keyed = F.create_map(*(F.lit(x) for (epoch, n), at in place.items()
                           for x in (f"{epoch}{n}", at)))  # fmt: skip
    held = held.withColumn("offset", keyed[F.concat("epoch", F.col("sequence"))].cast("bigint"))
    (found,) = fleet._epochs(days.boot_days(held, empty(spark, CLOCK_ROWS))).collect()
    assert (found.epochs, found.first_sequence, found.last_sequence) == (2, 1, 2)


def test_the_last_battery_is_that_of_the_highest_sequence(spark, rows):
    """Not the one with the latest time, which may be that of a late receipt; of two epochs the
    one heard of last, of two in a pack the second."""
    held = rows(
        ("late", "e", 7, 1, 0, [("battery", 3.5)]), ("late", "e", 5, 1, 60, [("battery", 3.9)]),
        ("late", "e", 8, 1, 1, [("rssi", -60)]), ("late", "e", 6, 1, 70, [("t", 20)]),
        ("new", "a", 900, 9, 10, [("battery", 3.1)]), ("new", "b", 2, 1, 20, [("battery", 4.2)]),
        ("new", "b", 1, 1, 30, [("battery", 4.1), ("rssi", -70)]), ("none", "e", 1, 1, 0, []),
        ("two", "e", 1, 1, 0, [("Battery", 4), ("t", 1), ("battery", 3)]),
    )  # fmt: skip
    for frame in (held, held.orderBy("sequence"), held.orderBy(F.desc("sequence"))):
        made = days.boot_days(frame.coalesce(1), empty(spark, CLOCK_ROWS))
        found = {r.device: (r.battery, r.battery_min, r.rssi, r.rssi_min)
                 for r in fleet._epochs(made).collect()}  # fmt: skip
        assert found == {"late": (3.5, 3.5, -60, -60), "new": (4.2, 3.1, -70, -70),
                         "two": (3, 3, None, None), "none": (None,) * 4}  # fmt: skip


def test_latency_from_the_reading_to_the_table(spark, rows):
    """Each reading's end is the commit of the batch that brought it; of a batch of which no commit
    is known only the receipt counts."""
    silver_rows = rows(*(("d", "e", n, 1, n, []) for n in range(1, 6)))
    batch = F.when(F.col("sequence") < 4, 0).when(F.col("sequence") == 4, 7).otherwise(9)
    held = silver_rows.withColumn("batch", batch.cast("bigint"))
    commits = [(0, 3, 3, at(33), at(0).date()), (7, 1, 1, at(1004), at(0).date())]
    ends = spark.createDataFrame(commits, ddl(BATCHES))
    made = days.device_days(held, empty(spark, DUPLICATES), empty(spark, QUARANTINE), ends)
    (found,) = fleet._percentiles(fleet.latency((1, made))).collect()
    assert (found.latency_p50_s, found.latency_p99_s) == pytest.approx((2, 2), rel=0.01)
    # of 30, 31, 32, 1000
    assert (found.stored_p50_s, found.stored_p99_s) == pytest.approx((31, 1000), rel=0.01)


def test_a_bucket_of_latencies_is_two_percent_wide(spark):
    """A latency below nothing, of a device whose clock is fast, stays below nothing."""
    told = [0, 1, 999, 1000, 1_020_000, 31_000_000, 4 * 10**15, -1000, -31_000_000]
    frame = spark.createDataFrame([(n,) for n in told], "us bigint")
    made = frame.select("us", days._bucket(F.col("us")).alias("bucket"))
    found = made.select("us", days.seconds(F.col("bucket")).alias("s"), "bucket").collect()
    for row in found:
        assert row.s == (0 if abs(row.us) < 1000 else pytest.approx(row.us / 1e6, rel=0.0101))
    assert [row.bucket for row in sorted(found, key=lambda row: row.us)] == sorted(
        row.bucket for row in found)  # fmt: skip


@pytest.mark.parametrize("seconds,text", [
    (None, ""), (0, "0 s"), (0.01234, "12.3 ms"), (-0.05, "-50 ms"), (119.9, "120 s"),
    (-3600, "-60 min"),
    (1.67e5, "46.4 h"), (1e6, "11.6 d"), (1.7e9, "19,676 d"),
])  # fmt: skip
def test_a_latency_can_be_read(seconds, text):
    assert report._duration(seconds) == text


@pytest.mark.parametrize("first", [0.0011, 0.02, 0.9, 45.0, 70_000.0])
@pytest.mark.parametrize("times", [1, 1.2, 3, 50, 1e5])
def test_an_axis_of_durations_has_ticks_on_both_sides(first, times):
    last = min(first * times, 8e7)
    ticks = plots._ticks(first, last)
    assert 2 <= len(ticks) <= 6 and ticks == sorted(ticks)
    assert ticks[0] <= first < ticks[1]
    assert last <= ticks[-1] or len(ticks) >= 4


def test_the_report_has_the_latency_to_the_table(made, tmp_path):
    (d,) = (r for r in arrow(made, "gold_device").to_pylist() if r["device"] == "dev1")
    late = [r["committed_at"] - at(4) for r in arrow(made, "batches").to_pylist()]
    assert d["stored_p50_s"] == pytest.approx(late[0].total_seconds(), rel=0.011)
    report.build(made, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f'"to table">{report._duration(d["stored_p50_s"])}</td>' in page


def test_boots_gaps_and_restarts(made):
    boots = arrow(made, "gold_boot").sort_by("boot").to_pylist()
    assert [(b["boot"], b["readings"], b["first_sequence"], b["last_sequence"], b["clock"])
            for b in boots] == [(1, 6, 2, 9, True), (2, 2, 10, 11, False)]  # fmt: skip
    (gap,) = arrow(made, "gaps").to_pylist()
    assert (gap["epoch"], gap["first"], gap["last"], gap["missing"]) == (EPOCH.hex(), 5, 6, 2)
    (restart,) = arrow(made, "restarts").to_pylist()
    assert (restart["boot"], restart["before_sequence"], restart["after_sequence"]) == (2, 9, 10)


def test_a_boot_of_which_only_a_clock_record_came(spark, rows):
    """It counts among the restarts, so it has a row. Of the other boot the clock record was let
    go; its reading has its time by that."""
    told = ("g", "d", "e", 9, 2, 5, at(0), at(1), "s", 9, at(1).date())
    clocks = spark.createDataFrame([told], ddl(CLOCK_ROWS))
    made = fleet.boots(days.boot_days(rows(("d", "e", 7, 1, 0, [("t", 1)])), clocks))
    assert made.columns == list(schema.BOOTS)
    assert sorted((r.boot, r.readings, r.first_sequence, r.first_time is None, r.clock)
                  for r in made.collect()) == [(1, 1, 7, False, True), (2, 0, None, True, True)]


def test_the_report_escapes_what_came_from_the_wire(made, tmp_path):
    report.build(made, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "g/dev1" in text and "unknown encoding" in text and "data:image/svg+xml" in text
    assert "<b>odd" not in text and "&lt;b&gt;odd" in text


def test_the_report_of_a_device_without_readings_and_of_boots_without_a_clock(made, tmp_path):
    report.build(made, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert '"sequence">none</td>' in text and "None" not in text.split("base64")[0]
    assert text.count("<h3>") == 2 and "<h2>Gaps" in text and "<h2>Restarts" in text
    assert "2 of the readings are of a boot without a" in text


@pytest.mark.parametrize("seconds", [[0], [0, 60], [0, 86_400 * 700]])
def test_a_plot_shows_little_more_time_than_there_is(seconds):
    """One minute of readings had an axis of four years."""
    times = [at(second) for second in seconds]
    rows = pa.table({"name": ["t"] * len(times), "unit": ["u"] * len(times), "minute": times,
                     "min": [1.0] * len(times), "mean": [2.0] * len(times),
                     "max": [3.0] * len(times)})  # fmt: skip
    first, last = num2date(plots.device(rows, plots.WIDE).axes[0].get_xlim())
    assert first < times[0] and times[-1] < last
    assert last - first <= max(datetime.timedelta(minutes=10), 1.05 * (times[-1] - times[0]))


INFINITE = float("inf")


@pytest.mark.parametrize("triples,beyond", [
    ([(-HUGE, INFINITE, HUGE)], 1), ([(20.0, 20.0, 20.0), (-HUGE, 5e307, HUGE)], 1),
    ([(0.0, float("nan"), 1.0), (0.0, INFINITE, INFINITE), (1.0, 1.0, 1.0)], 2),
    ([(-plots.LARGEST, 0.0, plots.LARGEST), (5e-324, 5e-324, 1e-323)], 0), ([(5e-324,) * 3], 0),
])  # fmt: skip
def test_the_report_leaves_out_what_no_plot_can_show(made, tmp_path, triples, beyond):
    """One device with a few absurd numbers took the report of the whole fleet away."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    held = arrow(made, "gold_minute")
    (odd,) = held.slice(0, 1).to_pylist()
    rows = [{**odd, "name": "odd", "min": low, "mean": mean, "max": high}
            for low, mean, high in triples]  # fmt: skip
    put(tmp_path, "gold_minute", schema.MINUTE, *held.to_pylist(), *rows)
    report.build(tmp_path, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "measurements of g/dev1" in text
    assert (f"{beyond} of its minutes are not drawn" in text) == bool(beyond)
    shown = plots.drawable(pa.Table.from_pylist(rows, held.schema))
    assert shown.num_rows == len(triples) - beyond


def test_the_report_of_a_fleet_begins_with_what_needs_to_be_looked_at(tmp_path):
    """Its length does not grow with the fleet; the newest events are the ones that it shows."""
    last, old = at(0), at(-7200)
    devices = [{**dict.fromkeys(schema.DEVICES, 0), "group": "g",
                "device": "long" * 9000 if n == 2998 else f"d{n:04}", "readings": 10,
                "last_received": old if n == 7 else last, "battery": 3.7,
                "missing": {2999: 5, 2998: 4}.get(n, 0), "first_time": None, "last_time": None}
               for n in range(3000)]  # fmt: skip
    gaps = [{"group": "g", "device": "d2999", "epoch": "e", "first": n, "last": n, "missing": 1,
             "first_received": at(n)} for n in range(1000)]  # fmt: skip
    put(tmp_path, "gold_device", schema.DEVICES, *devices)
    def value(number):
        return [{"name": "temperature", "unit": "Cel", "value": number}]

    copies = [{"group": "g", "device": "d0001", "epoch": "e", "sequence": n + 1000,
               "measurements": value(21.5), "copy_measurements": value(-4.0),
               "first_received": at(n), "received_at": at(n)} for n in (3, 9, 5)]  # fmt: skip
    put(tmp_path, "conflicts", build.TABLES["conflicts"], *copies)
    put(tmp_path, "gaps", build.TABLES["gaps"], *gaps)
    report.build(tmp_path, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    head, _, rest = text.partition("<h2>Devices")
    assert "<b>3,000</b>devices" in head and "<b>9</b>missing" in head
    assert "<b>1</b>silent" in head and "<b>3</b>copies in conflict" in head
    conflicts = rest.partition("<h2>Copies in conflict")[2]
    assert conflicts.count(">temperature 21.5</td>") == 3
    assert conflicts.count(">temperature -4</td>") == 3
    # The newest first.
    assert conflicts.index(">1009<") < conflicts.index(">1005<") < conflicts.index(">1003<")
    listed = rest.partition("<h2>Gaps")[0].split('<td class="l">')[1:]
    assert len(listed) == report.LISTED and listed[0].startswith("g/d2999")
    assert listed[1].startswith("g/longlong") and "\u2026" in listed[1]
    assert listed[2].startswith("g/d0007") and "3.7" in listed[2]
    assert rest.count(">999</td>") == 2 and ">969</td>" not in rest
    assert "The last 30 of\n1,000" in rest and len(text) < 60_000


def test_nothing_to_report(tmp_path):
    Tables(tmp_path, COLUMNS)  # as an ingest leaves them that had nothing to do
    for command in (("gold",), ("report", "--out", tmp_path / "x.html")):
        done = run(*command, "--tables", tmp_path)
        assert done.returncode == 2 and "umqtt-pipeline" in done.stderr
        assert "Traceback" not in done.stderr


def test_readings_that_silver_lacks_are_told_of(spark, tmp_path, caplog):
    """Somebody has deleted rows of it: gold is made of what is there."""
    folder, root = tmp_path / "spool", tmp_path / "tables"
    for first in (101, 111, 121):
        fill(folder, [publish(senml(n), packet_id=n) for n in range(first, first + 10)])
        ingest(spark, folder, root)
    build.build(spark, root)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not told, "how far it is may be told as well, on a slow computer"
    DeltaTable(str(root / "silver")).delete("batch > 0")
    assert build.build(spark, root)["gold_device"] == 1
    assert "silver lacks 20 readings of batches 1 to 2: " in caplog.text
    assert arrow(root, "gold_device")["readings"].to_pylist() == [10]
