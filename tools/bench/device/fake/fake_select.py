"""Every stream is always ready, for interpreters whose select knows no sockets."""

POLLIN = 1
POLLOUT = 4
POLLERR = 8
POLLHUP = 16


class poll:
    def register(self, stream, mask=5):
        self._stream = stream

    modify = register

    def poll(self, ms=-1):
        return [(self._stream, 4)]

    def ipoll(self, ms=-1):
        return ()
