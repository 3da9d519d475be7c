"""What becomes of a packet: functions of Arrow tables, no stream, no files."""

import json

import pyarrow as pa
import pytest
from decode_kit import at, good, rows, told
from pipeline_kit import EPOCH, NOON, clock, flat, senml, senml_text, topic
from umqtt_pipeline.decode import firmware_packs as packs
from umqtt_pipeline.decode import payloads as decoders
from umqtt_pipeline.decode.rows import decode
from umqtt_pipeline.ingest import dedup
from umqtt_pipeline.tables.schema import CLOCKS, SEEN, SILVER, arrow_schema


def arrow(kinds, rows):
    """Tuples as an Arrow table."""
    schema = arrow_schema(kinds)
    columns = zip(*rows) if rows else [()] * len(kinds)
    return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types)], schema=schema)


@pytest.fixture
def seen():
    def make(*ranges, device="dev1", epoch=EPOCH):
        rows = [("g", device, epoch.hex(), a, b) for a, b in ranges]
        return arrow(SEEN, rows)

    return make


def test_the_three_encodings_give_the_same_row():
    values = [("temperature", "Cel", 20.5)]
    packs = [senml(7, [("temperature", "Cel", 20.5)], boot=3), senml_text(7, values, boot=3),
             flat(7, boot=3, temperature=20.5)]  # fmt: skip
    for n, r in enumerate(told(packs)):
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


def test_what_is_no_reading_has_a_reason():
    found = told(MALFORMED)
    assert [MALFORMED[n] for n, r in enumerate(found) if not r.reason] == []
    assert "dev2" in found[MALFORMED.index(senml(1, device="dev2"))].reason
    assert "topic" in found[-1].reason


def test_a_payload_that_is_too_long_holds_nothing_up():
    """3 MB of empty records took more than a gigabyte."""
    full = decoders.LONGEST - len(flat(1, x=1))
    long = [flat(1, x=1) + b" " * (full + more) for more in (0, 1)]
    long += [b"[" + b"{}," * full + b"{}]", b"\x9f" + b"\xa0" * 2 * full + b"\xff",
             senml(1, [(f"n{n}", None, n) for n in range(200_000)])]  # fmt: skip
    given = rows(*long)
    assert [r.reason for r in told(given)] == [None] + ["more than 1048576 bytes"] * 4
    assert not packs_of(given)[1].any()


NAMES = [  # of a measurement, as JSON writes it; what silver says of it
    (b"\xff", "not UTF-8"), (b"\xed\xa0\x80", "not UTF-8"), (b"\xc3", "not UTF-8"),
    (rb"\ud800", "half of"), (rb"\uD83D", "half of"), (rb"\udf21", "half of"),
    (rb"\udf21\ud83c", "half of"), (rb"\ud83c\\udf21", "half of"), (rb"\\\ud800", "half of"),
    ("\u00fc\U0001f321\ufffd".encode(), None), (rb"\ud83c\udf21", None), (rb"\\ud800", None),
    (rb"\ufffd\u00fc?", None), (rb"\\\\udc00", None),
]  # fmt: skip


def test_a_name_that_is_not_utf8_is_never_another_name():
    """If what cannot be read were replaced, two sensors could become one."""
    payloads = [one.replace(b"NAME", name) for name, _ in NAMES
                for one in (flat(1, NAME=1), senml_text(1, [("NAME", None, 1)]),
                            senml_text(1, [("a", "NAME", 1)]))]  # fmt: skip
    found = told(payloads)
    for n, row in enumerate(found):
        name, said = NAMES[n // 3]
        assert (row.reason or "").startswith(said or "") and bool(row.reason) == bool(said), name
        if not said:
            (m,) = row.measurements
            assert (m.unit if n % 3 == 2 else m.name) == json.loads(b'"%s"' % name)


def test_no_reading_for_the_bridge_is_none_for_silver():
    """What silver takes, the bridge marks: else a device would send it for ever."""
    good = [senml(1), senml_text(2), flat(3, x=1), senml_text(4, [("x", None, 1e300)]),
            clock(5, 2e9), *TOLERATED]  # fmt: skip
    payloads = [m for m in MALFORMED if isinstance(m, bytes)] + good
    taken = [row for row in told(payloads) if row.reason is None]
    assert [r.payload for r in taken] == good
    assert [decoders.identity(r.payload)[:2] for r in taken] == [
        (bytes.fromhex(r.epoch), r.sequence) for r in taken]  # fmt: skip


def test_by_column_the_same_as_by_decode():
    """What ingest takes by the short way, rows.decode says the same of."""
    made = [senml(n, [("t", "Cel", n), ("k", None, -n)]) for n in (1, 2, 70_000)]
    clocks = [clock(n, NOON // 1_000_000) for n in (4, 5)]
    given = rows(*made, *MALFORMED, *clocks, *TOLERATED, ("fleet//dev1/telemetry", senml(1)))
    found, known = packs_of(given)
    expected = decode(given)
    chosen = expected.filter(pa.array(known)).select(found.column_names).cast(found.schema)
    assert found.equals(chosen)
    assert expected.filter(pa.array(known))["reason"].null_count == len(found)
    last = len(made) + len(MALFORMED)
    assert known[: len(made)].all() and known[last : last + 2].all()


def packs_of(given):
    return packs.readings(given)


def test_reasons_name_what_the_payload_calls_it():
    """Its own words: sequence in flat JSON, sq in SenML."""
    fields = {"sequence": "sq", "boot": "bo", "epoch": "ep", "up": "up"}
    payloads = [json.dumps({k: v for k, v in json.loads(flat(5, x=1)).items() if k != name})
                for name in fields]  # fmt: skip
    payloads += [json.dumps([{k: v for k, v in json.loads(senml_text(5))[0].items() if k != name}])
                 for name in fields.values()]  # fmt: skip
    payloads.append(json.dumps({**json.loads(flat(5, x=1)), "low": 6}))
    found = told(p.encode() for p in payloads)
    assert [r.reason.split()[0] for r in found[:-1]] == [*fields, *fields.values()]
    assert found[-1].reason == "low is above sequence"


def test_status_and_commands_are_neither_readings_nor_malformed():
    names = ["fleet/g/d/status", "fleet/g/d/ack", "fleet/g/d/cmd/interval"]
    found = told((n, b"{}") for n in names)
    assert [r.other for r in found] == [True] * 3 and [r.reason for r in found] == [None] * 3


def test_an_unknown_field_is_ignored_and_white_space_is_no_matter():
    text = b' \r\n' + senml_text(1).replace(b'"n"', b'"zz": {"deep": [1]}, "n"') + b"\n"
    assert told([text])[0].reason is None


def fates_of(packets, seen):
    new, copies, _ = dedup.told_apart(good(packets), seen)
    fates = {"new": new, "duplicate": copies}
    return {offset.as_py() // 100: fate for fate, found in fates.items()
            for offset in found["offset"]}  # fmt: skip


def test_duplicates_within_a_batch_and_against_what_was_seen(seen):
    packs = [senml(n) for n in (5, 1, 5, 3, 4, 9, 1)]
    assert fates_of(rows(*packs), seen((1, 1), (4, 8))) == {
        0: "duplicate", 1: "duplicate", 2: "duplicate", 3: "new", 4: "duplicate", 5: "new",
        6: "duplicate"}  # fmt: skip
    assert fates_of(rows(*packs), seen()) == {0: "new", 1: "new", 2: "duplicate", 3: "new",
                                           4: "new", 5: "new", 6: "duplicate"}  # fmt: skip


def test_another_epoch_or_device_is_no_duplicate(seen):
    packs = [senml(1), senml(1, epoch=bytes(8)), (topic("d2"), senml(1, device="d2")),
             (topic("dev1", "h"), senml(1))]  # fmt: skip
    told = fates_of(rows(*packs), seen((1, 1)))
    assert told == {0: "duplicate", 1: "new", 2: "new", 3: "new"}


def test_ranges_grow_together(seen):
    packs = [senml(n) for n in (2, 4, 7, 10, 12)]
    came, before = good(rows(*packs)), seen((1, 1), (3, 3), (5, 6), (20, 30))
    added = dedup.told_apart(came, before)[2]
    found = [(r["first"], r["last"]) for r in added.to_pylist()]
    assert sorted(found) == [(2, 2), (4, 4), (7, 7), (10, 10), (12, 12)]
    after = dedup.joined_seen(pa.concat_tables([before, added])).to_pylist()
    found = sorted((r["first"], r["last"]) for r in after)
    assert found == [(1, 7), (10, 10), (12, 12), (20, 30)]
    other = dedup.joined_seen(pa.concat_tables([seen((1, 9), device="d2"), added])).to_pylist()
    assert {(r["device"], r["first"], r["last"]) for r in other} >= {("d2", 1, 9)}


@pytest.fixture
def clocks():
    def make(*data):
        return arrow(CLOCKS, [("g", "dev1", EPOCH.hex(), boot, at(when), up)
                                     for boot, when, up in data])  # fmt: skip

    return make


def test_time_is_the_clock_of_the_boot_plus_the_difference_of_uptimes(seen, clocks):
    packs = [senml(1, boot=1, uptime_ms=5_250), senml(2, boot=2, uptime_ms=1_000),
             senml(3, boot=3, uptime_ms=9_000)]  # fmt: skip
    told = dedup.told_apart(good(rows(*packs)), seen())[0]
    made = dedup.silver(told, clocks((1, -1000, 10_000), (2, -500, 0)), 7)
    assert made.column_names == list(SILVER)
    found = {r["sequence"]: (r["time"], r["time_quality"]) for r in made.to_pylist()}
    assert found == {1: (at(-1004.75), "clock"), 2: (at(-499), "clock"), 3: (at(2), "received")}


def test_clock_records(seen, clocks):
    packs = [senml(1), clock(2, NOON // 1_000_000, boot=4, uptime_ms=1_500),
             clock(3, NOON // 1_000_000 + 77, boot=4, uptime_ms=90_000)]  # fmt: skip
    told = dedup.told_apart(good(rows(*packs)), seen())[0]
    made = dedup.clock_rows(told)
    told_times = [(r["sequence"], r["boot"], r["uptime_ms"], r["time"])
                  for r in made.to_pylist()]  # fmt: skip
    assert sorted(told_times) == [(2, 4, 1_500, at(0)), (3, 4, 90_000, at(77))]
    assert dedup.readings(told)["sequence"].to_pylist() == [1]
    first = dedup.clocks_added(clocks(), made).to_pylist()
    assert [(r["boot"], r["clock_time"], r["clock_uptime_ms"]) for r in first] == [
        (4, at(0), 1_500)]  # fmt: skip
    assert not len(dedup.clocks_added(clocks((4, -9, 1)), made))
    other = dedup.clocks_added(clocks((3, -9, 1)), made).to_pylist()
    assert [(r["boot"], r["clock_time"]) for r in other] == [(4, at(0))]


def test_a_clock_beside_a_measurement_gives_both(seen, clocks):
    pack = senml(1, [("clock", "s", NOON // 1_000_000), ("x", None, 4)], uptime_ms=0)
    told = dedup.told_apart(good(rows(pack)), seen())[0]
    assert dedup.readings(told)["measurements"].to_pylist() == [
        [{"name": "x", "unit": None, "value": 4.0}]]  # fmt: skip
    assert len(dedup.clock_rows(told)) == 1
