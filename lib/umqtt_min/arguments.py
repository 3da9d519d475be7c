"""The last will.

Knows: what the protocol allows in topic names and in a will. Loaded by set_last_will().
"""

from .port import const
from .topics import check_name

_ROW_TOPIC_MAX = const(2)  # as in packets.py
_WILL = const(0x04)
_WILL_RETAIN = const(0x20)


def field(name, s):
    """A field of CONNECT has a two-byte length."""
    if s is not None and len(s) > 65535:
        raise ValueError("%s: 65535 bytes at most" % name)


def set_last_will(client, topic, msg, retain, qos):
    """See MQTTClient.set_last_will()."""
    topic = client._bytes(topic)
    if qos not in (0, 1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    check_name(topic, client.protocol[_ROW_TOPIC_MAX])
    msg = client._bytes(msg)
    field("last will", msg)
    client.lw_topic = topic
    client.lw_msg = msg
    client.lw_flags = _WILL | int(qos) << 3 | (_WILL_RETAIN if retain else 0)
