"""Reads topics: which device's telemetry one carries, if any. Knows topics. Must not know what a
payload holds, but for a bridge's own marks."""

import re
from functools import lru_cache

TELEMETRY = re.compile("fleet/([^/]+)/([^/]+)/telemetry")
_OTHER = re.compile(r"fleet/[^/]+/[^/]+/(status|ack|cmd/.+)")
_SHAPE = re.compile("fleet/[^/]*/[^/]*/telemetry")
#: What a bridge says on TOPIC/ack of any TOPIC/telemetry; a wide --topic brings it back.
_MARK = re.compile(rb'\{"epoch":"[0-9a-f]{16}","upto":[0-9]+,"missing":\[')


@lru_cache(maxsize=1 << 16)
def owner(topic):
    """(group, device) of a telemetry topic; None for any other."""
    found = TELEMETRY.fullmatch(topic)
    return found and (found[1], found[2])


def is_other(topic, payload):
    """Whether a packet is of a topic that carries no readings: status, commands, marks."""
    if _SHAPE.fullmatch(topic):
        return False
    return bool(_OTHER.match(topic) and _OTHER.fullmatch(topic)) or (
        topic.endswith("/ack") and payload is not None and _MARK.match(payload) is not None)
