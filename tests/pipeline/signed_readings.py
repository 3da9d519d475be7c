"""Readings with a code, as the firmware makes them, and the file of keys for them.

Must not know what a test asserts.
"""

import hashlib
import hmac
import json

import pytest
from pipeline_kit import senml
from umqtt_pipeline.decode.signed import TelemetryKeys

KEY, OTHER = bytes(range(32)), bytes(32)
TOPIC = b"fleet/g/dev1/telemetry"
ONE, TWO = [("t", "Cel", 21)], [("t", "Cel", 21), ("n", None, 7)]


@pytest.fixture
def signers(tmp_path):
    """The key of one device, read from a file."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"fleet/g/dev1": KEY.hex()}))
    file.chmod(0o600)
    return TelemetryKeys(file)


def signed(payload, key=KEY, topic=TOPIC):
    """As firmware/telemetry.py signs a pack of senml(); the last map gets one pair more."""
    last = 1 if payload[0] == 0x81 else payload.rindex(b"\x00\x61n") - 1
    body = payload[:last] + bytes([payload[last] + 1]) + payload[last + 1 :] + b"\x62mc\x48"
    return body + hmac.new(key, topic + b"\n" + body, hashlib.sha256).digest()[:8]


#: readings of one device and of each form
GOOD = [signed(senml(n, fields)) for n, fields in enumerate(
    (ONE, TWO, [("t", None, 1)], [("n", None, 1), ("n", "m", 2)]), 1)]  # fmt: skip
