"""What is loaded when it is first used: names of the package, members of MQTTClient.

Knows: what is in which module. Never knows: what it does. A method is a plain function
there, whose first argument is the client; the rest are what attributes are at first.
"""

from .client import MQTTClient, module

_NAMES = {
    "FileStore": "files",
    "FlashStore": "flash",
    "RAMStore": "ram",
    "RAISE": "full",
    "DROP_OLDEST": "full",
    "LATEST": "full",
    "MQTT_3_1": "legacy",
    "MQIPDP_2": "legacy",
}

_WHERE = {
    "odd": ("_odd", "_narrow"),
    "subscribe": ("subscribe", "unsubscribe"),
    "arguments": ("set_last_will",),
    "receive": (
        ("set_callback", "wait_msg", "_on_publish")
        + ("cb", "_answers", "_heard", "_late", "_views", "on_oversize", "session_present")
    ),
    "rare": ("_rare", "ping", "_enter", "_bad", "_pid"),
    "inbox": ("_seen", "_known"),
    "large": ("_send_large",),
    "views": ("set_view_callback", "_hand", "piece"),
    "session": ("_begin_session",),
    "backlog": ("flush", "confirm", "republish"),
    "publisher": ("publisher",),
    "discard": ("discard", "stuck"),
}  # fmt: skip


def find(client, name):
    """What `client.name`, or `umqtt_min.name`, is: the value of __getattr__()."""
    if client is None:
        return _named(name)
    if name == "counters":
        client.counters = module("counters").Counters(client._n)
        return client.counters
    for where in _WHERE:
        if name in _WHERE[where]:
            try:
                load(where)
            except MemoryError:
                if client._busy & 1:
                    client._lost()  # whoever has the stream cannot go on
                raise
            return getattr(client, name)
    raise AttributeError("MQTTClient has no %s" % name)


def _named(name):
    if name == "__all__":  # MicroPython asks for it: from umqtt_min import *
        return ("MQTTClient", "MQTTException")
    where = _NAMES.get(name)
    if where:
        return getattr(module(where), name)
    try:  # MicroPython asks here before it looks for a module of that name
        if name[0] != "_":
            return module(name)
    except ImportError:
        pass
    raise AttributeError("umqtt_min has no %s" % name)


def load(name):
    """Load the methods that are in this module."""
    methods = module(name)
    for method in _WHERE[name]:
        setattr(MQTTClient, method, getattr(methods, method))


def complete():
    """Load what a subclass may call by super(), which asks no __getattr__()."""
    for name in ("subscribe", "arguments", "receive", "views", "session", "backlog", "publisher"):
        load(name)
    for name in ("rare", "discard"):
        load(name)
