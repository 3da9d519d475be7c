"""What a call is given as `timeout`.

Knows: the client's own. Loaded by what waits.
"""


def milliseconds(client, timeout):
    """`timeout` seconds in ms; None: the client's. Raises ValueError."""
    if timeout is None:
        return client._tmo
    # Not (int, float): a tuple of names is made anew each time.
    number = isinstance(timeout, int) or isinstance(timeout, float)
    if not number or not 0 <= timeout <= 268435:
        raise ValueError("timeout=%r: seconds, 0 to 268435, or None" % (timeout,))
    return int(timeout * 1000)
