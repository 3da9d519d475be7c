"""MQTT known by its packets on a connection of which the capture lacks the beginning, by itself or
in the frames of a WebSocket, compiled.

Knows: sequence numbers, what headers of packets look like. Must not know: frames, what becomes of
the connection.

A packet says where the next one begins. A connection is MQTT when several stand where they must,
on both sides together, and a topic was among them; one that does not is the end of the evidence.
Where the capture has the SYN and what follows it, that has to be what MQTT begins with.
"""


from ..compiled.jit import kernel, wide
from ..compiled.layout import MASK, PUBLISH
from ..mqtt.framing import NEVER, NOT_YET, length_at, packet_at, repeats
from ..mqtt.text import TEXT_OK, text_kind
from ..mqtt.webframes import BINARY, SIGNS_IN, framed
from .openings import strange
from .sequence import diff

SURE, SURE_WITHOUT_TOPIC = 3, 6  #: packets that stand where the one before says
SPLIT = 4  #: bytes of a packet's header that a segment may end with
SEEN = 512  #: bytes behind them that are looked at
WEBS = 3  #: segments that are frames with packets, of which a connection is a WebSocket with MQTT


@kernel
def _forget(t):
    t["known"] = t["good"] = t["topics"] = t["client"] = t["server"] = t["left"] = 0


@kernel
def _topic_at(d, p, end):
    """Whether a PUBLISH with its whole topic lies at p, and the topic is one."""
    _, q = length_at(d, p, end)
    if d[p] >> 4 != PUBLISH or q <= 0 or q + 2 > end:
        return False
    n = wide(d[q]) << 8 | wide(d[q + 1])
    return 0 < n and q + 2 + n <= end and text_kind(d, q + 2, n) == TEXT_OK


@kernel
def _packet(t, d, begin, p, end):
    """Length of the packet at p as either side may send it, NOT_YET or NEVER; counts it. A frame
    of a WebSocket begins as a SUBSCRIBE, and is as long: that counts only if it is all there. A
    fixed header alone is no evidence, nor an identifier: any protocol may have such bytes. Nor are
    four bytes that come again and again. begin: of the segment."""
    n, back = packet_at(d, p, end, 0), packet_at(d, p, end, 1)
    if d[p] == BINARY and n > end - p:
        return NEVER
    if n == NEVER and back == NEVER or n == NOT_YET or back == NOT_YET:
        return max(n, back)
    _, q = length_at(d, p, end)
    if end - p < min(max(n, back), q - p + (2 if d[p] >> 4 == PUBLISH else 3)):
        return NOT_YET
    if repeats(d, begin, p, min(end, p + max(n, back))):
        return max(n, back)
    t["client"] |= back == NEVER
    t["server"] |= n == NEVER
    if t["client"] and t["server"]:
        return NEVER
    t["good"] = min(t["good"] + t["known"], 100)
    t["topics"] |= _topic_at(d, p, end)
    return max(n, back)


@kernel
def _keep(t, d, p, end):
    """Remember the beginning of a header that goes on in the next segment."""
    t["left"] = 0
    if end - p <= SPLIT:
        _append(t, d, p, end)
    t["known"] = t["known"] and t["left"] > 0  # else nobody knows where it ends


@kernel
def _append(t, d, p, end):
    """Remember the next bytes of a header."""
    for k in range(p, end):
        t["bytes"] = t["bytes"] << 8 & MASK | wide(d[k])
    t["left"] += end - p


@kernel
def _joined(t, d, p, end, seen):
    """Length of the packet whose header began in the segment before and goes on at p."""
    for k in range(t["left"]):
        seen[k] = t["bytes"] >> 8 * (t["left"] - 1 - k) & 255
    more = min(end - p, SEEN)
    for k in range(more):
        seen[t["left"] + k] = d[p + k]
    return _packet(t, seen, 0, 0, t["left"] + more)


@kernel
def _start(t, d, p, end, seq, seen):
    """How far the next packet begins behind p, where a segment begins; -1: not in it."""
    ahead = diff(t["at"], seq)
    if t["left"] and ahead == -wide(t["left"]):
        n = _joined(t, d, p, end, seen)
        if n == NOT_YET and t["left"] + end - p <= SPLIT:
            _append(t, d, p, end)
            return -1
        if n <= 0:
            _forget(t)
            return -1
        ahead, t["left"], t["known"] = n + ahead, 0, 1
        t["at"] = t["at"] + n & MASK
    elif not t["known"] or ahead < 0:  # behind a hole
        _forget(t)
        t["at"] = seq
        return 0
    return ahead if ahead < end - p else -1


@kernel
def _follow(t, d, p, end, seq, seen):
    """A segment of one side, with payload."""
    ahead = _start(t, d, p, end, seq, seen)
    while 0 <= ahead < end - p:
        n = _packet(t, d, p, p + ahead, end)
        if n == NEVER:
            _forget(t)
            return
        if n == NOT_YET:
            _keep(t, d, p + ahead, end)
            return
        t["known"] = 1
        t["at"] = t["at"] + n & MASK
        ahead += n


@kernel
def _web(trails, k, swap, d, p, end, seen):
    """KEY.server of a WebSocket with MQTT whose upgrade the capture lacks, or 0. A CONNECT is
    enough."""
    found = framed(d, p, end, seen)
    if not found:
        return 0
    side = 1 - swap if d[p + 1] & 128 else swap  # of the broker
    broker = trails[k, side]
    broker["webs"] = min(broker["webs"] + 1, WEBS)
    return 7 + side if found == SIGNS_IN or broker["webs"] == WEBS else 0


@kernel
def shown(trails, k, swap, d, p, end, seq, a_port, b_port, seen):
    """As openings.asks(), of a connection that began before the capture: 0, or 5 or 6, which end
    is taken for the broker; 7 or 8 if that is a WebSocket. trails: rows of layout.TRAIL for both
    ends. The end that sends what only a broker sends is one; else the one with the lower port."""
    a, b, mine = trails[k, 0], trails[k, 1], trails[k, swap]
    if mine["syn"] and seq == mine["syn"] + 1 & MASK:
        mine["strange"] = strange(d, p, end)
    if a["strange"] or b["strange"]:
        return 0
    web = _web(trails, k, swap, d, p, end, seen)
    if web:
        return web
    _follow(trails[k, swap], d, p, end, seq, seen)
    good = a["good"] + b["good"]
    if good < SURE or not (a["topics"] or b["topics"]) and good < SURE_WITHOUT_TOPIC:
        return 0
    if a["client"] or b["server"]:
        return 6
    if b["client"] or a["server"]:
        return 5
    return 5 if a_port < b_port else 6
