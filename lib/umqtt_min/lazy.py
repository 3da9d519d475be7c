"""Names of the package that are loaded when they are first used.

Knows: what is in which module. Never knows: what it does.
"""

from .port import mend_imports


def find(name):
    """What umqtt_min.NAME is. Raises AttributeError."""
    mend_imports()
    if name == "__all__":  # MicroPython asks for it: from umqtt_min import *
        return ("MQTTClient", "MQTTException")
    if name == "FileStore":
        from .store.files import FileStore

        return FileStore
    if name == "FlashStore":
        from .store.flash import FlashStore

        return FlashStore
    if name == "RAMStore":
        from .store.ram import RAMStore

        return RAMStore
    if name in ("RAISE", "DROP_OLDEST", "LATEST"):
        from . import store

        return getattr(store, name)
    try:  # MicroPython asks here before it looks for a module of that name
        if name[0] != "_":
            return __import__("umqtt_min." + name, None, None, "*")
    except ImportError:
        pass
    raise AttributeError("umqtt_min has no %s" % name)
