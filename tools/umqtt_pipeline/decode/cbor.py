"""SenML in CBOR (RFC 8428 section 6), one payload at a time.

firmware.py reads the firmware's packs by column; this module reads all other CBOR. Knows CBOR and
its labels. Must not know topics.
"""

import io

import cbor2

from . import reasons, senml
from .reading import Malformed

LABELS = {-1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs", 0: "n", 1: "u",
          2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd"}  # fmt: skip
_BROKEN = (cbor2.CBORError, ValueError, ArithmeticError, TypeError, RecursionError)
_ARGUMENT = {24: 1, 25: 2, 26: 4, 27: 8}  #: bytes behind the first of an item, by its low bits


def reading(payload):
    """SenML CBOR with definite or indefinite lengths -> Reading. Raises Malformed."""
    pack, size = _item(payload)
    if size != len(payload):
        raise Malformed("bytes behind the end of the CBOR item")
    if isinstance(pack, list):
        pack = [_labelled(record) if isinstance(record, dict) else record for record in pack]
    return senml.reading(pack)


def _item(payload, repeats=False):
    """The first CBOR item of a payload, and how many bytes it takes. Raises Malformed.

    A map with a repeated key is not valid [RFC 8949 section 5.6]. repeats: accept it all the same.
    """
    source = io.BytesIO(payload)
    try:
        return cbor2.CBORDecoder(source, allow_duplicate_keys=repeats).decode(), source.tell()
    except _BROKEN as error:
        if "Duplicate map key" in str(error):
            raise Malformed(reasons.TWICE)
        raise Malformed(f"not CBOR: {type(error).__name__}")


def _labelled(record):
    """A record of SenML CBOR with JSON's labels. Raises Malformed."""
    named = {LABELS.get(k, k) if type(k) is int else k: v for k, v in record.items()}
    if len(named) < len(record):
        raise Malformed(reasons.TWICE)  # once as a number, once as text
    return named


def first(payload):
    """The first CBOR item of a payload, for its identity alone, which counts whatever else comes
    twice: of the first map keys that do are None, as in JSON. Raises Malformed."""
    try:
        return _item(payload)[0]
    except Malformed as error:
        if str(error) != reasons.TWICE:
            raise
    pack = _item(payload, repeats=True)[0]
    if pack and isinstance(pack[0], dict):
        try:
            keys = _keys(payload)
        except _BROKEN as error:  # a value that refers to another one, say
            raise Malformed(f"not CBOR: {type(error).__name__}")
        pack[0].update((key, None) for key in senml.OWN_LABELS if keys.count(key) > 1)
    return pack


def _keys(payload):
    """All keys of the map with which the CBOR array that is the payload begins, which can be
    decoded. Raises Malformed if the map is within a tag."""
    at = 1 + _ARGUMENT.get(payload[0] & 31, 0)
    head = payload[at]
    if head >> 5 != 5:
        raise Malformed(reasons.NO_PACK)
    size = _ARGUMENT.get(head & 31, 0)
    count = int.from_bytes(payload[at + 1 : at + 1 + size], "big") if size else head & 31
    source = io.BytesIO(payload)
    source.seek(at + 1 + size)
    decoder = cbor2.CBORDecoder(source, allow_duplicate_keys=True)
    keys = []
    while payload[source.tell()] != 0xFF if head == 0xBF else len(keys) < count:
        keys.append(decoder.decode())
        decoder.decode()
    return keys
