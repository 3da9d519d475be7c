"""Taking up the session after CONNACK: what the broker still knows decides what is sent again.

Knows: what of a session is forgotten with a connection.  Never knows: sockets, records.
Loaded by the first connect() of a client with a store.
"""

import hashlib

from .port import const, ticks_ms

_HOPELESS = const(20)  # connections in a row: on very bad links eight were seen
_RESET = const(104)  # the other side has ended it


def run(client, clean_session, end, auth):
    """The part of connect() that a session has; auth(): see connect.py."""
    session = client._session
    # Some brokers close on a PUBREL whose message they have completed, instead of answering
    # it [MQTT-4.3.3-2], and would do so for ever. A link that went silent says nothing of them,
    # nor does an attempt to connect that comes to nothing.
    if session._owed is not None:
        session._vain = session._vain + 1 if session._owed and client._tx.errno == _RESET else 0
        session._owed = None
    if not clean_session and session._vain >= _HOPELESS:
        auth(client, True, end)  # the broker forgets the session [MQTT-3.1.2-6]
        client.disconnect()
        client._busy = 1
        session._vain = -1  # all is sent as new after CONNACK
    resume(session, client, auth(client, clean_session, end))
    session.proved = session._vain <= 0
    if session.proved:
        session.pump()
    else:
        # PUBREL was not answered on the connection before: on this one nothing goes out until
        # PINGRESP, or another packet, has shown that the link carries both ways.
        client._rx.ping(0)
        client._rx.request = ticks_ms()


def session_key(client):
    """Eight bytes that name the MQTT session: server, port, client id, protocol."""
    name = "%s %d " % (client.server, client.port)
    h = hashlib.sha256(name.encode() + client.protocol[0] + client.client_id)
    return h.digest()[:8]


def resume(session, client, fresh):
    """CONNACK is in. fresh: the broker has no session, or must not have one."""
    store = session._store
    vain = session.ended(session._ends != client.counters.closed)
    session._ends = client.counters.closed
    key = session_key(client)
    if fresh or session._vain < 0 or store.key != key:
        if store.live and store.key:
            client.counters.lost_sessions += 1
        if client._durable:
            client._durable.in_clear()
        store.session(key)
        session._sent = 0
    else:
        session._sent = session.begun()
    session.clear()
    session._cursor = session._back = 0
    session._vain = max(session._vain, 0)
    session._owed = False
    client._tx.push()  # none of them may wait for another's TCP ACK
    if vain > 1:
        session.send_alone()
