"""What publish() is given that is not plain: topic, payload, QoS.

Knows: which of it can be sent. Loaded with the first of it.
"""

# As client.py says what it asks
_TOPIC = 1
_QOS = 2

_narrow = None  # an attribute of MQTTClient: the last view whose items were found to be bytes


def _odd(self, what, kind=0):
    # What can be sent instead; ValueError.
    if kind:
        return _refuse(self, what, kind)
    if isinstance(what, memoryview):
        n = getattr(what, "itemsize", 0)
        if n == 1 or what is self._narrow:
            return what
        if not n and len(bytes(what[:1])) < 2:  # a port that does not tell
            self._narrow = what
            return what
        return bytes(what)
    try:
        return bytes(memoryview(what))  # what else is a buffer, an array of any type
    except TypeError:
        raise ValueError("%r: str or bytes-like is wanted; a number needs str()" % (what,))


def _refuse(self, what, kind):
    if kind == _TOPIC:
        from .topics import check_name

        return check_name(what, self.protocol[2])
    if what not in (1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (what,))
    raise ValueError("qos=%d: no acknowledgement can be awaited here: give the client a"
                     " store, such as store=RAMStore()" % what)  # fmt: skip
