"""TCP put together again, compiled.

Knows: sequence numbers, what came before its turn, what will not come any more. Must not know:
files, packets.

A segment is taken when it goes on where its stream stopped; one that comes before its turn is
held until the hole is filled, or until the other side has acknowledged what is missing and some
time has passed, or too much is held: then the hole is a loss. Either way its bytes have the frame
and time at which they were captured, or those at which all before them were, as far as they were.
"""


from ..compiled.arena import copy, problem, room, take
from ..compiled.jit import entry, inlined, kernel, wide
from ..compiled.layout import (
    ACK,
    COPY,
    GRACE,
    HELLO_WANTED,
    LATE,
    LATE_FAR,
    MASK,
    N_CONNS,
    N_FILE,
    N_HELD_FREE,
    N_RESUMED,
    N_WAITING,
    P_BROKEN,
    P_LOSS,
    P_MEMORY,
    P_OTHER,
    P_SNAPPED,
    P_SPOILT,
    REMEMBERED,
    RST,
    SECOND,
    SYN,
    TWICE,
)  # fmt: skip
from ..mqtt.cutting import distrust
from ..mqtt.websocket import feed, lose
from .calm import acknowledge, again, behind, delayed, lapsed, missed, note_alive, window
from .checksum import RIGHT, UNKNOWN, checked
from .connections import STRAY, behind_end, connection, ends, syn
from .copies import LONG_AFTER, MAYBE, NEW, judged, mark, noted, resent
from .earlier import HAD, of_earlier
from .places import BEHIND, JUMP, place, reach, tear
from .sequence import diff

PATIENCE = SECOND  #: after which a hole that is acknowledged is a loss
LONG_PATIENCE = 60 * SECOND  #: after which any is
HELD_SEGMENTS, HELD_BYTES = 1024, 8 << 20  #: held for one stream at most


@inlined
def _reach(s, time, frame, late):
    """Bytes of a frame are taken. Who reads the stream has them when he has all before them."""
    if frame > s["reached"]:
        s["reached"], s["reached_at"], s["late"] = frame, time, late
    elif late:
        s["late"] = max(s["late"], late)


@kernel
def _take(st, d, off, seq, cap, wire, s, conn, sender, time, frame, late, kept):
    """A segment that goes on where the stream is, or before it; False: a table is full."""
    done = -diff(seq, s["next"])
    if done < wire:
        _reach(s, time, frame, late)
        time, frame = s["reached_at"], s["reached"]
    if done < cap:
        n = feed(st, d, off + done, cap - done, s, conn, sender, time, frame, kept)
        s["next"] = s["next"] + n & MASK
        s["bytes"] += n
        if done + n < cap:
            return False
        done = cap
    if done < wire:
        if not room(st):
            return False
        lose(st, s, wire - done, conn, sender, time, frame, P_SNAPPED)
    return True


@kernel
def _first_is(d, old, seg):
    """What the checksums say about the first of two segments that differ: RIGHT if only the second
    is wrong, WRONG if only the first is; UNKNOWN if both are alike, as those of a computer that
    leaves checksums to its network card."""
    first = second = UNKNOWN
    if old["cap"] == old["wire"]:
        first = checked(d, old["off"], wide(old["wire"]))
    if seg["cap"] == seg["wire"]:
        second = checked(d, wide(seg["off"]), wide(seg["wire"]))
    return first if first == -second else UNKNOWN


@kernel
def _compare(st, d, seg, k, conn, sender, seq, frame):
    """Say how many bytes that are sent again differ from those that came first. Those may have
    been damaged on their way: then TCP sends them again, and nobody answers for what was read of
    them."""
    differ, kind, since = 0, P_BROKEN, frame
    for i in range(REMEMBERED):
        old, other = st.taken[k, i], 0
        if not old["cap"] or old["frame"] >> 32 != st.n[N_FILE]:
            continue
        ahead = diff(seq, wide(old["seq"]))
        for j in range(max(0, -ahead), min(wide(seg["cap"]), wide(old["cap"]) - ahead)):
            other += d[seg["off"] + j] != d[old["off"] + ahead + j]
        if not other:
            continue
        differ += other
        first = _first_is(d, old, seg)
        if first != RIGHT:
            since = min(since, old["frame"])
            kind = P_OTHER if first == UNKNOWN or kind == P_OTHER else P_SPOILT
    if not differ:
        return
    problem(st, kind, conn, sender, seg["time"], frame, seg["off"], differ)
    c, s = st.conns[conn], st.streams[k]
    if kind != P_BROKEN and not c["opaque"]:
        distrust(c, s, st.streams[2 * conn + 1 - sender], since, kind == P_SPOILT)


@kernel
def _lag(st, seg, s, k, seq, frame):
    """Note how long a copy was captured after what it repeats: the first segment with its bytes,
    or a later one that was sent again."""
    c = st.conns[k >> 1]
    for i in range(REMEMBERED):
        old = st.taken[k, i]
        if not old["wire"] or old["seq"] != seq:
            continue
        lag = seg["time"] - old["time"]
        if not seg["flags"] & COPY:
            old["time"] = seg["time"]
        elif lag > GRACE // 2:
            behind(c, s, seg, lag, frame)
            c["lag"] = min(c["lag"], lag) if c["lag"] else lag


@inlined
def _remember(st, seg, k, seq, frame):
    row = st.taken[k, st.streams[k]["segments"] % REMEMBERED]
    row["seq"], row["cap"], row["wire"], row["off"] = seq, seg["cap"], seg["wire"], seg["off"]
    row["frame"], row["mark"], row["time"] = frame, mark(seg), seg["time"]


@kernel
def _hold(st, d, seg, k, conn, sender, frame, late, counts):
    """Keep a segment that came before its turn, in order of sequence numbers."""
    s = st.streams[k]
    prev, at = -1, s["head"]
    if at >= 0 and diff(seg["seq"], st.held[s["tail"]]["seq"]) > 0:
        prev, at = s["tail"], -1
    while at >= 0 and diff(st.held[at]["seq"], seg["seq"]) <= 0:
        h = st.held[at]
        if h["seq"] == seg["seq"] and h["wire"] >= seg["wire"]:
            return
        prev, at = at, h["next"]
    place = take(st, seg["cap"])
    if place < 0:
        problem(st, P_MEMORY, conn, sender, seg["time"], frame, seg["off"], seg["cap"])
        return
    new = st.n[N_HELD_FREE]
    h = st.held[new]
    st.n[N_HELD_FREE] = h["next"]
    h["stream"], h["next"], h["seq"], h["off"] = k, at, seg["seq"], place
    h["cap"], h["wire"], h["time"], h["frame"] = seg["cap"], seg["wire"], seg["time"], frame
    h["late"] = late
    size = wide(seg["cap"])
    copy(d, seg["off"], size, st.arena, place)
    if prev >= 0:
        st.held[prev]["next"] = new
    else:
        s["head"] = new
        if not s["held"]:
            s["gap_since"] = seg["time"]
    if at < 0:
        s["tail"] = new
    st.n[N_WAITING] += 1
    s["held"] += 1
    s["held_bytes"] += size
    s["disordered"] += counts


@kernel
def _rival(st, h):
    """The next held segment that was captured before this one and has some of its bytes (they were
    sent again, put together otherwise), or -1."""
    end, at = h["seq"] + h["cap"], h["next"]
    while at >= 0:
        other = st.held[at]
        if diff(other["seq"], end) >= 0:
            break
        if other["frame"] < h["frame"] and other["cap"] == other["wire"]:
            return at
        at = other["next"]
    return -1


@kernel
def _step_back(st, s, h, n, rival):
    """n bytes of the first held segment are taken; the rest of it waits behind the rival."""
    at, other = s["head"], st.held[rival]
    h["seq"] = h["seq"] + n & MASK
    h["off"] += n
    h["cap"] -= n
    h["wire"] -= n
    s["held_bytes"] -= n
    s["head"] = h["next"]
    h["next"], other["next"] = other["next"], at
    if s["tail"] == rival:
        s["tail"] = at


@kernel
def _release(st, k, conn, sender, time):
    """Take what is held as far as it goes on without a hole; False: a table is full."""
    s = st.streams[k]
    while s["head"] >= 0:
        at = s["head"]
        h = st.held[at]
        if diff(h["seq"], s["next"]) > 0:
            break
        rival = _rival(st, h)
        n = diff(st.held[rival]["seq"], h["seq"]) if rival >= 0 else h["cap"]
        wire = n if rival >= 0 else h["wire"]
        if not _take(st, st.arena, h["off"], h["seq"], n, wire, s, conn, sender, h["time"],
                     h["frame"], h["late"], True):  # fmt: skip
            return False
        if rival >= 0:
            _step_back(st, s, h, n, rival)
            continue
        s["head"] = h["next"]
        s["free"] = max(s["free"], time)
        st.n[N_WAITING] -= 1
        s["held"] -= 1
        s["held_bytes"] -= h["cap"]
        h["stream"], h["next"] = -1, st.n[N_HELD_FREE]
        st.n[N_HELD_FREE] = at
        s["gap_since"] = time
    return True


@kernel
def _mend(st, k, conn, sender, time, final):
    """Give up holes that will not be filled; False: a table is full."""
    s = st.streams[k]
    while s["head"] >= 0:
        h = st.held[s["head"]]
        waited = time - s["gap_since"]
        known = s["acked_known"] and diff(s["acked"], h["seq"]) >= 0
        if not (final or (known and waited > PATIENCE) or waited > LONG_PATIENCE
                or s["held"] > HELD_SEGMENTS or s["held_bytes"] > HELD_BYTES):  # fmt: skip
            return True
        if not room(st):
            return False
        hole = diff(h["seq"], s["next"])
        if hole > 0:
            if hole > JUMP:
                tear(st, conn, sender, h["time"], h["frame"], hole)
            before = s["hole_at"]
            lose(st, s, hole, conn, sender, h["time"], h["frame"], P_LOSS)
            s["hole_at"] = max(before, missed(s, wide(h["seq"]), wide(h["time"])))
        if not _release(st, k, conn, sender, time):
            return False
    return True


@kernel
def _begin(st, s, seq, seg, conn, sender):
    """The first data of a stream without SYN: what had been acknowledged before it is all that is
    known to be missing. False: a table is full."""
    if not room(st):
        return False
    hole = diff(seq, s["next"])
    if s["acked_known"] and hole > 0:
        frame = st.n[N_FILE] << 32 | wide(seg["frame"])
        lose(st, s, hole, conn, sender, seg["time"], frame, P_LOSS)
    s["next"], s["known"], s["origin"] = seq, 1, seq
    return True


@inlined
def _tell(s, other, seg):
    """What a segment says about how far both streams go. An older acknowledgement than what was
    taken for the beginning of the other stream tells of bytes before that."""
    if seg["flags"] & ACK and not other["isn_known"] and other["acked_known"]:
        if other["known"]:
            before = diff(seg["ack"], other["origin"]) < 0
            if before and not other["blind"]:
                lapsed(other, seg["time"])
            other["blind"] |= before
        elif diff(seg["ack"], other["next"]) < 0:
            other["next"] = seg["ack"]
    if seg["flags"] & ACK and (not other["acked_known"] or diff(seg["ack"], other["acked"]) > 0):
        if not other["known"] and not other["acked_known"]:
            other["next"] = seg["ack"]
        acknowledge(other, seg)
        other["acked"], other["acked_known"] = seg["ack"], 1
    window(other, seg)
    # A RST that answers a segment has the number that this one acknowledges, or 0.
    if not seg["wire"] and not seg["flags"] & SYN and (seg["seq"] or not seg["flags"] & RST):
        if not s["said_known"] or diff(seg["seq"], s["said"]) > 0:
            s["said"], s["said_known"] = seg["seq"], 1


@kernel
def _overtaken(s, seg, seq):
    """Whether a segment that begins before the place where its stream goes on may be the only one
    that the capture has of its bytes, as its frames are out of order: it precedes the first one,
    or fills what was lost and yet acknowledged, so that nobody had to send it again."""
    if not s["isn_known"] and diff(seq, s["origin"]) < 0:
        return True
    heard = s["acked_known"] and diff(s["acked"], seq + wide(seg["wire"]) & MASK) >= 0
    if not heard or s["lost"] - s["filled"] < seg["wire"]:
        return False
    s["filled"] += seg["wire"]
    return True


@kernel
def _seen(st, seg, s, k, conn, counts, kind, seq, ahead, frame):
    """Note a segment that begins before the place where its stream goes on."""
    if counts and _overtaken(s, seg, seq):
        s["disordered"] += 1
    elif counts:
        resent(st, conn, s, kind, frame)
    again(s, seg, seq)
    _lag(st, seg, s, k, seq, frame)
    closed = st.conns[conn]["closed"]
    if closed and seg["time"] - closed > LONG_AFTER and not seg["flags"] & COPY:
        s["past_frame"] = s["past_frame"] if s["past"] else frame
        s["past"] += min(wide(seg["wire"]), -ahead)
    if not s["isn_known"] and diff(seq, s["origin"]) < 0:  # captured after what it precedes
        s["blind"] = 1
        lapsed(s, seg["time"])


@kernel
def _data(st, d, seg, s, k, conn, sender, counts, kind, resumed):
    """The payload of a segment; False: a table is full."""
    seq = wide(seg["seq"]) + (1 if seg["flags"] & SYN else 0) & MASK
    if not s["known"]:
        if not _begin(st, s, seq, seg, conn, sender):
            return False
    ahead = diff(seq, s["next"])
    frame = st.n[N_FILE] << 32 | wide(seg["frame"])
    late = 0
    begin = seq if ahead > 0 else s["next"]
    if ahead + seg["wire"] > 0 and s["acked_known"] and diff(s["acked"], begin) > 0:
        late = LATE_FAR if delayed(s, seg, begin) > GRACE // 2 else LATE
    if late:
        st.conns[conn]["late"] = max(st.conns[conn]["late"], late)
        s["over_frame"] = s["over_frame"] if s["over_frame"] else frame
    if ahead > 0:
        if s["held"] and not resumed:
            _compare(st, d, seg, k, conn, sender, seq, frame)
        if not room(st):
            return False
        _remember(st, seg, k, seq, frame)
        _hold(st, d, seg, k, conn, sender, frame, late, counts)
        return True
    if ahead == -1 and seg["wire"] == 1 and not resumed and s["acked_known"] > 0 and (
        diff(s["acked"], s["next"]) >= 0
    ):
        return True  # a probe of TCP's keep alive, whose byte means nothing (RFC 1122, 4.2.3.6)
    if ahead < 0 and not resumed:
        _seen(st, seg, s, k, conn, counts, kind, seq, ahead, frame)
        _compare(st, d, seg, k, conn, sender, seq, frame)
    if counts or ahead >= 0:  # a copy would take the place of another one
        _remember(st, seg, k, seq, frame)
    if ahead + seg["wire"] > 0 and not _take(
        st, d, seg["off"], seq, wide(seg["cap"]), wide(seg["wire"]), s, conn, sender,
        seg["time"], frame, late, False,
    ):  # fmt: skip
        return False
    return _release(st, k, conn, sender, seg["time"])


@kernel
def _segment(st, d, seg, conn, resumed, kind):
    """One segment of a connection; False: a table is full, come again with the same one."""
    c = st.conns[conn]
    sender = 1 if c["server"] == 1 + seg["dir"] else 0
    k = 2 * conn + sender
    s, other = st.streams[k], st.streams[2 * conn + 1 - sender]
    copied = seg["flags"] & COPY > 0
    counts = not copied and not behind_end(c, seg)
    if counts:
        c["last"], c["upto"] = max(c["last"], seg["time"]), st.n[N_FILE]
    if not resumed:
        if not copied and place(c, s, other, seg) == BEHIND:
            tear(st, conn, sender, seg["time"], st.n[N_FILE] << 32 | wide(seg["frame"]),
                 abs(diff(seg["seq"], s["top"])))  # fmt: skip
        reach(s, other, seg)
        s["segments"] += counts
        if not copied:
            noted(s, other, seg, kind)
        if seg["flags"] & SYN:
            syn(s, other, seg, kind == MAYBE, st.n[N_FILE] << 32 | wide(seg["frame"]))
        else:
            s["talks"] = 1
        _tell(s, other, seg)
    if seg["wire"] and (not c["opaque"] or s["hello"] == HELLO_WANTED):
        if not _data(st, d, seg, s, k, conn, sender, counts, kind, resumed):
            return False
    for way in range(2):
        if st.streams[2 * conn + way]["head"] >= 0 and not _mend(
            st, 2 * conn + way, conn, way, seg["time"], False
        ):
            return False
    note_alive(c, s, other, seg, sender, st.n[N_FILE] << 32 | wide(seg["frame"]))
    ends(c, s, other, seg, sender)
    return True


@entry
def run(st, d, segments, pair_of, start):
    """Work through segments from `start` on; returns where it stopped: at the end, or where a
    table was full (st.n[N_WANT] says which)."""
    for i in range(start, len(segments)):
        seg = segments[i]
        pair = pair_of[seg["key"]]
        if pair < 0:
            continue
        conn, cur = st.n[N_RESUMED] - 1, st.pairs[pair]["cur"]
        resumed, kind = conn >= 0, NEW
        if not resumed and cur >= 0:
            conn = of_earlier(st, pair, seg)
            if conn == HAD:
                continue
            kind = judged(st, conn if conn >= 0 else cur, seg)
            if seg["flags"] & TWICE and kind == NEW:  # its first one was of another connection
                continue
        if conn < 0:
            conn = connection(st, d, pair, seg)
        if conn == STRAY:
            continue
        if conn < 0 or not _segment(st, d, seg, conn, resumed, kind):
            st.n[N_RESUMED] = max(0, conn + 1)
            return i
        st.n[N_RESUMED] = 0
    return len(segments)


@entry
def close(st, start):
    """The capture is over: what is held is taken, holes are losses. Returns the connection at
    which a table was full, or how many there are."""
    for conn in range(start, st.n[N_CONNS]):
        for way in range(2):
            if not _mend(st, 2 * conn + way, conn, way, st.conns[conn]["last"], True):
                return conn
    return st.n[N_CONNS]
