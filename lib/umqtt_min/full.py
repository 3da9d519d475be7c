"""A store that is full: the error, and what an application may want instead.

Knows: names that all stores share.  Must not know: any store.
"""

ENOSPC = 28

# What happens to a message that finds no room.
RAISE = 0
DROP_OLDEST = 1
LATEST = 2  # a message replaces unsent ones of the same topic; if it is full the oldest goes


class JournalFull(OSError):
    """No room for another message: confirm or deliver some first, or choose a policy."""

    def __init__(self, text="the journal is full"):
        super().__init__(ENOSPC, text)
