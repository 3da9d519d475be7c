"""Which marks are told next, and which the broker has not acknowledged yet.

Knows marks, packet identifiers, and how many may be on their way. Must not know sockets, or when a
mark may be told. Marks are told in rounds: what is due when a round begins is told once in it,
however often it is heard of meanwhile.
"""

from .. import wire

WINDOW = 512  #: marks published and not yet acknowledged by the broker
SHARE = 20  #: under load there is one mark for so many messages received, at most
SUBSCRIBE_ID = 1  #: the identifier of the bridge's SUBSCRIBE


class Telling:
    """marks: Marks;   keys: MarkKeys. published: how many PUBLISH packets were made"""

    def __init__(self, marks, keys):
        self.marks, self.keys = marks, keys
        self.published = 0
        self._round = {}  # keys of marks
        self._on_the_way = {}  # packet identifier -> key
        self._packet_id = SUBSCRIBE_ID

    def __len__(self):
        """How many marks of this round are still to be told."""
        return len(self._round)

    def begin(self):
        """Begin a round with all marks that are due."""
        self._round, self.marks.due = self.marks.due, {}

    def packets(self, most):
        """PUBLISH packets of at most so many marks, in one bytes object: to the broker each write
        is a wakeup."""
        packets = []
        for _ in range(min(most, WINDOW - len(self._on_the_way), len(self._round))):
            key = next(iter(self._round))
            del self._round[key]
            topic, payload = self.marks.ack(key)
            self._on_the_way[self._next_id()] = key
            packets.append(wire.publish_packet(topic, self.keys.seal(topic, payload), 1, True,
                                               self._packet_id))  # fmt: skip
        self.published += len(packets)
        return b"".join(packets)

    def _next_id(self):
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self._on_the_way and self._packet_id != SUBSCRIBE_ID:
                return self._packet_id

    def acknowledged(self, packet_id):
        """The broker has this one."""
        self._on_the_way.pop(packet_id, None)

    def lost(self):
        """The connection is gone: what it has not acknowledged is due again."""
        self.marks.due.update(dict.fromkeys((*self._on_the_way.values(), *self._round)))
        self._on_the_way, self._round = {}, {}
