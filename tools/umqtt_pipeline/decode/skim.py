"""The short fields of the first record of a payload that is too long, or too damaged, to be
decoded whole: its identity is among them, wherever they stand.

What else is in the payload is passed over and never made a value: decoded, 64 MiB of empty CBOR
maps would take 5 GB. So memory is that of the payload, and time is bounded by STEPS. Behind a
fault, or behind so many steps, nothing is looked at: what came before it counts.

Knows where a value of JSON or CBOR ends. Must not know what a field means.
"""

import re

import cbor2

STEPS = 200_000  #: items of CBOR, or brackets and strings of JSON, that are passed over
SHORT = 96  #: bytes of a name or a value that may be one of an identity, escapes and all
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE = rb"[ \t\r\n]*+"
_NAME = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_SCALAR = re.compile(_STRING + rb'|[^\[\]{}",: \t\r\n]++', re.DOTALL)
_STEP = re.compile(_STRING + rb'|["\[\]{}]', re.DOTALL)  #: one within an array or an object
_BEGIN = re.compile(_SPACE + rb"\[?" + _SPACE + rb"\{")
_COMMA = re.compile(_SPACE + rb",")
_ARGUMENT = {24: 1, 25: 2, 26: 4, 27: 8}  #: bytes behind the first of an item, by its low bits
_ENDLESS = -1  #: as a count: up to a break


class _End(Exception):
    """Here the look ends: there is a fault, or there were STEPS."""


def json(payload, names, value):
    """{name: value} of those fields of the first object that are in `names`; None for one that
    comes twice, or is no short text or number. value: function from the JSON of one to it, which
    may raise ValueError."""
    found, left = {}, [STEPS]
    begin = _BEGIN.match(payload)
    at = begin.end() if begin else len(payload)
    try:
        while name := _NAME.match(payload, at):
            key = _text(name[1], value)
            at = _json_end(payload, name.end(), left)
            if key in names:
                found[key] = None if key in found else _text(payload[name.end() : at], value)
            comma = _COMMA.match(payload, at)
            at = comma.end() if comma else len(payload)
    except _End:
        pass
    return found


def _text(raw, value):
    """What a short piece of JSON is; None for what is none."""
    try:
        return value(raw.decode(errors="replace")) if len(raw) <= SHORT else None
    except ValueError:
        return None


def _json_end(payload, at, left):
    """Where the JSON value ends that begins at `at`; left: [steps]. Raises _End."""
    scalar = _SCALAR.match(payload, at)
    if scalar:
        _step(left)
        return scalar.end()
    depth = 0
    for found in _STEP.finditer(payload, at):
        _step(left)
        mark = found[0] if found.end() == found.start() + 1 else b""
        if mark == b'"' or not depth and found.start() != at:
            break  # a string without an end, or no value
        depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        if depth <= 0:
            return found.end()
    raise _End


def cbor(payload, names):
    """The same of the first map of an array in CBOR."""
    found, left = {}, [STEPS]
    try:
        _, _, at = _head(payload, 0)
        kind, count, at = _head(payload, at)
        while kind == 5 and (payload[at] != 0xFF if count == _ENDLESS else count):
            name, at = _cbor_item(payload, at, left)
            value, at = _cbor_item(payload, at, left)
            if type(name) is str and name in names:
                found[name] = None if name in found else value
            count -= count != _ENDLESS
    except (_End, IndexError):
        pass
    return found


def _cbor_item(payload, begin, left):
    """What the item at `begin` is, None unless it is short; and where it ends. Raises _End,
    IndexError."""
    at, unfinished = begin, [1]  # how many items are still to come, by level
    while unfinished:
        if not unfinished[-1]:
            unfinished.pop()
            continue
        _step(left)
        if payload[at] == 0xFF and unfinished[-1] == _ENDLESS:
            unfinished.pop()
            at += 1
            continue
        unfinished[-1] -= unfinished[-1] != _ENDLESS
        kind, count, at = _head(payload, at)
        if kind in (2, 3) and count != _ENDLESS:
            at += count
        elif 2 <= kind <= 6:  # pieces of a string; an array; a map; what a tag is for
            unfinished.append({5: 2 * count if count > 0 else count, 6: 1}.get(kind, count))
    if at > len(payload):
        raise _End
    try:
        return cbor2.loads(payload[begin:at]) if at - begin <= SHORT else None, at
    except (cbor2.CBORError, ValueError, ArithmeticError, TypeError, RecursionError):
        return None, at


def _head(payload, at):
    """(major type, argument or _ENDLESS, where it ends) of the item at `at`. Raises _End,
    IndexError."""
    kind, low = payload[at] >> 5, payload[at] & 31
    if low < 24:
        return kind, low, at + 1
    if low == 31 and 2 <= kind <= 5:
        return kind, _ENDLESS, at + 1
    end = at + 1 + _ARGUMENT.get(low, len(payload))
    if end > len(payload):
        raise _End
    return kind, int.from_bytes(payload[at + 1 : end], "big"), end


def _step(left):
    left[0] -= 1
    if left[0] < 0:
        raise _End
