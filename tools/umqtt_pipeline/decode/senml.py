"""A SenML pack (RFC 8428) to a reading, whatever its encoding: records as dicts with text labels.

The labels ep, sq, bo, up, ms and lo are this project's own (RFC 8428 section 4.4 has readers
ignore what they do not know), and so is mc, the code of a reading that is signed (signed.py).
A pack with fields that would change its values (a base value, a
time) goes to quarantine, rather than into silver with another value.

Knows SenML. Must not know bytes.
"""

from . import reasons
from .reading import Malformed, made, number

NOT_TAKEN = ("bt", "bu", "bv", "bs", "vs", "vb", "vd", "s", "t")
MUST_BE_KNOWN = "_"  #: ends a label that may not be ignored [RFC 8428 section 4.4]
VERSION = 10
OWN_LABELS = ("ep", "sq", "bo", "up", "ms", "lo")


def reading(pack):
    """The Reading in a pack. Raises Malformed."""
    if not isinstance(pack, list) or not pack or not all(isinstance(r, dict) for r in pack):
        raise Malformed(reasons.NO_PACK)
    first = pack[0]
    _refuse(pack)
    device = first.get("bn")
    if not isinstance(device, str) or not device.endswith("/") or len(device) < 2:
        raise Malformed(reasons.NO_DEVICE)
    measurements = []
    for record in pack:
        name, unit = record.get("n"), record.get("u")
        if record is first and name is None and record.get("v") is None:
            continue  # base fields in a record of their own
        if not isinstance(name, str) or not name:
            raise Malformed(reasons.NO_NAME)
        if unit is not None and not isinstance(unit, str):
            raise Malformed(reasons.of(name, reasons.UNIT))
        measurements.append((name, unit, number(name, record.get("v"))))
    return made(device[:-1], first, measurements)


def _refuse(pack):
    """Raises Malformed if a pack has fields or records that this decoder does not take."""
    first = pack[0]
    for record in pack:
        version = record.get("bver")
        if version is not None and (type(version) is not int or version != VERSION):
            raise Malformed(reasons.VERSION)
        for key, value in record.items():
            if value is not None and isinstance(key, str) and (
                    key in NOT_TAKEN or key.endswith(MUST_BE_KNOWN)):  # fmt: skip
                raise Malformed(reasons.of(key, reasons.NOT_TAKEN))
        if record is not first and (not record.keys().isdisjoint(OWN_LABELS)
                                    or record.get("bn") not in (first.get("bn"), None)):
            raise Malformed(reasons.SEVERAL)  # it would be taken for measurements of the first
