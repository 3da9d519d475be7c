"""JSON has one rule, whichever of its two decoders reads it; what is there twice is
never silent."""

import json

import pytest
from decode_kit import told
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipeline_kit import EPOCH, flat, senml_text
from umqtt_pipeline.decode import Malformed
from umqtt_pipeline.decode.payloads import identity, reading

VALUES = st.sampled_from([
    b"1", b"-0", b"0.1", b"1e5", b"1E-5", b"1e400", b"1e-400", b"5e-324", b"2147483648", b"1.0",
    b"123456789012345678901234567890", b"9007199254740993", b"1.7976931348623159e308",
    b"1234567890123456", b"01", b"+1", b".5", b"1.", b"1" * 500, b"1" * 5000, b'"1"', b'" 2 "',
    b'"1e3"', b'"1_0"', b'"x"', b'"5"', b'"05"', b'"NaN"', b"NaN", b"-Infinity", b"true", b"null",
    b"[]", b"{}", b'{"a":1,"a":2}', b'"a:b"', rb'"\u0041"', rb'"\ud83d\ude00"', rb'"\ud800"',
    b'"\xff"', b'"\n"',
])  # fmt: skip
NAMES = st.sampled_from([b"device", b"epoch", b"sequence", b"boot", b"up", b"ms", b"low", b"t",
                         b"x:y", rb"\u0074", "\u00fc".encode(), b""])  # fmt: skip
WHOLE = [(b"device", b'"dev1"'), (b"epoch", b'"%s"' % EPOCH.hex().encode()), (b"sequence", b"5"),
         (b"boot", b"1"), (b"up", b"5"), (b"t", b"20.5")]  # fmt: skip
#: What only Python's decoder is sure of: a colon and an escape in a name.
SLOW = (rb"\u007a:", b"1")


def text_of(pairs):
    return b"{" + b",".join(b'"%s":%s' % pair for pair in pairs) + b"}"


def outcome(payload):
    """(what a payload is read as, without SLOW, or why it is no reading)."""
    try:
        found = reading(payload)
    except Malformed as why:
        return str(why)
    values = [repr(value) for value in found.measurements if value[0] != "z:"]
    return (found.device, found.epoch, found.sequence, found.boot, found.uptime_ms, found.low,
            values)  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), NAMES, VALUES), max_size=3))
@example([(3, b"boot", b"-0")])
@example([(0, b"device", b"5"), (1, b"epoch", b"1234567890123456")])
def test_both_decoders_say_the_same(changes):
    """orjson, and Python's where orjson could take the last of two values for the only one."""
    pairs = list(WHOLE)
    for at, name, value in changes:
        pairs[at] = (pairs[at][0], value) if name == pairs[at][0] else (name, value)
    quick, slow = text_of(pairs), text_of([*pairs, SLOW])
    found = outcome(quick)
    if found != "no measurement":
        assert found == outcome(slow)
    if not isinstance(found, str):
        assert identity(quick) == identity(slow) == (found[1], found[2], found[5])


TWICE = "a field comes twice"


@pytest.mark.parametrize("payload,reason", [
    (flat(5, t=1).replace(b'"boot": 1', b'"boot": 1, "boot": 1'), TWICE),
    (flat(5, t=1).replace(b'"boot": 1', rb'"boot": 1, "\u0062oot": 2'), TWICE),
    (flat(5, t=1).replace(b'"boot": 1', b'"boot" : 1, "boot" :2, "note": "::"'), TWICE),
    (flat(5, t=1)[:-1] + b',"device":"dev1"}', TWICE),
    (senml_text(5).replace(b'"v"', b'"v": 1, "v"'), TWICE),
    (senml_text(5, [("a:b", "c:d", 1)]).replace(b'"v"', b'"v": 1, "v"'), TWICE),
    (flat(5, t=1) + b"\n" + flat(5, t=1), "not a JSON object"),
    (flat(5, t=float("nan")), "NaN is not JSON"),
    (flat(5, t=1).replace(b"dev1", b"dev1\n"), "not a JSON object"),
    (b"{" * 5000, "not a JSON object"), (b"[" * 5000, "not an array of SenML records"),
    (senml_text(5, [("t", None, float("inf"))]), "Infinity is not JSON"),
])  # fmt: skip
def test_what_json_leaves_open_is_no_reading(payload, reason):
    (row,) = told([payload])
    assert row.reason.startswith(reason)


def test_an_object_may_have_line_breaks():
    (row,) = told([json.dumps(json.loads(flat(5, t=1)), indent=2).encode()])
    assert row.reason is None and [m.value for m in row.measurements] == [1]


def test_a_measurement_that_is_there_twice_is_two():
    (row,) = told([flat(5, t=1)[:-1] + b',"t":2}'])
    assert row.reason is None and [m.value for m in row.measurements] == [1, 2]


def test_names_with_colons_and_escapes_are_read():
    """MAC addresses, URNs: the colons of a text are not those of its pairs."""
    device = "urn:dev:mac:00:11"
    (row,) = told([("fleet/g/" + device + "/telemetry", one) for one in (
        json.dumps({**json.loads(flat(5)), "device": device, 'a":b': 1}).encode(),)])  # fmt: skip
    assert row.reason is None and row.measurements[0].name == 'a":b'
    pack = senml_text(5, [("t:u", "v:w", 1)], device=device)
    (row,) = told([("fleet/g/" + device + "/telemetry", pack)])
    assert row.reason is None and (row.device, row.measurements[0].unit) == (device, "v:w")


@pytest.mark.parametrize("value,said", [
    (None, "null"), (True, "true"), (False, "false"), ("off", "text"), ([1], "an array"),
    ({"a": 1}, "an object"),
])  # fmt: skip
def test_a_measurement_that_is_no_number_is_told_with_what_it_is(value, said):
    whole = f"t is not a finite number: it is {said}"
    for payload in (flat(5, t=value), senml_text(5, [("t", None, value)])):
        with pytest.raises(Malformed, match=f"^{whole}$"):
            reading(payload)


def test_text_is_a_number_in_flat_json_and_may_be_too_large():
    assert reading(flat(5, t="21.5")).measurements == [("t", None, 21.5)]
    for payload in (flat(5, t="1e999"), flat(5, t=1).replace(b'"t": 1', b'"t": 1e999')):
        with pytest.raises(Malformed, match="^t is not a finite number: it is too large$"):
            reading(payload)
