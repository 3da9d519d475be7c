"""The same SenML pack as JSON and as CBOR: the same row, or both are in quarantine with a reason.
Whatever a pack holds, nothing of it goes silently."""

import json
import math
import random
import struct
from decimal import Decimal

import cbor2
import pytest
from decode_kit import told
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pipeline_kit import EPOCH, base, senml, senml_text
from umqtt_pipeline.decode import cbor
from umqtt_pipeline.decode.reading import Malformed

LABELS = {name: label for label, name in cbor.LABELS.items()}
# What a field may hold instead of what it should.
LETTERS = "ab\u00e9\u20ac\U0001f321/\"\\\n"
WRONG = [None, -1, 0, 1.5, 5.0, "x", True, 2**40, 2**60, 2**70, [1], {"a": 1}]
MORE = ["bn", "bver", "bt", "bv", "t", "s", "vs", "sq", "ep", "lo", "zz", "zz_"]


def number(choose):
    """Any number that JSON can write: integers, doubles, halves, decimal fractions."""
    return choose.choice([
        lambda: choose.randint(-(2**70), 2**70), lambda: choose.randint(-9, 9),
        lambda: Decimal(choose.randint(-(10**17), 10**17)).scaleb(choose.randint(-330, 300)),
        lambda: choose.uniform(-1, 1) * 10.0 ** choose.randint(-300, 300),
        lambda: choose.randint(-2048, 2048) / 64, lambda: 10 ** choose.choice([22, 23, 308, 309]),
    ])()  # fmt: skip


def record(choose):
    made = {"n": "".join(choose.choices(LETTERS, k=choose.randint(1, 4)))}
    if choose.random() < 0.6:
        made["u"] = choose.choice(["Cel", "%RH", None])
    made["v"] = number(choose)
    return {**made, "ut": 5} if choose.random() < 0.1 else made


def pack(choose):
    """A pack with labels of JSON: right, or with one thing in it that may not be."""
    low = choose.randint(1, 9)
    first = base(choose.choice([low, 70_000, 2**53 - 1, choose.randint(low, 2**53)]), low=low,
                 boot=choose.randint(0, 2**31 - 1), uptime_ms=choose.randint(0, 10**12))
    records = [record(choose) for _ in range(choose.randint(1, 4))]
    made = [{**first, **records[0]}, *records[1:]] if choose.random() < 0.7 else [first, *records]
    fault = choose.randint(0, 7)
    if fault == 0:
        made[0][choose.choice(["sq", "bo", "up", "ms", "lo"])] = choose.choice(WRONG)
    elif fault == 1:
        more = choose.choice([None, 1, 5, 10, "dev1/", "dev2/"])
        choose.choice(made)[choose.choice(MORE)] = more
    elif fault == 2:
        del made[0][choose.choice(sorted(made[0]))]
    elif fault == 3:
        choose.choice(made)["v"] = choose.choice(WRONG)
    return made


def as_json(pack):
    """With numbers that are text for Python's own writer: a Decimal as it is."""
    held = [{k: EPOCH.hex() if v == EPOCH else v for k, v in record.items()} for record in pack]
    marked = json.dumps(held, default=lambda number: f"\0{number}\0")
    return marked.replace('"\\u0000', "").replace('\\u0000"', "").encode()


def as_cbor(pack, choose):
    """With labels as numbers or as text, lengths told before or not."""
    numbered, indefinite = choose.random() < 0.5, choose.random() < 0.5
    held = [{LABELS.get(k, k) if numbered else k: v for k, v in r.items()} for r in pack]
    if not indefinite:
        return cbor2.dumps(held, canonical=True)
    maps = (b"\xbf" + b"".join(cbor2.dumps(k) + cbor2.dumps(v) for k, v in r.items()) + b"\xff"
            for r in held)  # fmt: skip
    return b"\x9f" + b"".join(maps) + b"\xff"


def fate(row):
    """What became of a packet: its reading, or that it has a reason."""
    if row.reason:
        return "quarantine"
    values = [(m.name, m.unit, struct.pack("d", m.value + 0.0)) for m in row.measurements]
    return (row.device, row.epoch, row.sequence, row.boot, row.uptime_ms, values)


@settings(max_examples=20, deadline=None, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(seed=st.integers(0, 2**64))
def test_json_and_cbor_of_a_pack_are_the_same(seed):
    choose = random.Random(seed)
    made = [pack(choose) for _ in range(50)]
    payloads = [form for one in made for form in (as_json(one), as_cbor(one, choose))]
    found = told(payloads)
    assert len(found) == len(payloads)
    for one, text, binary in zip(made, found[::2], found[1::2]):
        assert fate(text) == fate(binary), (one, text.reason, binary.reason)
    assert 15 < sum(row.reason is None for row in found[::2]) < 48


def test_what_should_be_text_and_is_not():
    """A name, a unit and an epoch that are numbers are no text: 5 is not "5"."""
    wrong = [*(value for value in WRONG if isinstance(value, (int, float, list, dict)))]
    made = [[{**base(1), "n": "t", "u": "5", "v": 1}]]
    made += [[{**made[0][0], key: value}] for key in ("n", "u") for value in wrong]
    made += [[{**made[0][0], "ep": value}] for value in (*wrong, 1234567890123456)]
    made += [[{**base(1), "u": 5}, {"n": "5", "v": 1}], [made[0][0], {"n": 5, "v": 2}]]
    forms = [form for one in made for form in (as_json(one), as_cbor(one, random.Random(1)))]
    found = told(forms)
    pairs = list(zip(made, found[::2], found[1::2]))
    assert [(one, a.reason, b.reason) for one, a, b in pairs if fate(a) != fate(b)] == []
    good = [n for n, row in enumerate(found[::2]) if row.reason is None]
    assert good == [0, len(made) - 2] and found[0].measurements[0].unit == "5"
    units = [a.reason for one, a, _ in pairs if one[0].get("u") != "5" and a.reason]
    assert set(units) == {"the unit of t is not text"}


TWO = [{**base(n), "n": "x", "v": n} for n in (1, 2)]


def cbor_map(*pairs):
    """The bytes of a CBOR map of these pairs, names twice and all."""
    return bytes([0xA0 + len(pairs)]) + b"".join(cbor2.dumps(x) for pair in pairs for x in pair)


FIRST = (*base(1).items(), ("n", "x"), ("v", 1))


@pytest.mark.parametrize("payload,reason", [
    (cbor2.dumps(TWO), "more than one reading"),
    (cbor2.dumps([TWO[0], {**TWO[1], "bn": "dev2/"}]), "more than one reading"),
    (cbor2.dumps([TWO[0], {"sq": "2", "n": "x", "v": 2}]), "more than one reading"),
    (cbor2.dumps([TWO[0], {-2: "dev2/", "n": "x", "v": 2}]), "more than one reading"),
    (b"\x81" + cbor_map(*FIRST, ("sq", 2)), "comes twice"),
    (b"\x81" + cbor_map(*FIRST, ("v", 2)), "comes twice"),
    (b"\x81" + cbor_map(*FIRST, (2, 2)), "comes twice"),
    (cbor2.dumps([{**TWO[0], -5: 10}]), "the field bv"),
    (cbor2.dumps([TWO[0], {"n": "y", "v": 1, 6: -3600}]), "the field t "),
    (cbor2.dumps([{**TWO[0], 3: "warm"}]), "the field vs"),
    (cbor2.dumps([{**TWO[0], "new_": 1}]), "the field new_"),
    (cbor2.dumps([{**TWO[0], -1: 11}]), "bver"),
    (cbor2.dumps(TWO[:1]) + cbor2.dumps(TWO[1:]), "bytes behind"),
    (cbor2.dumps([{**TWO[0], "v": cbor2.CBORTag(1, 5)}]), "finite number"),
    (cbor2.dumps([{**TWO[0], "v": 10**400}]), "finite"),
])  # fmt: skip
def test_nothing_of_a_cbor_pack_goes_silently(payload, reason):
    with pytest.raises(Malformed, match=reason):
        cbor.reading(payload)


@pytest.mark.parametrize("value,number", [
    (b"\xf9\x3e\x00", 1.5), (b"\xf9\x80\x01", -(2.0**-24)),
    (b"\xc3\x49\x01" + bytes(8), -(2.0**64)),
    (b"\xc5\x82\x20\x03", 1.5), (b"\xc4\x82\x21\x39\x01\x2b", -3.0), (b"\x20", -1.0),
])  # fmt: skip
def test_every_number_of_cbor(value, number):
    head = b"\x9f\xbf" + b"".join(cbor2.dumps(x) for pair in FIRST[:-1] for x in pair)
    found = cbor.reading(head + cbor2.dumps("v") + value + b"\xff\xff")
    assert found.measurements == [("x", None, number)] and math.isfinite(number)


def test_a_pack_in_json_says_the_same():
    """The faults of the CBOR packs above, as JSON, and fields that are twice in any record."""
    text = senml_text(1)
    faults = {
        "more than one": json.dumps([json.loads(text)[0], {"sq": "2", "n": "x", "v": 2}]).encode(),
        "comes twice": text.replace(b'"v"', b'"v": 1, "v"'),
        "field bv": text.replace(b'"n"', b'"bv": 1, "n"'),
        "field t ": text[:-1] + b',{"n":"y","v":1,"t":-5}]',
        "field new_": text.replace(b'"n"', b'"new_": 1, "n"'),
        "bver": text.replace(b'"n"', b'"bver": 11, "n"'),
        "ms is not": text.replace(b'"ms": 0', b'"ms": "x"'),
        "no name": text.replace(b'"n": "temperature"', b'"v": "x"').replace(b', "v": 20.5', b""),
        "lo is not": text.replace(b'"lo": 1', b'"lo": "x"'),
    }
    found = told([*faults.values(), senml(2)])
    assert [said for said, row in zip(faults, found) if said not in (row.reason or "")] == []
    assert found[-1].reason is None
