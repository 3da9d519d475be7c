"""Why a connection ended, in words.

Knows: connections as they are at the end. Must not know: tables, other connections.
"""

import numpy as np

from ..compiled.layout import (
    END_FIN_CLIENT,
    END_FIN_SERVER,
    END_OPEN,
    END_REUSED,
    END_RST_CLIENT,
    END_RST_SERVER,
    P_ECHO,
    P_HTTP,
    P_NOT_MQTT,
    P_TLS,
    SECOND,
)  # fmt: skip
from ..mqtt.reasons import reason, returned
from .ending import full, more, unseen

_CLOSED = {
    END_FIN_CLIENT: "closed by the client", END_FIN_SERVER: "closed by the broker",
    END_RST_CLIENT: "reset by the client", END_RST_SERVER: "reset by the broker",
    END_REUSED: "no end in the capture, its port was used again",
}  # fmt: skip
_SIDES = ("client", "broker")


#: Of a connection to a port at which nobody listens.
REFUSED = "TCP connection refused by the broker"
UNANSWERED = "TCP connection never answered by the broker"
#: Of a client's MQTT that a server answers in another protocol.
ANSWERS = {P_HTTP: "the server answers HTTP", P_TLS: "the server answers TLS",
           P_NOT_MQTT: "the server answers text that is no MQTT",
           P_ECHO: "the server sends back what a client sends"}  # fmt: skip


def refused(conns, ways):
    """Which connections are a SYN that was answered by RST. ways: both streams of each."""
    nothing = (ways["bytes"] == 0).all(axis=1)
    answered = (ways["isn_known"][:, 1] > 0) | (ways["acked_known"][:, 1] > 0)
    return (conns["begun"] > 0) & (conns["end"] == END_RST_SERVER) & nothing & ~answered


def never_answered(conns, ways):
    """Which connections are a SYN to which nothing came, so that they never opened."""
    broker = ways[:, 1]
    nothing = (broker["segments"] == 0) & (broker["acked_known"] == 0)
    nothing &= (ways["bytes"] == 0).all(axis=1) & (ways["isn_known"][:, 0] > 0)
    return (conns["end"] == END_OPEN) & nothing


def closed(conns, ways):
    """How each connection ended (END_*), for the table: one that a side has closed, and the other
    one not up to the end of the capture, has ended with that FIN. That is not known if the capture
    lacks the other side, or if that side's FIN may be among bytes that it lacks."""
    end, lacks = conns["end"].copy(), more(ways)
    both = (ways["segments"] > 0).all(axis=1)
    for side, ended in enumerate((END_FIN_CLIENT, END_FIN_SERVER)):
        alone = (ways["fin"][:, side] > 0) & (ways["fin"][:, 1 - side] == 0)
        end[(end == END_OPEN) & both & alone & ~lacks[:, 1 - side]] = ended
    return end


def half(ways):
    """What is said of each connection of which the capture has one direction, with a FIN in it:
    nobody knows whether that FIN is the first one. None of others."""
    lacks = unseen(ways)
    out = [None] * len(lacks)
    for k in np.flatnonzero(lacks).tolist():
        lack = int(lacks[k]) - 1
        if ways["fin"][k, 1 - lack]:
            out[k] = f"FIN by the {_SIDES[1 - lack]}; the capture lacks the {_SIDES[lack]}'s side"
    return out


def sure(conns, ways):
    """Of which connections it is certain that something was not sent before their end: CONNACK if
    the capture has none, and DISCONNECT, if it has CONNACK."""
    whole = full(ways, "lapse")
    by_client = np.isin(conns["end"], (END_FIN_CLIENT, END_RST_CLIENT))
    return np.where(conns["acked"] > 0, whole[:, 0] & (whole[:, 1] | by_client), full(ways)[:, 1])


def why(conn, code, refused_, unanswered_=False, timed=True, half_=None, sure_=True):
    """One row of layout.CONN; code: reason of the DISCONNECT that was sent (MQTT 5), or None;
    refused_, unanswered_, half_, sure_: what those say of it; timed: whether its times are
    believed."""
    end = int(conn["end"])
    if refused_:
        return REFUSED
    if unanswered_:
        return UNANSWERED
    if conn["connects"] and conn["opaque"] in ANSWERS:
        return ANSWERS[int(conn["opaque"])]
    if conn["code"]:
        return f"refused, {returned(int(conn['code']), int(conn['level']))}"
    if conn["dismissed"]:
        return f"broker sent DISCONNECT{reason(code)}"
    if conn["disconnected"]:
        return f"client sent DISCONNECT{reason(code)}"
    if end == END_OPEN:
        return half_ or "open at the end of the capture"
    said = _CLOSED[end]
    if conn["opaque"] or not (conn["connects"] and sure_):
        return said
    if not conn["acked"]:
        return f"{said} before CONNACK"
    silent, allowed = int(conn["last"] - conn["last_client"]), int(conn["keep_alive"]) * SECOND
    if timed and end in (END_FIN_SERVER, END_RST_SERVER) and 0 < allowed < silent:
        return f"{said} after {silent / SECOND:.1f} s of silence, longer than the keep alive"
    return f"{said} without DISCONNECT"
