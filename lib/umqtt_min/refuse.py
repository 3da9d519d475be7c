"""What is wrong with a store for a client, or a client for a helper, in words. Loaded when
something is.

Knows: what they need of each other.  Must not know: how they do it.
"""

_STORES = "FileStore(), FlashStore() or RAMStore()"


def session(store, window):
    """Raise ValueError for what a session cannot be made with."""
    if not 0 < window < 256:
        raise ValueError("window=%r: 1 to 255" % (window,))
    raise ValueError("store=%r: %s" % (store, _STORES))


def taken(user):
    """Raise ValueError for a store that a connected client has."""
    raise ValueError("store: client %r is connected with it; disconnect() that one first, or give"
                     " each client a store of its own" % (user.client_id,))


def no_store():
    """Raise ValueError for a client without a store."""
    raise ValueError("store=None: confirm() and republish() are for a client with a store,"
                     " such as FileStore(folder, hold=True)")


def seq(n):
    """Raise ValueError for what is no sequence number."""
    raise ValueError("seq=%r: a sequence number, a whole number" % (n,))


def inbox(client, store):
    """Raise ValueError for what cannot be a durable inbox."""
    if store and store is client.store:
        raise ValueError("durable_inbox: another store than store=, which the client publishes")
    raise ValueError("durable_inbox=%r: %s" % (store, _STORES))


def link(client):
    """Raise ValueError for what is no client."""
    raise ValueError("client=%r: an MQTTClient" % (client,))


def aio(reconnect, options):
    """Raise ValueError for what the asyncio face is not made with."""
    if "durable_inbox" in options:
        raise ValueError("durable_inbox=%r: not with asyncio, where a message is acknowledged when"
                         " a task has handled it" % (options["durable_inbox"],))
    if "timer" in options:
        raise ValueError("timer=%r: there is none with asyncio, a task keeps the link alive"
                         % (options["timer"],))
    raise ValueError("reconnect=%r: True, False, or a dict with first, most, stable, attempt"
                     % (reconnect,))
