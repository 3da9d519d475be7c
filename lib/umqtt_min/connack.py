"""CONNACK when it is not the plain "accepted" of MQTT 3.1.1, and what made connect() fail.

Knows: section 3.2 of MQTT 3.1.1 and how the older versions differ. Loaded by connect.py.
"""

from .exception import MQTTException
from .port import const
from .reasons import hint

# As in errors.py and packets.py
_PROTOCOL = const(16)
_TIMEOUT = const(17)
_CLOSED = const(22)
_CONNACK = const(0x20)
_ROW_SESSION = const(5)
_ROW_STRICT = const(6)

_REFUSED = const(5)  # the last return code of CONNACK that means something


def reason(client, e):
    """The exception for `e` while CONNECT went out or CONNACK was awaited."""
    if client.ssl and isinstance(e, ValueError):
        # MicroPython's word for a certificate that mbedtls refuses; CPython has an OSError, too.
        return OSError(str(e).strip())
    if isinstance(e, OSError) and e.args and e.args[0] in (104, 32, 103):
        # Some brokers answer what they do not like by hanging up without a word.
        return MQTTException(_CLOSED, hint(client))
    return e


def accept(client, clean_session, head):
    """CONNACK of an older version, or one that does not accept, or what came of it, `head`."""
    client.session_present = None  # 3.1 and the draft cannot tell
    if len(head) > 1 and head[1] != 2 or head and head[0] >> 4 != 2:
        raise MQTTException(_PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
    if len(head) < 4:
        raise MQTTException(_TIMEOUT, _CONNACK)
    flags = head[2]
    code = head[3]
    if client.protocol[_ROW_STRICT] and (head[0] & 15 or flags & 0xFE):
        raise MQTTException(_PROTOCOL, "CONNACK [MQTT-3.2.0-1]")
    if client.protocol[_ROW_SESSION]:
        client.session_present = bool(flags)
        if flags and (clean_session or code):
            raise MQTTException(_PROTOCOL, "session present [MQTT-3.2.2-%d]" % (4 if code else 1))
    if code > _REFUSED:
        raise MQTTException(_PROTOCOL, "CONNACK return code %d" % code)
    if code:
        raise MQTTException(code)


def count(client, e):
    """Count `e`, which ended connect(), as the last error, and tell of it."""
    code = 104
    if isinstance(e, OSError):
        if e.args and isinstance(e.args[0], int):
            code = client.counters.last_error = e.args[0]
    elif isinstance(getattr(e, "reason", None), int):  # MQTTException
        client.counters.last_error = 1000 + e.reason
    client._tx.errno = code
    if client._events is not None:
        client._events.failed(e)
