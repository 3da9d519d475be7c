"""What is only seen when the capture is over: silence up to the end, a CONNECT or a PINGREQ
without an answer, bytes in which nothing was found.

Knows: connections and streams as they are at the end. Must not know: tables, files.
"""

import numpy as np

from ..compiled.layout import (
    CONNECT,
    DISCONNECT,
    END_FIN_CLIENT,
    END_OPEN,
    END_RST_SERVER,
    FRESH,
    MASK,
    N_FILE,
    N_UNLISTED,
    P_MORE,
    P_NO_STEP,
    P_UNFINISHED,
    PINGREQ,
    PROBLEM,
    SEARCHING,
    VIOLATION,
)  # fmt: skip
from ..mqtt.packets import GRACE, SECOND


def full(ways):
    """Which streams have all their bytes, as far as is known: none is missing between two others,
    and neither the other side's acknowledgements nor its own segments say that there are more at
    the end. FIN counts as a byte."""

    def beyond(item):
        return (ways[item] - ways["next"] + 0x80000000 & MASK) - 0x80000000

    fin = ways["fin"] > 0
    acked = (ways["acked_known"] > 0) & (beyond("acked") > fin)
    said = (ways["said_known"] > 0) & (ways["known"] > 0) & (beyond("said") > fin)
    return (ways["gaps"] == 0) & ~acked & ~said


def _watched(conns, ways):
    """Connections whose keep alive was to be kept up to the end. One whose client was in the
    middle of a packet was not silent."""
    return (
        (conns["connected"] > 0) & (conns["disconnected"] == 0) & (conns["keep_alive"] > 0)
        & (ways["stage"][:, 0] == FRESH) & full(ways)[:, 0] & (conns["level"] != 5)
        & (conns["opaque"] == 0) & (conns["code"] == 0)
    )  # fmt: skip


def _unheard(conns, ways):
    """Connections on which the broker sent nothing and closed nothing, though its side is whole,
    and until when that is known: a client's packet or FIN acknowledges all that there is."""
    left, broker = conns["end"] == END_FIN_CLIENT, ways[:, 1]
    heard = np.where(left, conns["closed"], conns["last_client"])
    closes = (conns["end"] == END_RST_SERVER) | (broker["fin"] > 0) & ~left
    quiet = (broker["whole"] > 0) & (broker["bytes"] == 0) & ~closes
    return quiet & (conns["connects"] == 1) & full(ways)[:, 1], heard


def _until(conns, ends):
    """When the time of each connection was over: at the first FIN or RST of either side, which is
    all that the broker owes a silent client. One without is followed to the end of the file that
    it was last seen in and no further, as nobody knows what was left out between two files: to
    the first end of a file after it, which is never too late."""
    ends = np.sort(np.asarray(ends, np.int64))
    if not len(ends):
        return conns["last"]
    after = ends[np.minimum(np.searchsorted(ends, conns["last"]), len(ends) - 1)]
    followed = np.where(conns["end"] == END_OPEN, np.maximum(after, conns["last"]), conns["last"])
    return np.where(conns["closed"] > 0, conns["closed"], followed)


def _violations(conns, ways, ends):
    """Rows of layout.VIOLATION, with the frame in which the silence began; notes the longest
    silence."""
    last = _until(conns, ends)
    open_ = (conns["end"] == END_OPEN) & (conns["closed"] == 0)
    watched = _watched(conns, ways)
    allowed = conns["keep_alive"].astype(np.int64) * SECOND
    silent, waited = last - conns["last_client"], last - conns["ping_at"]
    unheard, heard_to = _unheard(conns, ways)
    unanswered = heard_to - conns["asked_at"]
    over = silent > allowed * 3 // 2 + GRACE
    conns["longest"] = np.where(watched, np.maximum(conns["longest"], silent), conns["longest"])
    out = []
    heard, asked = ways["reached"][:, 0], conns["ping_frame"]
    for code, sender, kind, length, frame, broken in (
        (10, 0, DISCONNECT, silent, heard, np.where(open_, over, silent > allowed + GRACE)),
        (11, 1, DISCONNECT, silent, heard, over),
        (47, 1, PINGREQ, waited, asked,
         full(ways)[:, 1] & (conns["ping_at"] > 0) & (waited > allowed + GRACE)),
        (53, 1, CONNECT, unanswered, conns["asked_frame"],
         unheard & (unanswered > allowed + GRACE)),
    ):
        found = np.flatnonzero(watched & broken)
        rows = np.zeros(len(found), VIOLATION)
        rows["time"], rows["conn"], rows["level"] = last[found], found, conns["level"][found]
        rows["value"] = length[found] // 1_000_000
        rows["code"], rows["kind"], rows["from_server"] = code, kind, sender
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
    cut = (ways["stage"] != FRESH) & (conns["end"] == END_OPEN)[:, None]
    conn, way = np.nonzero((lost | cut) & (conns["opaque"] == 0)[:, None])
    rows = np.zeros(len(conn), PROBLEM)
    rows["off"] = -1
    rows["conn"], rows["from_server"] = conn, way
    rows["time"], rows["frame"] = ways["reached_at"][conn, way], ways["reached"][conn, way]
    rows["kind"] = np.where(lost[conn, way], P_NO_STEP, P_UNFINISHED)
    rows["count"] = np.where(lost, ways["skipped"], ways["got"])[conn, way]
    return rows


def last_words(arrays, ends):
    """(violations, problems) of a capture; ends: when each of its files ends (ns)."""
    conns, ways = arrays.conns, arrays.ways
    return _violations(conns, ways, ends), _problems(conns, ways)
