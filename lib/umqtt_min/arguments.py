"""Arguments that are out of the ordinary: which of them are wrong, and in what words.

Knows: what the protocol allows in CONNECT and in topic names. Loaded by the first argument
that is out of bounds or not plain ASCII, by a login and by the first will.
"""

from micropython import const

from .protocol import ID_MAX, LOGIN, MQTT_3_1_1, TOPIC_MAX
from .topics import check_name, check_utf8

_LARGEST = const(268435455)  # what a Remaining Length can say


def _field(name, s):
    # A field of CONNECT has a two-byte length.
    if s is not None and len(s) > 65535:
        raise ValueError("%s: 65535 bytes at most" % name)


def _string(name, s):
    # ... and is UTF-8 unless it is binary [MQTT-3.1.3-4, -11].
    _field(name, s)
    if s is not None:
        try:
            check_utf8(s)
        except ValueError as e:
            raise ValueError("%s: %s" % (name, e))


def _whole(name, value, least, most):
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError("%s=%r: a whole number, %d to %d" % (name, value, least, most))


def _check_arguments(self, timeout, window, buffer_size):
    if not isinstance(self.server, (str, bytes)) or not self.server:
        raise ValueError("server=%r: a host name or an address" % (self.server,))
    _whole("port", self.port, 1, 65535)  # 0 has become 1883 or 8883
    _whole("keepalive", self.keepalive, 0, 65535)
    _whole("window", window, 1, 255)
    _whole("buffer_size", buffer_size, 64, _LARGEST)
    _whole("max_message", self.max_message, 0, _LARGEST)
    # Half of what ticks_diff() can tell; below a millisecond is no time at all.
    if not isinstance(timeout, (int, float)) or not 0.001 <= timeout <= 268435:
        raise ValueError("timeout=%r: seconds, more than 0 and at most 268435" % (timeout,))
    if not isinstance(self.protocol, tuple) or len(self.protocol) != len(MQTT_3_1_1):
        raise ValueError("protocol=%r: MQTT_3_1_1, MQTT_3_1 or MQIPDP_2" % (self.protocol,))
    _check_login(self)


def _check_login(self):
    most = self.protocol[ID_MAX]
    if self.pswd is not None and self.user is None:
        raise ValueError("password without user [MQTT-3.1.2-22]")
    if self.user is not None and not self.protocol[LOGIN]:
        raise ValueError("this protocol version has no user name")
    self.user = None if self.user is None else self._bytes(self.user)
    self.pswd = None if self.pswd is None else self._bytes(self.pswd)
    _string("client_id", self.client_id)
    _string("user", self.user)
    _field("password", self.pswd)
    if most and not 0 < len(self.client_id) <= most:
        raise ValueError("client_id: 1 to %d bytes" % most)


def set_last_will(self, topic, msg, retain=False, qos=0):
    """What the broker publishes when this client is lost [MQTT 3.1.1, 3.1.2.5].

    topic, msg: str or bytes; qos: 0, 1 or 2. Raises ValueError.
    """
    topic = self._bytes(topic)
    if qos not in (0, 1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    check_name(topic, self.protocol[TOPIC_MAX])
    msg = self._bytes(msg)
    _field("last will", msg)
    self.lw_topic = topic
    self.lw_msg = msg
    self.lw_flags = 4 | int(qos) << 3 | (0x20 if retain else 0)


def _check_name(self, topic, limit):
    check_name(topic, limit)


def check_heard(self, topic):
    """The topic of a message from the broker of `self`."""
    try:
        check_name(topic, 65535)
    except ValueError as e:
        self._bad("PUBLISH: %s [MQTT-3.3.2-1]" % e)


def _odd(self, what):
    # Neither str nor bytes, bytearray, memoryview: the bytes of what else is a buffer, an
    # array of any type.
    try:
        return bytes(memoryview(what))
    except TypeError:
        raise ValueError("%r: str or bytes-like is wanted; a number needs str()" % (what,))


def _cannot_wait(self, flags):
    if not 2 <= flags <= 5:
        raise ValueError("qos=%d: 0, 1 or 2" % (flags >> 1))
    raise ValueError("no acknowledgement can be awaited here: give the client a"
                     " store, such as store=RAMStore()")
