"""The same pack in JSON and in CBOR ends the same, for the same reason; what silver takes, the
bridge marks. Every pack is made in both encodings, and read for a row and for a mark."""

import json
import random

import cbor2
from decode_kit import told
from pipeline_kit import EPOCH, base, flat
from umqtt_pipeline.decode import payloads as decoders
from umqtt_pipeline.decode.reasons import LIMIT

GONE = object()
ODD = (GONE, None, 0, 1, -1, 10, 10.0, 1.5, True, False, "", "10", "x", [], {}, [[1]], {"a": 1},
       1000, 2**31 - 1, 2**31, LIMIT - 1, LIMIT, 2**62, 2**64, 1e300, "dev1/", "dev1", "a/b/",
       "dev1/\n", EPOCH.hex(), EPOCH.hex().upper(), EPOCH.hex() + "\n")  # fmt: skip
FIELDS = ("bn", "bver", "ep", "sq", "bo", "up", "ms", "lo", "n", "u", "v", "vs", "t", "zz", "a_")


def pack(first, *others):
    """A pack in both encodings: (JSON, CBOR)."""
    records = [{k: v for k, v in record.items() if v is not GONE} for record in (first, *others)]
    return json.dumps(records).encode(), cbor2.dumps(records)


def whole():
    return {**base(5, low=2), "ep": EPOCH.hex(), "n": "t", "u": "Cel", "v": 20.5}


def one_fault():
    """Every odd value in every field, alone."""
    for name in FIELDS:
        for value in ODD:
            yield pack({**whole(), name: value})
            if name in ("bver", "lo", "n", "u", "v", "vs"):
                yield pack(whole(), {"n": "k", "v": 1, name: value})
    for record in (None, 1, "x", [], True):
        records = [whole(), record]
        yield json.dumps(records).encode(), cbor2.dumps(records)


def several_faults(seed, count):
    choose = random.Random(seed)
    for _ in range(count):
        records = [whole(), {"n": "k", "v": 1}, {"n": "l", "u": "m", "v": 2}]
        for _ in range(choose.randint(2, 4)):
            choose.choice(records)[choose.choice(FIELDS)] = choose.choice(ODD)
        yield pack(*records[: choose.randint(1, 3)])


def fates_of(payloads):
    """[(reason or None, epoch, sequence)] of payloads; of what is no reading the reason only."""
    return [(row.reason, None, None) if row.reason else (None, row.epoch, row.sequence)
            for row in told(payloads)]  # fmt: skip


def test_text_in_sq_of_senml_json_is_a_fault_and_keeps_its_number():
    """Quarantine has the number, so the mark covers it, and `gaps` says where it is."""
    payload, _ = pack({**whole(), "sq": "10"})
    (row,) = told([payload])
    assert "sq" in row.reason and (row.epoch, row.sequence) == (EPOCH.hex(), 10)
    assert decoders.identity(payload) == (EPOCH, 10, 2)


def check_marks(payloads, fates):
    for payload, (reason, epoch, sequence) in zip(payloads, fates):
        if reason is None:
            assert decoders.identity(payload)[:2] == (bytes.fromhex(epoch), sequence), payload


def is_reading(payload):
    try:
        return decoders.reading(payload).device == "dev1"
    except decoders.Malformed:
        return False


def test_a_pack_ends_the_same_in_json_and_in_cbor():
    single, mixed = list(one_fault()), list(several_faults(7, 200))
    payloads = [payload for both in single + mixed for payload in both]
    fates = fates_of(payloads)
    check_marks(payloads, fates)
    for payload, (reason, _, _) in zip(payloads, fates):
        # A `low` counts for the marks in what silver takes, and in nothing else.
        assert is_reading(payload) == (reason is None), payload
    for n, (text, _) in enumerate(single + mixed):
        in_json, in_cbor = fates[2 * n : 2 * n + 2]
        if n >= len(single):  # of several faults each may name another one
            in_json, in_cbor = ((bool(fate[0]), *fate[1:]) for fate in (in_json, in_cbor))
        assert in_json == in_cbor, text
    taken = sum(reason is None for reason, _, _ in fates)
    assert len(single) // 10 < taken < len(fates) * 3 // 4


def nested(levels, close):
    """A good pack with a field that is not known, as deep as that."""
    value = "[" * levels + "]" * levels if close else '{"a":' * levels + "1" + "}" * levels
    text = json.dumps([{**whole(), "zz": 0}])
    return text.replace('"zz": 0', f'"zz": {value}').encode()


def test_what_is_nested_as_deep_as_silver_takes_it_is_marked():
    payloads = [nested(levels, close) for close in (True, False)
                for levels in (10, 400, 900, 950, 985, 990, *range(993, 1003), 1500, 100_000)]
    fates = fates_of(payloads)
    check_marks(payloads, fates)
    assert [reason for reason, _, _ in fates[:4]] == [None] * 4
    assert fates[-1][0] == "not an array of SenML records"


def test_marks_that_a_wide_filter_brings_back_are_no_telemetry():
    """--topic 'fleet/#' at the bridge: what it says itself comes in, too."""
    from pipeline_kit import publish
    from umqtt_pipeline.bridge.marks import Marks

    marks = Marks()
    marks.feed(publish(flat(1, x=1), topic="fleet/a/b/c/telemetry") + publish(
        flat(7, x=1), topic="plant/telemetry") + publish(flat(1, x=1)))  # fmt: skip
    said = [marks.ack(key) for key in marks.marks]
    assert [name for name, _ in said] == [b"fleet/a/b/c/ack", b"plant/ack", b"fleet/g/dev1/ack"]
    other = [(b"plant/ack", b"{}"), (b"plant/ack", b'{"epoch":"zz"}'), (b"a", said[0][1]),
             (b"fleet/g/dev1/telemetry", said[0][1])]  # fmt: skip
    found = told((name.decode(), payload) for name, payload in said + other)
    assert [r.other for r in found] == [True] * 3 + [False] * 4
    assert [r.reason is None for r in found] == [True] * 3 + [False] * 4
