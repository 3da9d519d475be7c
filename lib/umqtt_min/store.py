"""All that the stores have names for, in one place. Who has little room imports the store alone,
from umqtt_min.

Knows: which store is where.  Must not know: records, flash.

    store = FlashStore(esp32.Partition.find(type=1, label="mqtt")[0])
    client = MQTTClient(..., store=store)
"""

from micropython import const

from .files import FileStore
from .flash import FlashStore
from .full import DROP_OLDEST, LATEST, RAISE, JournalFull
from .ram import RAMStore

__all__ = ("FlashStore", "FileStore", "RAMStore", "JournalFull", "RAISE", "DROP_OLDEST", "LATEST",
           "QUEUED", "RELEASED", "HELD", "AGAIN")

# States of a message.
QUEUED = const(0)
RELEASED = const(1)  # PUBREC recorded: PUBREL is due
HELD = const(2)  # acknowledged, not yet confirmed by the pipeline
AGAIN = const(3)  # held, to be sent as a new delivery
