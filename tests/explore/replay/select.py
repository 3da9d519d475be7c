"""MicroPython's `select` in a replay: a wait ends when the tape says so. Knows: nothing else."""

_READY = (1,)  # of one stream; it takes nothing from the heap


class poll:  # noqa: N801
    """Of one stream."""

    def __init__(self):
        self._stream = None

    def register(self, stream, event):
        """Wait for this stream."""
        self._stream = stream

    def modify(self, stream, event):
        """Nothing to do."""

    def ipoll(self, timeout):
        """Wait; 0: tell whether something can be read."""
        if timeout:
            self._stream.idle()
        elif self._stream.ready():
            return _READY
        return ()
