"""From no connection to a session that is taken up: stream, CONNECT, CONNACK, timer.

Knows: sockets; sections 3.1 and 3.2 of MQTT 3.1.1 and how the older versions differ. Loaded
for each connection and given back after it: nobody needs it while connected.

A stream has `write(buf, off, n)`, `readinto(buf)`, `setblocking`, `close` with MicroPython's
non-blocking meaning: None when nothing can be moved now.
"""

import select
import socket
import sys
from time import ticks_add, ticks_diff, ticks_ms

from micropython import const

from .client import MQTTException
from .wire import header

# As in errors.py and counters.py
_PROTOCOL = const(16)
_TIMEOUT = const(17)
_BUSY = const(21)
_CLOSED = const(22)
_CONNECTS = const(0)


def connect(client, clean, timeout):
    """See MQTTClient.connect."""
    if sys.implementation.name == "micropython" and sys.modules.pop("umqtt_min.connect", None):
        # Nothing but the function that runs keeps the module from now on.
        delattr(sys.modules["umqtt_min"], "connect")
    if client._busy > 1:
        raise MQTTException(_BUSY)
    session = client._session
    if clean is None:
        clean = not session
    if not (clean or client.client_id):
        raise ValueError("an empty client_id needs clean_session=True [MQTT-3.1.3-7]")
    end = ticks_add(ticks_ms(), client._tmo if timeout is None else int(timeout * 1000))
    client._close()
    client._busy = 1
    try:
        if session and not clean and session.hopeless():
            _login(client, True, end)  # the broker forgets the session [MQTT-3.1.2-6]
            client.disconnect()
            client._busy = 1
            session.forget()
        _login(client, clean, end)
        client._n[_CONNECTS] += 1
        # None: the version cannot tell; what we hold is resumed.
        clean = clean or client.session_present is False
        if session:
            session.resume(clean)
        elif clean and client._inbox:
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


def _login(client, clean, end):
    # A new stream, CONNECT, and CONNACK without an error.
    ms = max(1, ticks_diff(end, ticks_ms()))
    if client.connector:
        sock = client.connector(client.server, client.port, ms)
    else:
        sock = _open(client, end)
    tx = client._tx
    rx = client._rx
    client.sock = tx.sock = sock
    client.connected = rx.heard = True
    rx.start = rx.end = tx.quick = 0
    rx.time = ticks_ms()
    try:
        tx.poll = select.poll()
        tx.poll.register(sock, 1)
    except (OSError, TypeError, ValueError, AttributeError):
        tx.poll = None  # an injected stream that the port cannot poll
    _send(client, clean)
    _connack(client, clean, end)


def _open(client, end):
    # The TCP or TLS connection that `client` asks for, until `end`; only the name look-up
    # cannot be bounded.
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


# CONNECT and CONNACK


def _send(client, clean):
    flags = 2 if clean else 0
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


def _connack(client, clean, end):
    # CONNACK is the first packet of a broker.
    rx = client._rx
    while True:
        # At its first byte: a PUBLISH larger than the buffer would be handed on in pieces.
        if rx.end and rx.buf[rx.start] >> 4 != 2:
            raise MQTTException(_PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
        op = rx.whole()
        if op:
            break
        left = ticks_diff(end, ticks_ms())
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
        if flags and (clean or code):
            raise MQTTException(_PROTOCOL, "session present [MQTT-3.2.2-%d]" % (4 if code else 1))
    if code:
        raise MQTTException(code)
