"""The reasons why a packet is no reading: one wording for each fault, in any encoding.

Knows words. Must not know how a fault is found (the other modules of decode/).
"""

from decimal import Decimal
from numbers import Real

LIMIT = 1 << 53  #: integers beyond it are not exact in every JSON reader
BITS_31 = (1 << 31) - 1
UPTIME_MS = BITS_31 * 1000 + 999
CLOCK = "clock"  #: name of the measurement that sets a boot's time
CLOCK_FROM, CLOCK_TO = 1_577_836_800, 4_102_444_800  #: believed: from 2020 until 2100

LARGE = "too large for a row: it is a file SPOOL-OFFSET-CRC.bin in the folder _large"
ENCODING = "unknown encoding: neither SenML, in CBOR or JSON, nor a JSON object"
NO_PACK = "not an array of SenML records"
TWICE = "a field comes twice"
SEVERAL = "more than one reading in a pack"
NO_DEVICE = "bn is not DEVICE/"
NO_NUMBER = "", " is not JSON (RFC 8259): leave the value out"
NO_NAME = "a measurement has no name"
NO_MEASUREMENT = "no measurement"
VERSION = "bver is not the integer 10"
# Followed by, or following, a name.
NOT_TAKEN = "the field ", " of SenML is not taken"
UNIT = "the unit of ", " is not text"
NUMBER = "", " is not a finite number: it is "  # and kind() of it
#: of a field of the identity, by its name in SenML; in flat JSON it is called otherwise
FIELDS = {
    "ep": "{ep} is missing, or not 8 bytes (16 hex digits)",
    "sq": f"{{sq}} is missing, or not an integer in 1..{LIMIT - 1}",
    "bo": f"{{bo}} is missing, or not an integer in 0..{BITS_31}",
    "up": f"{{up}} is missing, or not an integer in 0..{BITS_31}",
    "ms": "{ms} is not an integer in 0..999",
    "lo": f"{{lo}} is not an integer in 1..{LIMIT - 1}",
    "lo above": "{lo} is above {sq}",
}
SENML = {key: text.format(ep="ep", sq="sq", bo="bo", up="up", ms="ms", lo="lo")
         for key, text in FIELDS.items()}  # fmt: skip
FLAT = {key: text.format(ep="epoch", sq="sequence", bo="boot", up="up", ms="ms", lo="low")
        for key, text in FIELDS.items()}  # fmt: skip
#: of the fields that a user's decoder returns
OWN = {
    "ep": "epoch is not 8 bytes, or 16 hex digits",
    "sq": f"sequence is not an integer in 1..{LIMIT - 1}",
    "bo": f"boot is not an integer in 0..{BITS_31}",
    "up": f"uptime_ms is not an integer in 0..{UPTIME_MS}",
}


def kind(value):
    """What is there instead of a finite number, in words. Not the value itself, of which each
    message may have another: reasons are counted."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    for kinds, word in ((str, "text"), (bytes, "bytes"), (list, "an array"), (dict, "an object")):
        if isinstance(value, kinds):
            return word
    if isinstance(value, Real | Decimal):
        return "too large" if value == value else "NaN"
    return "something else"


def of(name, wording):
    """One of the wordings that take a name, as text."""
    return name.join(wording)
