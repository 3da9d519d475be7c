"""Restarts, gaps and corrections of clocks, each a row of its own table; late readings change
them."""

import datetime
import random

import pytest
from pipeline_kit import DAY_US, NOON, clock, fill, publish, senml
from pipeline_tables import arrow, ingest
from umqtt_pipeline.decode import Reading
from umqtt_pipeline.decode.own import Decoders
from umqtt_pipeline.gold import build, days, events, fleet, schema
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.ingest.query import COLUMNS
from umqtt_pipeline.tables.schema import CLOCK_ROWS, SEEN, SILVER, ddl
from umqtt_pipeline.tables.store import Tables

UTC = datetime.UTC
RECEIVED = NOON + 3_600_000_000
NOON_S = NOON // 1_000_000


def at(ms, base=NOON):
    return datetime.datetime.fromtimestamp(base / 1e6, UTC) + datetime.timedelta(milliseconds=ms)


def reading(sequence, boot, uptime_ms, exact=None, epoch="e", received=None):
    """A silver row; exact: ms from NOON by the device's clock, None without one. It came
    `received` ms after RECEIVED, by default in the order of the numbers."""
    came = at(sequence if received is None else received, RECEIVED)
    time, quality = (came, "received") if exact is None else (at(exact), "clock")
    return ("g", "d", epoch, sequence, boot, uptime_ms, time, quality, came, 1,
            [("t", "u", 1.0)], "s", sequence, 0, came.date())  # fmt: skip


def told(sequence, boot, uptime_ms, exact):
    """A clock row."""
    came = at(sequence, RECEIVED)
    return ("g", "d", "e", sequence, boot, uptime_ms, at(exact), came, "s", sequence, came.date())


@pytest.fixture
def found(spark):
    """Rows of a function of gold/events.py for readings and clock rows, as dicts in UTC."""

    def make(function, readings, clocks=(), refused=None, gone=()):
        mixed = [random.Random(1).sample(rows, len(rows)) for rows in (readings, list(clocks))]
        boots = days.boot_days(*(spark.createDataFrame(rows, ddl(columns))
                               for rows, columns in zip(mixed, (SILVER, CLOCK_ROWS))))
        more = () if refused is None else (
            spark.createDataFrame(refused, ddl(schema.DEVICE_DAY)),
            spark.createDataFrame(gone, ddl(SEEN)))  # fmt: skip
        made = function(boots, *more)
        name = next(n for n in schema.TABLES if n == function.__name__)
        assert made.columns == list(schema.TABLES[name])
        return made.toArrow().to_pylist()

    return make


def chosen(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def test_restarts(found):
    rows = found(events.restarts, [
        reading(1, 1, 1000), reading(2, 1, 2000), reading(4, 2, 500, exact=10_500),
        reading(5, 2, 1500, exact=11_500), reading(9, 6, 700),
        reading(1, 1, 300, epoch="b", received=50), reading(2, 1, 400, epoch="b", received=60),
    ], [told(3, 2, 100, 10_100)])  # fmt: skip
    rows.sort(key=lambda row: row["first_received"])
    assert chosen(rows, "epoch", "boot", "new_epoch", "unheard", "before_epoch",
                  "before_boot") == [
        ("e", 2, False, 0, "e", 1), ("e", 6, False, 3, "e", 2),
        ("b", 1, True, 0, "e", 6)]  # fmt: skip
    assert chosen(rows, "before_sequence", "before_uptime_ms", "before_time", "after_sequence",
                  "after_uptime_ms", "after_time", "first_received") == [
        (2, 2000, None, 3, 100, at(10_100), at(3, RECEIVED)),
        (5, 1500, at(11_500), 9, 700, None, at(9, RECEIVED)),
        (9, 700, None, 1, 300, None, at(50, RECEIVED))]  # fmt: skip


def test_gaps_are_between_what_came(found):
    rows = found(events.gaps, [
        *(reading(n, 1, n * 1000) for n in (3, 4)), reading(8, 2, 100, exact=100),
        reading(9, 2, 200, exact=200), reading(12, 2, 900, exact=900), reading(1, 1, 0, epoch="f"),
        reading(3, 1, 0, epoch="f")], [told(6, 2, 50, 50)], refused=[])  # fmt: skip
    rows.sort(key=lambda row: (row["epoch"], row["first"]))
    assert chosen(rows, "epoch", "first", "last", "missing", "before_boot", "after_boot") == [
        ("e", 5, 5, 1, 1, 2), ("e", 7, 7, 1, 2, 2), ("e", 10, 11, 2, 2, 2), ("f", 2, 2, 1, 1, 1)]
    assert chosen(rows[:3], "before_time", "after_time", "first_received") == [
        (None, at(50), at(6, RECEIVED)), (at(50), at(100), at(8, RECEIVED)),
        (at(200), at(900), at(12, RECEIVED))]  # fmt: skip


def refused(*runs, date=1, device="d"):
    """A row of gold_device_day: numbers of the device's epoch "e" are in quarantine."""
    listed = [("e", first, last) for first, last in runs]
    return ("g", device, 0, len(runs), [], listed, [], [], datetime.date(2026, 1, date))


def test_numbers_in_quarantine_are_not_missing(found):
    rows = found(events.gaps, [reading(n, 1, n) for n in (1, 5, 8, 12, 13, 20)], refused=[
        refused((2, 3), (6, 7)), refused((3, 3), (8, 9), (11, 11), (40, 41), date=2),
        refused((4, 4), device="other")])  # fmt: skip
    rows.sort(key=lambda row: row["first"])
    assert chosen(rows, "first", "last", "missing", "quarantined", "reason") == [
        (2, 4, 1, 2, events.MISSING), (6, 7, 0, 2, events.REFUSED), (9, 11, 1, 2, events.MISSING),
        (14, 19, 6, 0, events.MISSING)]  # fmt: skip


def test_numbers_that_were_deleted_are_not_missing(found):
    """Ranges within a gap, over its ends and over several gaps; of another device; of a number
    that is in quarantine, too, beside one that never came."""
    gone = [("g", "d", "e", *run) for run in ((3, 3), (7, 12), (16, 16), (18, 18), (21, 21))]
    rows = found(events.gaps, [reading(n, 1, n) for n in (1, 5, 8, 10, 15, 19, 23)],
                 refused=[refused((2, 2), (16, 17), (21, 21))],
                 gone=[*gone, ("g", "o", "e", 1, 99)])
    rows.sort(key=lambda row: row["first"])
    assert chosen(rows, "first", "last", "missing", "quarantined", "deleted", "reason") == [
        (2, 4, 1, 1, 1, events.MISSING), (6, 7, 1, 0, 1, events.MISSING),
        (9, 9, 0, 0, 1, events.DELETED), (11, 14, 2, 0, 2, events.MISSING),
        (16, 18, 0, 2, 1, events.DELETED), (20, 22, 2, 1, 0, events.MISSING)]  # fmt: skip


def counted(came, quarantined, deleted):
    """What `gaps` has to say of one epoch, by sets of numbers: {(first, last): (missing,
    quarantined, deleted)}."""
    holes, last = {}, None
    for number in sorted(came):
        if last is not None and number > last + 1:
            inside = set(range(last + 1, number))
            kept = inside & quarantined
            gone = inside & deleted - kept
            holes[last + 1, number - 1] = len(inside - kept - gone), len(kept), len(gone)
        last = number
    return holes


def test_each_number_of_a_gap_is_counted_once(found):
    """Numbers of many devices, on both sides of a gap's ends: in quarantine on several days,
    deleted, both, or neither."""
    choose, rows, refusals, gone, wanted = random.Random(7), [], [], [], {}

    def runs():
        starts = [choose.randrange(60) for _ in range(choose.randrange(5))]
        return [(first, first + choose.choice((0, 0, 1, 3, 12))) for first in starts]

    for at_device in range(60):
        device = f"d{at_device}"
        came = sorted(choose.sample(range(60), choose.randrange(2, 20)))
        rows += [(*row[:1], device, *row[2:]) for row in (reading(n, 1, n) for n in came)]
        days_of, deleted = [runs() for _ in range(3)], runs()
        refusals += [refused(*each, date=day + 1, device=device)
                     for day, each in enumerate(days_of)]  # fmt: skip
        gone += [("g", device, "e", *run) for run in deleted]
        sets = [{n for first, last in each for n in range(first, last + 1)}
                for each in (sum(days_of, []), deleted)]  # fmt: skip
        wanted |= {(device, *hole): counts for hole, counts in counted(came, *sets).items()}
    names = ("device", "first", "last", "missing", "quarantined", "deleted")
    said = chosen(found(events.gaps, rows, refused=refusals, gone=gone), *names)
    assert len(wanted) > 200 and sorted(said) == sorted((*k, *v) for k, v in wanted.items())
    assert sum(1 for lost, kept, deleted in wanted.values() if lost and kept and deleted) > 20


def test_a_range_of_numbers_is_not_counted_number_by_number(found):
    far = 10**15
    gone = [("g", "d", "e", first, first + 10**13) for first in range(0, far, 10**14)]
    (row,) = found(events.gaps, [reading(1, 1, 1), reading(far, 1, 2, received=2)],
                   refused=[refused((far // 2 + 1, far // 2 + 10**13))], gone=gone)
    assert chosen([row], "missing", "quarantined", "deleted") == [
        (far - 2 - 10**14 - 8, 10**13, 9 * 10**13 + 8)]


def test_a_wrong_number_is_told_and_what_is_missing_is_told_all_the_same(found):
    """One of a million among small ones, in the same boot or another, and a small one among large
    ones. A device that was heard nothing of for weeks has no wrong number."""
    hour, wrong = 3_600_000, (events.WRONG,)

    def told_of(*readings):
        rows = found(events.gaps, list(readings), refused=[refused()])
        return chosen(sorted(rows, key=lambda row: row["first"]), "first", "missing", "reason")

    small = [reading(n, 1, n * 60_000) for n in (1, 2, 4)]
    odd = reading(10**6, 1, 200_000)
    assert told_of(*small, odd) == [(3, 1, events.MISSING), (5, 999_995, *wrong)]
    assert told_of(*small, odd, reading(7, 2, 9000)) == [
        (3, 1, events.MISSING), (5, 2, events.MISSING), (8, 999_992, *wrong)]
    large = [reading(n, 1, hour + n % 10) for n in (10**6, 10**6 + 1)]
    assert told_of(reading(5, 1, hour), *large) == [(6, 999_994, *wrong)]
    assert told_of(*small, reading(10**6, 1, 400 * hour)) == [
        (3, 1, events.MISSING), (5, 999_995, events.MISSING)]
    assert told_of(*small, reading(10**6, 2, 5, exact=hour)) == [
        (3, 1, events.MISSING), (5, 999_995, events.MISSING)]  # nobody knows when boot 1 ended


def test_corrections_of_the_clock(found):
    """Boot 1: set, then right, then 40 ms too far; boot 2: set; boot 3 never."""
    rows = found(events.clock_corrections, [
        reading(2, 1, 2000, exact=2000), reading(9, 3, 10), reading(7, 2, 70, exact=90_000),
    ], [told(3, 1, 3000, 3000), told(4, 1, 7000, 7000), told(5, 1, 9000, 8960),
        told(6, 1, 10_000, 9960), told(8, 2, 80, 90_010)])  # fmt: skip
    rows.sort(key=lambda row: row["sequence"])
    assert chosen(rows, "boot", "sequence", "uptime_ms", "time", "expected", "correction_ms",
                  "since_ms", "silver_late_ms") == [
        (1, 3, 3000, at(3000), None, None, None, 0),
        (1, 5, 9000, at(8960), at(9000), -40, 2000, 40),
        (2, 8, 80, at(90_010), None, None, None, 0)]  # fmt: skip


def test_a_gap_is_behind_all_that_came_before(found):
    """Runs of two days of receipt lie within each other, beside and between."""
    late = 86_400_000
    rows = found(events.gaps, [
        *(reading(n, 1, n, exact=n) for n in (1, 2, 3, 9, 10)),
        *(reading(n, 1, n, exact=n, received=late + n) for n in (5, 6, 14)),
        *(reading(n, 2, n, exact=n, received=2 * late + n) for n in (4, 8, 12, 13)),
    ], refused=[])  # fmt: skip
    rows.sort(key=lambda row: row["first"])
    assert chosen(rows, "first", "last", "before_boot", "after_boot", "before_time",
                  "first_received") == [
        (7, 7, 1, 2, at(6), at(2 * late + 8, RECEIVED)),
        (11, 11, 1, 2, at(10), at(2 * late + 12, RECEIVED))]  # fmt: skip


def test_a_pack_of_a_clock_and_measurements_is_one_record(found):
    """It is a row of silver and one of clock; the time is the later one that is known."""
    rows = found(events.gaps, [reading(2, 1, 2, exact=2), reading(1, 1, 1, exact=1),
                               reading(4, 1, 4), reading(6, 1, 6)],
                 [told(2, 1, 2, 2), told(4, 1, 4, 44)], refused=[])  # fmt: skip
    assert chosen(sorted(rows, key=lambda row: row["first"]), "first", "last", "before_time",
                  "after_time") == [(3, 3, at(2), at(44)), (5, 5, at(44), None)]  # fmt: skip


def test_the_last_and_the_lowest_battery_and_rssi(spark):
    sent = [[("Battery", "V", 3.7), ("rssi", "dBm", -60.0)],
            [("Battery", "V", 3.1), ("rssi", "dBm", -90.0)], [("Battery", "V", 3.5)]]  # fmt: skip
    rows = [reading(n, 1, n, exact=n)[:10] + (values, "s", n, 0, at(0).date())
            for n, values in enumerate(sent)]  # fmt: skip
    made = days.boot_days(spark.createDataFrame(rows, ddl(SILVER)),
                          spark.createDataFrame([], ddl(CLOCK_ROWS)))  # fmt: skip
    (held,) = fleet._epochs(made).collect()
    assert (held.battery, held.battery_min, held.rssi, held.rssi_min) == (3.5, 3.1, -90.0, -90.0)


def test_a_copy_with_another_value_is_a_conflict_with_both(spark, tmp_path, caplog):
    """Whatever differs: a value, the boot; of a copy of the same batch, and of a later one."""
    def sent(*packs):
        fill(tmp_path / "spool", [publish(pack) for pack in packs])
        ingest(spark, tmp_path / "spool", tmp_path / "tables")

    def value(sequence, number, boot=1):
        return senml(sequence, [("t", "Cel", number)], boot=boot)

    told = clock(9, NOON_S, boot=1, uptime_ms=9000)
    sent(value(1, 20), value(1, 21), value(2, 20), value(2, 20), value(3, 20), told)
    sent(value(3, 22), value(4, 20), value(2, 20, boot=2), value(4, 20), told)
    counts = build.build(spark, tmp_path / "tables")
    rows = arrow(tmp_path / "tables", "conflicts").sort_by("sequence").to_pylist()
    assert [(r["sequence"], r["boot"], r["copy_boot"], r["measurements"][0]["value"],
             r["copy_measurements"][0]["value"]) for r in rows] == [
        (1, 1, 1, 20, 21), (2, 1, 2, 20, 20), (3, 1, 1, 20, 22)]  # fmt: skip
    assert counts["conflicts"] == 3 and "3 copies do not say what" in caplog.text
    places = {(r["spool"], r["offset"]) for r in rows}
    held = arrow(tmp_path / "tables", "bronze").to_pylist()
    found = {bytes(r["payload"]) for r in held if (r["spool"], r["offset"]) in places}
    assert found == {value(1, 21), value(3, 22), value(2, 20, boot=2)}


def test_one_conflict_is_told_as_one():
    assert build._do_not_say(1) == "1 copy does not say"


def decoders():
    """Of lines csv;SEQUENCE."""
    def csv(topic, payload):  # within a function: Spark's workers cannot import this module
        if not payload.startswith(b"csv;"):
            return None
        values = [("t", None, 1.5)]
        return Reading("dev1", bytes(range(8)), int(payload[4:]), 1, 5000, None, values)

    return Decoders((csv,))


def test_late_readings_and_a_replay_change_the_tables(spark, tmp_path):
    """A gap of two: one comes 40 days late, the other out of the quarantine. A whole boot, and
    the clock of the first boot, come 40 days late."""
    epoch = {"epoch": bytes(range(8))}
    spool, tables = tmp_path / "spool", tmp_path / "tables"

    def made(function, *columns):
        held = Tables(tables, COLUMNS)
        made = days.boot_days(held.read(spark, "silver"), held.read(spark, "clock"))
        none = [spark.createDataFrame([], ddl(each)) for each in (schema.DEVICE_DAY, SEEN)]
        rows = function(made, *(none if function is events.gaps else ())).toArrow()
        return chosen(rows.sort_by(columns[0]).to_pylist(), *columns)

    first = [senml(n, boot=1, **epoch) for n in (1, 2, 3, 6)]
    first += [b"csv;5", senml(9, boot=3, uptime_ms=10, **epoch)]
    fill(spool, [publish(payload) for payload in first])
    ingest(spark, spool, tables)
    assert made(events.gaps, "first", "last", "missing") == [(4, 5, 2), (7, 8, 2)]
    assert made(events.restarts, "boot", "before_boot", "unheard") == [(3, 1, 1)]
    assert made(events.clock_corrections, "sequence") == []
    late = [senml(4, boot=1, **epoch), clock(7, NOON_S, boot=1, uptime_ms=7000, **epoch),
            senml(8, boot=2, uptime_ms=10, **epoch)]  # fmt: skip
    fill(spool, [publish(payload) for payload in late], received=NOON + 40 * DAY_US)
    ingest(spark, spool, tables)
    replay.run(spark, tables, decoders())
    assert made(events.gaps, "first") == []
    assert made(events.restarts, "boot", "unheard", "before_time") == [(2, 0, at(0)), (3, 0, None)]
    assert made(events.clock_corrections, "sequence", "time", "silver_late_ms") == [(7, at(0), 0)]
