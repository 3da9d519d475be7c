"""Bronze rows to readings, one by one, in one pass: Arrow table in, Arrow table out.

group and device come from the topic, and the payload must name the same device. Ingest decodes the
firmware's packs by a shorter way (firmware_packs.py), with the same result for the same packet.
Knows the order in which a packet is judged. Must not know Spark, files or batches.
"""

import pyarrow as pa

from ..tables.schema import READINGS, arrow_schema
from . import payloads, reasons, topics
from .own import NO_DECODERS
from .payloads import identity
from .reading import Malformed
from .signed import NO_KEYS

ROWS, ITEMS = 20_000, 200_000  #: rows, or measurements, that are made Arrow columns together
NO_TOPIC = "the topic is not fleet/GROUP/DEVICE/telemetry"
MADE = ("group", "device", "epoch", "sequence", "boot", "uptime_ms", "measurements")
_LIST = arrow_schema(READINGS).field("measurements").type


def reading(topic, payload, decoders, keys=NO_KEYS):
    """The Reading of a packet. Raises Malformed, with its identity if that can be read."""
    try:
        return _reading(topic, payload, decoders, keys)
    except Malformed as error:
        error.identity = error.identity or identity(payload)
        raise


def _reading(topic, payload, decoders, keys):
    owner = topics.owner(topic)
    if owner is None:
        raise Malformed(NO_TOPIC)
    fault = _fault(topic, payload, keys)
    if fault:
        raise Malformed(fault)
    found = decoders.reading(topic, payload) if decoders else None
    if found is None:
        found = payloads.reading(payload)
    if found.device != owner[1]:
        raise Malformed(f"the payload is of device {found.device}, the topic is not")
    return found


def _fault(topic, payload, keys):
    return keys.fault(topic.encode(), payload) if keys else None


def _large(topic, payload, decoders, keys):
    """Why a payload that is too large for a row is no reading, and (epoch, sequence, ...) or
    None. payload: None if it is not there any more"""
    if payload is None:
        return reasons.LARGE, None
    fault = topics.owner(topic) and _fault(topic, payload, keys)
    why = f"{reasons.LARGE}; {fault}" if fault else reasons.LARGE
    try:
        found = reading(topic, payload, decoders, keys)
    except Malformed as error:
        return why, error.identity
    return why, (found.epoch, found.sequence)


def decode(rows, decoders=NO_DECODERS, keys=NO_KEYS, large=lambda spool, offset: None):
    """Bronze rows -> the same rows with MADE, other (a topic that carries no reading) and reason
    (why it is no reading; epoch and sequence are there all the same if they can be read).

    decoders: the user's, asked first. keys: of the devices that sign. large: function from spool
    and offset of a row without a payload to the payload, for its identity alone, or None.
    """
    parts, held = [], _Columns()
    packets = zip(rows["topic"].to_pylist(), rows["payload"].to_pylist())
    for row, (topic, payload) in enumerate(packets):
        if topics.is_other(topic, payload):
            held.add(True)
        elif payload is None:
            place = (rows[name][row].as_py() for name in ("spool", "offset"))
            why, known = _large(topic, large(*place), decoders, keys)
            held.add(False, reason=why, known=known)
        else:
            try:
                held.add(False, topics.owner(topic), reading(topic, payload, decoders, keys))
            except Malformed as error:
                held.add(False, reason=str(error), known=error.identity)
        if held.full():
            parts.append(held.batch())
            held = _Columns()
    made = pa.Table.from_batches([*parts, held.batch()])
    for name in made.column_names:
        rows = rows.append_column(name, made[name])
    return rows


class _Columns:
    """The results of some rows, by column."""

    def __init__(self):
        self.rows, self.sizes = [], [0]
        self.names, self.units, self.values = [], [], []

    def add(self, other, owner=None, r=None, reason=None, known=None):
        """Take in a row: of another topic, of a Reading, or of none for a reason, whose epoch and
        sequence may be known."""
        if r is None:
            epoch, sequence = (known[0].hex(), known[1]) if known else (None, None)
            self.rows.append((None, None, epoch, sequence, None, None, other, reason))
        else:
            self.rows.append((*owner, r.epoch.hex(), r.sequence, r.boot, r.uptime_ms, other, None))
            for name, unit, value in r.measurements:
                self.names.append(name)
                self.units.append(unit)
                self.values.append(value)
        self.sizes.append(len(self.names))

    def full(self):
        return len(self.rows) >= ROWS or len(self.names) >= ITEMS

    def batch(self):
        """An Arrow record batch of MADE, other and reason."""
        schema = arrow_schema({n: READINGS[n] for n in MADE} | {"other": "boolean",
                                                                "reason": "string"})  # fmt: skip
        items = pa.StructArray.from_arrays(
            [pa.array(self.names, pa.string()), pa.array(self.units, pa.string()),
             pa.array(self.values, pa.float64())], fields=list(_LIST.value_type))  # fmt: skip
        lists = pa.ListArray.from_arrays(pa.array(self.sizes, pa.int32()), items).cast(_LIST)
        columns = list(zip(*self.rows)) if self.rows else [()] * 8
        simple = [field for field in schema if field.name != "measurements"]
        arrays = {field.name: pa.array(column, field.type)
                  for field, column in zip(simple, columns)}  # fmt: skip
        return pa.RecordBatch.from_arrays(
            [lists if name == "measurements" else arrays[name] for name in schema.names],
            schema=schema)  # fmt: skip
