"""Opening a non-blocking byte stream to the broker within a deadline.

Knows: sockets, readiness. Never knows: packets. Loaded for each connection and given back
after it, before connect.py sends anything.
What it returns has `write(buf, off, n)`, `readinto(buf)`, `setblocking`, `close`
with MicroPython's non-blocking meaning: None when nothing can be moved now.
"""

import select
import socket
from time import ticks_add, ticks_diff, ticks_ms


def connect(client, timeout):
    """Open the TCP or TLS connection that `client` asks for.

    timeout: ms for everything but the name look-up, which MicroPython cannot bound.
    Returns the stream. Raises OSError, ValueError.
    """
    end = ticks_add(ticks_ms(), timeout)
    ssl = client.ssl
    name = client.server
    if ssl and not hasattr(ssl, "wrap_socket") or client.ssl_params:
        from .tls import context

        ssl, name = context(client.ssl_params or {}, name)
    info = socket.getaddrinfo(client.server, client.port, 0, socket.SOCK_STREAM)[0]
    sock = socket.socket(info[0], info[1], info[2])
    try:
        sock.setblocking(False)
        try:
            sock.connect(info[-1])
        except OSError as e:
            if e.args[0] not in (115, 119, 112):  # EINPROGRESS of Linux, lwIP and others
                raise
        _writable(sock, end)
        if ssl:
            from .tls import handshake

            return handshake(sock, ssl, name)
        return sock
    except BaseException:
        sock.close()
        raise


def _writable(sock, end):
    # A refused connection shows as POLLERR or POLLHUP; the next read tells why.
    poller = select.poll()
    poller.register(sock, 4)
    while True:
        left = ticks_diff(end, ticks_ms())
        if left <= 0:
            raise OSError(110)
        for _, event in poller.poll(min(left, 500)):
            if event & 24:
                sock.readinto(bytearray(1))
                raise OSError(111)
            return
