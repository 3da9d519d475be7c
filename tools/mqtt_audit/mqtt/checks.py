"""What every packet has to keep to: flags, length, direction, size, its place among the others;
compiled.

Knows: rows of packets, connections. Must not know: bytes.
"""

from ..compiled.arena import violation
from ..compiled.jit import inlined, kernel
from ..compiled.layout import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    METHOD_NAMED,
    METHOD_NONE,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREL,
    RESERVED,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)  # fmt: skip

#: Types that only a client sends in every version, and only a server.
OF_CLIENTS = CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ
OF_SERVERS = CONNACK, SUBACK, UNSUBACK, PINGRESP


@kernel
def wrong_way(kind, sender):
    """Whether a type is of the other side only. What its packet says is then of no connection."""
    return kind in OF_CLIENTS if sender else kind in OF_SERVERS


@kernel
def _length_right(kind, length, level):
    """Whether a Remaining Length is one that the type may have. Of a CONNACK, a SUBACK and an
    UNSUBACK of MQTT 5 that have a byte at least, bodies.py says whether they are too short: it
    reads them, and one packet has one row for one fault."""
    if kind == SUBSCRIBE or kind == UNSUBSCRIBE or kind == SUBACK:
        return length > 0
    if kind == CONNACK or kind == UNSUBACK and level == 5:
        return length > 0 and (length <= 2 or level == 5)
    if PUBACK <= kind <= PUBCOMP or kind == UNSUBACK:
        return length >= 2 if level == 5 else length == 2
    none = kind == PINGREQ or kind == PINGRESP or kind == DISCONNECT and level != 5
    return not (none and length)


@inlined
def check_form(st, row, conn, sender):
    """Flags, length and direction of everything but PUBLISH."""
    kind, flags, length, level = row["kind"], row["flags"], row["length"], row["level"]
    time, frame = row["time"], row["frame"]
    wanted = 2 if kind == PUBREL or kind == SUBSCRIBE or kind == UNSUBSCRIBE else 0
    if flags != wanted and level != 3 and level != 2:
        code = 36 if kind == PUBREL else 37 if kind == SUBSCRIBE else 38
        violation(st, code if wanted else 1, conn, sender, kind, time, frame, flags)
    if wrong_way(kind, sender) or sender and kind == DISCONNECT and level != 5:
        violation(st, 48, conn, sender, kind, time, frame, 0)
    elif kind == RESERVED or kind == AUTH and level != 5:
        violation(st, 152, conn, sender, kind, time, frame, kind)
    if kind == CONNECT and not length:
        violation(st, 12, conn, sender, kind, time, frame, 0)
    elif not _length_right(kind, length, level):
        violation(st, 49, conn, sender, kind, time, frame, length)


@inlined
def check_size(st, row, conn, sender):
    """The Maximum Packet Size of MQTT 5, which counts the fixed header."""
    most, size = st.streams[2 * conn + sender]["packet_max"], row["length"] + 2
    for limit in (128, 16_384, 2_097_152):
        size += row["length"] >= limit
    if 0 < most < size:
        code = 66 if sender else 67
        violation(st, code, conn, sender, row["kind"], row["time"], row["frame"], size)


@kernel
def _whole(s):
    """Whether a side is whole from SYN on."""
    return s["isn_known"] and s["whole"] and not s["gaps"] and not s["blind"]


@kernel
def first_of_session(c, s):
    """Whether the server's latest PUBLISH is the first of QoS 1 or 2 in a session that began with
    this connection, so that it can be no retransmission."""
    new = c["clean"] or c["acked"] and not c["present"] and c["level"] >= 4
    alone = s["publish1"] + s["publish2"] == 1
    return new and alone and c["begun"] and c["connects"] == 1 and _whole(s)


@kernel
def _order_of_five(st, c, row, conn, sender, sure):
    """What MQTT 5 says about CONNACK, AUTH and the DISCONNECT of a server beside that; sure: as
    in check_order()."""
    kind, time, frame = row["kind"], row["time"], row["frame"]
    if sender and c["dismissed"]:
        violation(st, 44, conn, 1, kind, time, frame, 0)
    if sender and kind == DISCONNECT and not c["acked"] and _whole(st.streams[2 * conn + 1]):
        violation(st, 148, conn, 1, kind, time, frame, 0)
    if sender and kind == DISCONNECT and c["acked"] and c["code"] >= 128 and sure:
        violation(st, 107, conn, 1, kind, time, frame, c["code"])
    if kind == AUTH and c["method"] == METHOD_NONE:
        violation(st, 112 if sender else 113, conn, sender, kind, time, frame, 0)
    early = c["method"] == METHOD_NAMED and not (c["acked"] or sender or row["missing"])
    if early and kind != CONNECT and kind != AUTH and kind != DISCONNECT:
        violation(st, 93, conn, 0, kind, time, frame, 0)


@inlined
def check_order(st, c, row, conn, sender):
    """CONNECT is the client's first packet and CONNACK the server's; DISCONNECT is the last."""
    kind, time, frame = row["kind"], row["time"], row["frame"]
    first = row["opening"]
    # Behind missing bytes it may be another connection.
    sure = not (row["lapse"] or c["torn"])
    if row["lapse"] and sender:
        c["dismissed"] = 0
    elif row["lapse"]:
        c["disconnected"] = 0
    if sender == 0:
        if kind == CONNECT and c["connects"] and sure:
            violation(st, 3, conn, 0, kind, time, frame, 0)
        # A SYN that the capture lacks may have had data (RFC 7413).
        if first and kind != CONNECT and st.streams[2 * conn]["isn_known"]:
            violation(st, 2, conn, 0, kind, time, frame, 0)
        if c["disconnected"]:
            violation(st, 44, conn, 0, kind, time, frame, 0)
    elif first and kind != CONNACK and not (kind == AUTH and c["level"] in (0, 5)):
        violation(st, 15, conn, 1, kind, time, frame, 0)
    # Before MQTT 5 a second CONNECT may have one, too.
    once = c["level"] and c["connects"] == 1 and not (c["code"] or row["missing"])
    if sender and kind == CONNACK and c["acked"] and (c["level"] == 5 or once) and sure:
        violation(st, 94, conn, 1, kind, time, frame, 0)
    if c["level"] == 5:
        _order_of_five(st, c, row, conn, sender, sure)
    if sender and c["code"] and c["acked"] and sure and not (
            kind == DISCONNECT and c["level"] == 5):
        violation(st, 18, conn, 1, kind, time, frame, c["code"])
