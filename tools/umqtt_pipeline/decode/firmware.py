"""Decodes the firmware's SenML packs, thousands at a time: by column, with numpy and Arrow.

`ok` says which packs have the layout below. payloads.py reads all others, one by one. Both must
give the same result for the same bytes (tests/pipeline). The layout:
[{-2: "DEVICE/", "ep": 8 bytes, "bo", "sq", "up", "ms", "lo", 0: name, (1: unit,) 2: value},
{0: name, (1: unit,) 2: value}, ...], definite lengths, values integers or decimal fractions; the
last map of a pack that is signed ends with "mc": 8 bytes (signed.py, where the code is checked).

Knows CBOR (RFC 8949) and SenML (RFC 8428) as far as that needs. Must not know Spark or topics.
"""

import numpy as np
import pyarrow as pa

from .reasons import LIMIT
from .signed import FIELD, TAIL

SPARE = 16  #: bytes behind the last payload that may be looked at
_UINT, _NINT, _TEXT = 0, 1, 3
_SIZES = np.array([0] * 24 + [1, 2, 4, 8] + [9] * 4)  # bytes behind a head; 9: not for us
_SHIFTS = np.array([0] * 24 + [56, 48, 32, 0] + [0] * 4, np.uint64)
_FIELD = np.uint64(int.from_bytes(FIELD, "big"))
_TENS = 10.0 ** np.arange(23)  # exact in a double up to 10**22
_HEX = np.frombuffer(b"".join(b"%02x" % n for n in range(256)), np.uint16)


class Cursors:
    """One place in each of many payloads, which all lie in one buffer.

    raw     uint8 array with SPARE bytes behind the last payload
    at, end positions of the payloads; int64 arrays
    ok      which payloads are as they were expected to be so far
    """

    def __init__(self, raw, at, end):
        self.raw, self.at, self.end = raw, at, end
        self.words = np.ndarray((len(raw) - 7,), ">u8", raw, strides=(1,))
        self.ok = at < end

    def skip(self, count):
        """Go on by so many bytes (an int, or one for each)."""
        self.at = self.at + count
        self.ok &= self.at <= self.end
        np.minimum(self.at, self.end, out=self.at)

    def literal(self, data):
        """Expect these one to eight bytes."""
        bits = np.uint64(8 * (8 - len(data)))
        wanted = np.uint64(int.from_bytes(data, "big"))
        self.ok &= self.words[self.at] >> bits == wanted
        self.skip(len(data))

    def head(self):
        """The head of an item: (major type, argument as int64, below 2**62)."""
        first = self.raw[self.at]
        info = first & 31
        behind = self.words[self.at + 1] >> _SHIFTS[info]
        value = np.where(info < 24, info, behind).astype(np.uint64)
        usable = (info < 28) & (value < np.uint64(1 << 62))
        self.ok &= usable
        self.skip(1 + _SIZES[info])
        return first >> 5, np.where(usable, value, 0).astype(np.int64)

    def uint(self, low, high):
        """Expect an unsigned integer in low..high-1."""
        major, value = self.head()
        self.ok &= (major == _UINT) & (value >= low) & (value < high)
        return value

    def text(self):
        """Expect text; returns where it starts and ends."""
        major, length = self.head()
        self.ok &= (major == _TEXT) & (length > 0)
        start = self.at
        self.skip(np.minimum(length, 1 << 32))
        return start, self.at

    def choose(self, rows):
        """The same for some rows."""
        part = Cursors(self.raw, self.at[rows], self.end[rows])
        part.ok = self.ok[rows]
        return part


class Base:
    """The base fields of packs; attributes are arrays: records, pairs (in the first map, the
    code's not counted), signed, name (start, end), epoch (start), boot, sequence, uptime_ms, low.
    The cursors' end is then before the code."""

    def __init__(self, cursors):
        c = cursors
        tail = np.maximum(c.end - TAIL, c.at)
        self.signed = (c.words[tail] >> np.uint64(32) == _FIELD) & (c.end - c.at > TAIL)
        c.end = c.end - self.signed * TAIL
        first = c.raw[c.at]
        c.ok &= (first > 0x80) & (first < 0x98)
        self.records = first & 31
        c.skip(1)
        first = c.raw[c.at]
        first = first - (self.signed & (self.records == 1))
        c.ok &= (first == 0xA9) | (first == 0xAA)
        self.pairs = first & 15
        c.skip(1)
        c.literal(b"\x21")
        start, end = c.text()
        c.ok &= (end - start > 1) & (c.raw[end - 1] == ord("/"))
        self.name = start, end - 1
        c.literal(b"\x62ep\x48")
        self.epoch = c.at
        c.skip(8)
        c.literal(b"\x62bo")
        self.boot = c.uint(0, 1 << 31)
        c.literal(b"\x62sq")
        self.sequence = c.uint(1, LIMIT)
        c.literal(b"\x62up")
        seconds = c.uint(0, 1 << 31)
        c.literal(b"\x62ms")
        self.uptime_ms = seconds * 1000 + c.uint(0, 1000)
        c.literal(b"\x62lo")
        self.low = c.uint(1, LIMIT)
        c.ok &= self.low <= self.sequence


def identities(raw, starts, ends):
    """Identity of each payload: (ok, start of the epoch's 8 bytes, sequence, low), arrays."""
    cursors = Cursors(raw, starts, ends)
    base = Base(cursors)
    cursors.ok &= _no_more(cursors, base.pairs == 10)
    return cursors.ok, base.epoch, base.sequence, base.low


def _no_more(c, with_unit):
    """Where only name, unit and value follow the base fields, so that none of these comes twice:
    short ones, which take fewer steps than _labels()."""
    named, behind_name = _short(c, c.at, 0)
    united, behind_unit = _short(c, behind_name, 1)
    value_at = np.where(with_unit, behind_unit, behind_name)
    return named & (united | ~with_unit) & (c.raw[value_at] == 2)


def _short(c, at, label):
    """Whether a label and a text of 1 to 23 bytes are at these places, and where they end."""
    head = c.raw[at + 1]
    found = (c.raw[at] == label) & (head > 0x60) & (head < 0x78)
    return found, np.minimum(at + 2 + (head & 31), c.end)


def _number(c):
    """Expect an integer or a decimal fraction; returns doubles, correctly rounded: whole numbers
    below 2**53 and powers of ten up to 10**22 are exact, and one operation on them rounds once."""
    fraction = c.raw[c.at] == 0xC4
    c.ok &= ~fraction | (c.raw[c.at + 1] == 0x82)
    c.skip(fraction * 2)
    exponent = c.raw[c.at]
    small = (exponent < 23) | (exponent >= 0x20) & (exponent < 0x20 + 22)
    c.ok &= ~fraction | small
    c.skip(fraction * 1)
    major, digits = c.head()
    c.ok &= (major <= _NINT) & (digits < LIMIT - 1)
    value = np.where(major == _NINT, -1 - digits, digits).astype(np.float64)
    down = fraction & (exponent >= 0x20)
    power = np.where(fraction & small, np.where(down, exponent - 0x1F, exponent), 0)
    scale = _TENS[power]
    return np.where(down, value / scale, value * scale)


class _Fields:
    """What _records collects of one measurement of many rows."""

    __slots__ = ("rows", "name", "unit", "value")


def _record(c, rows, pairs):
    """The measurement at the cursors; pairs: how many of n, u, v there are."""
    found = _Fields()
    found.rows = rows
    found.name, found.unit = _labels(c, pairs)
    found.value = _number(c)
    return found


def _labels(c, pairs):
    """What is before the value of the measurement at the cursors: where name and unit start and
    end; pairs: how many of n, u, v there are."""
    c.literal(b"\x00")
    name = c.text()
    start, end = c.at.copy(), c.at.copy()
    c.at = c.at.copy()  # it is part of `name`, too
    with_unit = np.flatnonzero(pairs == 3)
    part = c.choose(with_unit)
    part.literal(b"\x01")
    start[with_unit], end[with_unit] = part.text()
    c.at[with_unit] = part.at
    c.ok[with_unit] = part.ok
    c.literal(b"\x02")
    return name, (start, end)


def _records(c, base):
    """All measurements: a list of _Fields, the k-th for the rows that have more than k."""
    found = []
    rows = np.flatnonzero(c.ok)
    pairs = base.pairs[rows] - 7
    while len(rows):
        part = c.choose(rows)
        if found:
            last = base.records[rows] == len(found) + 1
            head = part.raw[part.at] - (base.signed[rows] & last)
            part.ok &= (head == 0xA2) | (head == 0xA3)
            part.skip(1)
            pairs = head & 3
        found.append(_record(part, rows, pairs))
        c.at[rows], c.ok[rows] = part.at, part.ok
        rows = rows[part.ok & (base.records[rows] > len(found))]
    c.ok &= c.at == c.end
    return found


def slices(raw, starts, ends, valid=None):
    """Arrow binary array of raw[start:end] for each pair, which must be in order and not overlap.
    valid: bool array, the others are null; their start and end do not matter."""
    if valid is not None:
        rows = np.cumsum(valid) - 1
        starts, ends = starts[valid], ends[valid]
    edges = np.empty(2 * len(starts) + 1, np.int32)
    edges[1::2], edges[2::2] = starts, ends
    edges[0] = 0
    every = pa.BinaryArray.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(raw)]
    )
    wanted = 2 * np.arange(len(starts)) + 1
    if valid is None:
        return every.take(pa.array(wanted))
    if not len(starts):
        return pa.nulls(len(valid), pa.binary())
    return every.take(pa.array(wanted[np.maximum(rows, 0)], mask=~valid))


def _interleave(found, ok, count):
    """Measurements of the good rows in order of row: (offsets, order of the concatenation)."""
    rows = np.concatenate([f.rows for f in found])
    sizes = np.bincount(rows[ok[rows]], minlength=count)
    number = np.concatenate([np.full(len(f.rows), k) for k, f in enumerate(found)])
    order = np.lexsort((number, rows))
    return np.concatenate(([0], np.cumsum(sizes))), order[ok[rows[order]]]


def _measurements(raw, found, ok):
    """Arrow list array of (name, unit, value), empty for the rows that are not ok."""
    offsets, order = _interleave(found, ok, len(ok))
    joined = {
        "name": [np.concatenate([f.name[k] for f in found])[order] for k in (0, 1)],
        "unit": [np.concatenate([f.unit[k] for f in found])[order] for k in (0, 1)],
    }
    values = np.concatenate([f.value for f in found])[order]
    has_unit = joined["unit"][1] > joined["unit"][0]
    names = slices(raw, *joined["name"]).cast(pa.string())
    units = slices(raw, *joined["unit"], has_unit).cast(pa.string())
    items = pa.StructArray.from_arrays([names, units, pa.array(values)], ["name", "unit", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def hexadecimal(raw, starts, size=8):
    """Arrow string array of the hexadecimal digits of `size` bytes at each start."""
    digits = _HEX[raw[starts[:, None] + np.arange(size)]]
    edges = np.arange(len(starts) + 1, dtype=np.int32) * (2 * size)
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(edges), pa.py_buffer(digits))


def decode(payloads):
    """Arrow binary array -> (ok, columns): which payloads are firmware packs, and for each row
    the Arrow arrays device, epoch, sequence, boot, uptime_ms, low, measurements (only those of
    rows that are ok mean anything). None when some text in them is no UTF-8."""
    raw, starts, ends = contiguous(payloads)
    cursors = Cursors(raw, starts, ends)
    base = Base(cursors)
    found = _records(cursors, base)
    ok = cursors.ok
    if not ok.any():
        return ok, None
    safe = np.where(ok, base.epoch, 0)
    try:
        columns = [
            slices(raw, *base.name, ok).cast(pa.string()),
            hexadecimal(raw, safe),
            *map(pa.array, (base.sequence, base.boot.astype(np.int32), base.uptime_ms, base.low)),
            _measurements(raw, found, ok),
        ]
    except pa.ArrowInvalid:
        return np.zeros(len(ok), bool), None
    return ok, columns


def contiguous(payloads):
    """(uint8 array with SPARE bytes more, starts, ends) of an Arrow binary array."""
    edges = np.frombuffer(payloads.buffers()[1], np.int32)
    edges = edges[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    raw = np.zeros(int(edges[-1] - edges[0]) + SPARE, np.uint8)
    if edges[-1] > edges[0]:
        held = np.frombuffer(payloads.buffers()[2], np.uint8)
        raw[:-SPARE] = held[edges[0] : edges[-1]]
    edges -= edges[0]
    return raw, edges[:-1], edges[1:]
