"""Payloads to readings; what is none says why; nothing else ever comes out."""

import json
import sys
from decimal import Decimal
from pathlib import Path

import cbor2
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipeline_kit import EPOCH, base, clock, flat, publish, senml, senml_text
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.decode import cbor, firmware, payloads
from umqtt_pipeline.decode.payloads import identity
from umqtt_pipeline.decode.reading import Malformed

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "firmware"))


def test_senml():
    r = cbor.reading(senml(7, [("temperature", "Cel", Decimal("20.5"))], boot=3, low=2))
    assert (r.device, r.epoch, r.sequence, r.boot, r.uptime_ms, r.low) == (
        "dev1", EPOCH, 7, 3, 7000, 2)  # fmt: skip
    assert r.measurements == [("temperature", "Cel", 20.5)]


def test_decimal_fractions_are_rounded_once():
    values = [("a", None, Decimal("21.57")), ("b", None, -(2**60)), ("c", None, Decimal("-0.1"))]
    found = [v for _, _, v in cbor.reading(senml(1, values)).measurements]
    assert found == [21.57, -(2.0**60), -0.1]


def test_what_the_firmware_packs():
    telemetry = pytest.importorskip("telemetry", reason="firmware/telemetry.py is not there")
    fields = (("temperature", "Cel", 2), ("reading", None, 0))
    packer = telemetry.Packer("sensor-7", EPOCH, 12, fields)
    for sequence, low in ((1, 1), (23, 23), (24, 7), (300, 256), (70_000, 69_999),
                          (2**30 - 1, 2**29)):  # fmt: skip
        payload = bytes(packer.view(packer.pack(sequence, low, 86_400, 999, (2157, 5))))
        r = cbor.reading(payload)
        assert (r.device, r.sequence, r.low, r.boot, r.uptime_ms) == (
            "sensor-7", sequence, low, 12, 86_400_999)  # fmt: skip
        assert r.measurements == [("temperature", "Cel", 21.57), ("reading", None, 5.0)]
        known, columns = firmware.decode(pa.array([payload], pa.binary()))
        assert known.all(), "the cheap way does not know the firmware"
        assert columns[2].to_pylist() == [sequence] and columns[5].to_pylist() == [low]
        assert identity(payload) == (EPOCH, sequence, low)


def changed(**changes):
    first = {**base(5), "n": "x", "v": 1, **changes}
    return cbor2.dumps([{k: v for k, v in first.items() if v is not Malformed}])


@pytest.mark.parametrize("payload,reason", [
    (b"", "not CBOR"), (b"\x00", "not an array"), (b"\x82\xa1", "not CBOR"),
    (b"\x80", "not an array"),
    (changed(bn=None), "bn"), (changed(bn="dev1"), "bn"), (changed(bn="/"), "bn"),
    (changed(ep=b"short"), "ep"), (changed(ep=Malformed), "ep is missing"),
    (changed(ep="zz" * 8), "ep"), (changed(sq=0), "sq"), (changed(sq=-1), "sq"),
    (changed(sq=1.5), "sq"), (changed(sq=True), "sq"), (changed(sq=2**60), "sq"),
    (changed(sq=Malformed), "sq is missing"), (changed(lo=6), "lo is above sq"),
    (changed(lo=0), "lo"), (changed(bo=-1), "bo"), (changed(up="x"), "up"),
    (changed(ms=1000), "ms"), (changed(v="1"), "x is not a fin"), (changed(v=None), "finite"),
    (changed(v=float("nan")), "finite"), (changed(v=float("inf")), "finite"),
    (changed(v=Decimal("1e999999")), "finite"), (changed(v=True), "x is not a finite number"),
    (changed(n=Malformed), "no name"), (changed(n=5), "no name"), (changed(u=5), "unit of x"),
    (changed(n=Malformed, v=Malformed), "no measurement"),
])  # fmt: skip
def test_malformed(payload, reason):
    with pytest.raises(Malformed, match=reason):
        cbor.reading(payload)


JSON = json.loads(senml_text(5))[0]
OBJECT = json.loads(flat(5, low=2, t=1))


def array(*others, **changes):
    return json.dumps([{**JSON, **changes}, *others]).encode()


def named(**changes):
    return json.dumps({**OBJECT, **changes}).encode()


def twice(payload, name, first, second):
    """A JSON payload in which a name has these two values."""
    old = b'"%s": 5' % name
    assert payload.count(old) == 1
    return payload.replace(old, b'"%s": %s, "%s": %s' % (name, first, name, second))


@pytest.mark.parametrize("payload,low", [
    (changed(v="warm"), 1), (changed(v=float("nan")), 1), (changed(bn=None), 1),
    (changed(bo=-1), 1), (changed(up=Malformed), 1), (changed(n=Malformed, v=Malformed), 1),
    (changed(lo=6), None), (changed(lo="x"), None), (changed(lo=Malformed), None),
    (senml(5) + b"\x00", 1),
    (array(v="warm"), 1), (array(v=None), 1), (array(vs="warm"), 1), (array(bn=7), 1),
    (array(7), 1), (array(lo=6), None), (array(lo=1.5), None), (array() + b" tail", 1),
    (array(up=None), 1), (array(sq="5"), 1),
    (named(t=None), 2), (named(t="warm"), 2), (flat(5), 1), (named(device=None), 2),
    (named(boot=-1), 2), (named(low=6), None), (named(low="x"), None), (named() + named(), 2),
    (named(sequence="5"), 2), (named().replace(b'"t"', b'"\xff"'), 2),
    (b" \r\n" + named(t=float("nan")), 2), (twice(named(boot=5), b"boot", b"1", b"2"), 2),
])  # fmt: skip
def test_an_identity_counts_whatever_else_is_wrong(payload, low):
    """Quarantine has it: the device would send it for ever if the mark did not cover it."""
    assert identity(payload) == (EPOCH, 5, low)


@pytest.mark.parametrize("payload", [
    b"", b"\x00", b"hello", b"[", b"[]", b"[1]", b'{"device":', b"{}", b"\x82\xa1", b"\x80",
    changed(ep=b"short"), changed(ep=Malformed), changed(ep="zz" * 8), changed(sq=0),
    changed(sq=1.5), changed(sq=True), changed(sq=2**60), changed(sq=Malformed),
    b"[7]", array(sq=0), array(sq=5.0), array(sq="05"), array(sq=None), array(ep="zz" * 8),
    array(ep=None), array(ep=1234567890123456), named(sequence=0), named(sequence=-5),
    named(sequence="5 "), named(sequence=True), named(sequence=2**70), named(epoch=5),
    named().replace(b'"', b"'"),
    twice(named(), b"sequence", b"8", b"9"), twice(array(), b"sq", b"8", b"9"),
    twice(array(), b"sq", b"8", b"null"),
])  # fmt: skip
def test_no_identity(payload):
    assert identity(payload) is None


def test_bytes_behind_the_pack():
    with pytest.raises(Malformed, match="behind"):
        cbor.reading(senml(1) + b"\x00")
    marks = Marks()  # kept in quarantine, so it came
    marks.feed(publish(senml(1) + b"\x00"))
    assert [mark.upto for mark in marks.marks.values()] == [1]


@settings(max_examples=400)
@given(st.binary(max_size=80))
@example(b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff")  # an array of 2**64 - 1 items
@example(b"\x81" * 50_000)
@example(b"[" * 50_000)
@example(b"\x81\xd8\x1c\x81\xd8\x1d\x00")  # an array that holds itself
@example(b"\x81\xa1\x02\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01")
@example(cbor2.dumps([{-2: "d/", 2: Decimal("1e30000")}]))
def test_arbitrary_bytes(payload):
    found = identity(payload)
    try:
        reading = cbor.reading(payload)
    except Malformed:
        return
    assert reading.measurements
    assert found == (reading.epoch, reading.sequence, reading.low)


@settings(max_examples=300)
@given(st.integers(0, 400), st.integers(0, 255), st.booleans())
def test_a_damaged_pack_never_gets_another_identity_unnoticed(at, value, cut):
    payload = bytearray(clock(300, 1_767_268_800, low=4) + b"")
    if cut:
        payload = payload[: at % len(payload)]
    else:
        payload[at % len(payload)] = value
    found = identity(bytes(payload))
    try:
        r = cbor.reading(bytes(payload))
    except Malformed:
        return
    assert found == (r.epoch, r.sequence, r.low)


def test_json_with_white_space():
    text = json.dumps(json.loads(senml_text(3)), indent=2).encode()
    assert identity(b" \r\n\t" + text) == (EPOCH, 3, 1)


ENCODED = {"senml+cbor": senml(5, low=2), "senml+json": senml_text(5, low=2),
           "json": flat(5, low=2, t=1)}  # fmt: skip


@pytest.mark.parametrize("kind", payloads._READ)
def test_each_encoding_has_the_identity_of_its_reading(kind):
    """The bridge marks by the identity. A new encoding needs an example in ENCODED."""
    payload = ENCODED[kind]
    assert payloads.encoding(payload) == kind
    found = payloads.reading(payload)
    assert payloads.identity(payload) == (found.epoch, found.sequence, found.low) == (EPOCH, 5, 2)
