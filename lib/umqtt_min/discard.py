"""A message that the broker does not take: how that is seen, and how it is given up.

Knows: what of a session shows that a connection brought its oldest message no further.
Never knows: sockets, how the store keeps its records.
Loaded when a connection has ended with messages in flight, or by the application's call.
Functions with `client` are methods of MQTTClient, the others are for the session.
"""

from .exception import MQTTException
from .port import const

_BUSY = const(21)  # as in errors.py
_CLOSED = const(1)  # as in counters.py
_RELEASED = const(1)  # as in store.py
_PUBCOMP = const(7)


def stuck(client):
    """How many connections in a row sent the oldest message and ended without its acknowledgement,
    those that disconnect() ended not counted.

    From the third on it is sent alone: so it is this one that the broker does not take.
    0 without a store, and after a reboot.
    """
    if client._busy & 1:
        raise MQTTException(_BUSY)
    session = client._session
    if not session:
        return 0
    return _count(session, not client.sock and session._ends != client._n[_CLOSED])


def discard(client):
    """Give up the oldest message that the broker has not taken; it is in the store's `dropped`.

    Returns its packet identifier and its topic as bytes; None if there is none: a QoS 2 message
    whose PUBREC has come is the broker's already, one that is held was acknowledged. If it is
    under way its identifier stays in use until the connection ends, or its acknowledgement comes.
    Raises MQTTException BUSY in a callback, OSError of the store.
    """
    if client._busy:
        raise MQTTException(_BUSY)
    if not client._session:
        return None
    client._busy = 1  # no tick may touch the store meanwhile
    try:
        return _discard(client, client.store)
    finally:
        client._busy = 0


def _discard(client, store):
    seq = _oldest(store)
    if not seq:
        return None
    pid = client._wire(store.pid)
    topic = bytearray(2)
    store.read(0, topic, 2)
    topic = bytearray(topic[0] << 8 | topic[1])
    store.read(2, topic, len(topic))
    store.drop(seq)
    return pid, bytes(topic)


def _oldest(store):
    # Number of the oldest message that the broker is not known to have, 0 if there is none;
    # find() has looked it up.
    seq = store.next(0)
    while seq and store.find(seq) and store.state == _RELEASED:
        seq = store.next(seq)
    return seq


def _count(session, ended):
    # See stuck(); ended: of the connection at hand no acknowledgement can come any more.
    seq = _oldest(session._store)
    n = session._vainly if seq == session._tried else 0
    i = seq % session._size
    if seq and ended and session._next[i] and session._seqs[i] == seq:
        n += 1
    return n


def ended(session):
    """A connection has ended, and another one has come: count it. Returns the count."""
    session._vainly = _count(session, True)
    session._tried = _oldest(session._store)
    return session._vainly


def alone(session):
    """Send the oldest message, after the PUBRELs that are due; the others wait for its end."""
    store = session._store
    seq = store.next(0)
    while seq and session._room(seq):
        session._send(seq)
        if session._next[seq % session._size] != _PUBCOMP:
            session._back = seq + 1
        seq = store.next(seq)
