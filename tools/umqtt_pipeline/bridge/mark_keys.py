"""The keys with which marks are signed: a device that has one heeds no other mark.

Knows the form of a signed mark (firmware/confirm.py). Must not know what a mark says, nor sockets.
With these keys nobody can command a board: they are made of the boards' keys by a way that does
not lead back (`umqtt-board mark-keys`).
"""

import hashlib
import hmac

from ..decode.device_keys import DeviceKeys


class MarkKeys(DeviceKeys):
    """Those of a file; see DeviceKeys."""

    command = "mark-keys"
    of = "the marks"
    without = "they heed no mark that is not signed"

    def seal(self, topic, payload):
        """The payload to publish on a device's ack topic, both bytes: signed if there is a key."""
        keys = self.keys(topic)
        if not keys:
            return payload
        code = hmac.new(keys[0], topic + b"\n" + payload, hashlib.sha256).hexdigest()
        return payload[:-1] + b',"code":"' + code.encode() + b'"}'
