"""Packets of a spool as rows: the tasks of a batch.

Knows blocks and Arrow. Must not know Spark's API, or what a payload means.
"""

import zlib
from pathlib import Path

import numpy as np

from .. import wire
from ..decode.firmware import slices
from ..spool import files, logs
from ..spool.objects import Object, is_place
from ..spool.segment import BLOCK

SCHEMA = (
    "topic string, payload binary, qos int, retain boolean, dup boolean, packet_id int, "
    "received_at timestamp, spool string, offset bigint"
)
BATCH_ROWS = 20_000  #: about so many rows make one Arrow record batch, or
BATCH_BYTES = 32 << 20  #: so many bytes
LATEST_US = 253_402_128_000_000_000  #: 9999-12-30; not every reader of Parquet knows later times
LARGE = 8 << 20  #: bytes of a payload; a row goes several times through Spark's memory


def _batch(key, held, large):
    """One Arrow record batch of some (Block, body, first, last): packets [first, last) of each.
    key: the spool's id;   large: the folder for large payloads, or None"""
    import pyarrow as pa

    parts, offsets, received, at = [], [], [], 0
    for block, body, first, last in held:
        frames = wire.frames(body).part(slice(first, last))
        parts.append(frames.moved(at))
        offsets.append(frames.start + (block.position + BLOCK.size))
        received.append(np.full(len(frames), min(block.received, LATEST_US)))
        at += len(body)
    raw = np.frombuffer(b"".join(body for _, body, _, _ in held), np.uint8)
    frames, places = wire.joined(parts), np.concatenate(offsets)
    arrays = [
        _topics(slices(raw, frames.topic, frames.topic_end)),
        _payloads(raw, frames, places, large, key),
        pa.array(frames.qos.astype(np.int32)),
        pa.array(frames.head & 1 != 0),
        pa.array(frames.head & 8 != 0),
        pa.array(frames.packet_ids(raw), mask=frames.qos == 0),
        pa.array(np.concatenate(received)).cast(pa.timestamp("us", tz="UTC")),
        pa.repeat(key, len(frames)),
        pa.array(places),
    ]
    return pa.RecordBatch.from_arrays(arrays, [column.split()[0] for column in SCHEMA.split(",")])


def _payloads(raw, frames, places, large, key):
    """The payloads as Arrow array; one that is too large goes to the file KEY-PLACE-CRC.bin of
    `large`, with its crc32 in hexadecimal, and is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = (frames.end - frames.payload <= LARGE) | (large is None)
    found = slices(raw, frames.payload, np.where(kept, frames.end, frames.payload))
    if kept.all():
        return found
    for n in np.flatnonzero(~kept):
        data = raw[frames.payload[n] : frames.end[n]].tobytes()
        _keep(large, f"{key}-{places[n]}-{zlib.crc32(data):08x}.bin", data)
    return pc.if_else(pa.array(kept), found, pa.scalar(None, found.type))


def _keep(large, name, data):
    if is_place(large):
        Object(large, name).write(data)
    else:
        files.make_folder(large)
        files.replace_file(Path(large, name), data)


def _topics(raw):
    """Topics as text; bytes that are no UTF-8, which no broker should let through, as U+FFFD."""
    import pyarrow as pa

    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        names = [name.decode("utf-8", "replace") for name in raw.to_pylist()]
        return pa.array(names, pa.string())


def read_range(part, skip_damaged, large=None):
    """Arrow record batches of one SpoolRange; large: the folder for large payloads."""
    held, rows, size = [], 0, 0
    # A stop inside a block needs that block, too: ask for one byte more.
    stop = part.stop + (1 if part.stop_skip else 0)
    for reader, block in logs.blocks(part.folder, part.position, stop, skip_damaged):
        body = reader.body(block)
        first = part.skip if block.position == part.position else 0
        last = part.stop_skip if block.position == part.stop else block.count
        held.append((block, body, first, last))
        rows += last - first
        size += len(body)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(part.id, held, large)
            held, rows, size = [], 0, 0
    if rows:
        yield _batch(part.id, held, large)
