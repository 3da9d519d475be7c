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
        # Not `from . import store`: MicroPython would ask here for that.
        from .store import DROP_OLDEST, LATEST, RAISE

        return {"RAISE": RAISE, "DROP_OLDEST": DROP_OLDEST, "LATEST": LATEST}[name]
    if name in ("MQTT_3_1", "MQIPDP_2"):
        from .older import MQIPDP_2, MQTT_3_1

        return MQTT_3_1 if name == "MQTT_3_1" else MQIPDP_2
    # dir() asks here for each name that the interpreter knows, and MicroPython for
    # `from umqtt_min import reconnect` before it looks for that module: none is loaded for it.
    raise AttributeError("umqtt_min has no %s; for a module: import umqtt_min.%s" % (name, name))
