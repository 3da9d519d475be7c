"""What every call checks of its arguments: topic, payload, QoS, timeout.

Knows: which of it can be sent.
"""


def as_bytes(client, what, name):
    """What can be sent instead of `what`, which is no str, bytes or bytearray. ValueError.

    name: of the argument.
    """
    if isinstance(what, memoryview):
        return what if _of_bytes(client, what) else bytes(what)
    return _copy(what, name)


def _copy(what, name):
    try:
        return bytes(memoryview(what))  # what else is a buffer, an array of any type
    except TypeError:
        raise ValueError("%s=%r: str or bytes-like; a number needs str()" % (name, what))


def _of_bytes(client, view):
    # Many ports do not tell how wide a view's items are. A bytearray takes items of its own size
    # only: the view is tried, without a copy from the heap, behind the last topic in the send
    # buffer, which is nobody's while there is no packet under way.
    at = getattr(view, "itemsize", 0)
    if at:
        return at == 1
    tx = getattr(client, "_tx", None)  # None: in the constructor
    at = len(tx.buf) - len(view) if tx else 0
    if not tx or client._busy & 1 or tx.waiting or at < 7 + len(tx.topic or b""):
        return _look(client, view)
    client._busy |= 1  # no tick may lay down a packet meanwhile
    tx.pos = at
    at = _takes(tx, view)
    client._busy &= 2
    return at


def _takes(tx, view):
    # In a function of its own, and with two arguments: a larger frame would be on the heap.
    try:
        tx.buf[tx.pos :] = view
    except ValueError:
        return False
    return True


def _look(client, view):
    if view is not client._narrow and len(bytes(view[:1])) > 1:
        return False
    client._narrow = view
    return True


def refuse_qos(qos):
    """Raise ValueError for a QoS that is none, or that cannot be had here."""
    if qos not in (1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    raise ValueError("qos=%d: no acknowledgement can be awaited here: give the client a"
                     " store, such as store=RAMStore()" % qos)  # fmt: skip


def milliseconds(client, timeout):
    """`timeout` seconds in ms; None: the client's. Raises ValueError."""
    if timeout is None:
        return client._tmo
    # Not (int, float): a tuple of names is made anew each time.
    number = isinstance(timeout, int) or isinstance(timeout, float)
    if not number or not 0 <= timeout <= 268435:
        raise ValueError("timeout=%r: seconds, 0 to 268435, or None" % (timeout,))
    return int(timeout * 1000)
