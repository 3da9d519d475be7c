"""What Spark's workers do: the two passes over the captures.

Knows: files, which process does what, Parquet. Must not know: Spark, protocols.

First pass, per file: headers are read and a row of 48 bytes per TCP segment goes to the file of
its bucket, by a hash of the two endpoints. Second pass, per bucket: a connection's segments are
all there, from every file and in order, whatever files it spans; their bytes are taken from the
captures where they lie. So what crosses between the workers is headers, never payload.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import captures, columns
from .captures import Capture, content
from .decode import Decoder
from .headers import Endpoints
from .layout import P_FRAGMENT, P_HEADER, P_LINK, PROBLEM, SEGMENT

BUNCH = 1 << 17  #: segments read at once in the second pass
#: Numbers that mostly go up by little: written as differences they take a tenth of the space.
_RISING = ("frame", "time", "connection", "first", "last", "received", "released", "done")
_FILTERED = ("time", "first", "connection", "frame")  #: these have statistics in the files


def _writer(path, schema):
    """A Parquet file; the settings are the cheapest that keep it small."""
    rising = [n for n in _RISING if n in schema.names]
    texts = [
        f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)
    ]
    return pq.ParquetWriter(
        path, schema, compression="zstd", store_schema=False, use_dictionary=texts,
        column_encoding={n: "DELTA_BINARY_PACKED" for n in rising},
        write_statistics=[n for n in _FILTERED if n in schema.names],
    )  # fmt: skip


class Tables:
    """Writes one Parquet file per table, when its first rows come; nothing is left open."""

    def __init__(self, folder, part):
        self.folder, self.part, self._open, self.rows = Path(folder), part, {}, {}

    def add(self, table, rows):
        """Append a pyarrow.Table."""
        if not rows.num_rows:
            return
        if table not in self._open:
            (self.folder / table).mkdir(parents=True, exist_ok=True)
            path = self.folder / table / f"part-{self.part}.parquet"
            self._open[table] = _writer(path, rows.schema)
        self._open[table].write_table(rows)
        self.rows[table] = self.rows.get(table, 0) + rows.num_rows

    def close(self):
        """Finish the files."""
        for writer in self._open.values():
            writer.close()


def _merged(listed, unlisted):
    """Problems of headers: the first of each kind, with the number of frames."""
    out = []
    for kind in (P_LINK, P_HEADER, P_FRAGMENT):
        rows = listed[listed["kind"] == kind]
        if len(rows):
            rows = rows[:1].copy()
            rows["count"] = (listed["kind"] == kind).sum()
            out.append(rows)
    if unlisted and out:
        out[-1]["count"] += unlisted
    return np.concatenate(out) if out else np.zeros(0, PROBLEM)


def unpack(number, path, scratch):
    """Unpack a file into `scratch`; returns where it is and what was wrong with it."""
    target = str(Path(scratch, f"{number:05d}.unpacked"))
    return {"number": number, "path": target, "wrong": captures.unpack(path, target)}


def split(number, path, name, buckets, scratch, out):
    """First pass of one file, called `name` in the tables; returns what the driver needs to
    know, as a dict."""
    capture, ends = Capture(path), Endpoints()
    files = {}
    first, last, segments = None, 0, 0
    try:
        for start, frames in capture:
            if not len(frames):
                continue
            good = frames["time"][frames["cap"] >= 0]
            if len(good):
                first = int(good[0]) if first is None else first
                last = max(last, int(good.max()))
            rows = ends.segments(capture.data, start, frames)
            segments += len(rows)
            bucket = (ends.keys["hash"] % buckets).astype(np.uint16)[rows["key"]]
            order = np.argsort(bucket, kind="stable")
            bounds = np.searchsorted(bucket[order], np.arange(buckets + 1))
            for k in np.flatnonzero(np.diff(bounds)).tolist():
                if k not in files:
                    files[k] = open(_segments(scratch, number, k), "wb")
                rows[order[bounds[k] : bounds[k + 1]]].tofile(files[k])
    finally:
        for file in files.values():
            file.close()
    np.save(_keys(scratch, number), ends.keys)
    tables = Tables(out, f"file-{number:05d}")
    tables.add("problems", columns.problems(capture.problems, name))
    tables.add("problems", columns.problems(_merged(*ends.problems), name))
    tables.close()
    return {"number": number, "frames": capture.frames, "segments": segments, "first": first,
            "last": last, "bytes": len(capture.data), "brokers": _brokers(ends.keys)}  # fmt: skip


def _brokers(keys):
    """Endpoints that were sent a CONNECT: [[address in hex, port]]."""
    found = set()
    for side, mark in (("a", 1), ("b", 2)):
        rows = keys[keys["server"] == mark]
        words = np.stack([rows[f"{side}{k}"] for k in range(4)], axis=1)
        pairs = zip(words, rows[f"{side}p"].tolist())
        found.update((w.astype(np.uint32).tobytes().hex(), p) for w, p in pairs)
    return sorted(found)


def _segments(scratch, number, bucket):
    return Path(scratch, f"{number:05d}-{bucket:05d}.segments")


def _keys(scratch, number):
    return Path(scratch, f"{number:05d}.keys.npy")


def _bunches(path):
    with open(path, "rb") as file:
        while True:
            rows = np.fromfile(file, SEGMENT, BUNCH)
            if not len(rows):
                return
            yield rows


def decode(bucket, buckets, plan, scratch, out):
    """Second pass of one bucket. plan: files [(number, path, name)] in the order of time, ports,
    brokers, span. Returns {table: rows}."""
    tables = Tables(out, f"bucket-{bucket:05d}")
    brokers = {(bytes.fromhex(a), p) for a, p in plan["brokers"]}
    decoder = Decoder(tables.add, plan["ports"], brokers, plan["span"])
    for order, (number, path, name) in enumerate(plan["files"]):
        segments = _segments(scratch, number, bucket)
        if segments.exists():
            keys = np.load(_keys(scratch, number))
            mine = keys["hash"] % buckets == bucket
            decoder.add(order, name, content(path), keys, mine, _bunches(segments))
    decoder.finish()
    tables.close()
    return tables.rows


def plan(split, paths, names, ports):
    """What every task of the second pass has to know. split: results of split() in order."""
    times = [s[end] for s in split if s["first"] is not None for end in ("first", "last")]
    return {"files": [(s["number"], paths[s["number"]], names[s["number"]]) for s in split],
            "ports": list(ports), "span": (min(times, default=0), max(times, default=0)),
            "brokers": sorted({tuple(b) for s in split for b in s["brokers"]})}  # fmt: skip


def note(found, out):
    """Rows on files that cannot be read: [(file, problem, what)]."""
    if found:
        tables = Tables(out, "input")
        tables.add("problems", columns.files(found))
        tables.close()


def answer(result):
    """A result as the one row that a task gives back."""
    return pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})
