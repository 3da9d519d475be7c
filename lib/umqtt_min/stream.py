"""Opening a non-blocking byte stream to the broker within a deadline.

Knows: sockets, TLS handshakes, readiness. Never knows: packets.
What it returns has `write(buf, off, n)`, `readinto(buf)`, `setblocking`, `close`
with MicroPython's non-blocking meaning: None when nothing can be moved now.
"""

import select
import socket
import time

from micropython import const

_IN_PROGRESS = (115, 119, 112)  # EINPROGRESS as Linux, lwIP and others number it
_TIMED_OUT = const(110)


def connect(host, port, ssl, server_hostname, timeout):
    """Open a TCP or TLS connection.

    host: name or address; port: 1 to 65535; ssl: None, or an SSLContext;
    server_hostname: for TLS, the name in the certificate; timeout: milliseconds
    for everything but the name look-up, which MicroPython cannot bound.
    Returns the stream. Raises OSError.
    """
    end = time.ticks_add(time.ticks_ms(), timeout)
    info = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0]
    sock = socket.socket(info[0], info[1], info[2])
    try:
        sock.setblocking(False)
        try:
            sock.connect(info[-1])
        except OSError as e:
            if e.args[0] not in _IN_PROGRESS:
                raise
        _writable(sock, end)
        if ssl:
            prompt(sock)
            return _handshake(sock, ssl, server_hostname, end)
        return sock
    except BaseException:
        sock.close()
        raise


def prompt(sock):
    """Switch Nagle's algorithm off, where the stream can."""
    try:
        sock.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY
    except (OSError, AttributeError):
        pass


def _writable(sock, end):
    # A refused connection shows as POLLERR or POLLHUP; the next read tells why.
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    left = time.ticks_diff(end, time.ticks_ms())
    while left > 0:
        for _, event in poller.poll(min(left, 500)):
            if event & (select.POLLERR | select.POLLHUP):
                sock.readinto(bytearray(1))
                raise OSError(111)
            return
        left = time.ticks_diff(end, time.ticks_ms())
    raise OSError(_TIMED_OUT)


def _handshake(sock, ssl, server_hostname, end):
    # do_handshake_on_connect=False: the handshake then runs inside write(), which
    # returns None until it is through, so that it can be bounded.
    tls = ssl.wrap_socket(sock, server_hostname=server_hostname, do_handshake_on_connect=False)
    tls.setblocking(False)
    return tls


class Waiter:
    """Waits until a stream is readable, or writable, for some time at most."""

    def __init__(self, stream):
        self._stream = stream
        try:
            self._poll = select.poll()
            self._poll.register(stream, select.POLLIN)
        except (OSError, TypeError, ValueError, AttributeError):
            self._poll = None  # an injected stream that the port cannot poll

    def readable(self, ms):
        """Return when there is something to read, or after `ms` milliseconds."""
        if self._poll:
            for _ in self._poll.ipoll(ms):
                pass
        else:
            time.sleep_ms(min(ms, 1))

    def writable(self, ms):
        """Return when something can be written, or after `ms` milliseconds."""
        if self._poll:
            self._poll.modify(self._stream, select.POLLOUT)
            self.readable(ms)
            self._poll.modify(self._stream, select.POLLIN)
        else:
            time.sleep_ms(min(ms, 1))
