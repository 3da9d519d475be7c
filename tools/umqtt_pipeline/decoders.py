"""Payloads to readings, one at a time: SenML in CBOR or JSON (RFC 8428) and flat JSON, each with
the fields that give a reading its identity. Pure functions over bytes. Must not know topics,
Spark or the spool.

CBOR labels of RFC 8428 section 6, table 4: bn -2, n 0, u 1, v 2. The labels ep, sq, bo, up, ms
and lo are this project's own (text labels; RFC 8428 section 4.4 has readers ignore what they do
not know). The JSON decoders here serve the bridge; silver.py reads JSON inside the JVM and the
tests hold the two against each other.
"""

import io
import json
import math
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import cbor2

LIMIT = 1 << 53  # integers beyond it are not exact in every JSON reader
CBOR_LABELS = {-2: "bn", 0: "n", 1: "u", 2: "v"}
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


def _uint(fields, key, low=0, high=LIMIT, default=None):
    value = fields.get(key, default)
    if value is None:
        raise Malformed(f"{key} is missing")
    if type(value) is not int or not low <= value < high:
        raise Malformed(f"{key} is not an integer in {low}..{high - 1}")
    return value


def _epoch(fields):
    value = fields.get("ep")
    if value is None:
        raise Malformed("ep is missing")
    if isinstance(value, str):
        try:
            value = bytes.fromhex(value) if len(value) == 16 else b""
        except ValueError:
            value = b""
    if type(value) is not bytes or len(value) != 8:
        raise Malformed("ep is not 8 bytes (16 hex digits)")
    return value


def _number(name, value):
    """A measurement as a double, correctly rounded from an exact decimal fraction."""
    if type(value) not in (int, float, Decimal):
        raise Malformed(f"{name} has no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Malformed(f"{name} is not a finite number")
    return number


def _identity(fields):
    sequence = _uint(fields, "sq", 1)
    low = None
    if fields.get("lo") is not None:
        low = _uint(fields, "lo", 1)
        if low > sequence:
            raise Malformed("lo is above sq")
    return _epoch(fields), sequence, low


def _reading(device, fields, measurements):
    epoch, sequence, low = _identity(fields)
    boot = _uint(fields, "bo", high=1 << 31)
    uptime = _uint(fields, "up", high=1 << 31) * 1000 + _uint(fields, "ms", 0, 1000, 0)
    if not measurements:
        raise Malformed("no measurement")
    return Reading(device, epoch, sequence, boot, uptime, low, measurements)


def _senml(pack):
    """A SenML pack whose records have text labels (bn, n, u, v, ep, ...)."""
    if not isinstance(pack, list) or not pack or not all(isinstance(r, dict) for r in pack):
        raise Malformed("not an array of SenML records")
    first = pack[0]
    device = first.get("bn")
    if not isinstance(device, str) or not device.endswith("/") or len(device) < 2:
        raise Malformed("bn is not DEVICE/")
    measurements = []
    for record in pack:
        name, unit = record.get("n"), record.get("u")
        if record is first and name is None and "v" not in record:
            continue  # base fields in a record of their own
        if not isinstance(name, str) or not name:
            raise Malformed("a measurement has no name")
        if unit is not None and not isinstance(unit, str):
            raise Malformed(f"the unit of {name} is not text")
        measurements.append((name, unit, _number(name, record.get("v"))))
    return _reading(device[:-1], first, measurements)


def senml_cbor(payload):
    """SenML CBOR with definite or indefinite lengths -> Reading. Raises Malformed."""
    source = io.BytesIO(payload)
    try:
        pack = cbor2.CBORDecoder(source).decode()
    except (cbor2.CBORError, ValueError, OverflowError, TypeError, RecursionError,
            InvalidOperation) as error:  # fmt: skip
        raise Malformed(f"not CBOR: {type(error).__name__}")
    if source.tell() != len(payload):
        raise Malformed("bytes behind the end of the CBOR item")
    if isinstance(pack, list):
        pack = [
            {CBOR_LABELS.get(k, k) if type(k) is int else k: v for k, v in record.items()}
            if isinstance(record, dict)
            else record
            for record in pack
        ]
    return _senml(pack)


def _json(payload):
    try:
        return json.loads(payload.decode())
    except (ValueError, RecursionError):
        raise Malformed("not JSON")


def senml_json(payload):
    """SenML JSON -> Reading. Raises Malformed."""
    return _senml(_json(payload))


def flat_json(payload):
    """One JSON object, every key beyond the identity's a measurement -> Reading."""
    data = _json(payload)
    if not isinstance(data, dict):
        raise Malformed("not a JSON object")
    device = data.get("device")
    if not isinstance(device, str) or not device:
        raise Malformed("device is missing")
    fields = {short: data[key] for key, short in FLAT.items() if key in data}
    values = [(k, None, _number(k, v)) for k, v in data.items() if k not in FLAT]
    return _reading(device, fields, values)


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


DECODERS = {"senml+cbor": senml_cbor, "senml+json": senml_json, "json": flat_json}


def decode(payload):
    """Any known payload -> Reading. Raises Malformed with the reason."""
    kind = encoding(payload)
    if kind is None:
        raise Malformed("unknown encoding")
    return DECODERS[kind](payload)


def identity(payload):
    """(epoch, sequence, low or None) of a payload, or None if it names no reading.

    What the firmware packs is told the same by vectors.identities, thousands at a time.
    """
    try:
        reading = decode(payload)
    except Malformed:
        return None
    return reading.epoch, reading.sequence, reading.low
