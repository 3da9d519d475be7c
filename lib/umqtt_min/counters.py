"""What happened since the client was made.

Knows: the names of the counters. Never knows: who counts.
"""


class Counters:
    """An int for each name; str() gives all of them."""

    def __init__(self):
        self.connects = 0
        self.closed = 0  # connections that ended without disconnect()
        self.sent = 0  # PUBLISH sent, first time or again
        self.acked = 0  # QoS 1 and 2 publishes acknowledged to the end
        self.redelivered = 0  # PUBLISH or PUBREL sent again
        self.received = 0  # messages given to the application
        self.duplicates = 0  # QoS 2 messages that had been received before
        self.oversize = 0  # messages longer than max_message, acknowledged unread
        self.unexpected = 0  # acknowledgements of something unknown
        self.forgotten = 0  # QoS 1 and 2 publishes given up without a store
        self.pings = 0
        self.lost_sessions = 0
        self.stall = 0  # longest time without progress in a write, in ms
        self.last_error = 0  # errno, or reason of an MQTTException + 1000

    def __str__(self):
        return str(self.__dict__)
