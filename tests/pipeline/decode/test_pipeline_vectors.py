"""By column or one by one: the same of the same bytes, whatever they are."""

from decimal import Decimal

import cbor2
import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipeline_kit import EPOCH, senml
from umqtt_pipeline.decode import cbor, firmware
from umqtt_pipeline.decode.reading import Malformed

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WHOLE = st.one_of(st.integers(0, 30), st.integers(-(1 << 64), 1 << 64))
VALUES = st.one_of(
    WHOLE, st.floats(), st.text(max_size=3), st.none(),
    st.builds(lambda d, e: Decimal(d).scaleb(e), st.integers(-(1 << 54), 1 << 54),
              st.integers(-26, 26)),
)  # fmt: skip


@st.composite
def packs(draw):
    """CBOR that is laid out as the firmware does, or nearly."""
    first = {-2: draw(NAMES) + draw(st.sampled_from(["/", "/", "/", ""])),
             "ep": draw(st.one_of(st.just(EPOCH), st.binary(min_size=7, max_size=9)))}  # fmt: skip
    for label in ("bo", "sq", "up", "ms", "lo"):
        first[label] = draw(st.one_of(st.integers(1, 20), st.integers(0, 1100), WHOLE))
    records = []
    for _ in range(draw(st.integers(1, 4))):
        record = {0: draw(NAMES), 1: draw(NAMES), 2: draw(VALUES)}
        if draw(st.booleans()):
            del record[1]
        records.append(record)
    records[0] = {**first, **records[0]}
    raw = bytearray(cbor2.dumps(records))
    for _ in range(draw(st.integers(0, 2))):  # damage
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.sampled_from([None, None, None, len(raw) - 1, 5]))])


PAYLOADS = st.lists(st.one_of(packs(), st.binary(max_size=9), st.none()), max_size=12)


def assert_same(payloads):
    """What is known by column is the same one by one."""
    ok, columns = firmware.decode(payloads)
    if columns is None:
        return
    for number in np.flatnonzero(ok):
        one = cbor.reading(payloads[number].as_py())
        device, epoch, *numbers, measurements = (column[number].as_py() for column in columns)
        assert (device, epoch) == (one.device, one.epoch.hex())
        assert numbers == [one.sequence, one.boot, one.uptime_ms, one.low]
        assert [tuple(each.values()) for each in measurements] == one.measurements


@settings(max_examples=150, deadline=None)
@given(PAYLOADS)
@example([senml(1, device="\u00e4"), senml(2)])
@example([senml(3, [("x", None, 7), ("y", "u", -3), ("z", None, Decimal("-1.5"))])])
def test_readings_by_column_are_those_one_by_one(payloads):
    given_ = pa.array(payloads, pa.binary())
    assert_same(given_)
    if len(payloads) > 2:  # a slice shares the buffers of the whole
        assert_same(given_.slice(1, len(payloads) - 2))


@settings(max_examples=150, deadline=None)
@given(PAYLOADS)
def test_identities_by_column_are_those_one_by_one(payloads):
    raw, starts, ends = firmware.contiguous(pa.array(payloads, pa.binary()))
    ok, epochs, sequences, lows = firmware.identities(raw, starts, ends)
    for number in np.flatnonzero(ok):
        try:
            reading = cbor.reading(payloads[number])
        except Malformed:
            continue  # its measurements are malformed, its identity can be read
        at = epochs[number]
        found = (raw[at : at + 8].tobytes(), sequences[number], lows[number])
        assert found == (reading.epoch, reading.sequence, reading.low)


def test_what_the_firmware_packs_goes_by_column():
    """Not only the slow way: otherwise nothing above would say a thing."""
    values = [("t", "Cel", Decimal("-12.34")), ("n", None, 70_000), ("k", "x", -5)]
    numbers = (1, 30, 300, 70_000, 5 << 32)
    packs = [senml(n, values, uptime_ms=n % 977, low=max(1, n - 9)) for n in numbers]
    ok, columns = firmware.decode(pa.array(packs, pa.binary()))
    assert ok.all()
    assert tuple(columns[2].to_pylist()) == numbers
    assert columns[6].to_pylist()[4] == [
        {"name": "t", "unit": "Cel", "value": -12.34}, {"name": "n", "unit": None,
         "value": 70_000.0}, {"name": "k", "unit": "x", "value": -5.0}]  # fmt: skip
