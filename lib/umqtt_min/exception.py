"""The one exception of the library.

Never knows: the words of a reason.
"""


class MQTTException(Exception):
    """What the broker refused or did wrong, or what could not be kept.

    reason: one of the constants of errors.py (`args[0]`, as umqtt.simple has it).
    detail: what it is about: bytes of a topic filter, a statement id, with TIMEOUT the first byte
        of the packet that did not come (0x30: of the PUBLISH that did not go out), or None.
    pid: packet identifier of the message or the subscription concerned, 0 if none.
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
            from .port import mend_imports

            mend_imports()
            from .reasons import text

            return text(self)
        except MemoryError:  # no room for the words
            return str(self.reason)

    def __repr__(self):  # MicroPython prints it under a traceback
        return "MQTTException: " + str(self)
