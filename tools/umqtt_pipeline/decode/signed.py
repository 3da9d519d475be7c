"""Signed readings: checks that a device has packed its payload itself (firmware/telemetry.py).

A signed pack ends with the field "mc" of its last record, 8 bytes: the first of
HMAC-SHA256(key of the device, TOPIC newline all bytes of the pack before these 8). A SenML
reader that does not know "mc" ignores it [RFC 8428 section 4.4]. A device with a key signs each
reading: one without the right code is somebody else's.

Knows bytes and keys. Must not know what a reading says.
"""

import hmac

from .device_keys import DeviceKeys

FIELD = b"\x62mc\x48"  #: the text "mc" and the head of 8 bytes, in CBOR
CODE = 8  #: bytes of a code
TAIL = len(FIELD) + CODE

NONE = "it has no code, and its device signs"
WRONG = "its code is not the one of its device"
GONE = "its device has no key any more: nobody may publish in its name"


class TelemetryKeys(DeviceKeys):
    """The keys of the devices that sign; see DeviceKeys. A device that got another key still holds
    readings that it has signed with the one before, and they are its own."""

    command = "telemetry-keys"
    of = "the readings"
    without = "anybody may publish readings in their name"
    most = 16

    def fault(self, topic, payload):
        """Why a payload does not come from the device of its topic, both bytes. None: it does, or
        its device does not sign."""
        keys = self.keys(topic)
        if keys is None:
            return None
        if not keys:
            return GONE
        if payload[-TAIL:-CODE] != FIELD:
            return NONE
        for key in keys:
            made = hmac.digest(key, topic + b"\n" + payload[:-CODE], "sha256")[:CODE]
            if hmac.compare_digest(made, payload[-CODE:]):
                return None
        return WRONG


NO_KEYS = TelemetryKeys(None)
