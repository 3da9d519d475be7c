"""Decodes payloads of any encoding, one at a time: returns a reading, or raises why it is none.

Knows which encoding is which. Must not know topics, tables or the spool.
"""

from . import cbor, json_text, reasons, senml, skim
from .reading import LONGEST, Malformed, check_clock, epoch, low, uint
from .reasons import LIMIT


def encoding(payload):
    """'senml+cbor', 'senml+json', 'json' or None, told by the first byte: a CBOR array begins
    with 0x80..0x9b or 0x9f, JSON with a bracket (or white space)."""
    head = payload.lstrip(b" \t\r\n")[:1]
    if head == b"[":
        return "senml+json"
    if head == b"{":
        return "json"
    if payload and (0x80 <= payload[0] <= 0x9B or payload[0] == 0x9F):
        return "senml+cbor"
    return None


def reading(payload):
    """The Reading that a payload of any encoding is. Raises Malformed."""
    if len(payload) > LONGEST:
        raise Malformed(f"more than {LONGEST} bytes")
    read, _ = _READ.get(encoding(payload), (None, None))
    if read is None:
        raise Malformed(reasons.ENCODING)
    found = read(payload)
    check_clock(found.measurements)
    return found


def _of_flat(payload):
    whole = len(payload) <= LONGEST
    return json_text.identity_fields(json_text.first(payload, dict) if whole else
                                     skim.json(payload, json_text.FLAT, json_text.short))


def _of_json(payload):
    if len(payload) <= LONGEST:
        fields = _of_pack(json_text.first(payload, list))
    else:
        fields = _of_first(skim.json(payload, senml.OWN_LABELS, json_text.short))
    if isinstance(fields["ep"], json_text.Number):  # text only, as in CBOR; flat JSON takes both
        raise Malformed(reasons.SENML["ep"])
    return json_text.numbered(fields)


def _of_cbor(payload):
    try:
        if len(payload) <= LONGEST:
            return _of_pack(cbor.first(payload))
    except Malformed:
        pass  # what is damaged behind its identity has one for the bridge, which looks by column
    return _of_first(skim.cbor(payload, senml.OWN_LABELS))


def _of_pack(pack):
    if not isinstance(pack, list) or not pack or not isinstance(pack[0], dict):
        raise Malformed(reasons.NO_PACK)
    return _of_first(pack[0])


def _of_first(record):
    return {key: record.get(key) for key in senml.OWN_LABELS}


#: {encoding: (payload -> its Reading, payload -> {ep, sq, lo: value or None})}. Both raise
#: Malformed. The bridge needs the second: without it no mark covers a reading.
_READ = {"senml+cbor": (cbor.reading, _of_cbor), "senml+json": (json_text.pack, _of_json),
         "json": (json_text.flat, _of_flat)}  # fmt: skip


def identity(payload):
    """(epoch, sequence, low or None) of a payload, or None if epoch or sequence cannot be read.

    Other faults do not matter: such a payload is in quarantine, and would be no better if the
    device sent it again. An impossible `low` is None. A valid reading has the same identity here.
    Of more than LONGEST bytes, which no decoder here takes, only the first record counts.
    firmware.identities finds the same in the firmware's packs, thousands at a time.
    """
    try:
        _, fields_of = _READ[encoding(payload)]
        fields = fields_of(payload)
        found = epoch(fields, reasons.SENML), uint(fields, "sq", 1, LIMIT - 1, reasons.SENML)
    except (KeyError, Malformed):
        return None
    try:
        return *found, low(fields, found[1], reasons.SENML)
    except Malformed:
        return *found, None
