"""Arguments out of the ordinary: the constructor's, checked in words; login and last will.

Knows: their ranges, what CONNECT may carry. Loaded by the first client whose arguments are not
plain, and by set_last_will().
"""

from .packets import MQTT_3_1_1
from .port import const
from .topics import check_name, check_utf8

# As in packets.py
_ROW_ID_MAX = const(1)
_ROW_TOPIC_MAX = const(2)
_ROW_LOGIN = const(7)
_WILL = const(0x04)
_WILL_RETAIN = const(0x20)
_PASSWORD = const(0x40)
_USER = const(0x80)
_LARGEST = const(268435455)  # what a Remaining Length can say


def _string(name, s):
    # ... and is UTF-8 unless it is binary [MQTT-3.1.3-4, -11].
    field(name, s)
    if s is not None:
        try:
            check_utf8(s)
        except ValueError as e:
            raise ValueError("%s: %s" % (name, e))


def whole(name, value, least, most):
    """Raise ValueError if that argument is no int in its range."""
    # A bool is an int in CPython only.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("%s=%r: a whole number, %d to %d" % (name, value, least, most))


def complete(self, user, password, connector, timeout, window, buffer_size):
    """Check what the constructor of `self` was given, and complete it. Raises ValueError."""
    if not isinstance(self.server, (str, bytes)) or not self.server:
        raise ValueError("server=%r: a host name or an address" % (self.server,))
    whole("port", self.port, 1, 65535)  # 0 has become 1883 or 8883
    whole("keepalive", self.keepalive, 0, 65535)
    whole("window", window, 1, 255)
    whole("buffer_size", buffer_size, 64, _LARGEST)
    whole("max_message", self.max_message, 0, _LARGEST)
    # Half of what ticks_diff() can tell; below a millisecond is no time at all.
    if timeout is True or not (isinstance(timeout, (int, float)) and 0.001 <= timeout <= 268435):
        raise ValueError("timeout=%r: seconds, more than 0 and at most 268435" % (timeout,))
    if not (isinstance(self.protocol, tuple) and len(self.protocol) == len(MQTT_3_1_1)
            and isinstance(self.protocol[0], bytes)):
        raise ValueError("protocol=%r: MQTT_3_1_1, MQTT_3_1 or MQIPDP_2" % (self.protocol,))
    if not (self.timer is None or self.timer is False or hasattr(self.timer, "init")):
        raise ValueError("timer=%r: a machine.Timer, None or False" % (self.timer,))
    if connector is not None and not callable(connector):
        raise ValueError("connector=%r: f(host, port, timeout_ms)" % (connector,))
    self.connector = connector
    if self.ssl:
        from .tls import check

        check(self.ssl, self.ssl_params)
    elif self.ssl_params and self.ssl is None:
        raise ValueError("ssl_params without ssl: ssl=True, or ssl=False for a plain connection")
    most = self.protocol[_ROW_ID_MAX]
    if password is not None and user is None:
        raise ValueError("password without user [MQTT-3.1.2-22]")
    if user is not None and not self.protocol[_ROW_LOGIN]:
        raise ValueError("this protocol version has no user name")
    self.user = None if user is None else bytes(self._bytes(user, "user"))
    self.pswd = None if password is None else bytes(self._bytes(password, "password"))
    _string("client_id", self.client_id)
    _string("user", self.user)
    field("password", self.pswd)
    if most and not 0 < len(self.client_id) <= most:
        raise ValueError("client_id: 1 to %d bytes" % most)


def check_session(client, clean_session):
    """Raise ValueError if connect() cannot have that `clean_session`."""
    if clean_session not in (True, False):
        raise ValueError("clean_session=%r: True, False or None" % (clean_session,))
    if not (clean_session or client.client_id):
        raise ValueError("an empty client_id needs clean_session=True [MQTT-3.1.3-7]")


def field(name, s):
    """A field of CONNECT has a two-byte length."""
    if s is not None and len(s) > 65535:
        raise ValueError("%s: 65535 bytes at most" % name)


def set_last_will(client, topic, msg, retain, qos):
    """See MQTTClient.set_last_will()."""
    topic = client._bytes(topic, "topic")
    if qos not in (0, 1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    check_name(topic, client.protocol[_ROW_TOPIC_MAX])
    msg = client._bytes(msg)
    field("last will", msg)
    client.lw_topic = bytes(topic)  # a copy of what the caller may change
    client.lw_msg = bytes(msg)
    client.lw_flags = _WILL | int(qos) << 3 | (_WILL_RETAIN if retain else 0)


def extend(client, fields):
    """Add will and login to the fields of CONNECT; returns their flags [MQTT-3.1.3-1]."""
    flags = 0
    if client.lw_topic is not None:
        flags = client.lw_flags
        fields += (client.lw_topic, client.lw_msg)
    if client.user is not None:
        flags |= _USER
        fields.append(client.user)
    if client.pswd is not None:
        flags |= _PASSWORD
        fields.append(client.pswd)
    return flags
