"""What is only seen when the capture is over: silence up to the end, a CONNECT or a PINGREQ
without an answer, bytes in which nothing was found.

Knows: connections and streams as they are at the end. Must not know: tables, files.
"""

import numpy as np

from ..compiled.layout import (
    END_FIN_CLIENT,
    END_OPEN,
    END_RST_SERVER,
    FRESH,
    GRACE,
    LATE_FAR,
    MASK,
    N_FILE,
    N_UNLISTED,
    NO_PACKET,
    P_ANEW,
    P_CLOSED,
    P_FAR,
    P_LAG,
    P_LATE,
    P_LOSS,
    P_MAYBE,
    P_MORE,
    P_NO_STEP,
    P_PAST,
    P_TWICE,
    P_UNFINISHED,
    P_WEB,
    PROBLEM,
    SEARCHING,
    SECOND,
    SHIFT,
    VIOLATION,
)  # fmt: skip
from .limits import closing

CLOSED_FIRST = 2  #: STREAM.fin of the side that closes first
#: For so long a broker may leave a PINGREQ without an answer, if the keep alive is not shorter.
PING_ANSWER = 30 * SECOND


def _beyond(ways, item):
    return (ways[item] - ways["next"] + 0x80000000 & MASK) - 0x80000000


def _calm(ways):
    """As tcp/calm.py has it, of each stream at the end: (whether, since when)."""
    trouble = (ways["stuck"] > 0) | (ways["shut"] > 0)
    heard = (ways["acked_known"] > 0) & (_beyond(ways, "acked") >= 0)
    return heard & ~trouble, np.maximum(ways["acked_at"], ways["free"])


def more(ways):
    """Which streams go on behind what the capture has of them, as the other side's
    acknowledgements or their own segments say. FIN counts as a byte: a missing one shows here."""
    fin = ways["fin"] > 0
    acked = (ways["acked_known"] > 0) & (_beyond(ways, "acked") > fin)
    return acked | (ways["said_known"] > 0) & (ways["known"] > 0) & (_beyond(ways, "said") > fin)


def unseen(ways):
    """Of which side of each connection the capture has nothing, though the other side acknowledges
    its bytes: 1 the client, 2 the broker, 0 neither."""
    nothing = (ways["segments"] == 0) & (ways["bytes"] == 0) & (ways["isn_known"] == 0)
    missing = nothing & (ways["acked_known"] > 0) & (_beyond(ways, "acked") > 0)
    return np.where(missing[:, 0], 1, np.where(missing[:, 1], 2, 0))


def unreadable(conns, ways):
    """Of which sides no packet can be read though they have sent some, as of a WebSocket whose
    upgrade the capture lacks: nobody knows what they answered. [connection, side]."""
    lost = (ways["skipped"] > 0) & (ways["sync"] == SEARCHING)
    left = (conns["opaque"] == P_WEB)[:, None]
    return (ways["bytes"] > 0) & (ways["packets"] == 0) & (lost | left)


def hidden(conns, ways, asked):
    """Whether the answer to what was sent at the times `asked` may be among bytes that the capture
    lacks, or that could not be read. conns, ways: for each of these the connection, and the stream
    that answers. Nothing is asked for in bytes that were acknowledged before, and a byte that only
    acknowledgements tell of may be FIN, if no packet waits for it."""
    fin, begun = ways["fin"] > 0, ways["stage"] != FRESH
    least = fin + np.where(fin | begun, 0, 1)
    heard = (ways["acked_known"] > 0) & (_beyond(ways, "acked") > least)
    heard &= (ways["heard_at"] <= 0) | (asked < ways["heard_at"])
    said = (ways["said_known"] > 0) & (ways["known"] > 0) & (_beyond(ways, "said") > least)
    unread = (conns["opaque"] > 0) | (conns["spoilt"] > 0) | (ways["skipped"] > 0)
    return unread | heard | said | (ways["lapses"] > 0) & (asked <= ways["hole_at"])


def lacking(conns, ways):
    """Bytes at the end of each stream that only these numbers tell of: a FIN may be the last."""
    fin = ways["fin"] > 0
    beyond = np.maximum(np.where(ways["acked_known"] > 0, _beyond(ways, "acked"), 0),
                        np.where(ways["said_known"] > 0, _beyond(ways, "said"), 0)) - fin
    read = (ways["known"] > 0) & (ways["segments"] > 0)
    read &= ((conns["opaque"] == 0) & (conns["tears"] == 0))[:, None]
    return np.where(read & (beyond > np.where(fin, 0, 1)), beyond, 0)


def full(ways, since="gaps"):
    """Which streams have all their bytes, as far as is known: none is missing between two others,
    nor at the end. since: "lapse" asks only for those behind the last packet."""
    unread = (ways["blind"] > 0) | (ways["skipped"] > 0)
    return (ways[since] == 0) & ~unread & ~more(ways)


def _watched(conns, ways):
    """Connections that were followed up to the end. One whose client was in the middle of a packet
    was not silent."""
    return (
        (conns["connected"] > 0)
        & (ways["stage"][:, 0] == FRESH) & full(ways, "lapse")[:, 0]
        & (conns["opaque"] == 0) & (conns["code"] == 0) & (conns["spoilt"] == 0)
    )  # fmt: skip


def _unheard(conns, ways):
    """Connections on which the broker sent nothing and closed nothing, though its side is whole,
    and until when that is known: a client's packet or FIN acknowledges all that there is, and the
    broker's own segments show that it was there."""
    left, broker = conns["end"] == END_FIN_CLIENT, ways[:, 1]
    heard = np.where(left, conns["closed"], conns["last_client"])
    heard = np.minimum(heard, broker["alive"])
    closes = (conns["end"] == END_RST_SERVER) | (broker["fin"] > 0) & ~left
    quiet = (broker["whole"] > 0) & (broker["bytes"] == 0) & ~closes
    return quiet & (conns["connects"] == 1) & full(ways)[:, 1], heard


def _until(conns):
    """When the time of each connection was over: at the first FIN or RST of either side, which is
    all that the broker owes a silent client; after DISCONNECT at that. One that just stops is
    followed up to its last segment: nobody knows whether the rest is missing."""
    over = np.where(conns["closed"] > 0, conns["closed"], conns["last"])
    return np.where(conns["disconnected"] > 0, conns["last_client"], over)


def _waited(conns, calm, since, until):
    """How long a PINGREQ had no answer, from when the broker had it and could answer it."""
    heard = np.where(conns["ping_heard"] > 0, conns["ping_heard"],
                     np.where(calm[:, 0], np.maximum(since[:, 0], conns["ping_at"]), until))
    return np.where(calm[:, 1], until - np.maximum(heard, since[:, 1]), 0)


def _keeps(conns, ways):
    """Of which connections the keep alive is known."""
    silent = (conns["acked"] == 0) & full(ways)[:, 1]
    return (conns["keep_alive"] > 0) & ((conns["agreed"] > 0) | silent)


def in_step(conns, ways):
    """Of which connections both sides have the same clock, as far as is known: no bytes come long
    behind their acknowledgement. Where segments come twice, the late ones may be copies of some
    that the capture lacks."""
    return (ways["delay"].max(axis=1) < SHIFT) | (conns["belated"] > 0)


def longest(conns, ways):
    """(the longest silence of each connection's client in ns, with that before its end; of which
    it is known: if any was measured)."""
    timed = _keeps(conns, ways) & _watched(conns, ways)
    last = np.where(timed, _until(conns) - conns["last_client"], 0)
    known = (timed | (conns["longest"] > 0)) & (conns["belated"] == 0)
    return np.maximum(conns["longest"], last), known & in_step(conns, ways)


def _violations(conns, ways):
    """Rows of layout.VIOLATION, with the frame in which the silence began."""
    last = _until(conns)
    open_ = (conns["end"] == END_OPEN) & (conns["closed"] == 0)
    watched, timed = _watched(conns, ways), conns["keep_alive"] > 0
    whole = full(ways)[:, 1]
    keeps = _keeps(conns, ways)
    stayed = conns["disconnected"] == 0
    allowed = conns["keep_alive"].astype(np.int64) * SECOND
    grace = GRACE + conns["rtt"]
    calm, since = _calm(ways)
    alive = ways["alive"]
    silent = last - conns["last_client"]
    # What counts begins when the broker had it, and ends when nobody knows who is still there.
    begin = np.maximum(conns["last_client"], since[:, 0])
    quiet = np.minimum(last, alive[:, 0]) - begin
    unclosed = np.minimum(last, alive[:, 1]) - begin
    closed_after = last - begin
    waited = np.maximum(_waited(conns, calm, since, np.minimum(last, alive[:, 1])),
                        conns["ping_waited"])  # fmt: skip
    unheard, heard_to = _unheard(conns, ways)
    asked = np.where(conns["asked_heard"] > 0, conns["asked_heard"],
                     np.where(calm[:, 0], np.maximum(since[:, 0], conns["asked_at"]), heard_to))
    unanswered = heard_to - asked
    reset = (conns["end"] == END_RST_SERVER) & (ways["fin"][:, 0] == 0)
    by_broker = reset | (ways["fin"][:, 1] == CLOSED_FIRST)
    closes = closing(allowed, conns["rtt"])
    # A FIN of the broker that the capture lacks would have ended the silence.
    judged = keeps & stayed & calm[:, 0] & ~more(ways)[:, 1]
    never = timed & unheard & calm[:, 1] & (unanswered > allowed + grace)
    speaks = judged & (conns["acked"] > 0)  # who waits for CONNACK may
    owed = (conns["owed"] > 0) & calm[:, 0] & (since[:, 0] > conns["owed_at"])
    imposed = conns["imposed"] > 0
    patience = np.where(keeps, np.minimum(allowed, PING_ANSWER), PING_ANSWER)
    out, most = [], np.where(open_, allowed * 3 // 2, allowed) + grace
    heard, pinged = ways["reached"][:, 0], conns["ping_frame"]
    for code, sender, length, frame, broken in (
        (10, 0, silent, heard, speaks & (quiet > most) & ~imposed),
        (149, 0, silent, heard, speaks & (quiet > most) & imposed),
        (11, 1, unclosed, heard, judged & whole & (unclosed > closes) & ~by_broker & ~never),
        (11, 1, conns["owed"], conns["owed_frame"], owed & ~never),
        (127, 1, closed_after, heard, judged & (closed_after > closes) & by_broker),
        (47, 1, waited, pinged,
         whole & (conns["ping_at"] > 0) & (waited > patience + grace) & ~never),
        (53, 1, unanswered, conns["asked_frame"], never),
    ):
        found = np.flatnonzero(watched & broken)
        rows = np.zeros(len(found), VIOLATION)
        rows["time"], rows["conn"], rows["level"] = last[found], found, conns["level"][found]
        rows["value"] = length[found] // 1_000_000
        rows["code"], rows["kind"], rows["from_server"] = code, NO_PACKET, sender
        rows["frame"] = frame[found]
        out.append(rows)
    return np.concatenate(out)


def unlisted(arrays):
    """A row of layout.PROBLEM on those that had no room since last time, or none."""
    n = arrays.n
    rows = np.zeros(int(n[N_UNLISTED] > 0), PROBLEM)
    rows["kind"], rows["conn"], rows["off"], rows["count"] = P_MORE, -1, -1, n[N_UNLISTED]
    rows["frame"] = n[N_FILE] << 32
    n[N_UNLISTED] = 0
    return rows


def _problems(conns, ways):
    """Rows of layout.PROBLEM, with the last frame of the bytes that are meant."""
    lost = (ways["skipped"] > 0) & (ways["sync"] == SEARCHING)
    cut = ways["stage"] != FRESH
    inside = np.where(conns["end"] == END_OPEN, P_UNFINISHED, P_CLOSED)[:, None]
    count = np.where(lost, ways["skipped"], ways["got"])
    unread = _rows_of((lost | cut) & (conns["opaque"] == 0)[:, None], ways, "reached",
                      np.where(lost, P_NO_STEP, inside), count)  # fmt: skip
    past = _rows_of(ways["past"] > 0, ways, "past_frame", np.full(lost.shape, P_PAST),
                    ways["past"])  # fmt: skip
    kind = np.where(2 * ways["perhaps"] > ways["twice"], P_MAYBE, P_TWICE)
    twice = _rows_of(ways["twice"] > 0, ways, "twice_frame", kind, ways["twice"])
    anew = _rows_of(ways["anew"] > 0, ways, "anew_frame", np.full(lost.shape, P_ANEW),
                    ways["anew"])  # fmt: skip
    one, read = np.ones(lost.shape, np.int64), (conns["opaque"] == 0)[:, None]
    lag = _rows_of(read & (ways["lag_frame"] > 0), ways, "lag_frame", P_LAG * one, one)
    far = (conns["late"] == LATE_FAR)[:, None] & (ways["delay"] >= SHIFT)
    kind = np.where(far, P_FAR, P_LATE)
    over = _rows_of(read & (ways["over_frame"] > 0), ways, "over_frame", kind,
                    ways["delay"] // (SECOND // 1000))  # fmt: skip
    least = lacking(conns, ways)
    end = _rows_of(least > 0, ways, "reached", P_LOSS * one, least)
    none = end["frame"] == 0  # without data the connection's first one
    end["frame"][none] = conns["id"][end["conn"][none]]
    end["time"][none] = conns["first"][end["conn"][none]]
    return np.concatenate([unread, past, twice, anew, lag, over, end])


def _rows_of(which, ways, frame, kind, count):
    conn, way = np.nonzero(which)
    rows = np.zeros(len(conn), PROBLEM)
    rows["off"], rows["conn"], rows["from_server"] = -1, conn, way
    rows["time"], rows["frame"] = ways["reached_at"][conn, way], ways[frame][conn, way]
    rows["kind"], rows["count"] = kind[conn, way], count[conn, way]
    return rows


def last_words(arrays):
    """(violations, problems) of a capture."""
    conns, ways = arrays.conns, arrays.ways
    return _violations(conns, ways), _problems(conns, ways)
