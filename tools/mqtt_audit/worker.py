"""What Spark's workers do: the two passes over the captures.

Knows: files, which process does what, Parquet. Must not know: Spark, protocols.

First pass, per file: headers are read and a row of 48 bytes per TCP segment goes to the file of
its bucket, by a hash of the two endpoints. Second pass, per bucket: a connection's segments are
all there, from every file and in order, whatever files it spans; their bytes are taken from the
captures where they lie. So what crosses between the workers is headers, never payload.
"""

import gc
import logging
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import scratch as between
from .capture import files as captures
from .capture.files import Capture, content
from .compiled.layout import KEY, P_LANS, SEGMENT
from .decoder import Decoder
from .flows import joining
from .report import columns, sides, summaries
from .rules import clock as clocks
from .rules.findings import findings
from .scratch import bunches, keys_file, segments_file, stamps_file
from .tcp.headers import Endpoints
from .tcp.stamps import LEAST, over
from .together import groups
from .together.weave import Woven

log = logging.getLogger("umqtt.audit")

#: Said of a capture; {} is another one.
WOVEN = ("has connections of {} at the same time: both are read as one, in the order of time, and "
         "what both have counts once")  # fmt: skip
EMPTY = "the capture has no frames"
SEAM = "the clock was put forward between {} and this capture, as time stamps of TCP show"
AHEAD = "its clock is {:.3f} s {} that of {}: its times were corrected by that"
#: A row of layout.SEGMENT as bytes: with its fields numpy takes eight times as long to copy it.
ROW = np.dtype((np.void, SEGMENT.itemsize))
APART = 86_400 * 10**9  #: ns between captures that have a time line of their own
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
            (self.folder / table).mkdir(exist_ok=True)
            path = self.folder / table / f"part-{self.part}.parquet"
            self._open[table] = _writer(path, rows.schema)
        self._open[table].write_table(rows)
        self.rows[table] = self.rows.get(table, 0) + rows.num_rows

    def close(self):
        """Finish the files."""
        for writer in self._open.values():
            writer.close()


def unpack(number, path, scratch):
    """Unpack a file into `scratch`; returns where it is and what was wrong with it."""
    target = str(Path(scratch, f"{number:05d}.unpacked"))
    return {"number": number, "path": target, "wrong": captures.unpack(path, target)}


def cut(number, path, name, size, out):
    """Cut a large file into parts of about `size` bytes. Returns {number, parts}."""
    capture = Capture(path)
    parts = capture.parts(size)
    _note_damage(capture, number, name, out)
    return {"number": number, "parts": parts}


def _note_damage(capture, number, name, out):
    if not len(capture.problems):
        return
    tables = Tables(out, f"file-{number:05d}")
    tables.add("problems", columns.problems(capture.problems, {0: name}))
    tables.close()


def damage_of(number, out):
    """What split() has written about the damage of a file."""
    return _tables_of(out, "problems", columns.PROBLEMS, f"part-file-{number:05d}")


def split(number, path, name, buckets, scratch, out, place=0, part=None):
    """First pass of one file, called `name` in the tables, or of the part of it at `place`;
    returns what the driver needs to know, as a dict."""
    capture, ends = Capture(path, part), Endpoints()
    files = {}
    segments, read = np.zeros(buckets, np.int64), 0
    try:
        for start, frames in capture:
            if not len(frames):
                continue
            read += len(frames)
            rows = ends.segments(capture.data, start, frames)
            bucket = (ends.keys["hash"] % buckets).astype(np.uint16)[rows["key"]]
            order = np.argsort(bucket, kind="stable")
            bounds = np.searchsorted(bucket[order], np.arange(buckets + 1))
            segments += np.diff(bounds)
            whole_rows = rows.view(ROW)
            for k in np.flatnonzero(np.diff(bounds)).tolist():
                if k not in files:
                    files[k] = open(segments_file(scratch, number, place, k), "wb")
                # Not tofile(), which does not say why a disk takes no more.
                files[k].write(whole_rows[order[bounds[k] : bounds[k + 1]]].tobytes())
    finally:
        for file in files.values():
            file.close()
    Path(keys_file(scratch, number, place)).write_bytes(ends.keys.tobytes())
    Path(stamps_file(scratch, number, place)).write_bytes(ends.stamped.tobytes())
    if part is None:
        _note_damage(capture, number, name, out)
    return {"number": number, "place": place, "frames": read, "of_buckets": segments,
            "first": ends.pauses.first, "last": ends.pauses.last, "until": ends.pauses.before,
            "steps": clocks.steps_of(ends.pauses.doubted),
            "bytes": len(capture.data), "headers": ends.problems,
            "unread": ends.unread,
            "asked": _ends(ends.keys, 1), "shown": _ends(ends.keys, 5)}


def whole(parts):
    """What split() found in all parts of a file, put together."""
    parts = sorted(parts, key=lambda p: p["place"])
    first = [p["first"] for p in parts if p["first"] is not None]
    steps = [p["steps"] for p in parts]
    some = [p for p in parts if p["first"] is not None]
    steps += [clocks.between(a["until"], b["first"]) for a, b in zip(some, some[1:])]
    headers = np.concatenate([p["headers"] for p in parts])
    alike, headers = headers[headers["kind"] == P_LANS], headers[headers["kind"] != P_LANS]
    kinds, at, place = np.unique(headers["kind"], return_index=True, return_inverse=True)
    rows = headers[at]  # the first of each kind
    rows["count"] = np.bincount(place, headers["count"], len(kinds))
    of_buckets = sum(p["of_buckets"] for p in parts)
    unread = sum((Counter(p["unread"]) for p in parts), Counter())
    asked = {ends for p in parts for ends in p["asked"]}
    # Of a connection that began in another part the lower port may have been the client's.
    shown = {ends for p in parts for ends in p["shown"] if ends[::-1] not in asked}
    return {"number": parts[0]["number"], "parts": len(parts), "bytes": parts[0]["bytes"],
            "frames": sum(p["frames"] for p in parts),
            "of_buckets": of_buckets, "segments": int(of_buckets.sum()),
            "headers": np.concatenate([rows, alike]),
            "unread": dict(unread),
            "first": first[0] if first else None, "last": max(p["last"] for p in parts),
            "steps": np.concatenate([clocks.NONE, *steps]),
            "brokers": sorted({broker for broker, _ in asked | shown})}


def _ends(keys, mark):
    """The endpoints ((address in hex, port) of the broker, that of the client) of connections in
    which the broker was sent a CONNECT (mark: 1), or that are MQTT without one (5)."""
    found = set()
    for broker, client, server in (("a", "b", mark), ("b", "a", mark + 1)):
        rows = keys[keys["server"] == server]
        found.update(zip(_side(rows, broker), _side(rows, client)))
    return sorted(found)


def _side(keys, side):
    words = np.stack([keys[f"{side}{k}"] for k in range(4)], axis=1).astype(np.uint32)
    return [(w.tobytes().hex(), p) for w, p in zip(words, keys[f"{side}p"].tolist())]


def together(split, ports, scratch, buckets):
    """The captures in the order of time, those in one list that have to be read as one: results of
    whole(), with the ns that the clock of each is ahead as "ahead"."""
    found = groups.groups(
        split, ports, lambda s: between.keys(scratch, s["number"], s["parts"]))  # fmt: skip
    for members in found:
        several = len(members) > 1
        pieces = ([(between.segments(scratch, s["number"], s["parts"], k),
                    between.keys(scratch, s["number"], s["parts"])) for s in members]
                  for k in range(buckets if several else 0))  # fmt: skip
        for s, ahead in zip(members, groups.clocks(members, pieces)):
            s["ahead"] = ahead
            if ahead:
                s["first"], s["last"] = s["first"] - ahead, s["last"] - ahead
                s["steps"] = s["steps"] - np.array([ahead, ahead, 0, 0])
    _join_clocks(found, scratch)
    return found


def _join_clocks(found, scratch):
    """Give each capture as "gateway" the number of that, as "seam" the steps (rules/clock.py)
    between it and those of its gateway before it, and as "behind" the number of that before it."""
    split = [s for members in found for s in members]
    gateways, latest = _gateways(found, scratch), {}
    for s in split:
        s["gateway"], s["seam"], s["behind"] = gateways.of(s["number"]), clocks.NONE, None
    for s in sorted((s for s in split if s["first"] is not None), key=lambda s: s["first"]):
        before = latest.get(s["gateway"])
        if before and s["first"] - before["last"] > LEAST:
            said = over(*(between.stamps(scratch, each["number"], each["parts"])
                          for each in (before, s)))  # fmt: skip
            s["seam"] = clocks.between(before["last"], s["first"], said)
            s["behind"] = before["number"]
        if not before or s["last"] > before["last"]:
            latest[s["gateway"]] = s


def _gateways(found, scratch):
    """The Gateways of captures, by their numbers."""
    gateways = clocks.Gateways()
    for first, *more in found:
        for s in more:
            gateways.join(first["number"], s["number"])
    ids = [pairs(between.keys(scratch, s["number"], s["parts"])) for each in found for s in each]
    files = np.repeat([s["number"] for each in found for s in each], [len(i) for i in ids])
    ids = np.concatenate(ids) if ids else np.zeros(0, np.uint64)
    order = np.argsort(ids, kind="stable")
    same = ids[order][1:] == ids[order][:-1]
    both = np.stack([files[order][:-1][same], files[order][1:][same]], axis=1)
    for file, other in np.unique(both, axis=0).tolist() if len(both) else ():
        gateways.join(file, other)
    return gateways


def pairs(keys):
    """A number for each pair of endpoints, each once. keys: rows of layout.KEY."""
    ports = keys["ap"].astype(np.uint64) << 16 | keys["bp"].astype(np.uint64)
    return np.unique(keys["hash"].astype(np.uint64) << 32 | ports)


def said_of(members, names):
    """Rows for note() on captures that are read as one."""
    for s in members[1:]:
        name, other = names[s["number"]], names[members[0]["number"]]
        yield name, "together", WOVEN.format(other)
        if s["ahead"]:
            way = "ahead of" if s["ahead"] > 0 else "behind"
            yield name, "clock", AHEAD.format(abs(s["ahead"]) / 1e9, way, other)


def put_forward(split, names):
    """Rows for note() on clocks that were put forward between two captures."""
    for s in split:
        if (s["seam"][:, 2] > 0).any():
            yield names[s["number"]], "clock", SEAM.format(names[s["behind"]])


def decode(bucket, buckets, plan, scratch, out):
    """Second pass of one bucket. plan: what plan() gives. Returns {table: rows}, and under
    "repeats" Rows.repeats."""
    tables = Tables(out, f"bucket-{bucket:05d}")
    brokers = {(bytes.fromhex(a), p) for a, p in plan["brokers"]}
    decoder = Decoder(tables.add, plan["ports"], brokers, plan["span"], plan["steps"])
    decoder.rows.gateways = clocks.Gateways(plan["gateways"])
    for order, members in enumerate(plan["files"]):
        if len(members) > 1:
            found = woven(members, bucket, scratch, plan["before"][order][bucket])
            decoder.weave(order, found, found.keys["hash"] % buckets == bucket)
            continue
        number, path, name, parts, _ = members[0]
        data = None  # of many small captures most have nothing for this bucket
        for place in range(parts):
            segments = segments_file(scratch, number, place, bucket)
            if segments.exists():
                data = content(path) if data is None else data
                keys = np.fromfile(keys_file(scratch, number, place), KEY)
                mine = keys["hash"] % buckets == bucket
                decoder.add(order, name, data, keys, mine, bunches(segments))
    decoder.finish()
    tables.close()
    return {**tables.rows, "repeats": decoder.rows.repeats}


def woven(members, bucket, scratch, before=0):
    """Files that are read as one, as plan() has them: their segments of a bucket. before: how many
    are in the buckets before it."""
    return Woven([(name, content(path), between.keys(scratch, number, parts),
                   between.segments(scratch, number, parts, bucket), ahead)
                  for number, path, name, parts, ahead in members], before)  # fmt: skip


def _spans(split):
    """[(first, last)] of the times that the captures cover, in order; those that overlap or are
    less than a day apart are one."""
    spans = [(0, 0)][: not any(s["first"] is not None for s in split)]
    for first, last in sorted((s["first"], s["last"]) for s in split if s["first"] is not None):
        if spans and first - spans[-1][1] < APART:
            first, before = spans.pop()
            last = max(last, before)
        spans.append((first, last))
    return spans


def plan(found, paths, names, ports):
    """What every task of the second pass has to know: files, as lists of [(number, path, name,
    parts, ns that its clock is ahead)] that are read as one, in the order of time; before: where
    these are several, how many of their segments are in the buckets before each; ports, brokers,
    span, steps. found: as together() has it."""
    split = [s for members in found for s in members]
    files = [[(s["number"], paths[s["number"]], names[s["number"]], s["parts"], s["ahead"])
              for s in members] for members in found]  # fmt: skip
    counts = [sum(s["of_buckets"] for s in members) for members in found]
    before = [(np.cumsum(count) - count).tolist() if len(members) > 1 else None
              for members, count in zip(found, counts)]  # fmt: skip
    return {"files": files, "before": before,
            "ports": list(ports), "span": _spans(split),
            "gateways": [members[0]["gateway"] for members in found],
            "steps": np.concatenate([
                clocks.NONE, *(clocks.of_file(s[name], order) for name in ("steps", "seam")
                               for order, members in enumerate(found) for s in members)]),
            "brokers": sorted({b for s in split for b in s["brokers"]})}  # fmt: skip


def note(files, split, out):
    """Rows on files that cannot be read [(file, problem, what)], and on headers of frames, of
    [(name, result of whole())]."""
    tables = Tables(out, "input")
    if files:
        tables.add("problems", columns.files(files))
    for name, found in split:
        tables.add("problems", columns.problems(found["headers"], {0: name}))
        tables.add("problems", columns.stepped(name, found["steps"]))
        if not found["frames"]:
            tables.add("problems", columns.files([(name, "empty", EMPTY)]))
        unread = columns.unread(name, found["unread"])
        for what in unread["what"].to_pylist():
            log.warning("%s: %s", name, what)
        tables.add("problems", unread)
    tables.close()


def sum_timeline(out):
    """Make one file of the timeline, with one row for what several tasks counted of a kind of
    packet in the same time; in order of sender, type, time."""
    files = sorted(Path(out, "timeline").glob("*.parquet"))
    if not files:
        return
    same = ["sender", "type", "time"]
    every = pa.concat_tables([pq.read_table(f).cast(columns.TIMELINE) for f in files])
    found = every.group_by(same, use_threads=False).aggregate([("packets", "sum")])
    found = found.rename_columns({"packets_sum": "packets"}).sort_by(
        [(name, "ascending") for name in same])  # fmt: skip
    for file in files:
        file.unlink()
    tables = Tables(out, "all")
    tables.add("timeline", found.select(columns.TIMELINE.names))
    tables.close()


def _tables_of(folder, name, schema, part="*"):
    """All rows of a table that is being made, or those of a part."""
    found = [pq.read_table(path).cast(schema)
             for path in sorted(Path(folder, name).glob(f"{part}.parquet"))]  # fmt: skip
    return pa.concat_tables([schema.empty_table(), *found])


def _whole_messages(out, idents, part, parts):
    """The rows of joining.BETWEEN with these packet ids, of one part of the clients."""
    found = [joining.BETWEEN.empty_table()]
    for path in sorted(Path(out, "flows").glob("part-*.parquet")):
        if not path.name.startswith("part-joined-"):
            rows = pq.read_table(path, columns=joining.BETWEEN.names,
                                 filters=pc.field("packet_id").isin(idents))  # fmt: skip
            found.append(summaries.share(rows.cast(joining.BETWEEN), part, parts))
    return pa.concat_tables(found)


def join(part, parts, out, steps):
    """Write the messages, and their latencies, of one part of the clients whose exchanges may have
    gone on in another connection. steps: as plan() has them."""
    pieces = [columns.PIECES.empty_table()]
    for path in sorted(Path(out, "_pieces").glob("*.parquet")):
        pieces.append(summaries.share(pq.read_table(path).cast(columns.PIECES), part, parts))
    flows = joining.joined(pa.concat_tables(pieces), steps,
                           lambda idents: _whole_messages(out, idents, part, parts))  # fmt: skip
    tables = Tables(out, f"joined-{part:05d}")
    tables.add("flows", flows)
    tables.add("latencies", joining.latencies(flows))
    tables.close()


def repeated(out):
    """Write the violations of what was sent again on the next connection."""
    pieces = _tables_of(out, "_pieces", columns.PIECES)
    connections = _tables_of(out, "connections", columns.CONNECTIONS)
    tables = Tables(out, "repeated")
    tables.add("violations", joining.sent_again(pieces, connections))
    tables.close()


def _share(folder, name, part, parts, clients):
    """The rows of a table that summaries are made from, as far as they are of a part."""
    schema = summaries.TABLES[name]
    found = [pa.schema([schema.field(n) for n in summaries.NEEDED[name]]).empty_table()]
    for path in sorted(Path(folder, name).glob("*.parquet")):
        rows = pq.read_table(path, columns=summaries.NEEDED[name]).cast(found[0].schema)
        rows = summaries.share(rows, part, parts)
        if name == "latencies" and not clients:
            rows = summaries.without_clients(rows).select(rows.column_names)
        found.append(rows)
    return pa.concat_tables(found)


def summarise(name, part, parts, out):
    """Write the summary `name` of one part of the clients, from the tables in the folder."""
    clients = "client_id" in summaries.GROUPS[name]
    rows = {t: _share(out, t, part, parts, clients) for t in summaries.NEEDED}
    tables = Tables(out, f"{part:05d}")
    tables.add(name, summaries.summary(name, rows))
    tables.close()


def _doubt(out, brokers):
    """Take back that brokers of which the captures have nothing never answered. brokers: as
    sides.unheard() has them."""
    for path in sorted(Path(out, "connections").glob("*.parquet")) if len(brokers) else ():
        rows = sides.doubted(pq.read_table(path), brokers)
        if rows:
            with _writer(path, rows.schema) as file:
                file.write_table(rows)


def find(out, steps):
    """Write the findings, from the tables of connections and of latencies, and which direction of
    connections is missing. steps: as plan() has them."""
    tables = Tables(out, "all")
    connections, latencies = (_tables_of(out, name, columns.TABLES[name])
                              for name in ("connections", "latencies"))  # fmt: skip
    tables.add("findings", findings(connections, latencies, steps))
    tables.add("problems", sides.one_way(connections))
    tables.close()
    _doubt(out, sides.unheard(connections))


_modules = 0  # when garbage was last collected here


def settle():
    """To be called when a task is over. Spark's worker collects garbage after each task and goes
    through all that imports have made, which takes 10 to 30 ms: that stays, also what a later step
    of the audit imports."""
    global _modules
    if _modules != len(sys.modules):
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
