"""What becomes of a packet: functions of DataFrames and Arrow tables, no stream, no files."""

import datetime
import json

import pyarrow as pa
import pytest
from pipeline_kit import EPOCH, NOON, clock, flat, senml, senml_text, topic
from pyspark.sql import functions as F
from umqtt_pipeline import silver
from umqtt_pipeline.decode import firmware_packs as packs
from umqtt_pipeline.decode import payloads as decoders
from umqtt_pipeline.ingest import bronze, dedup
from umqtt_pipeline.tables.schema import (
    CLOCKS,
    MEASUREMENTS,
    READINGS,
    SEEN,
    SILVER,
    arrow_schema,
    ddl,
)

UTC = datetime.UTC


def at(seconds):
    return datetime.datetime.fromtimestamp(NOON / 1e6 + seconds, UTC)


@pytest.fixture
def rows(spark):
    """Make bronze rows of payloads, or of (topic, payload), one second apart."""

    def make(*payloads):
        data = []
        for n, payload in enumerate(payloads):
            name, payload = payload if isinstance(payload, tuple) else (topic(), payload)
            data.append((name, payload, 1, False, False, n + 1, at(n), "s", 100 * n, None))
        made = spark.createDataFrame(data, ddl(bronze.COLUMNS))
        return made.withColumn("date", F.to_date("received_at"))

    return make


def arrow(kinds, rows):
    """Tuples as an Arrow table."""
    schema = arrow_schema(kinds)
    columns = zip(*rows) if rows else [()] * len(kinds)
    return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types)], schema=schema)


def good(decoded):
    """The readings of decoded rows, as ingest takes them."""
    schema = arrow_schema(READINGS)
    held = decoded.where("reason is null and not other").select(*schema.names).toArrow()
    return held.cast(schema)


@pytest.fixture
def seen():
    def make(*ranges, device="dev1", epoch=EPOCH):
        rows = [("g", device, epoch.hex(), a, b) for a, b in ranges]
        return arrow(SEEN, rows)

    return make


def test_the_three_encodings_give_the_same_row(rows):
    values = [("temperature", "Cel", 20.5)]
    packs = [senml(7, [("temperature", "Cel", 20.5)], boot=3), senml_text(7, values, boot=3),
             flat(7, boot=3, temperature=20.5)]  # fmt: skip
    for n, r in enumerate(silver.decode(rows(*packs)).orderBy("offset").collect()):
        assert r.reason is None and not r.other
        assert (r.group, r.device, r.epoch, r.sequence, r.boot, r.uptime_ms) == (
            "g", "dev1", EPOCH.hex(), 7, 3, 7000)  # fmt: skip
        unit = None if n == 2 else "Cel"
        assert [tuple(m) for m in r.measurements] == [("temperature", unit, 20.5)]


MALFORMED = [
    b"", b"\x00", b"hello", b"[", b"[]", b"[1]", b"[{}]", b"{}", b"{\"device\":\"dev1\"", b"\x80",
    b"\x82\xa1", senml(0), senml(3, low=4), senml(1, [("x", None, float("nan"))]),
    senml_text(0), senml_text(3, low=4), senml_text(1, [("x", None, "warm")]),
    senml_text(1, [("x", None, None)]), senml_text(1, [("", None, 1)]), senml_text(1, device=""),
    senml_text(1) + b" tail", senml(1) + b"\x00", flat(1), flat(0, x=1), flat(1, x="warm"),
    flat(1, x=None),
    flat(3, low=4, x=1), flat(1, device="", x=1), flat(1, x=float("nan")),
    flat(1, x=float("inf")), flat(1, epoch=b"short", x=1), flat(1, boot=-1, x=1),
    flat(1, x=1).replace(b'"sequence": 1', b'"sequence": 8, "sequence": 9'),
    flat(1, x=1).replace(b'"sequence": 1', b'"sequence": "01"'), flat(1, x=1).replace(b'"', b"'"),
    senml_text(1).replace(b'"sq": 1', b'"sq": 8, "sq": 9'), senml_text(1).replace(b'"v"', b'"vs"'),
    senml_text(1).replace(b'"sq": 1', b'"sq": 8, "\\u0073q": 9'), flat(1, x=1, y="INF"),
    b"[" * 5000, b"{\"a\":" * 5000, b'{"a":1,"a":2}', b"\xff\xfe\xfd",
    senml_text(2**62), flat(2**62, x=1), flat(2**70, x=1), flat(1, boot=2**40, x=1),
    senml_text(1, uptime_ms=2**62), senml(1, uptime_ms=2**62), senml(1, boot=2**40),
    senml(1, device="dev2"), senml_text(1, device="dev2"), flat(1, device="dev2", x=1),
    clock(1, 5), clock(1, 99_999_999_999),
    flat(1, low="zz", x=1), senml_text(1, low="zz"), senml_text(1, low=0.5),
    # More than one value: the first must not stand for all of them.
    *(one(1) + between + one(2) for one in (lambda n: flat(n, x=1), senml_text)
      for between in (b"", b"\n", b",", b", ")), flat(1, x=1) + b"}", senml_text(1) + b"]",
    senml_text(1)[:-1] + b"," + senml_text(2)[1:],
    senml_text(1)[:-1] + b"," + senml_text(1, device="dev2")[1:],
    ("fleet/g/telemetry", senml(1)), ("a", senml(1)), ("fleet/g/dev1/x/telemetry", senml(1)),
]  # fmt: skip


# Not as it should be, and yet readings.
TOLERATED = [
    flat(1, low="1", x=1),
    flat(1, x=1).replace(b'"sequence": 1', b'"sequence": "1"'), flat(1, x="1"),
    flat(1, x=1).replace(b'"%s"' % EPOCH.hex().encode(), b"1234567890123456"),
    senml_text(1).replace(b'"v"', b'"zz": {"sq": 2}, "v"'),
]  # fmt: skip


def test_what_is_no_reading_has_a_reason(rows):
    found = silver.decode(rows(*MALFORMED)).orderBy("offset").collect()
    assert [MALFORMED[n] for n, r in enumerate(found) if not r.reason] == []
    assert "dev2" in found[MALFORMED.index(senml(1, device="dev2"))].reason
    assert "topic" in found[-1].reason


def test_a_payload_is_parsed_once(rows):
    """A column that stands in others is worked out in each of them: a row took a millisecond."""
    plan = silver.decode(rows(flat(1, x=1)))._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 3, "SenML as records and as it is written, flat JSON"


def test_a_payload_that_is_too_long_holds_nothing_up(rows):
    """3 MB of empty records took more than a gigabyte."""
    full = decoders.LONGEST - len(flat(1, x=1))
    long = [flat(1, x=1) + b" " * (full + more) for more in (0, 1)]
    long += [b"[" + b"{}," * full + b"{}]", b"\x9f" + b"\xa0" * 2 * full + b"\xff",
             senml(1, [(f"n{n}", None, n) for n in range(200_000)])]  # fmt: skip
    given = rows(*long)
    told = [r.reason for r in silver.decode(given).orderBy("offset").select("reason").collect()]
    assert told == [None] + ["more than 1048576 bytes"] * 4
    assert not packs_of(given)[1].any()


NAMES = [  # of a measurement, as JSON writes it; what silver says of it
    (b"\xff", "not UTF-8"), (b"\xed\xa0\x80", "not UTF-8"), (b"\xc3", "not UTF-8"),
    (rb"\ud800", "half of"), (rb"\uD83D", "half of"), (rb"\udf21", "half of"),
    (rb"\udf21\ud83c", "half of"), (rb"\ud83c\\udf21", "half of"), (rb"\\\ud800", "half of"),
    ("\u00fc\U0001f321\ufffd".encode(), None), (rb"\ud83c\udf21", None), (rb"\\ud800", None),
    (rb"\ufffd\u00fc?", None), (rb"\\\\udc00", None),
]  # fmt: skip


def test_a_name_that_is_not_utf8_is_never_another_name(rows):
    """from_json() replaces what it cannot read: two sensors could become one."""
    payloads = [one.replace(b"NAME", name) for name, _ in NAMES
                for one in (flat(1, NAME=1), senml_text(1, [("NAME", None, 1)]),
                            senml_text(1, [("a", "NAME", 1)]))]  # fmt: skip
    found = silver.decode(rows(*payloads)).orderBy("offset").collect()
    for n, row in enumerate(found):
        name, said = NAMES[n // 3]
        assert (row.reason or "").startswith(said or "") and bool(row.reason) == bool(said), name
        if not said:
            (m,) = row.measurements
            assert (m.unit if n % 3 == 2 else m.name) == json.loads(b'"%s"' % name)


def test_no_reading_for_the_bridge_is_none_for_silver(rows):
    """What silver takes, the bridge marks: else a device would send it for ever."""
    good = [senml(1), senml_text(2), flat(3, x=1), senml_text(4, [("x", None, 1e300)]),
            clock(5, 2e9), *TOLERATED]  # fmt: skip
    payloads = [m for m in MALFORMED if isinstance(m, bytes)] + good
    taken = silver.decode(rows(*payloads)).where("reason is null").orderBy("offset").collect()
    assert [bytes(r.payload) for r in taken] == good
    assert [decoders.identity(bytes(r.payload))[:2] for r in taken] == [
        (bytes.fromhex(r.epoch), r.sequence) for r in taken]  # fmt: skip


def test_by_column_the_same_as_by_decode(rows):
    """What ingest takes by the short way, silver.decode says the same of."""
    made = [senml(n, [("t", "Cel", n), ("k", None, -n)]) for n in (1, 2, 70_000)]
    clocks = [clock(n, NOON // 1_000_000) for n in (4, 5)]
    given = rows(*made, *MALFORMED, *clocks, *TOLERATED, ("fleet//dev1/telemetry", senml(1)))
    found, known = packs_of(given)
    expected = silver.decode(given).orderBy("offset").toArrow()
    chosen = expected.filter(pa.array(known)).select(found.column_names).cast(found.schema)
    assert found.equals(chosen)
    assert expected.filter(pa.array(known))["reason"].null_count == len(found)
    last = len(made) + len(MALFORMED)
    assert known[: len(made)].all() and known[last : last + 2].all()


def packs_of(given):
    schema = arrow_schema(bronze.COLUMNS)
    return packs.readings(given.orderBy("offset").toArrow().cast(schema))


def test_reasons_name_what_the_payload_calls_it(rows):
    """Its own words: sequence in flat JSON, sq in SenML."""
    fields = {"sequence": "sq", "boot": "bo", "epoch": "ep", "up": "up"}
    payloads = [json.dumps({k: v for k, v in json.loads(flat(5, x=1)).items() if k != name})
                for name in fields]  # fmt: skip
    payloads += [json.dumps([{k: v for k, v in json.loads(senml_text(5))[0].items() if k != name}])
                 for name in fields.values()]  # fmt: skip
    payloads.append(json.dumps({**json.loads(flat(5, x=1)), "low": 6}))
    told = silver.decode(rows(*(p.encode() for p in payloads))).orderBy("offset").collect()
    assert [r.reason.split()[0] for r in told[:-1]] == [*fields, *fields.values()]
    assert told[-1].reason == "low is above sequence"


def test_what_a_decoder_of_ones_own_leaves_out_is_no_reading(rows):
    def decode(topic, payload):
        made = {"device": F.lit("dev1"), "epoch": F.lit(EPOCH.hex()), "sequence": F.lit(1)}
        kinds = dict(f.split(":", 1) for f in ("boot:int", "uptime_ms:bigint", "low:bigint"))
        nulls = [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]
        values = F.lit(None).cast(MEASUREMENTS).alias("measurements")
        error = F.lit(None).cast("string").alias("error")
        return F.struct(*(c.alias(n) for n, c in made.items()), *nulls, values, error)

    def nothing(topic, payload):
        return F.lit(None)

    made = [silver.Decoder("half", lambda topic, payload: payload == F.lit(b"half"), decode),
            silver.Decoder("none", lambda topic, payload: payload == F.lit(b"none"), nothing)]
    for decoder in made:
        silver.register(decoder)
    try:
        found = silver.decode(rows(b"half", b"none", senml(2), b"?")).orderBy("offset").collect()
    finally:
        for decoder in made:
            silver.forget(decoder)
    words = "gave not all of device, epoch, sequence, boot, uptime_ms, measurements"
    assert [r.reason for r in found] == [
        f"the decoder half {words}", f"the decoder none {words}", None, "unknown encoding"]


WHOLE = {
    "device": "'dev1'", "epoch": f"'{EPOCH.hex()}'", "sequence": "7L", "boot": "0",
    "uptime_ms": "0L", "low": "null",
    "measurements": "array(named_struct('name', 't', 'unit', 'u', 'value', 1.5D))",
}  # fmt: skip
WRONG = [
    ("device", "null", "not all of device"), ("device", "'other'", "the topic is not"),
    ("epoch", "upper('00112233445566aa')", "epoch is not"), ("epoch", "'zz'", "epoch is not"),
    ("sequence", "0L", "sequence is not in 1.."), ("sequence", "-4L", "sequence is not"),
    ("sequence", str(1 << 53) + "L", "sequence is not"), ("boot", "-1", "boot is not in 0.."),
    ("uptime_ms", "-5L", "uptime_ms is not"), ("uptime_ms", f"{1 << 62}L", "uptime_ms is not"),
    ("measurements", f"slice({WHOLE['measurements']}, 1, 0)", "no measurement"),
    *(("measurements", f"array_append({WHOLE['measurements']}, {bad})", said) for bad, said in [
        ("named_struct('name', null, 'unit', 'u', 'value', 1D)", "has no name"),
        ("named_struct('name', '', 'unit', 'u', 'value', 1D)", "has no name"),
        ("named_struct('name', 'a', 'unit', 'u', 'value', double('NaN'))", "not a finite"),
        ("named_struct('name', 'a', 'unit', 'u', 'value', double('-Infinity'))", "not a finite"),
        ("named_struct('name', 'a', 'unit', 'u', 'value', null)", "not a finite"),
        ("null", "has no name")]),
]  # fmt: skip


def test_what_a_decoder_of_ones_own_gives_out_of_range_is_no_reading(rows):
    """Payloads say which field is to be what: the tables' columns have no other ranges."""
    def decode(topic, payload):
        n = payload.cast("string").cast("int")
        chosen = {name: F.expr(good) for name, good in WHOLE.items()}
        for at, (name, value, _) in enumerate(WRONG):
            chosen[name] = F.when(n == at, F.expr(value)).otherwise(chosen[name])
        error = F.lit(None).cast("string").alias("error")
        return F.struct(*(column.alias(name) for name, column in chosen.items()), error)

    def applies(topic, payload):
        return payload.cast("string").rlike("^[0-9]+$")

    numbers = silver.Decoder("numbers", applies, decode)
    silver.register(numbers)
    try:
        made = rows(*(b"%d" % n for n in range(len(WRONG) + 1)), senml(2))
        *found, whole, other = silver.decode(made).orderBy("offset").collect()
    finally:
        silver.forget(numbers)
    assert whole.reason is None and whole.sequence == 7 and other.reason is None
    for wrong, row in zip(WRONG, found, strict=True):
        assert wrong[2] in row.reason, wrong


def test_status_and_commands_are_neither_readings_nor_malformed(rows):
    names = ["fleet/g/d/status", "fleet/g/d/ack", "fleet/g/d/cmd/interval"]
    told = silver.decode(rows(*((n, b"{}") for n in names))).collect()
    assert [r.other for r in told] == [True] * 3 and [r.reason for r in told] == [None] * 3


def test_an_unknown_field_is_ignored_and_white_space_is_no_matter(rows):
    text = b' \r\n' + senml_text(1).replace(b'"n"', b'"zz": {"deep": [1]}, "n"') + b"\n"
    assert silver.decode(rows(text)).first().reason is None


def fates_of(rows, seen):
    new, copies, _ = dedup.told_apart(good(silver.decode(rows)), seen)
    told = {"new": new, "duplicate": copies}
    return {offset.as_py() // 100: fate for fate, found in told.items()
            for offset in found["offset"]}  # fmt: skip


def test_duplicates_within_a_batch_and_against_what_was_seen(rows, seen):
    packs = [senml(n) for n in (5, 1, 5, 3, 4, 9, 1)]
    assert fates_of(rows(*packs), seen((1, 1), (4, 8))) == {
        0: "duplicate", 1: "duplicate", 2: "duplicate", 3: "new", 4: "duplicate", 5: "new",
        6: "duplicate"}  # fmt: skip
    assert fates_of(rows(*packs), seen()) == {0: "new", 1: "new", 2: "duplicate", 3: "new",
                                           4: "new", 5: "new", 6: "duplicate"}  # fmt: skip


def test_another_epoch_or_device_is_no_duplicate(rows, seen):
    packs = [senml(1), senml(1, epoch=bytes(8)), (topic("d2"), senml(1, device="d2")),
             (topic("dev1", "h"), senml(1))]  # fmt: skip
    told = fates_of(rows(*packs), seen((1, 1)))
    assert told == {0: "duplicate", 1: "new", 2: "new", 3: "new"}


def test_ranges_grow_together(rows, seen):
    packs = [senml(n) for n in (2, 4, 7, 10, 12)]
    came = good(silver.decode(rows(*packs)))
    after = dedup.told_apart(came, seen((1, 1), (3, 3), (5, 6), (20, 30)))[2].to_pylist()
    found = sorted((r["first"], r["last"]) for r in after)
    assert found == [(1, 7), (10, 10), (12, 12), (20, 30)]
    other = dedup.told_apart(came, seen((1, 9), device="d2"))[2].to_pylist()
    assert {(r["device"], r["first"], r["last"]) for r in other} >= {("d2", 1, 9)}


@pytest.fixture
def clocks():
    def make(*data):
        return arrow(CLOCKS, [("g", "dev1", EPOCH.hex(), boot, at(when), up)
                                     for boot, when, up in data])  # fmt: skip

    return make


def test_time_is_the_clock_of_the_boot_plus_the_difference_of_uptimes(rows, seen, clocks):
    packs = [senml(1, boot=1, uptime_ms=5_250), senml(2, boot=2, uptime_ms=1_000),
             senml(3, boot=3, uptime_ms=9_000)]  # fmt: skip
    told = dedup.told_apart(good(silver.decode(rows(*packs))), seen())[0]
    made = dedup.silver(told, clocks((1, -1000, 10_000), (2, -500, 0)), 7)
    assert made.column_names == list(SILVER)
    found = {r["sequence"]: (r["time"], r["time_quality"]) for r in made.to_pylist()}
    assert found == {1: (at(-1004.75), "clock"), 2: (at(-499), "clock"), 3: (at(2), "received")}


def test_clock_records(rows, seen, clocks):
    packs = [senml(1), clock(2, NOON // 1_000_000, boot=4, uptime_ms=1_500),
             clock(3, NOON // 1_000_000 + 77, boot=4, uptime_ms=90_000)]  # fmt: skip
    told = dedup.told_apart(good(silver.decode(rows(*packs))), seen())[0]
    made = dedup.clock_rows(told)
    told_times = [(r["sequence"], r["boot"], r["uptime_ms"], r["time"])
                  for r in made.to_pylist()]  # fmt: skip
    assert sorted(told_times) == [(2, 4, 1_500, at(0)), (3, 4, 90_000, at(77))]
    assert dedup.readings(told)["sequence"].to_pylist() == [1]
    first = dedup.clocks_after(clocks(), made).to_pylist()
    assert [(r["boot"], r["clock_time"], r["clock_uptime_ms"]) for r in first] == [
        (4, at(0), 1_500)]  # fmt: skip
    known = dedup.clocks_after(clocks((4, -9, 1)), made).to_pylist()
    assert [(r["boot"], r["clock_time"]) for r in known] == [(4, at(-9))]


def test_a_clock_beside_a_measurement_gives_both(rows, seen, clocks):
    pack = senml(1, [("clock", "s", NOON // 1_000_000), ("x", None, 4)], uptime_ms=0)
    told = dedup.told_apart(good(silver.decode(rows(pack))), seen())[0]
    assert dedup.readings(told)["measurements"].to_pylist() == [
        [{"name": "x", "unit": None, "value": 4.0}]]  # fmt: skip
    assert len(dedup.clock_rows(told)) == 1
