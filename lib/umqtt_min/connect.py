"""From no connection to a session that is taken up: CONNECT, CONNACK, timer.

Knows: sections 3.1 and 3.2 of MQTT 3.1.1 and how the older versions differ. Loaded for
each connection and given back after it: nobody needs it while connected.
"""

import select
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
    _give_back("connect")
    if client._busy > 1:
        raise MQTTException(_BUSY)
    if clean is None:
        clean = client.store is None
    if not (clean or client.client_id):
        raise ValueError("an empty client_id needs clean_session=True [MQTT-3.1.3-7]")
    client._close()
    client._busy = 1
    timeout = client._tmo if timeout is None else int(timeout * 1000)
    try:
        _begin(client, clean, timeout)
    except BaseException as e:
        client._lost(e)
        raise
    client._busy = 0
    return bool(client.session_present)


def _give_back(name):
    # Nothing but the function that runs keeps the module from now on.
    if sys.implementation.name == "micropython" and sys.modules.pop("umqtt_min." + name, None):
        delattr(sys.modules["umqtt_min"], name)


def _begin(client, clean, timeout):
    end = ticks_add(ticks_ms(), timeout)
    if not clean and client._session and client._session.hopeless():
        _login(client, True, end)  # the broker forgets the session [MQTT-3.1.2-6]
        client.disconnect()
        client._busy = 1
        client._session.forget()
    _login(client, clean, end)
    present = client.session_present
    if present and clean:
        raise MQTTException(_PROTOCOL, "session present after clean session [MQTT-3.2.2-1]")
    client._n[_CONNECTS] += 1
    # None: the version cannot tell; what we hold is resumed.
    fresh = clean or present is False
    if client._session:
        client._session.resume(fresh)
    elif fresh and client._inbox:
        client._inbox.in_clear()
    if client.keepalive and client.timer is not False:
        _start_timer(client)


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
    _use(client, _open(client, max(1, ticks_diff(end, ticks_ms()))))
    _send(client, clean)
    code = _connack(client, end)
    if code:
        raise MQTTException(code)


def _open(client, timeout):
    if client.connector:
        return client.connector(client.server, client.port, timeout)
    from .stream import connect

    _give_back("stream")
    return connect(client, timeout)


def _use(client, sock):
    # A stream that has neither sent nor received anything.
    tx = client._tx
    rx = client._rx
    client.sock = tx.sock = sock
    client.connected = True
    tx.nagle = rx.heard = True
    rx.start = rx.end = client.piece = 0
    tx.time = rx.time = ticks_ms()
    try:
        poll = select.poll()
        poll.register(sock, 1)
    except (OSError, TypeError, ValueError, AttributeError):
        poll = None  # an injected stream that the port cannot poll
    tx.poll = poll


# CONNECT and CONNACK


def _send(client, clean):
    name = client.protocol[0]
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
    packet = bytearray(5) + name
    packet += bytes((flags, client.keepalive >> 8, client.keepalive & 255))
    for field in fields:
        packet += bytes((len(field) >> 8, len(field) & 255))
        packet += field
    n = header(packet, 0x10, len(packet) - 5)
    client._tx.send(packet, n, len(packet) - n)


def _connack(client, end):
    # The return code. CONNACK is the first packet of a broker [MQTT-3.2.0-1].
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
            raise _hung_up(client, e)
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
        if flags and code:
            raise MQTTException(_PROTOCOL, "session present in a refusal [MQTT-3.2.2-4]")
        client.session_present = bool(flags)
    return code


def _hung_up(client, e):
    # Some brokers answer what they do not like by hanging up without a word.
    if e.args and e.args[0] in (104, 32, 103):
        from .reasons import hint

        return MQTTException(_CLOSED, hint(client))
    return e
