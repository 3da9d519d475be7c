"""What publish() is given that is not plain: topic, payload, QoS.

Knows: which of it can be sent. Loaded with the first of it.
"""

from .topics import check_name

# As client.py says what it asks
_TOPIC = 1
_QOS = 2

_narrow = None  # an attribute of MQTTClient: the last long view whose items were found to be bytes


def _odd(self, what, kind=0):
    # What can be sent instead; ValueError.
    if kind:
        return _refuse(self, what, kind)
    if isinstance(what, memoryview):
        return what if _of_bytes(self, what) else bytes(what)
    return _copy(what)


def _copy(what):
    try:
        return bytes(memoryview(what))  # what else is a buffer, an array of any type
    except TypeError:
        raise ValueError("%r: str or bytes-like is wanted; a number needs str()" % (what,))


def _of_bytes(self, view):
    # Many ports do not tell how wide a view's items are. A bytearray takes items of its own size
    # only: the view is tried, without a copy from the heap, behind the last topic in the send
    # buffer, which is nobody's while there is no packet under way.
    at = getattr(view, "itemsize", 0)
    if at:
        return at == 1
    tx = getattr(self, "_tx", None)  # None: in the constructor
    at = len(tx.buf) - len(view) if tx else 0
    if not tx or self._busy & 1 or tx.waiting or at < 7 + len(tx.topic or b""):
        return _look(self, view)
    self._busy |= 1  # no tick may lay down a packet meanwhile
    tx.pos = at
    at = _takes(tx, view)
    self._busy &= 2
    return at


def _takes(tx, view):
    # In a function of its own, and with two arguments: a larger frame would be on the heap.
    try:
        tx.buf[tx.pos :] = view
    except ValueError:
        return False
    return True


def _look(self, view):
    if view is not self._narrow and len(bytes(view[:1])) > 1:
        return False
    self._narrow = view
    return True


def _refuse(self, what, kind):
    if kind == _TOPIC:
        return check_name(what, self.protocol[2])
    if what not in (1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (what,))
    raise ValueError("qos=%d: no acknowledgement can be awaited here: give the client a"
                     " store, such as store=RAMStore()" % what)  # fmt: skip
