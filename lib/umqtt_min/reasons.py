"""What happened and what to do, in words: for MQTTException, and for a store or a client that does
not fit. Loaded when something is wrong.

Knows: what client, stores and helpers need of each other.  Must not know: how they do it.
"""

from .port import const

_TIMEOUT = const(17)  # as in errors.py
_STORES = "FileStore(), FlashStore() or RAMStore()"


TEXT = {
    1: "the broker does not speak this protocol version: choose another protocol=",
    2: "the broker refuses this client id: choose another one",
    3: "the broker is not available now: try again later",
    4: "the broker refuses user name or password: check them",
    5: "the broker does not authorise this client: check user name, password and its access rules",
    16: "the broker broke the protocol",
    17: "no answer in time: see timeout=",
    18: "the connection was lost before the acknowledgement",
    19: "not connected",
    20: "the store is full: wait for acknowledgements, enlarge it or choose a policy=",
    21: "not possible from inside a callback: return from it first; if a call was broken off"
    " from outside, as by Ctrl-C: connect() again",
    22: "the broker closed the connection instead of answering CONNECT",
    23: "the store gave the message up before it was acknowledged: see policy= and max_age=",
    128: "the broker refuses the subscription",
}


# The packet that an MQTTException with TIMEOUT names by its first byte.
_MISSED = {
    0x20: "no CONNACK",
    0x30: "it did not go out: messages before it wait for their acknowledgements",
    0x40: "no PUBACK",
    0x50: "no PUBREC",
    0x70: "no PUBCOMP",
    0x90: "no SUBACK",
    0xB0: "no UNSUBACK",
}


def hint(client):
    """Why a broker may have hung up on this client's CONNECT."""
    if not client.keepalive:
        return "some brokers refuse keepalive=0: give keepalive= 1 to 65535 seconds"
    return "protocol, client id or login not to its liking?"


def text(e):
    """The sentence for an MQTTException: reason, number, detail, fate of the message."""
    s = "[%s] %s" % (e.reason, TEXT.get(e.reason, "refused by the broker"))
    if e.detail is not None:  # of another reason it may be no key: a bytearray
        s += " (%s)" % (_MISSED.get(e.detail, e.detail) if e.reason == _TIMEOUT else e.detail,)
    if e.stored:
        s += "; message %d stays in the store until the broker acknowledges it" % e.pid
    return s


def refuse_session(store, window):
    """Raise ValueError for what a session cannot be made with."""
    if not 0 < window < 256:
        raise ValueError("window=%r: 1 to 255" % (window,))
    raise ValueError("store=%r: %s" % (store, _STORES))


def refuse_taken(user):
    """Raise ValueError for a store that a connected client has."""
    raise ValueError("store: client %r is connected with it; disconnect() that one first, or give"
                     " each client a store of its own" % (user.client_id,))


def refuse_no_store():
    """Raise ValueError for a client without a store."""
    raise ValueError("store=None: confirm() and republish() are for a client with a store,"
                     " such as FileStore(folder, hold=True)")


def refuse_seq(n):
    """Raise ValueError for what is no sequence number."""
    raise ValueError("seq=%r: a sequence number, a whole number" % (n,))


def refuse_inbox(client, store):
    """Raise ValueError for what cannot be a durable inbox."""
    if store is client.store is not None:
        raise ValueError("durable_inbox: another store than store=, which the client publishes")
    raise ValueError("durable_inbox=%r: %s" % (store, _STORES))


def refuse_client(client):
    """Raise ValueError for what is no client."""
    raise ValueError("client=%r: an MQTTClient" % (client,))


def refuse_aio(reconnect, options):
    """Raise ValueError for what the asyncio face is not made with."""
    if "durable_inbox" in options:
        raise ValueError("durable_inbox=%r: not with asyncio, where a message is acknowledged when"
                         " a task has handled it" % (options["durable_inbox"],))
    if "timer" in options:
        raise ValueError("timer=%r: there is none with asyncio, a task keeps the link alive"
                         % (options["timer"],))
    raise ValueError("reconnect=%r: True, False, or a dict with first, most, stable, attempt"
                     % (reconnect,))
