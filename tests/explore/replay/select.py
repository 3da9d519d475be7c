"""MicroPython's `select` in a replay: a wait ends when the tape says so. Knows: nothing else."""


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
        """Wait."""
        self._stream.idle()
        return ()
