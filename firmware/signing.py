"""Signing: the code of a reading, for boards with telemetry = "signed"; loaded on no other.

Knows HMAC-SHA256 (RFC 2104) and how the key is made. Must not know what a pack says.
"""

import hashlib
from binascii import unhexlify

from commands import hmac_sha256

_PURPOSE = b"umqtt telemetry"
_BLOCK = 64


def signer(settings):
    """Return what signs this board's packs: function(data) that returns 32 bytes.

    settings  flat dict as settings.complete() gives it, with the device's name
    Raises ValueError when there is no key to sign with.
    """
    if not settings["command_key"]:
        raise ValueError('telemetry: "signed" needs a command_key; flash the board again')
    key = hmac_sha256(unhexlify(settings["command_key"]), _PURPOSE)
    key += bytes(_BLOCK - len(key))
    topic = "fleet/%s/%s/telemetry\n" % (settings["group"], settings["device"])
    first = bytes([b ^ 0x36 for b in key]) + topic.encode()
    last = bytes([b ^ 0x5C for b in key])

    def code(data):
        inner = hashlib.sha256(first)
        inner.update(data)
        outer = hashlib.sha256(last)
        outer.update(inner.digest())
        return outer.digest()

    return code
