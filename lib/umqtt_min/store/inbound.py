"""Incoming QoS 2: a message is delivered once.

Knows: which packet identifiers were received and not yet released [MQTT-4.3.3-2]; in RAM
for a client without a store. Loaded with a subscription at QoS 2 or the first such message.
The stores have the same four methods as InboundIds.
"""

from array import array


class InboundIds:
    """A table of ids; it grows by doubling when a broker keeps more of them open."""

    def __init__(self, size=16):
        self._ids = array("H", bytes(2 * size))

    def _find(self, pid):
        for i in range(len(self._ids)):
            if self._ids[i] == pid:
                return i
        return -1

    def in_has(self, pid):
        """True if `pid` was received and not released."""
        return self._find(pid) >= 0

    def in_add(self, pid):
        """Remember `pid` before PUBREC is sent."""
        i = self._find(0)
        if i < 0:
            i = len(self._ids)
            self._ids = array("H", bytes(self._ids) + bytes(2 * i))
        self._ids[i] = pid

    def in_del(self, pid):
        """Forget `pid`, if it is there, before PUBCOMP is sent."""
        i = self._find(pid)
        if i >= 0:
            self._ids[i] = 0

    def in_clear(self):
        """Forget all: the session is gone."""
        for i in range(len(self._ids)):
            self._ids[i] = 0
