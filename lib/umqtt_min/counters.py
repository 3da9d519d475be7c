"""What happened since the client was made.

Knows: the names of the counters. Never knows: who counts; client.py and the others count
in a list, so that only those pay for the names who read them.
"""

_NAMES = (
    "connects",
    "closed",  # connections that ended without disconnect()
    "sent",  # PUBLISH sent, first time or again
    "acked",  # QoS 1 and 2 publishes acknowledged to the end
    "redelivered",  # PUBLISH or PUBREL sent again
    "received",  # messages given to the application
    "duplicates",  # QoS 2 messages that had been received before
    "oversize",  # messages longer than max_message, acknowledged unread
    "unexpected",  # acknowledgements of something unknown
    "forgotten",  # QoS 1 and 2 publishes given up without a store
    "pings",
    "lost_sessions",
    "stall",  # longest time without progress in a write, in ms
    "last_error",  # errno, or reason of an MQTTException + 1000
)


class Counters:
    """An int for each of these names; str() and iteration give all of them."""

    def __init__(self, values):
        self._values = values

    def __getattr__(self, name):
        if name not in _NAMES:
            raise AttributeError("no counter %s" % name)
        return self._values[_NAMES.index(name)]

    def __iter__(self):
        return iter(_NAMES)

    def __str__(self):
        return ", ".join(["%s %d" % (n, getattr(self, n)) for n in _NAMES])
