"""The stores an application chooses from: one journal over one medium each.

Knows: which medium goes with which store, sizes that make sense.
Must not know: records, flash.

    store = FlashStore(esp32.Partition.find(type=1, label="mqtt")[0])
    client = MQTTClient(..., store=store)
"""

from .journal import DROP_OLDEST, LATEST, RAISE, Journal
from .log import JournalFull
from .segments import AGAIN, HELD, QUEUED, RELEASED

__all__ = ("FlashStore", "FileStore", "RAMStore", "JournalFull", "RAISE", "DROP_OLDEST", "LATEST",
           "QUEUED", "RELEASED", "HELD", "AGAIN")


def FlashStore(device, segment=0, first=0, blocks=0, page=0, once=False, encrypted=False,
               **options):
    """A journal in a raw flash region: the recommended one.

    device, segment, first, blocks, page, once, encrypted: see FlashMedium. options: hold,
    policy, max_age, clock, window, inbound, see Journal. Raises ValueError for a region of
    fewer than 4 segments.
    """
    from .flash import FlashMedium

    medium = FlashMedium(device, segment, first, blocks, page, once, encrypted)
    return Journal(medium, **options)


def FileStore(folder, size=65536, segment=0, chunk=0, small=None, **options):
    """A journal in the files of a folder, which is made if need be: where there is no region.

    size, segment, chunk, small: see FileMedium. options: see Journal.
    """
    from .files import FileMedium

    medium = FileMedium(folder, size, segment, chunk, small)
    return Journal(medium, page=getattr(medium, "chunk", 256), **options)


def RAMStore(size=4096, segment=0, **options):
    """A journal in RAM: window and redelivery over reconnects, but nothing survives a reset.

    size: bytes of RAM, 1024 at least. segment: bytes, a power of two; 0 for a quarter of size,
    4096 at most. A message must fit into one segment. options: see Journal.
    """
    from .ram import RAMMedium

    if not segment:
        segment = 256
        while segment < 4096 and segment * 8 <= size:
            segment *= 2
    options["inbound"] = options.get("inbound", 16)
    return Journal(RAMMedium(segment, size // segment), **options)
