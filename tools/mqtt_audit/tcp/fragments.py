"""Fragments of IPv4 datagrams, put together as rows of TCP segments.

Knows: IPv4 and TCP headers (RFC 791, RFC 9293). Must not know: link layers, streams.

The bytes stay where they are in the file: each fragment becomes a segment of its own, as a segment
with its part of the payload would have been. Of a capture that comes in pieces they are copied
behind the next piece. All of them have the frame that completed the datagram.
"""

import numpy as np

from ..compiled.layout import GRACE, SEGMENT

WAITING = 1024  #: datagrams that wait for the rest; the oldest is given up
WHOLE = 1024  #: datagrams that were whole, of which a copy is known
LATE = GRACE // 2  #: ns that one comes later at most: then another one may have its identification
LIFE = 30 * 10**9  #: ns between the fragments of one datagram
PARTS = 256  #: fragments of one datagram


class Fragments:
    """Those of one file."""

    def __init__(self):
        self._waiting = {}
        self._whole = {}  # {key: (time, {offset: (length, hash)})}
        self._lost = []

    @property
    def lost(self):
        """Fragments that belong to no whole datagram, in order: [(frame, place, time)]."""
        left = [part[2:5] for parts in self._waiting.values() for part in parts.values()]
        return sorted(self._lost + left)

    def moved(self, old, new):
        """The bytes `new`, behind them those of the fragments that wait, which lie in `old`."""
        found, at = [new], len(new)
        for parts in self._waiting.values():
            for offset, (place, length, *rest) in parts.items():
                found.append(old[place : place + length])
                parts[offset] = at, length, *rest
                at += length
        return np.concatenate(found) if len(found) > 1 else new

    def add(self, data, ip, end, frame, time, begin=0):
        """A fragment whose IP header is at `ip`; begin: where in the file `data` begins. Returns
        (16 numbers as headers.tcp() has them, rows of layout.SEGMENT) when it completes its
        datagram, else None."""
        head = (int(data[ip]) & 15) * 4
        total, ident, mark = (int.from_bytes(data[ip + k : ip + k + 2].tobytes(), "big")
                              for k in (2, 4, 6))  # fmt: skip
        if head < 20 or ip + total > end or total <= head:
            self._lost.append((frame, begin + ip, time))
            return None
        key = (data[ip + 12 : ip + 20].tobytes(), ident)
        at = (mark & 0x1FFF) * 8
        completed, known = self._whole.get(key, (time, {}))
        if at in known and abs(time - completed) <= LATE and known[at] == _told(
                data, ip + head, total - head):  # fmt: skip
            return None
        parts = self._waiting.get(key, {})
        if at in parts and _is_copy(data, ip + head, total - head, time, parts[at]):
            return None
        if at in parts or any(abs(time - part[4]) > LIFE for part in parts.values()):
            self._lost += [part[2:5] for part in self._waiting.pop(key).values()]  # of another one
        parts = self._waiting.setdefault(key, {})
        parts[at] = (ip + head, total - head, frame, begin + ip, time,
                     not mark & 0x2000)
        if len(self._waiting) > WAITING or len(parts) > PARTS:
            oldest = key if len(parts) > PARTS else next(iter(self._waiting))
            self._lost += [part[2:5] for part in self._waiting.pop(oldest).values()]
            return None
        whole = _in_line(parts)
        if whole is None:
            return None
        del self._waiting[key]
        self._whole.pop(key, None)
        self._whole[key] = time, {at: _told(data, *part[:2]) for at, part in parts.items()}
        if len(self._whole) > WHOLE:
            del self._whole[next(iter(self._whole))]
        return _segments(data, key[0], whole, frame, time)


def _is_copy(data, place, length, time, part):
    """Whether a fragment is another one once more, as a mirror port gives it twice."""
    there, size, *_, before, _last = part
    return size == length and abs(time - before) <= LIFE and np.array_equal(
        data[place : place + length], data[there : there + size])  # fmt: skip


def _told(data, place, length):
    """What tells the content of a fragment from that of another one."""
    return length, hash(data[place : place + length].tobytes())


def _in_line(parts):
    """[(place, length)] of fragments that are a whole datagram, else None."""
    at, line = 0, []
    for offset in sorted(parts):
        place, length, *_, last = parts[offset]
        if offset != at:
            return None
        line.append((place, length))
        at += length
    return line if last else None


def _segments(data, ends, line, frame, time):
    place, length = line[0]
    raw = data[place : place + min(length, 60)].tobytes()
    head = (raw[12] >> 4) * 4 if length >= 20 else 0
    if head < 20 or head > length:
        return None
    number = int.from_bytes
    out = np.zeros(16, np.int64)
    out[[2, 6]] = 0xFFFF  # IPv4 in the words of IPv6
    out[3], out[7] = number(ends[:4], "big"), number(ends[4:], "big")
    out[8], out[9] = number(raw[:2], "big"), number(raw[2:4], "big")
    rows = np.zeros(len(line), SEGMENT)
    rows["time"], rows["frame"], rows["flags"] = time, frame, raw[13]
    rows["ack"] = number(raw[8:12], "big")
    starts = [place + head, *(p for p, _ in line[1:])]
    sizes = np.array([length - head, *(n for _, n in line[1:])])
    rows["off"], rows["cap"], rows["wire"] = starts, sizes, sizes
    before = np.cumsum(sizes) - sizes
    rows["seq"] = (number(raw[4:8], "big") + before & 0xFFFFFFFF).astype(np.uint32)
    return out, rows
