"""Stores: where QoS 1 and 2 messages wait for their acknowledgement.

    from umqtt_min.store.flash import FlashStore    # a raw flash region: recommended
    from umqtt_min.store.files import FileStore     # the files of a folder
    from umqtt_min.store.ram import RAMStore        # RAM: over reconnects, not over a reset

Each store is a module of its own, so that a board loads only the one that it uses. This module has
the names that they share: the policies, the states of a message, and the error of a full store.
contract.py specifies every store, medium.py the medium of a journal.

Knows: names that all stores share.  Must not know: any store.
"""

import gc
import sys

from ..port import const

# policy=: what happens to a message that finds no room.
RAISE = const(0)  # put() refuses it
DROP_OLDEST = const(1)  # the store gives up the oldest message
LATEST = const(2)  # it replaces unsent ones of its topic; without room the oldest goes

# The states of a message.
QUEUED = const(0)  # to be sent, or sent and not acknowledged
RELEASED = const(1)  # PUBREC recorded: PUBREL is due
HELD = const(2)  # acknowledged, not yet confirmed by the pipeline
AGAIN = const(3)  # held, to be sent as a new delivery

_ENOSPC = const(28)

# {where a journal lies: its boot} of those that were opened last. Whoever opens another one there
# goes on alone: two that write to one place would each destroy what the other has stored.
opened = {}


class StoreFull(OSError):
    """No room for another message: confirm or deliver some first, or choose a policy."""

    def __init__(self, text="the store is full"):
        super().__init__(_ENOSPC, text)


def give_back(*names):
    """Drop modules of this package whose work is done, to free their code; an import loads them
    again. Those of a mount are half of a journal's code. A host has the room and keeps them."""
    if sys.implementation.name == "micropython":
        package = sys.modules[__name__]
        for name in names:
            sys.modules.pop(__name__ + "." + name, None)
            if hasattr(package, name):  # not where its import failed
                delattr(package, name)
        gc.collect()
