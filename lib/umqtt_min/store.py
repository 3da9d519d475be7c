"""The stores an application chooses from: a journal over one medium each, or RAM alone.

Knows: which medium goes with which store, sizes that make sense.
Must not know: records, flash.

    store = FlashStore(esp32.Partition.find(type=1, label="mqtt")[0])
    client = MQTTClient(..., store=store)
"""

from micropython import const

from .full import DROP_OLDEST, LATEST, RAISE, JournalFull
from .journal import Journal

TYPE_CHECKING = const(0)  # see client.py
if TYPE_CHECKING:
    from .ram import RAMStore

__all__ = ("FlashStore", "FileStore", "RAMStore", "JournalFull", "RAISE", "DROP_OLDEST", "LATEST",
           "QUEUED", "RELEASED", "HELD", "AGAIN")

# States of a message.
QUEUED = const(0)
RELEASED = const(1)  # PUBREC recorded: PUBREL is due
HELD = const(2)  # acknowledged, not yet confirmed by the pipeline
AGAIN = const(3)  # held, to be sent as a new delivery


def __getattr__(name):
    if name != "RAMStore":
        raise AttributeError(name)
    from .ram import RAMStore  # who has a journal does not pay for it

    return RAMStore


def FlashStore(device, segment=0, first=0, blocks=0, page=0, once=False, encrypted=False,
               **options):
    """A journal in a raw flash region: the recommended one.

    device, segment, first, blocks, page, once, encrypted: see FlashMedium. options: hold,
    policy, max_age, clock, window, inbound, see Journal. Raises ValueError for a region of
    fewer than 4 segments, 5 if once or encrypted.
    """
    from .flash import FlashMedium

    if not hasattr(device, "writeblocks"):
        raise ValueError("device=%r: a block device, as esp32.Partition is" % (device,))
    medium = FlashMedium(device, segment, first, blocks, page, once, encrypted)
    return Journal(medium, **options)


def FileStore(folder, size=65536, segment=0, chunk=0, small=None, **options):
    """A journal in the files of a folder, which is made if need be: where there is no region.

    size, segment, chunk, small: see FileMedium. options: see Journal.
    """
    from .files import FileMedium

    if not isinstance(folder, str) or not folder:
        raise ValueError("folder=%r: its path" % (folder,))
    medium = FileMedium(folder, size, segment, chunk, small)
    return Journal(medium, page=getattr(medium, "chunk", 256), **options)
