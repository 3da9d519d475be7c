"""Arguments that are out of the ordinary: which of them are wrong, and in what words.

Knows: what the protocol allows in CONNECT and in topic names. Loaded by the first argument
that is not plain ASCII within the usual bounds, and by the first will.
"""

from .protocol import ID_MAX, LOGIN, TOPIC_MAX
from .topics import check_name, check_utf8


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


def _check_arguments(self, buffer_size):
    most = self.protocol[ID_MAX]
    if not 0 <= self.keepalive <= 65535:
        raise ValueError("keepalive: 0 to 65535 seconds")
    if self.pswd is not None and self.user is None:
        raise ValueError("password without user [MQTT-3.1.2-22]")
    if self.user is not None and not self.protocol[LOGIN]:
        raise ValueError("this protocol version has no user name")
    self.user = None if self.user is None else self._bytes(self.user)
    self.pswd = None if self.pswd is None else self._bytes(self.pswd)
    _string("client_id", self.client_id)
    _string("user", self.user)
    _field("password", self.pswd)
    if buffer_size < 64:
        raise ValueError("buffer_size: 64 bytes or more")
    if most and not 0 < len(self.client_id) <= most:
        raise ValueError("client_id: 1 to %d bytes" % most)


def set_last_will(self, topic, msg, retain=False, qos=0):
    """What the broker publishes when this client is lost [MQTT 3.1.1, 3.1.2.5].

    topic, msg: str or bytes; qos: 0, 1 or 2. Raises ValueError.
    """
    topic = self._bytes(topic)
    if not 0 <= qos <= 2:
        raise ValueError("qos: 0, 1 or 2")
    check_name(topic, self.protocol[TOPIC_MAX])
    msg = self._bytes(msg)
    _field("last will", msg)
    self.lw_topic = topic
    self.lw_msg = msg
    self.lw_flags = 4 | qos << 3 | (0x20 if retain else 0)


def _check_name(self, topic, limit):
    check_name(topic, limit)


def check_heard(self, topic):
    """The topic of a message from the broker of `self`."""
    try:
        check_name(topic, 65535)
    except ValueError as e:
        self._bad("PUBLISH: %s [MQTT-3.3.2-1]" % e)


def _odd(self, what):
    # Neither str nor bytes, bytearray, memoryview: what else is a buffer will do.
    try:
        return memoryview(what)
    except TypeError:
        raise TypeError("%r: topics and payloads are str or bytes-like; a number needs str()"
                        % (what,))


def _cannot_wait(self):
    raise ValueError("no acknowledgement can be awaited here: give the client a"
                     " store, such as store=RAMStore()")
