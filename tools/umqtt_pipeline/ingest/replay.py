"""Replay: what is in quarantine is decoded again, after a decoder was added or mended.

Must not know decoders. A replay is a batch of its own, with one intent: what is a reading now goes
to silver, clock or duplicates like any other; what is still none stays, with the reason that it
has now. Nothing is dropped and nothing comes twice, wherever it is killed.
"""

from ..decode.own import NO_DECODERS
from ..decode.signed import NO_KEYS
from .query import Ingest


def run(spark, root, decoders=NO_DECODERS, keys=NO_KEYS):
    """Replay the quarantine of the tables below `root`; the caller holds the lock of ingest.
    decoders: of one's own. keys: of the devices that sign their readings.

    Returns counts: rows, new, duplicate, quarantine (still there), other, clocks; None when there
    is nothing in quarantine.
    """
    work = Ingest(spark, root, decoders=decoders, keys=keys)
    return work.replay() if work.tables.files("quarantine") else None
