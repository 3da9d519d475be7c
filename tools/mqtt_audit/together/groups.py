"""Which captures hold the same connections at the same time, and how far their clocks are apart.

Knows: pairs of endpoints, times, segments that two captures have. Must not know: payloads, files
of tables.
"""

import numpy as np

from ..compiled.layout import ACK, FIN, MASK, SYN
from ..tcp.openings import TLS_PORT

ENDS = 36  #: bytes of layout.KEY that name both endpoints: addresses, then ports
ASKED = 3, 4  #: KEY's server, if TLS or a WebSocket for MQTT was asked for, which no answer shows
#: Clocks that are less apart are taken for the same: ns, if segments of both sides say so, and if
#: only one side's do, for which the way between the captures counts as well.
SAME, SAME_ONE_WAY = 10_000_000, 1_000_000_000


def overlap(first, last, until):
    """Whether a capture begins before the end of another one, or both have no clock."""
    return first < until or first == last == until


def ends(keys):
    """The endpoints of rows of layout.KEY, as something that can be sorted."""
    raw = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)[:, :ENDS]
    return np.ascontiguousarray(raw).view(f"S{ENDS}").ravel()


def _side(keys, address, port):
    raw = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    raw = np.concatenate([raw[:, address : address + 16], raw[:, port : port + 2]], axis=1)
    return np.ascontiguousarray(raw).view("S18").ravel()


def _of_mqtt(keys, brokers, ports):
    """Which pairs of endpoints may be MQTT. brokers: as _side() has them."""
    named = [*ports, TLS_PORT]
    return ((keys["server"] > 0) | np.isin(keys["ap"], named) | np.isin(keys["bp"], named)
            | np.isin(_side(keys, 0, 32), brokers) | np.isin(_side(keys, 16, 34), brokers)
            )  # fmt: skip


def _sharing(split, ports, keys_of):
    """The sets of files (places in `split`) that have a connection of MQTT in common, and the
    couples of which that is sure, whatever their clocks say: both have the same SYN with ACK, or
    of all these connections only one direction each, and not the same."""
    brokers = np.array(sorted({bytes.fromhex(a) + p.to_bytes(2, "little")
                               for s in split for a, p in s["brokers"]}), "S18")  # fmt: skip
    some = [keys[np.isin(keys["server"], ASKED)] for keys in map(keys_of, split)]
    asked = [ends(keys) for keys in some if len(keys)]
    found, place, ways = [np.zeros(0, f"S{ENDS}")], [np.zeros(0, np.int64)], [np.zeros(0, int)]
    opened = [np.zeros(0, np.int64)]
    for k, s in enumerate(split):
        if s["first"] is None:
            continue
        keys = keys_of(s)
        if len(keys):
            mqtt = _of_mqtt(keys, brokers, ports)
            keys = keys[mqtt | np.isin(ends(keys), np.concatenate(asked)) if asked else mqtt]
        if not len(keys):
            continue
        mine, at = np.unique(ends(keys), return_inverse=True)
        seen = np.zeros(len(mine), int)
        np.bitwise_or.at(seen, at, keys["ways"])
        opens = np.zeros(len(mine), np.int64)
        np.maximum.at(opens, at, keys["opened"])
        opened.append(opens)
        found.append(mine)
        place.append(np.full(len(mine), k))
        ways.append(seen)
    _, pair, times = np.unique(np.concatenate(found), return_inverse=True, return_counts=True)
    place, ways, opened = (np.concatenate(c) for c in (place, ways, opened))
    several = times[pair] > 1
    order = np.lexsort((place[several], pair[several]))
    pair, place, ways, opened = (
        column[several][order] for column in (pair, place, ways, opened))  # fmt: skip
    cuts = np.flatnonzero(np.diff(pair)) + 1
    sets, halves, twins = set(), {}, set()
    for part, seen, opens in zip(*(np.split(column, cuts) for column in (place, ways, opened))):
        if not len(part):
            continue
        sets.add(tuple(part.tolist()))
        for j, k in zip(range(len(part)), range(1, len(part))):
            both = int(part[j]), int(part[k])
            halves[both] = halves.get(both, True) and {*seen[[j, k]].tolist()} == {1, 2}
            if opens[j] and opens[j] == opens[k]:
                twins.add(both)
    return sets, twins | {both for both, half in halves.items() if half}


def groups(split, ports, keys_of):
    """Files that have to be read as one: lists of them, each file in one, in order: those that
    hold the same connections at the same time, or for sure (_sharing()). split: results of
    worker.whole() in the order of time; keys_of: gives the rows of layout.KEY of one."""
    if len(split) == 1:
        return [split]
    sets, sure = _sharing(split, ports, keys_of)
    group = {k: {k} for k in range(len(split))}
    grown = True
    while grown:
        grown = False
        for some in sets:
            for one, other in zip(some, some[1:]):
                grown = _meet(group, one, other, split, (one, other) in sure) or grown
    made = {min(members): members for members in group.values()}
    return [[split[k] for k in sorted(made[first])] for first in sorted(made)]


def _meet(group, one, other, split, sure):
    """Put two files' groups together if these overlap in time, or if it is sure that they hold the
    same; whether they were apart."""
    a, b = group[one], group[other]
    if a is b:
        return False
    first, last = ([pick(split[k][name] for k in members) for members in (a, b)]
                   for pick, name in ((min, "first"), (max, "last")))  # fmt: skip
    if first[0] > first[1]:
        first, last = first[::-1], last[::-1]
    if not sure and not overlap(first[1], last[1], last[0]):
        return False
    both = a | b
    for k in both:
        group[k] = both
    return True


def _marks(rows, pairs):
    """(numbers that tell segments apart, times, directions) of those that a file has once. pairs:
    number of the pair of each key. What is sent again has another time stamp or identification, if
    it has any."""
    rows = rows[(rows["wire"] > 0) | (rows["flags"] & SYN > 0)]
    way = 2 * pairs[rows["key"]].astype(np.uint64) + rows["dir"]
    one = way << np.uint64(32) | rows["seq"]
    two = rows["ack"].astype(np.uint64) << np.uint64(32) | rows["wire"]
    own = rows["stamp"].astype(np.uint64) << np.uint64(16) | rows["ident"]
    mark = (one * np.uint64(0x9E3779B97F4A7C15) ^ two * np.uint64(0xC2B2AE3D27D4EB4F)
            ^ own * np.uint64(0x165667B19E3779F9))  # fmt: skip
    found, at, times = np.unique(mark, return_index=True, return_counts=True)
    return found[times == 1], rows["time"][at[times == 1]], rows["dir"][at[times == 1]]


def _apart(one, other):
    """How far the clock of `other` is ahead of that of `one`, both from _marks() and _said(); None
    if they have nothing in common. A few segments in common may be ones that were sent again, of
    which each file has one: the clocks differ only if acknowledgements show it, too."""
    _, a, b = np.intersect1d(one[0], other[0], True, return_indices=True)
    if not len(a):
        return None
    ahead, way = other[1][b] - one[1][a], one[2][a]
    sides = [int(np.median(ahead[way == k])) for k in (0, 1) if (way == k).any()]
    found = sum(sides) // len(sides)
    if abs(found) < (SAME if len(sides) == 2 else SAME_ONE_WAY):
        return 0
    few = 2 * len(a) < min(len(one[0]), len(other[0]))
    return 0 if few and not _contradict(one[3:], other[3:]) else found


def _contradict(one, other):
    """Whether the clocks of two files contradict each other: in a quarter of the cases what one
    has was acknowledged in the other one before. Both from _said()."""
    for (sent, then), (acked, now) in ((one[0], other[1]), (other[0], one[1])):
        _, a, b = np.intersect1d(sent, acked, True, return_indices=True)
        if 4 * np.count_nonzero(now[b] < then[a]) > len(a):
            return True
    return False


def _said(rows, pairs):
    """(numbers that say how far a direction had come, times) of segments that go so far, and of
    those that acknowledge it; the first of each. pairs: as _marks() has them."""
    pair, way = pairs[rows["key"]].astype(np.uint64), rows["dir"].astype(np.uint64)
    marks = (rows["flags"] & (SYN | FIN) > 0).astype(np.int64)
    goes = (rows["wire"] > 0) | (marks > 0)
    to = (rows["seq"].astype(np.int64) + rows["wire"] + marks & MASK).astype(np.uint64)
    acked = rows["flags"] & ACK > 0
    for which, side, number in ((goes, way, to), (acked, 1 - way, rows["ack"].astype(np.uint64))):
        mark = (2 * pair + side << np.uint64(32) | number)[which]
        found, at = np.unique(mark, return_index=True)
        yield found, rows["time"][which][at]


def _by_acks(one, other):
    """As _apart(), of captures that have no segment in common. Nothing is acknowledged before it
    is sent: that leaves room for the difference on both sides, and the middle of it is taken."""
    one, other = one[3:], other[3:]
    # Who has all of one direction has the first of what was sent again.
    if not len(np.intersect1d(one[0][0] >> np.uint64(32), other[0][0] >> np.uint64(32))):
        found = _room(one, other, 0)
        if found and found[0] <= found[1]:
            return 0 if found[0] <= 0 <= found[1] else sum(found) // 2
    found = _room(one, other, 20)
    if found is None:
        return None
    least, most = found
    if least <= 0 <= most or not _contradict(one, other):
        return 0
    return (least + most) // 2


def _room(one, other, some):
    """(least, most) that the clock of `other` may be ahead of that of `one`, both from _said();
    None if nothing says it. Of the cases on each side one in `some` is left out, if that is not
    0: they may have been sent again."""
    bounds = []
    for (sent, then), (acked, now), sign in (
            (one[0], other[1], 1), (other[0], one[1], -1)):  # fmt: skip
        _, a, b = np.intersect1d(sent, acked, True, return_indices=True)
        if not len(a):
            return None
        later = np.sort(now[b] - then[a])
        bounds.append(sign * int(later[len(later) // some if some else 0]))
    return bounds[1], bounds[0]


def clocks(members, pieces):
    """How far the clock of each file of a group is ahead of the first one's, in ns; 0 if nothing
    says so. pieces: for one piece of the captures after the other gives [(segments, keys)] of all
    the members."""
    known = {0: 0}
    for piece in pieces:
        if len(known) == len(members):
            break
        _, pair = np.unique(np.concatenate([ends(k) for _, k in piece]), return_inverse=True)
        cuts = np.cumsum([len(k) for _, k in piece])[:-1]
        pairs = [(rows, p) for (rows, _), p in zip(piece, np.split(pair, cuts))]
        made = [(*_marks(*p), *_said(*p)) for p in pairs]
        for apart in (_apart, _by_acks):
            _compare(made, apart, known)
    return [known.get(k, 0) for k in range(len(members))]


def _compare(made, apart, known):
    """Go on from the files whose clocks are known to those that have something in common."""
    todo = list(known)
    while todo:
        one = todo.pop()
        for k in set(range(len(made))) - set(known):
            ahead = apart(made[one], made[k])
            if ahead is not None:
                known[k] = known[one] + ahead
                todo.append(k)
