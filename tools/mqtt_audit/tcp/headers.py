"""From frames to TCP segments: link layer, IPv4 and IPv6, TCP, compiled.

Knows: Ethernet, VLAN, PPPoE, Linux cooked v1 and v2, loopback, raw IP; options and extension
headers. Must not know: streams, files, what a segment holds (openings.py, midway.py), what VLANs
(lans.py), time stamps (stamps.py) and segments that come twice (doubles.py) mean.
"""

import numpy as np

from ..capture.records import u16, u32
from ..compiled.jit import entry, inlined, kernel, wide
from ..compiled.layout import (
    ACK,
    COPY,
    KEY,
    KINDS,
    KNOWN_FLAGS,
    P_DOUBLED,
    P_FRAGMENT,
    P_HEADER,
    P_LANS,
    P_LATER,
    P_LINK,
    P_SHORT,
    PROBLEM,
    SEGMENT,
    SHUT,
    SYN,
    TRAIL,
    TWICE,
    V4,
)  # fmt: skip
from . import doubles, stamps
from .fragments import Fragments
from .lans import look_again, met, opened, root_of, twin
from .midway import SEEN, SPLIT, shown
from .openings import asks

IPV4, IPV6 = 0x0800, 0x86DD
PPPOE = 0x8864  #: of a PPPoE session; behind its header is the protocol of PPP
PPP_IPV4, PPP_IPV6 = 0x0021, 0x0057
# Places in the array that a frame's headers are read into.
SRC, DST, SPORT, DPORT, SEQ, ACKED, FLAGS, OFF, CAP, WIRE = 0, 4, 8, 9, 10, 11, 12, 13, 14, 15
TAGS, STAMP, SUM, UNREAD, IDENT = 16, 17, 18, 19, 20
NUMBERS = 21  #: of them
NOT_TCP = 0
LISTED = 100  #: rows of P_LANS at most
SHORTEST = 46  #: bytes behind Ethernet's header in the shortest frame, which may be filled up


@kernel
def _behind_tags(d, p, end, kind, q, out):
    """Place of IP behind an EtherType, any number of VLAN tags and PPPoE, or NOT_TCP (0), and then
    the EtherType in out[UNREAD]. The ids of the two inner VLANs go to out[TAGS]; 0 is the id of
    none."""
    while kind in (0x8100, 0x88A8, 0x9100) and q + 4 <= end:
        ident = u16(d, q, True) & 0xFFF
        out[TAGS] = (out[TAGS] << 12 | ident) & 0xFFFFFF if ident else out[TAGS]
        kind = u16(d, q + 2, True)
        q += 4
    if kind == IPV4 or kind == IPV6:
        return q
    if kind == PPPOE and q + 8 <= end:
        ppp = u16(d, q + 6, True)
        if ppp == PPP_IPV4 or ppp == PPP_IPV6:
            return q + 8
        if d[q + 6] == PPP_IPV4 or d[q + 6] == PPP_IPV6:  # compressed (RFC 1661, 6.5): one byte
            return q + 7
    out[UNREAD] = kind
    return NOT_TCP


@inlined
def _network(d, p, end, link, out):
    """Place of the IP header, NOT_TCP, or minus the problem."""
    if link == 1:
        if not p + 14 <= end:
            return -P_HEADER
        return _behind_tags(d, p, end, u16(d, p + 12, True), p + 14, out)
    if link in (12, 14, 101, 228, 229):
        return p
    if link == 0 or link == 108:  # the family's byte order is the writer's: IP says it itself
        return p + 4 if p + 4 <= end else -P_HEADER
    if link == 113:
        if not p + 16 <= end:
            return -P_HEADER
        return _behind_tags(d, p, end, u16(d, p + 14, True), p + 16, out)
    if link == 276:
        if not p + 20 <= end:
            return -P_HEADER
        return _behind_tags(d, p, end, u16(d, p, True), p + 20, out)
    return -P_LINK


@kernel
def _lacking(end, wire_end):
    """What is said of a header that goes on behind `end`: the capture may have cut it off."""
    return -P_SHORT if end < wire_end else -P_HEADER


@inlined
def _ipv4(d, p, end, wire_end, out):
    """(place of TCP or as _network, end of the datagram on the wire; minus the frame's end if the
    header does not say it)."""
    if p + 20 > end:
        return _lacking(end, wire_end), 0
    size = (d[p] & 15) * 4
    if d[p + 9] != 6:
        return NOT_TCP, 0
    if u16(d, p + 6, True) & 0x3FFF:
        out[OFF] = p
        return -P_FRAGMENT, 0
    total, out[IDENT] = u16(d, p + 2, True), u16(d, p + 4, True)
    if size < 20 or 0 < total < size:
        return -P_HEADER, 0
    for k in range(2):
        out[SRC + k] = out[DST + k] = 0
    out[SRC + 2] = out[DST + 2] = V4
    out[SRC + 3], out[DST + 3] = u32(d, p + 12, True), u32(d, p + 16, True)
    # A segment that the network card was to cut has length 0.
    return p + size, p + total if total else -wire_end


@kernel
def _ipv6(d, p, end, wire_end, out):
    """As _ipv4, through the extension headers; without a length it ends with the frame."""
    if p + 40 > end:
        return _lacking(end, wire_end), 0
    total, out[IDENT] = u16(d, p + 4, True), 0
    for k in range(4):
        out[SRC + k], out[DST + k] = u32(d, p + 8 + 4 * k, True), u32(d, p + 24 + 4 * k, True)
    last = p + 40 + total if total else wire_end
    kind, q = wide(d[p + 6]), p + 40
    while kind in (0, 43, 44, 51, 60):
        if q + 8 > end:
            return _lacking(end, wire_end), 0
        if kind == 44:
            if u16(d, q + 2, True) & 0xFFF9:
                return (-P_FRAGMENT if d[q] == 6 else NOT_TCP), 0
            size = 8
        elif kind == 51:
            size = (wide(d[q + 1]) + 2) * 4
        else:
            size = (wide(d[q + 1]) + 1) * 8
        kind = wide(d[q])
        q += size
    return (q if kind == 6 else NOT_TCP), last


@kernel
def _payload_end(d, p, end, last, size):
    """Where the payload at p ends, in a frame that ends at `last` and has `size` bytes behind
    Ethernet's header (0: of another link), if IP does not say it; -1 if nobody knows. The shortest
    ones may be filled up, with zeros."""
    if size != SHORTEST:
        return last
    for k in range(p, end):
        if d[k]:
            return -1
    return p


@inlined
def tcp(d, frame, size, out):
    """Read a frame's headers into `out`; 1 if it is TCP, else NOT_TCP or minus the problem."""
    p = frame["off"]
    end = min(p + frame["cap"], size)
    if frame["cap"] < 0:
        return NOT_TCP
    wire_end = p + max(frame["wire"], frame["cap"])
    out[TAGS] = 0
    ip = _network(d, p, end, frame["link"], out)
    if ip <= 0:
        return ip
    if ip >= end:
        return _lacking(end, wire_end)
    version = d[ip] >> 4
    if version == 4:
        q, last = _ipv4(d, ip, end, wire_end, out)
    elif version == 6:
        q, last = _ipv6(d, ip, end, wire_end, out)
    else:
        return -P_HEADER if frame["link"] in (1, 101, 113, 276) else NOT_TCP
    if q <= 0:
        return q
    if q + 20 > end:
        return _lacking(end, wire_end)
    head = (d[q + 12] >> 4) * 4
    if last < 0:
        behind = wire_end - ip if frame["link"] == 1 else 0
        last = _payload_end(d, q + head, end, -last, behind)
    if head < 20 or q + head > last:
        return -P_HEADER
    out[SPORT], out[DPORT] = u16(d, q, True), u16(d, q + 2, True)
    out[SEQ], out[ACKED] = u32(d, q + 4, True), u32(d, q + 8, True)
    out[FLAGS] = d[q + 13] & KNOWN_FLAGS
    if d[q + 14] == 0 and d[q + 15] == 0:
        out[FLAGS] |= SHUT
    out[STAMP], out[SUM] = stamps.stamp_at(d, q, head, end), u16(d, q + 16, True)
    out[OFF] = q + head
    out[WIRE] = last - q - head
    out[CAP] = max(0, min(end, last) - q - head)
    return 1


@inlined
def _order(out):
    """Whether the source is the greater of the two endpoints."""
    for k in range(4):
        if out[SRC + k] != out[DST + k]:
            return out[SRC + k] > out[DST + k]
    return out[SPORT] > out[DPORT]


@inlined
def _hash(out, a, b, ap, bp):
    """32 bits out of both endpoints."""
    h = 2166136261
    for k in range(4):
        h = (h ^ out[a + k]) * 16777619 & 0xFFFFFFFF
        h ^= h >> 15
        h = (h ^ out[b + k]) * 16777619 & 0xFFFFFFFF
    h = (h ^ (ap << 16 | bp)) * 16777619 & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 1540483477 % 4294967291 & 0xFFFFFFFF
    return h ^ h >> 15


@inlined
def _same(key, out, a, b, ap, bp):
    return (key["ap"] == ap and key["bp"] == bp and key["a3"] == out[a + 3]
            and key["b3"] == out[b + 3] and key["a2"] == out[a + 2] and key["b2"] == out[b + 2]
            and key["a1"] == out[a + 1] and key["b1"] == out[b + 1] and key["a0"] == out[a]
            and key["b0"] == out[b])  # fmt: skip


@inlined
def _find(recent, keys, trails, slots, state, out, swap):
    """Index of the pair of endpoints in its VLANs, a new one if need be."""
    a, b, ap, bp = SRC, DST, out[SPORT], out[DPORT]
    if swap:
        a, b, ap, bp = DST, SRC, out[DPORT], out[SPORT]
    h = _hash(out, a, b, ap, bp)
    at, root, apart = h & len(slots) - 1, -1, False
    while slots[at] >= 0:
        k = slots[at]
        if keys[k]["hash"] == h and _same(keys[k], out, a, b, ap, bp):
            if keys[k]["tags"] == out[TAGS]:
                if keys[k]["apart"]:
                    look_again(recent, keys, trails, slots, k, swap, out)
                return k
            apart = True
            if root < 0 and keys[k]["root"] == k and met(recent, trails, k, swap, out):
                root = k
        at = at + 1 & len(slots) - 1
    k = state[0]
    state[0] = k + 1
    slots[at] = k
    row = keys[k]
    row["a0"], row["a1"], row["a2"], row["a3"] = out[a], out[a + 1], out[a + 2], out[a + 3]
    row["b0"], row["b1"], row["b2"], row["b3"] = out[b], out[b + 1], out[b + 2], out[b + 3]
    row["ap"], row["bp"], row["hash"], row["server"] = ap, bp, h, 0
    row["tags"], row["root"], row["apart"], row["opened"] = out[TAGS], root, 0, 0
    row["latest"] = row["told"] = row["sure"] = 0
    if root < 0:
        row["root"], row["apart"] = k, apart
    return k


@kernel
def _count(problems, kind, frame, number):
    """A frame has a problem of some kind; the first of them is named."""
    row = problems[kind]
    if row["count"] == 0:
        row["kind"], row["off"], row["time"] = kind, frame["off"], frame["time"]
        row["frame"], row["conn"] = number, -1
    row["count"] += 1


@kernel
def _count_twice(problems, twice, frame, number):
    """The capture has a frame twice, as doubles.doubled() says."""
    _count(problems, P_DOUBLED, frame, number)
    if twice == doubles.LATER:
        _count(problems, P_LATER, frame, number)


@kernel
def _fragment(row, problems, d, frame, first, i, out):
    """Note a fragment of IPv4, frame i behind the first one, in a row of segments()' `cut`; count
    it if the capture has only its beginning."""
    row[0], row[1], row[2] = i, out[OFF], out[TAGS]
    if out[OFF] + u16(d, out[OFF] + 2, True) > frame["off"] + frame["cap"]:
        _count(problems, P_SHORT, frame, first + i)


@kernel
def _opens(keys, slots, k, out, number):
    """Note a SYN with ACK, or the first data if the first one is missing."""
    key = keys[k]
    key["latest"] = opened(out)
    if out[FLAGS] & SYN and not key["opened"]:
        key["opened"] = key["latest"]
    if key["apart"] and not key["told"] and twin(keys, slots, k):
        key["told"] = number


@entry
def segments(d, size, first, frames, keys, trails, seen, slots, state, out, rows, problems,
             cut, pauses, clock, unread, recent):  # fmt: skip
    """Fill `rows` (as long as `frames`) with the TCP segments; returns how many. state: how many
    pairs there are, and fragments of IPv4; cut: of each its place in `frames`, that of its IP
    header, and its VLANs. trails, seen: as midway.shown() has them. problems: a row for each kind,
    with the first frame that has it. pauses, clock: rows and state of stamps.Pauses. unread: how
    many frames of each EtherType were not read. recent: as doubles.recent() makes it."""
    n = state[1] = 0
    for i in range(len(frames)):
        frame = frames[i]
        out[OFF] = out[UNREAD] = 0
        if frame["cap"] >= 0:
            stamps.pause(pauses, clock, frame["time"])
        found = tcp(d, frame, size, out)
        unread[out[UNREAD]] += 1
        if found == -P_FRAGMENT and out[OFF]:
            _fragment(cut[state[1]], problems, d, frame, first, i, out)
            state[1] += 1
        elif found < 0:
            _count(problems, -found, frame, first + i)
        if found <= 0:
            continue
        if out[CAP] < out[WIRE]:
            _count(problems, P_SHORT, frame, first + i)
        swap = _order(out)
        k = _find(recent, keys, trails, slots, state, out, swap)
        k = root_of(recent, keys, trails, k, swap, out)
        answers = out[FLAGS] & (SYN | ACK) == SYN | ACK
        if answers or out[FLAGS] & ACK and out[WIRE] and not keys[k]["latest"]:
            _opens(keys, slots, k, out, first + i)
        if out[STAMP]:
            stamps.note(pauses, clock, trails[k, 1 if swap else 0], frame["time"], out[STAMP],
                        out[FLAGS] & SYN)  # fmt: skip
        if keys[k]["server"] == 0:
            begin, end = out[OFF], out[OFF] + out[CAP]
            keys[k]["server"] = asks(d, begin, end, out[DPORT], swap)
            if keys[k]["server"] == 0 and begin < end:
                keys[k]["server"] = shown(trails, k, 1 if swap else 0, d, begin, end, out[SEQ],
                                          keys[k]["ap"], keys[k]["bp"], seen)
        row = rows[n]
        row["time"], row["off"], row["frame"], row["key"] = frame["time"], out[OFF], first + i, k
        row["seq"], row["ack"], row["flags"] = out[SEQ], out[ACKED], out[FLAGS]
        row["cap"], row["wire"], row["dir"] = out[CAP], out[WIRE], 1 if swap else 0
        row["ident"], row["stamp"] = out[IDENT], out[STAMP]
        way = 1 if swap else 0
        twice = doubles.doubled(recent, trails, out, k, way, frame["time"])
        if twice:
            row["flags"] = out[FLAGS] | COPY | TWICE
            _count_twice(problems, twice, frame, first + i)
        n += 1
    return n


@entry
def _is_asked(d, p, end, port, swap):
    return asks(d, p, end, port, swap)


@entry
def _locate(recent, keys, trails, slots, state, out):
    """(index of the pair of endpoints in `out`, whether the source is the greater one)."""
    swap = _order(out)
    k = _find(recent, keys, trails, slots, state, out, swap)
    return root_of(recent, keys, trails, k, swap, out), swap


@entry
def _rehash(keys, n, slots):
    for at in range(len(slots)):
        slots[at] = -1
    for k in range(n):
        at = keys[k]["hash"] & len(slots) - 1
        while slots[at] >= 0:
            at = at + 1 & len(slots) - 1
        slots[at] = k


def _grown(rows, used, size):
    """So many rows; the used ones are copied, for memory that is not touched costs nothing."""
    more = np.zeros((size, *rows.shape[1:]), rows.dtype)
    more[:used] = rows[:used]
    return more


class Endpoints:
    """The pairs of endpoints of one file; grows with their number and nothing else. `pauses`: a
    stamps.Pauses. `at`: where in the file the bytes lie that segments() is given, if not at its
    beginning."""

    def __init__(self):
        self.pauses, self.at = stamps.Pauses(), 0
        self._keys = np.zeros(1 << 12, KEY)
        self._trails = np.zeros((1 << 12, 2), TRAIL)
        self._seen = np.zeros(SPLIT + SEEN, np.uint8)
        self._slots = np.full(1 << 13, -1, np.int64)
        self._state = np.zeros(2, np.int64)
        self._fragments, self._recent = Fragments(), doubles.recent()
        self._piece = self._data = None
        self._out = np.zeros(NUMBERS, np.int64)
        self._problems = np.zeros(max(KINDS) + 1, PROBLEM)
        self._unread = np.zeros(1 << 16, np.int64)

    def segments(self, data, first, frames):
        """The TCP segments of `frames`, the first of which has number `first`."""
        # Each frame may be of a new pair.
        known = int(self._state[0])
        if known + len(frames) > len(self._keys):
            self._keys, self._trails = (
                _grown(rows, known, 2 * (known + len(frames)))
                for rows in (self._keys, self._trails))  # fmt: skip
        if len(self._slots) < 2 * len(self._keys):
            size = 1 << (2 * len(self._keys) - 1).bit_length()  # a power of two, for _find()
            self._slots = np.full(size, -1, np.int64)
            _rehash(self._keys, int(self._state[0]), self._slots)
        rows, cut = np.zeros(len(frames), SEGMENT), np.zeros((len(frames), 3), np.int64)
        self.pauses.room(len(frames))
        told = self._problems["count"] > 0
        n = segments(data, len(data), first, frames, self._keys, self._trails, self._seen,
                     self._slots, self._state, self._out, rows, self._problems, cut,
                     self.pauses.rows, self.pauses.state, self._unread, self._recent)  # fmt: skip
        self._problems["off"][~told & (self._problems["count"] > 0)] += self.at
        found = [rows[:n]]
        for i, ip, tags in cut[: self._state[1]].tolist():
            frame = frames[i]
            whole = self._fragments.add(data, ip, int(frame["off"] + frame["cap"]), first + i,
                                        int(frame["time"]), self.at)  # fmt: skip
            if whole:
                found.append(self._joined(data, tags, *whole))
        if len(found) == 1:
            return rows[:n]
        found = np.concatenate(found)
        return found[np.argsort(found["frame"], kind="stable")]

    def with_waiting(self, data):
        """The next piece of a capture that comes in pieces, behind it the bytes of fragments that
        wait for the rest of their datagram: what segments() is to be given."""
        if data is not self._piece:
            self._piece, self._data = data, self._fragments.moved(self._data, data)
        return self._data

    def _joined(self, data, tags, numbers, rows):
        """Segments that were fragments, with their pair of endpoints."""
        out = np.zeros(NUMBERS, np.int64)
        out[: len(numbers)], out[TAGS] = numbers, tags
        k, swap = _locate(self._recent, self._keys, self._trails, self._slots, self._state,
                          out)  # fmt: skip
        begin = int(rows["off"][0])
        key = self._keys[k]
        key["server"] = key["server"] or _is_asked(
            data, begin, begin + int(rows["cap"][0]), int(out[DPORT]), swap)  # fmt: skip
        rows["key"], rows["dir"] = k, swap
        return rows

    @property
    def keys(self):
        """Rows of layout.KEY; a segment's `key` is the index."""
        return self._keys[: self._state[0]]

    @property
    def stamped(self):
        """Rows of stamps.STAMPED."""
        return stamps.stamped(self.keys, self._trails[: self._state[0]])

    @property
    def unread(self):
        """{EtherType: frames of it that were not read}; at 0 all others."""
        return {k: int(self._unread[k]) for k in np.flatnonzero(self._unread).tolist()}

    @property
    def problems(self):
        """Rows of layout.PROBLEM: of each kind the first, with the number of frames. Of P_LANS
        one for each pair of ports."""
        lost, row = self._fragments.lost, self._problems[P_FRAGMENT]
        if lost:
            row["kind"], row["conn"], row["count"] = P_FRAGMENT, -1, row["count"] + len(lost)
            row["frame"], row["off"], row["time"] = lost[0]
            self._fragments = Fragments()
        return np.concatenate([self._problems[self._problems["count"] > 0], self._alike()])

    def _alike(self):
        """Rows on pairs of ports whose connections may be the same in two VLANs: one for each, the
        last for all the others."""
        frames = np.sort(self.keys["told"][(self.keys["told"] > 0) & (self.keys["apart"] > 0)])
        rows = np.zeros(min(len(frames), LISTED), PROBLEM)
        rows["kind"], rows["conn"], rows["off"], rows["count"] = P_LANS, -1, -1, 1
        rows["frame"] = frames[:LISTED]
        rows["count"][LISTED - 1 :] += len(frames) - len(rows)
        return rows
