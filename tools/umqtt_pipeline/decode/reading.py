"""The definition of a reading: its fields, their ranges, and the exception for everything else.

Every decoder returns a Reading or raises Malformed. Knows fields and ranges. Must not know
encodings, topics or tables.
"""

import math
from dataclasses import dataclass, field
from decimal import Decimal

from . import reasons
from .reasons import BITS_31, CLOCK, CLOCK_FROM, CLOCK_TO, LIMIT

LONGEST = 1 << 20  #: bytes of a payload that is decoded: a thousandth of that is usual


class Malformed(ValueError):
    """The payload is no reading; the text is the reason shown in the quarantine table.

    identity    (epoch, sequence) if these can be read all the same, else None: such a packet has
                come, and would be no better if the device sent it again
    """

    identity = None

    def __init__(self, *reason, identity=None):
        super().__init__(*reason)
        self.identity = identity


@dataclass(slots=True)
class Reading:
    """The content of one payload.

    device        its name, the same as in the topic
    epoch         8 bytes, drawn by the device when its journal was formatted
    sequence      1 to 2^53 - 1, one more for each reading of an epoch
    boot          0 to 2^31 - 1, how often the device has started
    uptime_ms     milliseconds since that start
    low           the lowest number that the device still holds, or None
    measurements  (name, unit or None, float), at least one
    """

    device: str
    epoch: bytes
    sequence: int
    boot: int
    uptime_ms: int
    low: int | None
    measurements: list = field(default_factory=list)


def uint(fields, key, low, high, said, default=None):
    """An integer in low..high. said: {key: reason}. Raises Malformed."""
    value = fields.get(key)
    value = default if value is None else value
    if type(value) is not int or not low <= value <= high:
        raise Malformed(said[key])
    return value


def epoch(fields, said):
    """The 8 bytes of an epoch, which may be 16 hex digits. Raises Malformed."""
    value = fields.get("ep")
    if isinstance(value, str):
        try:
            value = bytes.fromhex(value) if len(value) == 16 else b""
        except ValueError:
            value = b""
    if type(value) is not bytes or len(value) != 8:
        raise Malformed(said["ep"])
    return value


def number(name, value):
    """A measurement as a double, correctly rounded from an exact decimal fraction. Raises
    Malformed."""
    try:
        found = float(value) if type(value) in (int, float, Decimal) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise Malformed(reasons.of(name, reasons.NUMBER) + reasons.kind(value))
    return found


def low(fields, sequence, said):
    """The lowest number that a device holds, or None. Raises Malformed."""
    if fields.get("lo") is None:
        return None
    found = uint(fields, "lo", 1, LIMIT - 1, said)
    if found > sequence:
        raise Malformed(said["lo above"])
    return found


def check_clock(measurements):
    """Raises Malformed if a clock record has an impossible time."""
    for name, _, value in measurements:
        if name == CLOCK and not CLOCK_FROM <= value <= CLOCK_TO:
            raise Malformed("a clock outside 2020..2100")


def made(device, fields, measurements, said=reasons.SENML):
    """The Reading of a device with these fields (ep, sq, bo, up, ms, lo). said: the reasons, by
    field, as the payload calls them. Raises Malformed."""
    sequence = uint(fields, "sq", 1, LIMIT - 1, said)
    lowest, of = low(fields, sequence, said), epoch(fields, said)
    boot = uint(fields, "bo", 0, BITS_31, said)
    uptime = uint(fields, "up", 0, BITS_31, said) * 1000 + uint(fields, "ms", 0, 999, said, 0)
    if not measurements:
        raise Malformed(reasons.NO_MEASUREMENT)
    return Reading(device, of, sequence, boot, uptime, lowest, measurements)
