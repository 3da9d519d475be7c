"""Payloads, one at a time: SenML in CBOR (RFC 8428) to readings, and of every encoding (SenML in
CBOR and JSON, flat JSON) the fields that give a reading its identity. Pure functions over bytes.
Must not know topics, Spark or the spool.

CBOR labels are those of RFC 8428 section 6, table 4. The labels ep, sq, bo, up, ms and lo are this
project's own (text labels; RFC 8428 section 4.4 has readers ignore what they do not know). Fields
that would change what a reading says (a base value, a time of its own) are not taken: it is in
quarantine rather than in silver with another value. JSON is read by silver/json_columns.py in the
JVM; `identity` serves the bridge, and the tests hold the two against each other.
"""

import io
import json
import math
import sys
from dataclasses import dataclass, field
from decimal import Decimal

import cbor2

from . import reasons
from .reasons import BITS_31, CLOCK, CLOCK_FROM, CLOCK_TO, LIMIT

LONGEST = 1 << 20  #: bytes of a payload that is decoded: a thousandth of that is usual
CBOR_LABELS = {-1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs", 0: "n", 1: "u",
               2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd"}  # fmt: skip
NOT_TAKEN = ("bt", "bu", "bv", "bs", "vs", "vb", "vd", "s", "t")
MUST_BE_KNOWN = "_"  #: ends a label that may not be ignored [RFC 8428 section 4.4]
SENML_VERSION = 10
LEVELS = 1000  #: of JSON that the reader in the JVM takes
OWN_LABELS = ("ep", "sq", "bo", "up", "ms", "lo")
FLAT = {
    "device": "device", "epoch": "ep", "sequence": "sq", "boot": "bo", "up": "up", "ms": "ms",
    "low": "lo",
}  # fmt: skip


class Malformed(ValueError):
    """The payload is no reading; the text is the reason shown in the quarantine table."""


@dataclass(slots=True)
class Reading:
    """What one payload says. epoch: 8 bytes; uptime in ms; low may be None."""

    device: str
    epoch: bytes
    sequence: int
    boot: int
    uptime_ms: int
    low: int | None
    measurements: list = field(default_factory=list)  #: (name, unit or None, float)


def _uint(fields, key, low, high, default=None):
    """An integer in low..high."""
    value = fields.get(key)
    value = default if value is None else value
    if type(value) is not int or not low <= value <= high:
        raise Malformed(reasons.SENML[key])
    return value


def _epoch(fields):
    value = fields.get("ep")
    if isinstance(value, str):
        try:
            value = bytes.fromhex(value) if len(value) == 16 else b""
        except ValueError:
            value = b""
    if type(value) is not bytes or len(value) != 8:
        raise Malformed(reasons.SENML["ep"])
    return value


def _number(name, value):
    """A measurement as a double, correctly rounded from an exact decimal fraction."""
    try:
        number = float(value) if type(value) in (int, float, Decimal) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Malformed(reasons.of(name, reasons.NUMBER))
    return number


def _low(fields, sequence):
    if fields.get("lo") is None:
        return None
    low = _uint(fields, "lo", 1, LIMIT - 1)
    if low > sequence:
        raise Malformed(reasons.SENML["lo above"])
    return low


def _reading(device, fields, measurements):
    sequence = _uint(fields, "sq", 1, LIMIT - 1)
    low, epoch = _low(fields, sequence), _epoch(fields)
    boot = _uint(fields, "bo", 0, BITS_31)
    uptime = _uint(fields, "up", 0, BITS_31) * 1000 + _uint(fields, "ms", 0, 999, 0)
    if not measurements:
        raise Malformed(reasons.NO_MEASUREMENT)
    return Reading(device, epoch, sequence, boot, uptime, low, measurements)


def _senml(pack):
    """A SenML pack whose records have text labels (bn, n, u, v, ep, ...)."""
    if not isinstance(pack, list) or not pack or not all(isinstance(r, dict) for r in pack):
        raise Malformed(reasons.NO_PACK)
    first = pack[0]
    _refuse(pack)
    device = first.get("bn")
    if not isinstance(device, str) or not device.endswith("/") or len(device) < 2:
        raise Malformed(reasons.NO_DEVICE)
    measurements = []
    for record in pack:
        name, unit = record.get("n"), record.get("u")
        if record is first and name is None and record.get("v") is None:
            continue  # base fields in a record of their own
        if not isinstance(name, str) or not name:
            raise Malformed(reasons.NO_NAME)
        if unit is not None and not isinstance(unit, str):
            raise Malformed(reasons.of(name, reasons.UNIT))
        measurements.append((name, unit, _number(name, record.get("v"))))
    return _reading(device[:-1], first, measurements)


def _refuse(pack):
    """Raises Malformed where a pack says more than is taken from it here."""
    first = pack[0]
    for record in pack:
        version = record.get("bver")
        if version is not None and (type(version) is not int or version != SENML_VERSION):
            raise Malformed(reasons.VERSION)
        for key, value in record.items():
            if value is not None and isinstance(key, str) and (
                    key in NOT_TAKEN or key.endswith(MUST_BE_KNOWN)):  # fmt: skip
                raise Malformed(reasons.of(key, reasons.NOT_TAKEN))
        if record is not first and (not record.keys().isdisjoint(OWN_LABELS)
                                    or record.get("bn") not in (first.get("bn"), None)):
            raise Malformed(reasons.SEVERAL)  # it would be taken for measurements of the first


_BROKEN = (cbor2.CBORError, ValueError, ArithmeticError, TypeError, RecursionError)


def _cbor(payload, repeats=False):
    """The first CBOR item of a payload, and how many bytes it takes. Raises Malformed.

    A map that has a key twice is not valid [RFC 8949 section 5.6]: which is meant is open.
    repeats: it is taken all the same.
    """
    source = io.BytesIO(payload)
    try:
        return cbor2.CBORDecoder(source, allow_duplicate_keys=repeats).decode(), source.tell()
    except _BROKEN as error:
        if "Duplicate map key" in str(error):
            raise Malformed(reasons.TWICE)
        raise Malformed(f"not CBOR: {type(error).__name__}")


def _first_of_cbor(payload):
    """The first CBOR item of a payload, for its identity alone, which counts whatever else comes
    twice: of the first map, as `_once` has it in JSON, keys that do are None. Raises Malformed."""
    try:
        return _cbor(payload)[0]
    except Malformed as error:
        if str(error) != reasons.TWICE:
            raise
    pack = _cbor(payload, repeats=True)[0]
    if pack and isinstance(pack[0], dict):
        try:
            keys = _keys(payload)
        except _BROKEN as error:  # a value that refers to another one, say
            raise Malformed(f"not CBOR: {type(error).__name__}")
        pack[0].update((key, None) for key in OWN_LABELS if keys.count(key) > 1)
    return pack


_ARGUMENT = {24: 1, 25: 2, 26: 4, 27: 8}  #: bytes behind the first of an item, by its low bits


def _keys(payload):
    """All keys of the map with which the CBOR array that is the payload begins, which can be
    decoded. Raises Malformed if the map is within a tag."""
    at = 1 + _ARGUMENT.get(payload[0] & 31, 0)
    head = payload[at]
    if head >> 5 != 5:
        raise Malformed(reasons.NO_PACK)
    size = _ARGUMENT.get(head & 31, 0)
    count = int.from_bytes(payload[at + 1 : at + 1 + size], "big") if size else head & 31
    source = io.BytesIO(payload)
    source.seek(at + 1 + size)
    decoder = cbor2.CBORDecoder(source, allow_duplicate_keys=True)
    keys = []
    while payload[source.tell()] != 0xFF if head == 0xBF else len(keys) < count:
        keys.append(decoder.decode())
        decoder.decode()
    return keys


def senml_cbor(payload):
    """SenML CBOR with definite or indefinite lengths -> Reading. Raises Malformed."""
    pack, size = _cbor(payload)
    if size != len(payload):
        raise Malformed("bytes behind the end of the CBOR item")
    if isinstance(pack, list):
        pack = [_labelled(record) if isinstance(record, dict) else record for record in pack]
    return _senml(pack)


def _labelled(record):
    """A record of SenML CBOR with JSON's labels. Raises Malformed."""
    named = {CBOR_LABELS.get(k, k) if type(k) is int else k: v for k, v in record.items()}
    if len(named) < len(record):
        raise Malformed(reasons.TWICE)  # once as a number, once as text
    return named


def encoding(payload):
    """'senml+cbor', 'senml+json', 'json' or None, told by the first byte: a CBOR array begins
    with 0x80..0x9b or 0x9f, JSON with a bracket (or white space)."""
    head = payload.lstrip(b" \t\r\n")[:1]
    if head == b"[":
        return "senml+json"
    if head == b"{":
        return "json"
    if payload and (0x80 <= payload[0] <= 0x9B or payload[0] == 0x9F):
        return "senml+cbor"
    return None


def _once(pairs):
    """A JSON object as a dict; None for a name that comes twice: RFC 8259 section 4 leaves it
    open which of the two is meant."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = set()
        fields.update((name, None) for name, _ in pairs if name in seen or seen.add(name))
    return fields


class _Number(str):
    """A number as it is written in the payload, as silver has it from from_json."""


_json = json.JSONDecoder(object_pairs_hook=_once, parse_int=_Number, parse_float=_Number,
                         strict=False)  # fmt: skip


def _first_of_json(payload):
    """The first JSON value of a payload, for its identity alone: bytes that are no UTF-8, which
    silver does not take, become U+FFFD; what follows is not looked at. Raises Malformed."""
    text = payload.decode(errors="replace").lstrip(" \t\r\n")
    try:
        try:
            return _json.raw_decode(text)[0]
        except RecursionError:
            return _deep(text)
    except (ValueError, RecursionError):
        raise Malformed("not JSON")


def _deep(text):
    """The same of a text as deep as silver takes it, wherever in the program this is called."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * LEVELS)
    try:
        return _json.raw_decode(text)[0]
    finally:
        sys.setrecursionlimit(limit)


def _alone(pairs):
    """A JSON object as a dict. Raises Malformed for a name that comes twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Malformed(reasons.TWICE)
    return fields


def _whole_json(payload, **numbers):
    """The JSON value that a payload is. numbers: how they are made. Raises Malformed."""

    def refuse(name):
        raise Malformed(f"{name} is no JSON")

    try:
        value = json.loads(payload.decode(), object_pairs_hook=_alone, parse_constant=refuse,
                           **numbers)  # fmt: skip
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no UTF-8
        return value
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, Malformed) else Malformed("not JSON")


def _flat(data):
    """A Reading of flat JSON whose numbers are text as they were written. Raises Malformed."""
    fields = {short: data.get(key) for key, short in FLAT.items()}
    for key in ("sq", "lo", "bo", "up", "ms"):
        if fields[key] is not None:
            fields[key] = _integer(fields[key])
            if fields[key] is None:
                raise Malformed(reasons.SENML[key])
    if not isinstance(data.get("device"), str) or not data["device"]:
        raise Malformed("device is missing")
    measurements = [(name, None, _number(name, _double(text)))
                    for name, text in data.items() if name not in FLAT]  # fmt: skip
    if not all(name for name, _, _ in measurements):
        raise Malformed(reasons.NO_NAME)
    return _reading(data["device"], fields, measurements)


def _double(text):
    """The number that text is, or None."""
    try:
        return float(text) if isinstance(text, str) and "_" not in text else None
    except ValueError:
        return None


def reading(payload):
    """The Reading that a payload of any encoding is, as silver would take it. Raises Malformed.

    What JSON has written in some way that only Java takes for a number is refused here.
    """
    if len(payload) > LONGEST:
        raise Malformed(f"more than {LONGEST} bytes")
    kind = encoding(payload)
    if kind is None:
        raise Malformed("unknown encoding")
    if kind == "senml+cbor":
        found = senml_cbor(payload)
    elif kind == "json":
        found = _flat(_whole_json(payload, parse_int=_Number, parse_float=_Number))
    else:
        found = _senml(_whole_json(payload))
    for name, _, value in found.measurements:
        if name == CLOCK and not CLOCK_FROM <= value <= CLOCK_TO:
            raise Malformed("a clock outside 2020..2100")
    return found


def _integer(text):
    """The integer of a JSON number, or of text that is written like one, or None."""
    plain = isinstance(text, str) and len(text) <= 16 and text.isascii() and text.isdigit()
    return int(text) if plain and str(int(text)) == text else None


def _identity_fields(payload):
    """{ep, sq, lo: value or None} of a payload. Raises Malformed."""
    kind = encoding(payload)
    if kind == "json":
        data = _first_of_json(payload)
        fields = {short: data.get(key) for key, short in FLAT.items()}
    elif kind is None:
        raise Malformed("unknown encoding")
    else:
        pack = (_first_of_cbor if kind == "senml+cbor" else _first_of_json)(payload)
        if not isinstance(pack, list) or not pack or not isinstance(pack[0], dict):
            raise Malformed(reasons.NO_PACK)
        fields = {key: pack[0].get(key) for key in OWN_LABELS}
        if isinstance(fields["ep"], _Number):  # text only, as in CBOR; flat JSON takes both
            raise Malformed(reasons.SENML["ep"])
    if kind != "senml+cbor":
        fields.update((key, _integer(fields[key])) for key in ("sq", "lo"))
    return fields


def identity(payload):
    """(epoch, sequence, low or None) of a payload, or None if epoch or sequence cannot be read.

    Nothing else need be right: a payload with another fault is in quarantine, and would be no
    better if the device sent it again. A `low` that cannot be is None. What silver takes for a
    reading has the same identity here. What the firmware packs is told the same by
    vectors.identities, thousands at a time.
    """
    try:
        fields = _identity_fields(payload)
        epoch, sequence = _epoch(fields), _uint(fields, "sq", 1, LIMIT - 1)
    except Malformed:
        return None
    try:
        return epoch, sequence, _low(fields, sequence)
    except Malformed:
        return epoch, sequence, None
