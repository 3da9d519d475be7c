"""Decodes packets of the firmware to readings, by column.

It takes only packets without a fault: SenML CBOR in the firmware's layout, published under the
topic of its own device, with no impossible clock. It leaves all others to rows.py, which knows
every encoding and every reason. Both give the same result for the same packet (tests/pipeline).

Knows topics, and what makes a reading good. Must not know Spark or files.
"""

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..tables.schema import READINGS, arrow_schema
from . import firmware, topics
from .reading import LONGEST
from .reasons import CLOCK, CLOCK_FROM, CLOCK_TO
from .signed import NO_KEYS


def bucket(group, device, buckets):
    """Which of `buckets` parts of a batch, and of the state, a device belongs to."""
    return zlib.crc32(f"{group}/{device}".encode()) % buckets


def buckets_of(rows, buckets):
    """The same for each row with a group and a device."""
    names = pc.binary_join_element_wise(rows["group"], rows["device"], "/")
    coded = names.combine_chunks().dictionary_encode()
    each = [zlib.crc32(name.encode()) % buckets for name in coded.dictionary.to_pylist()]
    return np.array(each, np.int64)[coded.indices.to_numpy()]


def _owners(names):
    """Topics -> (group, device) as arrays, null for topics without telemetry."""
    coded = names.dictionary_encode()
    found = [topics.owner(name) for name in coded.dictionary.to_pylist()]
    for part in (0, 1):
        each = pa.array([owner and owner[part] for owner in found], pa.string())
        yield each.take(coded.indices)


def _believable(measurements):
    """Which rows have no clock, or a possible one."""
    items = measurements.flatten()
    value = items.field("value")
    wrong = pc.and_(pc.equal(items.field("name"), CLOCK), pc.or_(
        pc.less(value, CLOCK_FROM), pc.greater(value, CLOCK_TO)))  # fmt: skip
    good = np.ones(len(measurements), bool)
    good[pc.list_parent_indices(measurements).filter(wrong).to_numpy()] = False
    return good


def _genuine(topic, payload, keys):
    """Which rows are signed, or of devices that do not sign."""
    coded = topic.dictionary_encode()
    signing = [keys.keys(name.encode()) is not None for name in coded.dictionary.to_pylist()]
    rows = np.flatnonzero(np.array(signing, bool)[coded.indices.to_numpy(zero_copy_only=False)])
    good = np.ones(len(topic), bool)
    good[rows] = [not keys.fault(topic[row].as_py().encode(), payload[row].as_py())
                  for row in rows.tolist()]  # fmt: skip
    return good


def readings(rows, keys=NO_KEYS):
    """Bronze rows -> (readings, bool array: which rows they are of). keys: of the devices that
    sign."""
    topic, payload = (rows[name].combine_chunks() for name in ("topic", "payload"))
    known, columns = firmware.decode(payload)
    if columns is None:
        return arrow_schema(READINGS).empty_table(), np.zeros(len(rows), bool)
    device, epoch, sequence, boot, uptime_ms, _low, measurements = columns
    group, owner = _owners(topic)
    same = pc.fill_null(pc.equal(device, owner), False).to_numpy(zero_copy_only=False)
    short = pc.less_equal(pc.binary_length(payload), LONGEST).to_numpy(zero_copy_only=False)
    known = known & same & short & _believable(measurements)
    found = {"group": group, "device": owner, "epoch": epoch, "sequence": sequence, "boot": boot,
             "uptime_ms": uptime_ms, "measurements": measurements}  # fmt: skip
    if keys:
        known &= _genuine(topic, payload, keys)
    schema = arrow_schema(READINGS)
    arrays = [found[f.name].cast(f.type) if f.name in found else rows[f.name] for f in schema]
    made = pa.Table.from_arrays(arrays, schema=schema)
    return made if known.all() else made.filter(pa.array(known)), known

