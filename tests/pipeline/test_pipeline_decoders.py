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
from umqtt_pipeline import vectors
from umqtt_pipeline.decoders import Malformed, decode, identity
from umqtt_pipeline.marks import Marks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "firmware"))


@pytest.mark.parametrize("payload", [
    senml(7, [("temperature", "Cel", Decimal("20.5"))], boot=3, low=2),
    senml_text(7, boot=3, low=2),
])  # fmt: skip
def test_senml(payload):
    r = decode(payload)
    assert (r.device, r.epoch, r.sequence, r.boot, r.uptime_ms, r.low) == (
        "dev1", EPOCH, 7, 3, 7000, 2)  # fmt: skip
    assert r.measurements == [("temperature", "Cel", 20.5)]


def test_flat():
    r = decode(flat(7, boot=3, low=2, temperature=20.5, count=3))
    assert (r.device, r.epoch, r.sequence, r.boot, r.uptime_ms, r.low) == (
        "dev1", EPOCH, 7, 3, 7000, 2)  # fmt: skip
    assert r.measurements == [("temperature", None, 20.5), ("count", None, 3.0)]


def test_decimal_fractions_are_rounded_once():
    values = [("a", None, Decimal("21.57")), ("b", None, -(2**60)), ("c", None, Decimal("-0.1"))]
    assert [v for _, _, v in decode(senml(1, values)).measurements] == [21.57, -(2.0**60), -0.1]


def test_what_the_firmware_packs():
    telemetry = pytest.importorskip("telemetry", reason="firmware/telemetry.py is not there")
    fields = (("temperature", "Cel", 2), ("reading", None, 0))
    packer = telemetry.Packer("sensor-7", EPOCH, 12, fields)
    for sequence, low in ((1, 1), (23, 23), (24, 7), (300, 256), (70_000, 69_999),
                          (2**30 - 1, 2**29)):  # fmt: skip
        payload = bytes(packer.view(packer.pack(sequence, low, 86_400, 999, (2157, 5))))
        r = decode(payload)
        assert (r.device, r.sequence, r.low, r.boot, r.uptime_ms) == (
            "sensor-7", sequence, low, 12, 86_400_999)  # fmt: skip
        assert r.measurements == [("temperature", "Cel", 21.57), ("reading", None, 5.0)]
        known, columns = vectors.decode(pa.array([payload], pa.binary()))
        assert known.all(), "the cheap way does not know the firmware"
        assert columns[2].to_pylist() == [sequence] and columns[5].to_pylist() == [low]
        assert identity(payload) == (EPOCH, sequence, low)


def changed(**changes):
    first = {**base(5), "n": "x", "v": 1, **changes}
    return cbor2.dumps([{k: v for k, v in first.items() if v is not Malformed}])


@pytest.mark.parametrize("payload,reason", [
    (b"", "unknown encoding"), (b"\x00", "unknown encoding"), (b"hello", "unknown encoding"),
    (b"[", "not JSON"), (b"{\"device\":", "not JSON"), (b"\x82\xa1", "not CBOR"),
    (b"[]", "not an array"), (b"[1]", "not an array"), (b"\x80", "not an array"),
    (changed(bn=None), "bn"), (changed(bn="dev1"), "bn"), (changed(bn="/"), "bn"),
    (changed(ep=b"short"), "ep"), (changed(ep=Malformed), "ep is missing"),
    (changed(ep="zz" * 8), "ep"), (changed(sq=0), "sq"), (changed(sq=-1), "sq"),
    (changed(sq=1.5), "sq"), (changed(sq=True), "sq"), (changed(sq=2**60), "sq"),
    (changed(sq=Malformed), "sq is missing"), (changed(lo=6), "lo is above sq"),
    (changed(lo=0), "lo"), (changed(bo=-1), "bo"), (changed(up="x"), "up"),
    (changed(ms=1000), "ms"), (changed(v="1"), "x has no number"), (changed(v=None), "x has no"),
    (changed(v=float("nan")), "finite"), (changed(v=float("inf")), "finite"),
    (changed(v=Decimal("1e999999")), "finite"), (changed(v=True), "x has no number"),
    (changed(n=Malformed), "no name"), (changed(n=5), "no name"), (changed(u=5), "unit of x"),
    (changed(n=Malformed, v=Malformed), "no measurement"),
    (b'{"device":"d","x":1}', "missing"), (flat(1, x="warm"), "x has no number"),
    (flat(1), "no measurement"),
])  # fmt: skip
def test_malformed(payload, reason):
    with pytest.raises(Malformed, match=reason):
        decode(payload)
    assert identity(payload) is None


def test_bytes_behind_the_pack():
    with pytest.raises(Malformed, match="behind"):
        decode(senml(1) + b"\x00")
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
    try:
        reading = decode(payload)
    except Malformed:
        return
    assert reading.measurements


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
        r = decode(bytes(payload))
    except Malformed:
        return
    assert found == (r.epoch, r.sequence, r.low)


def test_json_with_white_space():
    text = json.dumps(json.loads(senml_text(3)), indent=2).encode()
    assert decode(b" \r\n\t" + text).sequence == 3
