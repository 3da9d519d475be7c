"""The one exception of the library, and what raises it in the client.

Knows: who holds the stream. Never knows: the words of a reason. Loaded when there is the first
error that is not the network's, or by who names the exception.
"""

# As in errors.py
_PROTOCOL = 16
_BUSY = 21


class MQTTException(Exception):
    """What the broker refused or did wrong, or what could not be kept.

    reason: one of the constants of errors.py (`args[0]`, as umqtt.simple has it).
    detail: what it is about: bytes of a topic filter, a statement id, or None.
    pid: packet identifier of the message concerned, 0 if none.
    stored: True if that message is in the store and will be sent again by
        itself: it must not be published once more.
    """

    def __init__(self, reason, detail=None, pid=0, stored=False):
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.pid = pid
        self.stored = stored

    def __str__(self):
        try:
            bytearray(128)  # see lazy.load()
            from .reasons import text

            return text(self)
        except MemoryError:  # no room for the words
            return str(self.reason)

    def __repr__(self):  # MicroPython prints it under a traceback
        return "MQTTException: " + str(self)


# Methods of MQTTClient


def _raise(self, reason=0, pid=0):
    # The exception of that reason; 0: why the stream cannot be had.
    if not reason and self.sock is None and not self._busy & 1:
        raise OSError(self._rx.errno)
    raise MQTTException(reason or _BUSY, None, pid)


def _enter(self):
    # Take the stream for a packet; `_busy &= 2` gives it back.
    if self._busy & 1 or self.sock is None:  # a timer of the application came in between
        self._raise()
    self._busy |= 1


def _bad(self, detail):
    # The broker broke the protocol [MQTT-4.8.0-1]: `detail` is a statement or packet.
    self._lost(1000 + _PROTOCOL)
    raise MQTTException(_PROTOCOL, detail)
