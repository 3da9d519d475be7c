"""From no connection to a session that is taken up: stream, CONNECT, CONNACK, timer.

Knows: sockets; sections 3.1 and 3.2 of MQTT 3.1.1 and how the older versions differ. Loaded
for each connection and given back after it: nobody needs it while connected.

A stream has `write(buf, off, n)`, `readinto(buf)`, `setblocking`, `close` with MicroPython's
non-blocking meaning: None when nothing can be moved now.
"""

import select
import sys
import time

from micropython import const

from .client import MQTTException
from .wire import header

# As in errors.py and counters.py
_PROTOCOL = const(16)
_TIMEOUT = const(17)
_BUSY = const(21)
_CLOSED = const(22)
_CONNECTS = const(0)


def connect(client, clean_session, timeout):
    """See MQTTClient.connect."""
    if sys.implementation.name == "micropython" and sys.modules.pop("umqtt_min.connect", None):
        # Nothing but the function that runs keeps the module from now on.
        delattr(sys.modules["umqtt_min"], "connect")
    if client._busy > 1:
        raise MQTTException(_BUSY)
    session = client._session
    if clean_session is None:
        clean_session = not session
    if not (clean_session or client.client_id):
        raise ValueError("an empty client_id needs clean_session=True [MQTT-3.1.3-7]")
    end = time.ticks_add(time.ticks_ms(), client._tmo if timeout is None else int(timeout * 1000))
    client._close()
    client._busy = 1
    try:
        if session and not clean_session and session.hopeless():
            _login(client, True, end)  # the broker forgets the session [MQTT-3.1.2-6]
            client.disconnect()
            client._busy = 1
            session.forget()
        _login(client, clean_session, end)
        client._n[_CONNECTS] += 1
        # None: the version cannot tell; what we hold is resumed.
        clean_session = clean_session or client.session_present is False
        if session:
            session.resume(clean_session)
        elif clean_session and client._inbox:
            client._inbox.in_clear()
        if client.keepalive and client.timer is not False:
            _start_timer(client)
    except BaseException as e:
        client._lost(e)
        raise
    client._busy = 0
    return bool(client.session_present)


def _start_timer(client):
    # Eight times per keep-alive, 20 times a second at most. The client keeps the timer and
    # the method: rp2 collects a timer that nobody holds.
    if client.timer is None:
        try:
            from machine import Timer

            client.timer = Timer(-1)
        except (ImportError, AttributeError):
            client.timer = False  # a port without timers: the application's calls do it
            return
    client._alarm = client.timer
    client._alarm.init(period=max(client.keepalive * 125, 50), callback=client.tick)


def _login(client, clean_session, end):
    # A new stream, CONNECT, and CONNACK without an error.
    ms = max(1, time.ticks_diff(end, time.ticks_ms()))
    if client.connector:
        sock = client.connector(client.server, client.port, ms)
    else:
        sock = _open(client, end)
    tx = client._tx
    rx = client._rx
    client.sock = tx.sock = sock
    client.connected = rx.heard = True
    rx.start = rx.end = tx.quick = 0
    rx.time = time.ticks_ms()
    try:
        tx.poll = select.poll()
        tx.poll.register(sock, 1)
    except (OSError, TypeError, ValueError, AttributeError):
        tx.poll = None  # an injected stream that the port cannot poll
    send(client, clean_session)
    _connack(client, clean_session, end)


def _open(client, end):
    # The TCP or TLS connection that `client` asks for, until `end`; only the name look-up
    # cannot be bounded.
    ssl = client.ssl
    name = client.server
    made = ssl if hasattr(ssl, "wrap_socket") else None
    if ssl and not made or client.ssl_params:
        from .tls import context

        ssl, name = context(client.ssl_params or {}, name, made)
    import socket

    info = socket.getaddrinfo(client.server, client.port, 0, socket.SOCK_STREAM)[0]
    sock = socket.socket(info[0], info[1], info[2])
    try:
        poller = select.poll()
        poller.register(sock, 4)
        sock.setblocking(False)
        try:
            sock.connect(info[-1])
        except OSError as e:
            if e.args[0] not in (115, 119, 112):  # EINPROGRESS of Linux, lwIP and others
                raise
        ready = None
        while not ready:
            ms = time.ticks_diff(end, time.ticks_ms())
            if ms <= 0:
                raise OSError(110)
            ready = poller.poll(min(ms, 500))
        if ready[0][1] & 24:
            # POLLERR or POLLHUP: the connection is refused; reading tells why.
            sock.readinto(bytearray(1))
            raise OSError(111)
        if ssl:
            from .tls import handshake

            return handshake(sock, ssl, name)
        return sock
    except BaseException:
        sock.close()
        raise


# CONNECT and CONNACK


def send(client, clean_session):
    # CONNECT. (Without an underscore it is a name that MicroPython has in flash.)
    flags = 2 if clean_session else 0
    fields = [client.client_id]  # their order is fixed [MQTT-3.1.3-1]
    if client.lw_topic is not None:
        flags |= client.lw_flags
        fields += (client.lw_topic, client.lw_msg)
    if client.user is not None:
        flags |= 0x80
        fields.append(client.user)
    if client.pswd is not None:
        flags |= 0x40
        fields.append(client.pswd)
    packet = bytearray(5) + client.protocol[0]
    packet += bytes((flags, client.keepalive >> 8, client.keepalive & 255))
    for field in fields:
        packet += bytes((len(field) >> 8, len(field) & 255))
        packet += field
    n = header(packet, 0x10, len(packet) - 5)
    client._tx.send(packet, n, len(packet) - n)


def _connack(client, clean_session, end):
    # CONNACK is the first packet of a broker.
    rx = client._rx
    while True:
        # At its first byte: a PUBLISH larger than the buffer would be handed on in pieces.
        if rx.end and rx.buf[rx.start] >> 4 != 2:
            raise MQTTException(_PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
        op = rx.whole()
        if op:
            break
        left = time.ticks_diff(end, time.ticks_ms())
        try:
            if rx.fill():
                continue
        except OSError as e:
            if e.args and e.args[0] in (104, 32, 103):
                from .reasons import hint

                # Some brokers answer what they do not like by hanging up without a word.
                raise MQTTException(_CLOSED, hint(client))
            raise
        if left <= 0:
            raise MQTTException(_TIMEOUT, "no CONNACK")
        client._tx.wait(1, min(left, 500))
    rx.start = rx.next
    flags = rx.buf[rx.p]
    code = rx.buf[rx.p + 1]
    if rx.n != 2 or client.protocol[6] and (op & 15 or flags & 0xFE):
        raise MQTTException(_PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
    client.session_present = None  # 3.1 and the draft cannot tell
    if client.protocol[5]:
        client.session_present = bool(flags)
        if flags and (clean_session or code):
            raise MQTTException(_PROTOCOL, "session present [MQTT-3.2.2-%d]" % (4 if code else 1))
    if code:
        raise MQTTException(code)
