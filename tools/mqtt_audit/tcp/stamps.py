"""Whether a capture's clock ran on while nothing at all was captured, as TCP's time stamps tell.

Knows: the time stamps of segments before and after such a pause. Must not know: packets, rules.

The time stamps of nearly all systems count milliseconds, by a clock that nobody sets. So the
segments of one side before and after a pause show how long it really was, if they carry any.
"""

from ..compiled.layout import MASK, SECOND

LOOKED_AT = 64  #: segments before and after a pause
UNKNOWN, WRONG, RIGHT = range(3)  #: what is known of the clock in a pause
_OPTION = (1, 1, 8, 10)  #: the option as everybody writes it: NOP, NOP, kind, length
_LONGEST = (1 << 31) * 1_000_000  #: ns: in a longer pause the time stamps may come round


def stamped(data, segments):
    """Those of the segments (rows of layout.SEGMENT, their bytes in `data`) that carry a time
    stamp: [(pair, direction, ns, time stamp)]."""
    found = []
    for row in segments:
        off = int(row["off"])  # of the payload, behind a header of 20 bytes and the option
        if 32 <= off <= len(data) and data[off - 20] >> 4 == 8 and (
                tuple(data[off - 12 : off - 8].tolist()) == _OPTION):  # fmt: skip
            stamp = int.from_bytes(data[off - 8 : off - 4].tobytes(), "big")
            found.append((int(row["key"]), int(row["dir"]), int(row["time"]), stamp))
    return found


def judge(before, after, pause):
    """UNKNOWN, WRONG or RIGHT. before, after: stamped() of the segments on both sides of a pause
    of so many ns, in the order of the capture."""
    if pause >= _LONGEST:
        return UNKNOWN
    last, seen, known = {row[:2]: row[2:] for row in before}, set(), UNKNOWN
    for *end, time, stamp in after:
        if tuple(end) not in last or tuple(end) in seen:
            continue
        seen.add(tuple(end))
        then, old = last[tuple(end)]
        apart = (stamp - old & MASK) * SECOND // 1000 - (time - then)
        known = max(known, RIGHT if abs(apart) <= pause // 20 else WRONG)
    return known
