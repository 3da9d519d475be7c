"""Reports of boards as the broker brings them: anybody at the broker may publish on their topics.

A report is believed when it carries the code of its board's key (firmware/commands.py) for the
topic that it came on. How new it is shows its counter: that of the last command that the board had
obeyed. Must not know sessions, nor what follows from a report.
"""

import hashlib
import hmac
import json
import re

LONGEST = 8192
_SEALED = re.compile(rb'(.+),"code":"([0-9a-f]{64})"\}', re.DOTALL)
_KINDS = {"count": int, "before": list, "have": int, "failed": dict, "state": str, "why": str,
          "id": str, "set": str, "start": str, "up": int, "refused_late": int}  # fmt: skip


def hmac_sha256(key, message):
    """HMAC-SHA256, hexadecimal text. key: hexadecimal, message: bytes."""
    return hmac.new(bytes.fromhex(key), message, hashlib.sha256).hexdigest()


def code(key, topic, body):
    """The code of a body on a topic, hexadecimal bytes.

    key  hexadecimal, topic text, body bytes
    """
    return hmac_sha256(key, topic.encode() + b"\n" + body).encode()


def sealed(payload):
    """Whether a payload has the form of a report with a code, be it right or not."""
    return len(payload) <= LONGEST and bool(_SEALED.fullmatch(payload))


def read(key, topic, payload):
    """Return the report, a dict; None for what this board did not say, or no board says."""
    sealed = _SEALED.fullmatch(payload) if len(payload) <= LONGEST else None
    if not sealed:
        return None
    body = sealed[1] + b"}"
    if not hmac.compare_digest(code(key, topic, body), sealed[2]):
        return None
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and _plausible(said) else None


def _plausible(said):
    """Whether each part is of the kind that the firmware gives it."""
    parts = all(said.get(key) is None or type(said[key]) is kind for key, kind in _KINDS.items())
    return parts and type(said.get("count")) is int
