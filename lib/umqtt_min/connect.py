"""From no connection to a session that is taken up: stream, CONNECT, CONNACK.

Knows: sockets; sections 3.1 and 3.2 of MQTT 3.1.1 as far as all is well: for the rest it has
connack.py, for a store's session resume.py. Loaded by the first connect().

A stream has `write(buf, off, n)`, `readinto(buf, n)`, `setblocking`, `close` with MicroPython's
non-blocking meaning: None when nothing can be moved now.
"""

import socket
from select import poll as Poll
from socket import socket as Socket

from .packets import MQTT_3_1_1, pack
from .port import HOST, const, ticks_add, ticks_diff, ticks_ms

_BUSY = const(21)  # as in errors.py
_CONNECT = const(0x10)  # as in packets.py
_CLEAN_SESSION = const(0x02)
_ROW_NAME = const(0)

if HOST:
    from .host import Poll, Socket  # type: ignore



def connect(client, clean_session, timeout):
    """See MQTTClient.connect."""
    session = client._session
    if clean_session is None:
        clean_session = not session
    end = deadline(client, clean_session, timeout)
    if session:
        session.claim()
    client._close()
    if client.keepalive and client._alive is None:
        from .keepalive import KeepAlive

        client._alive = KeepAlive(client)
    if client._rx is not None:
        client._rx.alive = client._alive if client.keepalive else None
    client.session_present = None
    client._thrown = False
    client._busy = 1
    try:
        if session:
            from .resume import run

            run(client, clean_session, end, auth)
        elif auth(client, clean_session, end) and client._inbox:
            client._inbox.in_clear()
        client.counters.connects += 1
        if client.keepalive:
            client._alive.start()
    except BaseException as e:
        client._lost(104)
        try:
            from .connack import count

            count(client, e)
        except MemoryError:
            pass  # it is closed; what this would note is the number of the error
        raise e
    client._busy = 0
    if client._events is not None:
        try:
            client._events.connected()
        except BaseException:
            client._lost(103)
            raise
    return bool(client.session_present)


def deadline(client, clean_session, timeout):
    """Until when connect() may take, its arguments checked. Raises ValueError, MQTTException."""
    ms = client._tmo
    if clean_session is not True and (clean_session is not False or not client.client_id):
        from .arguments import check_session

        check_session(client, clean_session)
    if timeout is not None:
        from .validate import milliseconds

        ms = milliseconds(client, timeout)
    if client._busy > 1:
        client._raise(_BUSY)
    return ticks_add(ticks_ms(), ms)


def auth(client, clean_session, end):
    """A new stream, CONNECT, and CONNACK without an error; True if the session is a new one."""
    tx = client._tx
    if client.connector:
        tx.sock = client.connector(client.server, client.port, max(1, ticks_diff(end, ticks_ms())))
    else:
        tx.sock = stream(client, end)
    client.sock = tx.sock
    tx.begin(ticks_diff(end, ticks_ms()))
    if client._rx is not None:
        client._rx.begin()
    try:
        tx.poll = Poll()
        tx.poll.register(tx.sock, 1)
    except (OSError, TypeError, ValueError, AttributeError):
        tx.poll = None  # an injected stream that the port cannot poll
    try:
        send(client, clean_session)
        head = connack(client, end)
    except Exception as e:
        from .connack import reason

        raise reason(client, e)
    tx.limit = client._tmo
    client.session_present = head == b"\x20\x02\x01\x00"
    if (
        head != b"\x20\x02\x00\x00"
        and (clean_session or not client.session_present)
        or client.protocol is not MQTT_3_1_1
    ):
        from .connack import accept

        accept(client, clean_session, head)
    client.connected = True
    # None: the version cannot tell; what we hold is resumed.
    return clean_session or client.session_present is False


def stream(client, end):
    # The TCP or TLS connection that `client` asks for, until `end`; only the name look-up
    # cannot be bounded.
    wrap = None
    if client.ssl:
        from .tls import load

        wrap = load(client)
    info = socket.getaddrinfo(client.server, client.port, 0, socket.SOCK_STREAM)[0]
    sock = Socket(info[0], info[1], info[2])
    try:
        poller = Poll()
        poller.register(sock, 4)
        sock.setblocking(False)
        try:
            sock.connect(info[-1])
        except OSError as e:
            if e.args[0] not in (115, 119, 112):  # EINPROGRESS of Linux, lwIP and others
                raise
        ready = None
        while not ready:
            ms = ticks_diff(end, ticks_ms())
            if ms <= 0:
                raise OSError(110)
            ready = poller.poll(min(ms, 500))
        if ready[0][1] & 24:
            # POLLERR or POLLHUP: the connection is refused; reading tells why.
            sock.readinto(bytearray(1))
            raise OSError(111)
        return wrap(sock) if wrap else sock
    except BaseException:
        sock.close()
        raise


def connack(client, end):
    # The first four bytes that come until `end`; fewer if it is too late, or if they are not those
    # of CONNACK, which is the first packet of a broker [MQTT-3.2.0-1].
    head = bytearray(4)
    view = memoryview(head)
    n = 0
    left = 1
    while left > 0 and n < 4 and not (n and head[0] >> 4 != 2 or n > 1 and head[1] != 2):
        left = ticks_diff(end, ticks_ms())
        got = client.sock.readinto(view[n:], 4 - n)
        if got:
            n += got
        elif got is None:
            client._tx.wait(1, min(max(left, 0), 500))
        else:
            raise OSError(client._lost(104))
    return head if n == 4 else head[:n]


def send(client, clean_session):
    # CONNECT.
    flags = _CLEAN_SESSION if clean_session else 0
    fields = [client.client_id]  # their order is fixed [MQTT-3.1.3-1]
    if client.lw_topic is not None or client.user is not None:
        from .arguments import extend

        flags |= extend(client, fields)
    packet = bytearray(5) + client.protocol[_ROW_NAME]
    packet += bytes((flags, client.keepalive >> 8, client.keepalive & 255))
    for field in fields:
        packet += bytes((len(field) >> 8, len(field) & 255))
        packet += field
    n = pack(packet, _CONNECT, len(packet) - 5)
    client._tx.send(packet, n, len(packet) - n)
