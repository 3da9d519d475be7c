"""What the tests of the stores share.

Knows: the Store interface.  Must not know: which store it is.
"""

from umqtt_min.store import StoreFull


def body(store, seq):
    """The whole body of a live message."""
    n = store.find(seq)
    buf = bytearray(n)
    store.read(0, buf, n)
    return bytes(buf)


def full(store, payload=b""):
    """Put messages with this payload until one is refused; how many went in."""
    for n in range(10000):
        try:
            store.put(n + 1, 2, b"t", payload)
        except StoreFull:
            return n
    raise AssertionError("it is never full")
