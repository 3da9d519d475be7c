"""What CONNECT and CONNACK of MQTT 5 say, and the packets that do not keep to it.

Knows: packets that were taken apart. Must not know: bytes, TCP, tables.
"""

from ..compiled.layout import AUTH, CONNACK, CONNECT, DISCONNECT, SUBSCRIBE

_KEPT = ("client_id", "will", "will_qos", "will_retain")  #: of CONNECT beside its properties
_PROBLEM = {"Reason String", "User Property"}


def _of(values):
    return {p["name"]: p["value"] for p in values.get("properties") or ()}


class Agreed:
    """Of all connections; each packet but PUBLISH that was there whole is to be given to
    packet()."""

    def __init__(self):
        self._said = {}  # connection: (its CONNECT's properties, what it says beside them)
        self._offers = {}  # connection: its CONNACK's properties

    def packet(self, conn, kind, by_server, values):
        """Which rules a packet breaks: [(code, value)]. values: of bodies.Body."""
        if kind == CONNECT:
            self._said.setdefault(conn, (_of(values), {n: values.get(n) for n in _KEPT}))
            return []
        has, said = _of(values), self._said.get(conn)
        broken = []
        if kind == CONNACK and by_server:
            self._offers.setdefault(conn, has)
        elif kind == SUBSCRIBE and not by_server:
            broken += _not_offered(values, has, self._offers.get(conn, {}))
        if kind == DISCONNECT and by_server and "Session Expiry Interval" in has:
            broken.append((104, 0))
        if kind == DISCONNECT and not by_server and "Server Reference" in has:
            broken.append((123, 0))
        if said:
            broken += _by_server(kind, values, has, *said) if by_server else _expiry(
                kind, has, said[0])  # fmt: skip
            if kind == AUTH or kind == CONNACK and not values.get("return_code"):
                broken += _method(kind, has, said[0])
        return broken


def _not_offered(values, has, offers):
    """Subscriptions of a kind that the server has said it does not have."""
    filters = values.get("filters") or ()
    shared = [name for name in filters if name.startswith("$share/")]
    if offers.get("Wildcard Subscription Available") == "0":
        if any("+" in name or "#" in name for name in filters):
            yield 120, 0
    if offers.get("Subscription Identifier Available") == "0" and "Subscription Identifier" in has:
        yield 121, 0
    if offers.get("Shared Subscription Available") == "0" and shared:
        yield 122, 0


def _will(values, has, connect):
    """A CONNACK that accepts a will which the server then says it does not support."""
    if values.get("return_code") or not connect.get("will"):
        return
    qos = connect.get("will_qos") or 0
    if int(has.get("Maximum QoS", 2)) < qos < 3:  # 3 is none, and told of CONNECT
        yield 146, qos
    if connect.get("will_retain") and has.get("Retain Available") == "0":
        yield 147, 0


def _by_server(kind, values, has, asked, connect):
    if kind == CONNACK and asked.get("Request Response Information", "0") == "0":
        if "Response Information" in has:
            yield 91, 0
    if kind == CONNACK:
        yield from _will(values, has, connect)
    if kind == CONNACK and connect.get("client_id") == "" and not values.get("return_code"):
        if "Assigned Client Identifier" not in has:
            yield 96, 0
    if asked.get("Request Problem Information") == "0" and _PROBLEM & has.keys():
        if kind not in (CONNACK, DISCONNECT):
            yield 92, 0


def _expiry(kind, has, asked):
    """A session that was to end with the connection is not to be kept by DISCONNECT."""
    now = has.get("Session Expiry Interval", "0")
    if kind == DISCONNECT and now != "0" and asked.get("Session Expiry Interval", "0") == "0":
        yield 105, 0


def _method(kind, has, asked):
    """AUTH, and a CONNACK that accepts, have the method of CONNECT [MQTT-4.12.0-5]."""
    wanted, named = asked.get("Authentication Method"), has.get("Authentication Method")
    if kind == CONNACK and wanted is None and named is not None:
        yield 112, 0
    elif wanted is not None and named != wanted:
        yield 114, 0
