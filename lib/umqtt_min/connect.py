"""CONNECT and CONNACK: from no connection to a session that is taken up.

Knows: section 3.1 and 3.2 of MQTT 3.1.1, and how the older versions differ.
Used by client.connect() only; the client owns the stream and its buffers.
"""

import time

from .errors import CLOSED, PROTOCOL, TIMEOUT, MQTTException
from .packet import BODY, field, header
from .protocol import NAME, SESSION, STRICT


def connect(client, clean, timeout):
    """Open the stream, send CONNECT, check CONNACK, take up the session.

    clean: bool; timeout: ms for all of it. The caller closes on any exception.
    """
    end = time.ticks_add(time.ticks_ms(), timeout)
    if not clean and client._session and client._session.hopeless():
        _login(client, True, end)  # the broker forgets the session [MQTT-3.1.2-6]
        client.disconnect()
        client._busy = 1
        client._session.forget()
    _login(client, clean, end)
    _begin(client, clean)


def _login(client, clean, end):
    from .stream import Waiter

    sock = _open(client, max(1, time.ticks_diff(end, time.ticks_ms())))
    client._open(sock, Waiter(sock))
    buf = client._tx.buf
    n = _size(client)
    if BODY + n > len(buf):
        buf = bytearray(BODY + n)
    _put(client, buf, clean)
    i = header(buf, 0x10, n)
    client._tx.send(buf, i, BODY + n - i)
    code = _connack(client, end)
    if code:
        raise MQTTException(code)


def _open(client, timeout):
    if client.connector:
        return client.connector(client.server, client.port, timeout)
    from .stream import connect

    ssl = client.ssl
    name = client.server
    if ssl and not hasattr(ssl, "wrap_socket") or client.ssl_params:
        from .tls import context

        ssl, name = context(client.ssl_params or {}, name)
    return connect(client.server, client.port, ssl, name, timeout)


def _size(client):
    # The Remaining Length of CONNECT.
    n = len(client.protocol[NAME]) + 3 + 2 + len(client.client_id)
    if client.lw_topic is not None:
        n += 4 + len(client.lw_topic) + len(client.lw_msg)
    if client.user is not None:
        n += 2 + len(client.user)
    if client.pswd is not None:
        n += 2 + len(client.pswd)
    return n


def _put(client, buf, clean):
    name = client.protocol[NAME]
    i = BODY + len(name)
    buf[BODY:i] = name
    flags = 2 if clean else 0
    if client.lw_topic is not None:
        flags |= client.lw_flags
    if client.user is not None:
        flags |= 0x80
    if client.pswd is not None:
        flags |= 0x40
    buf[i] = flags
    buf[i + 1] = client.keepalive >> 8
    buf[i + 2] = client.keepalive & 255
    # The order is fixed [MQTT-3.1.3-1].
    i = field(buf, i + 3, client.client_id)
    if client.lw_topic is not None:
        i = field(buf, i, client.lw_topic)
        i = field(buf, i, client.lw_msg)
    if client.user is not None:
        i = field(buf, i, client.user)
    if client.pswd is not None:
        field(buf, i, client.pswd)


def _connack(client, end):
    # The return code. CONNACK is the first packet of a broker [MQTT-3.2.0-1].
    rx = client._rx
    while True:
        # At its first byte: a PUBLISH larger than the buffer would be handed on in pieces.
        if rx.end and rx.buf[rx.start] >> 4 != 2:
            raise MQTTException(PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
        op = rx.whole()
        if op:
            break
        try:
            n = rx.fill()
        except OSError as e:
            raise _hung_up(client, e)
        if not n:
            left = time.ticks_diff(end, time.ticks_ms())
            if left <= 0:
                raise MQTTException(TIMEOUT, "no CONNACK")
            client._tx.wait.readable(min(left, 500))
    rx.start = rx.next
    flags = rx.buf[rx.p]
    code = rx.buf[rx.p + 1]
    strict = client.protocol[STRICT]
    if rx.n != 2 or strict and (op & 15 or flags & 0xFE):
        raise MQTTException(PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
    if client.protocol[SESSION]:
        if flags and code:
            raise MQTTException(PROTOCOL, "session present in a refusal [MQTT-3.2.2-4]")
        client.session_present = bool(flags)
    else:
        client.session_present = None  # 3.1 and the draft cannot tell
    return code


def _hung_up(client, e):
    # Some brokers answer what they do not like by hanging up without a word.
    if e.args and e.args[0] in (104, 32, 103):
        hint = "protocol, client id or login not to its liking?"
        if not client.keepalive:
            hint = "some brokers refuse keepalive=0: give keepalive= 1 to 65535 seconds"
        return MQTTException(CLOSED, hint)
    return e


def _begin(client, clean):
    present = client.session_present
    if present and clean:
        raise MQTTException(PROTOCOL, "session present after clean session [MQTT-3.2.2-1]")
    client.counters.connects += 1
    # None: the version cannot tell; what we hold is resumed.
    fresh = clean or present is False
    if client._session:
        client._session.resume(fresh)
    elif fresh and client._inbox:
        client._inbox.in_clear()
    if client.keepalive:
        if client._keep is None:
            from .keepalive import KeepAlive

            client._keep = KeepAlive(client, client.timer)
        client._keep.start()
