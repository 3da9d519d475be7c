"""The last will, and topics that come in and are not plain ASCII.

Knows: what the protocol allows in topic names and in a will. Loaded by the first of them.
"""

from .port import const
from .topics import check_name

_TOPIC_MAX = const(2)  # as in protocol.py


def field(name, s):
    """A field of CONNECT has a two-byte length."""
    if s is not None and len(s) > 65535:
        raise ValueError("%s: 65535 bytes at most" % name)


def set_last_will(self, topic, msg, retain=False, qos=0):
    """What the broker publishes when this client is lost [MQTT 3.1.1, 3.1.2.5].

    topic, msg: str or bytes; qos: 0, 1 or 2. Raises ValueError.
    """
    topic = self._bytes(topic)
    if qos not in (0, 1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    check_name(topic, self.protocol[_TOPIC_MAX])
    msg = self._bytes(msg)
    field("last will", msg)
    self.lw_topic = topic
    self.lw_msg = msg
    self.lw_flags = 4 | int(qos) << 3 | (0x20 if retain else 0)


def check_heard(self, topic):
    """The topic of a message from the broker of `self`."""
    try:
        check_name(topic, 65535)
    except ValueError as e:
        self._bad("PUBLISH: %s [MQTT-3.3.2-1]" % e)
