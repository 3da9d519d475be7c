"""Names of the package that are loaded when they are first used.

Knows: what is in which module. Never knows: what it does.
"""

from .client import module

_NAMES = {
    "FileStore": "store.files",
    "FlashStore": "store.flash",
    "RAMStore": "store.ram",
    "RAISE": "store",
    "DROP_OLDEST": "store",
    "LATEST": "store",
}


def find(name):
    """What umqtt_min.NAME is."""
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
