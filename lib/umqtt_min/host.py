"""CPython's sockets, TLS streams, poll and clock with MicroPython's methods. A board never loads
this file.

Knows: where CPython differs from MicroPython. Never does: change CPython's own modules.
"""

import errno
import select
import socket
import ssl
import time

_PERIOD = 1 << 30
_WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def const(value):
    """The value: only MicroPython's compiler does more."""
    return value


def ticks_ms():
    """Milliseconds, 0 to 2**30 - 1, that begin again at 0."""
    return time.monotonic_ns() // 1000000 % _PERIOD


def ticks_add(ticks, delta):
    """The ticks `delta` ms later; delta may be negative."""
    return (ticks + delta) % _PERIOD


def ticks_diff(end, start):
    """Milliseconds from `start` to `end`, -2**29 to 2**29 - 1."""
    return (end - start + _PERIOD // 2) % _PERIOD - _PERIOD // 2


def sleep_ms(ms):
    """Sleep for that many milliseconds."""
    time.sleep(ms / 1000)


class _Stream:
    # Non-blocking streams as MicroPython has them: None when nothing can be moved now.

    def write(self, buf, off, n):
        """Send some of buf[off:off + n]; returns how many bytes, None if there is no room."""
        try:
            return self.send(memoryview(buf)[off : off + n])
        except _WAITS:
            return None

    def readinto(self, buf, n=1):
        """Read up to n bytes into buf; returns how many, 0 at the end, None if there are none."""
        try:
            return self.recv_into(memoryview(buf)[:n])
        except _WAITS:
            return None


class Socket(_Stream, socket.socket):
    """A TCP socket."""

    def secure(self, context, server_hostname):
        """The TLS stream over it, which takes its place; the handshake is still to come."""
        return Secure(context, self, server_hostname)


class Secure(_Stream):
    """A TLS stream over a Socket; its handshake runs inside write() and readinto()."""

    def __init__(self, context, sock, server_hostname):
        plain = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._tls = context.wrap_socket(
            plain, server_hostname=server_hostname, do_handshake_on_connect=False
        )
        self._tls.setblocking(False)
        self.setblocking = self._tls.setblocking
        self.fileno = self._tls.fileno
        self.close = self._tls.close
        self.pending = self._tls.pending
        self.send = self._tls.send

    def recv_into(self, view):
        """As a socket's; a broker that hangs up without a word is the end of the stream."""
        try:
            return self._tls.recv_into(view)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return 0


class Poll:
    """select.poll() of one stream; one that has decrypted bytes to give is ready, too."""

    def __init__(self):
        if not hasattr(select, "poll"):
            raise OSError(errno.ENOSYS, "this system has no select.poll()")
        self._poll = select.poll()
        self._stream = None

    def register(self, stream, event):
        """Wait for this stream, until it can be read (event 1) or written (4)."""
        self._stream = stream
        self._poll.register(stream, event)

    def modify(self, stream, event):
        """Wait for another event of it."""
        self._poll.modify(stream, event)

    def poll(self, timeout):
        """A list of (descriptor, event); empty after `timeout` ms."""
        if hasattr(self._stream, "pending") and self._stream.pending():
            return [(self._stream, 1)]
        return self._poll.poll(timeout)

    ipoll = poll
