"""JSON to readings, one payload at a time: SenML (RFC 8428) and flat.

orjson reads payloads that are plainly right. Python's own decoder reads the others once more:
those that orjson refuses, and those that may repeat a name (orjson takes the last). It is slower
by an order of magnitude, but shows every name, and numbers as written. So one rule judges every
payload.

Knows JSON. Must not know topics.
"""

import json
import re
import sys

import orjson

from . import reasons, senml
from .reading import Malformed, made, number

FLAT = {
    "device": "device", "epoch": "ep", "sequence": "sq", "boot": "bo", "up": "up", "ms": "ms",
    "low": "lo",
}  # fmt: skip
LEVELS = 1000  #: of arrays and objects in one another that are read
NOT_UTF8, HALF = "not UTF-8", "half of a surrogate pair: not UTF-8"
NO_OBJECT = "not a JSON object"
_INTEGERS = ("sq", "lo", "bo", "up", "ms")
_WHOLE = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LONG = 400  #: digits of an integer that is larger than any double


class Number(str):
    """A number as it is written in the payload."""


class _Repeated(dict):
    """An object that has a name twice; pairs: all that it says. RFC 8259 section 4 leaves it open
    which of the two is meant: here such a name is None."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.pairs, seen = pairs, set()
        self.update((name, None) for name, _ in pairs if name in seen or seen.add(name))


def _object(pairs):
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _Repeated(pairs)


def _refuse(name):
    raise Malformed(reasons.of(name, reasons.NO_NUMBER))


def _whole(text):
    """An integer of JSON; Python refuses to make one of thousands of digits."""
    return int(text) if len(text) < _LONG else float(text)


def _written_integer(text):
    return Number("0" if text == "-0" else text)


_exact = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole, parse_constant=_refuse)
_WRITTEN = {"object_pairs_hook": _object, "parse_int": _written_integer, "parse_float": Number}
_written = json.JSONDecoder(**_WRITTEN, parse_constant=_refuse)
_lenient = json.JSONDecoder(**_WRITTEN, strict=False)


def _quick(payload, kind):
    """The value of a payload that is of this kind and surely has no name twice; else None."""
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    objects = value if kind is list else [value]
    if not isinstance(value, kind) or not all(type(each) is dict for each in objects):
        return None
    # Each pair has a colon outside of strings: as many as names are there, none is there twice.
    more = payload.count(b":") - sum(map(len, objects))
    if more and b"\\" not in payload:
        more -= sum(text.count(":") for each in objects for pair in each.items()
                    for text in pair if type(text) is str)  # fmt: skip
    return None if more else value


def _slow(payload, decoder, wrong):
    """The value of a payload by Python's decoder. wrong: the reason if it is not one JSON value.
    Raises Malformed."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise Malformed(NOT_UTF8)
    if "\\u" in text and _HALF.search(_WHOLE.sub("_", text)):
        raise Malformed(HALF)
    try:
        return _deep(decoder.decode, text)
    except Malformed:  # NaN or Infinity, by its name
        raise
    except (ValueError, RecursionError):
        raise Malformed(wrong)


def _deep(read, text):
    """What `read` makes of a text of LEVELS levels, wherever in the program this is called."""
    try:
        return read(text)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 2 * LEVELS)
        try:
            return read(text)
        finally:
            sys.setrecursionlimit(limit)


def pack(payload):
    """A SenML pack in JSON -> Reading. Raises Malformed."""
    found = _quick(payload, list)
    if found is None:
        found = _slow(payload, _exact, reasons.NO_PACK)
        if isinstance(found, list) and any(isinstance(each, _Repeated) for each in found):
            raise Malformed(reasons.TWICE)
    return senml.reading(found)


def flat(payload):
    """Flat JSON -> Reading: all fields outside the identity are measurements. Raises Malformed."""
    data = _quick(payload, dict)
    if data is None or type(data.get("device")) is not str or type(data.get("epoch")) is not str:
        data = _slow(payload, _written, NO_OBJECT)
    if not isinstance(data, dict):
        raise Malformed(NO_OBJECT)
    pairs = data.pairs if isinstance(data, _Repeated) else data.items()
    if isinstance(data, _Repeated):
        names = [name for name, _ in pairs if name in FLAT]
        if len(names) > len(set(names)):
            raise Malformed(reasons.TWICE)
    device = data.get("device")
    if not isinstance(device, str) or not device:
        raise Malformed("device is missing")
    measurements = [(name, None, value) for name, value in pairs if name not in FLAT]
    if not all(name for name, _, _ in measurements):
        raise Malformed(reasons.NO_NAME)
    measurements = [(name, None, _number(name, value)) for name, _, value in measurements]
    return made(str(device), identity_fields(data), measurements, reasons.FLAT)


def _number(name, value):
    """The value of a measurement in flat JSON, which may be text. Raises Malformed."""
    taken = double(value) if isinstance(value, str) else value
    return number(name, value if taken is None else taken)


def identity_fields(data):
    """{ep, sq, ...: value} of flat JSON: text of an integer is that integer."""
    return numbered({short: data.get(key) for key, short in FLAT.items()})


def numbered(fields):
    """The same fields with integers where text is one."""
    for key in _INTEGERS:
        if isinstance(fields[key], str):
            whole = integer(fields[key])
            fields[key] = fields[key] if whole is None else whole
    return fields


def double(text):
    """The number that text is, or None."""
    try:
        return float(text) if "_" not in text and text.isascii() else None
    except ValueError:
        return None


def integer(text):
    """The integer of text that is written like one in JSON, or None."""
    plain = len(text) <= 16 and text.isascii() and text.isdigit()
    return int(text) if plain and str(int(text)) == text else None


def short(text):
    """The value of a piece of JSON, as `first` would have it. Raises ValueError."""
    return _lenient.decode(text)


def first(payload, kind):
    """The first JSON value of a payload, for its identity alone. Invalid UTF-8 becomes U+FFFD,
    repeated names are None, and the rest of the payload is ignored. Numbers are int or text.
    Raises Malformed."""
    found = _quick(payload, kind)
    if found is not None and (kind is list or type(found.get("epoch")) is str):
        return found
    text = payload.decode(errors="replace").lstrip(" \t\r\n")
    try:
        return _deep(lambda text: _lenient.raw_decode(text)[0], text)
    except (ValueError, RecursionError):
        raise Malformed("not JSON")
