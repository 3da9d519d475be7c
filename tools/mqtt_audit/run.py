"""An audit from its captures to its report: first pass, second pass, exchanges across connections,
summaries.

Knows: the order of the steps, folders. Must not know: bytes of captures, where tasks run
(cores.py).

Everything is written below OUT/_staging, the report too, and put in place at the end (folder.py).
"""

import filecmp
import json
import logging
import os
import shutil
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from . import folder, worker
from .capture.files import NotACapture, magic, shown
from .capture.sizes import bytes_of, packed
from .capture.unpacking import TOLD
from .compiled.layout import P_SHORT
from .cores import Here, Spark
from .flows import joining
from .folder import Refused
from .report import summaries
from .report.columns import MARK, TABLES
from .report.lines import nothing
from .warming import warm

log = logging.getLogger("umqtt.audit")

#: Bytes of a folder's name with which its sockets' paths still fit on every system (104 on macOS):
#: Spark names them "/.", 36 characters, ".sock".
SOCKET_FOLDER = 60
BUCKET_BYTES = 128 << 20  #: of capture per task of the second pass
MAX_BUCKETS = 1024
HEADER = 24  #: bytes of a pcap file without frames
ALIKE = 1 << 10  #: first bytes of captures by which copies are looked for
TASKS = 2  #: of the first pass, per core: between two of them a worker loses 10 ms
PART_BYTES = 16 << 20  #: a part of a file is not smaller
SUMMED = 4 << 20  #: rows that one task makes summaries of
DRAWN = 1 << 17  #: of which the summary takes as long as a part of the report
SMALL = 48 << 20  #: bytes of captures that are audited faster by one core than Spark starts


@contextmanager
def sockets():
    """Settings of a session made for an audit: Unix sockets between Spark and its workers, for
    over TCP each task's small packets wait 40 ms for one another. They lie in a folder of their
    own, which is removed at the end: Java's folder may have a name too long for a socket. No
    settings, which means TCP, if the system's temporary folder has one as well, or under
    spark-submit, where workers may be on other computers."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="umqtt-", ignore_cleanup_errors=True) as folder:
        short = len(os.fsencode(folder)) <= SOCKET_FOLDER
        yield {"spark.python.unix.domain.socket.enabled": "true",
               "spark.python.unix.domain.socket.dir": folder} if short else {}  # fmt: skip


def readable(paths):
    """(captures, [(file, why it cannot be read)])."""
    good, bad = [], []
    for path in dict.fromkeys(str(Path(p).absolute()) for p in paths):
        try:
            magic(path)
            good.append(path)
        except NotACapture as error:
            bad.append((shown(path), str(error)))
    return good, bad


def _twice(paths):
    """Raise Refused if two of the paths lead to one file, which would be counted twice."""
    known = {}
    for path in paths:
        found = os.stat(path)
        first = known.get((found.st_dev, found.st_ino))
        if first:
            said = "is given twice" if path == first else f"is the same file as {first}"
            raise Refused(f"{path}: {said}; name each capture once")
        known[found.st_dev, found.st_ino] = path


def _same_bytes(paths):
    """Raise Refused if two captures are copies. Those of which one is packed are read as one."""
    sizes = Counter(map(os.path.getsize, paths))
    known = {}
    for path in paths:
        size = os.path.getsize(path)
        if sizes[size] == 1 or size <= HEADER or magic(path)[0] != "pcap":
            continue
        with open(path, "rb") as file:  # of many captures of one size few begin alike
            head = file.read(ALIKE)
        for other in known.setdefault((size, head), []):
            if filecmp.cmp(path, other, shallow=False):
                raise Refused(f"{path}: is a copy of {other}; name each capture once")
        known[size, head].append(path)


def check(paths, out):
    """Raise Refused if no capture can be read, one is given twice, or OUT is not to be written
    (folder.check)."""
    good, bad = readable(paths)
    if not good:
        raise Refused("\n".join(why for _, why in bad))
    _twice([str(p) for p in paths if os.path.exists(p)])
    folder.check(out, good)


@contextmanager
def begun(paths, out):
    """An audit of the captures `paths` into OUT may be made as long as this lasts: check() has
    nothing against it, and no other audit works there. Raises Refused."""
    check(paths, out)
    with folder.alone(out):
        folder.check(out)  # the one that was made here until now may have ended meanwhile
        yield


def small(paths):
    """Whether one core is enough for the captures `paths`."""
    good, _ = readable(paths)
    return sum(map(bytes_of, good)) <= SMALL


def _dealt(sizes, hands):
    """Indices of `sizes` dealt out to so many hands at most, of about the same size each."""
    dealt = [[0, k, []] for k in range(hands)]
    for k in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        least = min(dealt)
        least[0] += sizes[k]
        least[2].append(k)
    return [mine for _, _, mine in dealt if mine]


def in_order(split):
    """Files by the time of their first frame, those that begin together by their number."""
    return sorted(split, key=lambda s: (s["first"] is None, s["first"], s["number"]))


class Audit:
    """An audit of `paths` into the folder `out`. spark: a session, or None: in this process.
    ports: of brokers, beside those found by their CONNECT; names: {path: what it is called
    instead}. Step by step, so that a benchmark can time the steps."""

    def __init__(self, spark, paths, out, ports=(1883,), names=None):
        self.work, self.ports = Spark(spark) if spark else Here(), ports
        good, self.unread = readable(paths)
        self.paths = sorted(good)  # what is made of them does not depend on the order given
        self.names = [shown((names or {}).get(path, path)) for path in self.paths]
        self.out = Path(out).absolute()
        self.split, self._wrong, self._steps = [], [], None
        self.rows = {}

    def packets(self):
        """Both passes: packets, connections, exchanges within a connection, violations."""
        _same_bytes(self.paths)
        staging = folder.staged(self.out)
        self.tables, self.scratch = staging / "tables", staging / "scratch"
        for made in (self.tables, self.scratch):
            made.mkdir()
        paths, names, scratch, tables = self._unpacked(), self.names, *map(
            str, (self.scratch, self.tables))  # fmt: skip
        size = sum(os.path.getsize(p) for p in paths)
        cores = self.work.cores
        buckets = min(MAX_BUCKETS, max(3 * cores, -(-size // BUCKET_BYTES)))
        parts = self._parts(paths, size, cores)
        hands = _dealt([bytes_ for *_, bytes_ in parts], TASKS * cores)

        def split(k):
            return [worker.split(number, paths[number], names[number], buckets, scratch, tables,
                               place, part)
                    for number, place, part, _ in (parts[j] for j in hands[k])]  # fmt: skip

        with self.work.progress("reading headers", len(hands)):
            found = [f for task in self.work.tasks(len(hands), split) for f in task]
        of_file = {k: [] for k in range(len(paths))}
        for made in found:
            of_file[made["number"]].append(made)
        self.split = in_order([worker.whole(made) for made in of_file.values()])
        together = worker.together(self.split, self.ports, scratch, buckets)
        wrong = [(file, "no capture", why) for file, why in self.unread] + self._wrong
        said = [each for members in together for each in worker.said_of(members, names)]
        for name, problem, what in (*said, *worker.put_forward(self.split, names)):
            log.warning("%s: %s", name, what)
            wrong.append((name, problem, what))
        worker.note(wrong, [(names[s["number"]], s) for s in self.split], tables)
        plan = worker.plan(together, paths, names, self.ports)
        self._steps = plan["steps"]
        # The largest one first: so the cores end at about the same time.
        order = np.argsort(-sum(s["of_buckets"] for s in self.split)).tolist()
        with self.work.progress("decoding", buckets):
            made = self.work.tasks(buckets, lambda k: worker.decode(
                order[k], buckets, plan, scratch, tables))  # fmt: skip
        for rows in made:
            for table, n in rows.items():
                self.rows[table] = self.rows.get(table, 0) + n
        shutil.rmtree(self.scratch)

    def _unpacked(self):
        """Where the captures lie, those of gzip unpacked."""
        paths, scratch = list(self.paths), str(self.scratch)
        todo = [k for k, path in enumerate(paths) if packed(path)]
        for made in self.work.tasks(len(todo), lambda k: worker.unpack(
                todo[k], paths[todo[k]], scratch)):  # fmt: skip
            if made["wrong"]:
                what = TOLD.format(made["wrong"])
                self._wrong.append((self.names[made["number"]], "gzip", what))
            paths[made["number"]] = made["path"]
        return paths

    def _parts(self, paths, size, cores):
        """What the first pass can do side by side: [(number of the file, place, part, bytes)]. A
        file that would keep a core busy when the others have nothing to do is cut."""
        sizes, names, tables = [os.path.getsize(p) for p in paths], self.names, str(self.tables)
        each = max(PART_BYTES, -(-size // (TASKS * cores)))
        large = [k for k, n in enumerate(sizes) if n > 2 * each and cores > 1]
        with self.work.progress("looking for frames", len(large)):
            cut = self.work.tasks(len(large), lambda k: worker.cut(
                large[k], paths[large[k]], names[large[k]], each, tables))  # fmt: skip
        parts = [(k, 0, None, n) for k, n in enumerate(sizes) if k not in large]
        for made in cut:
            parts += [(made["number"], place, part, each)
                      for place, part in enumerate(made["parts"])]  # fmt: skip
        return parts

    def complete(self):
        """Exchanges across connections, summaries, report; then all is put in place."""
        from .report import page

        worker.sum_timeline(self.tables)
        if self.rows.get("_pieces"):
            self._join()
        parts = self._summarise()
        worker.find(self.tables, self._steps)
        self._only_tables()
        (self.tables / MARK).write_text(json.dumps(self.facts(), indent=1) + "\n")
        page.build(self.tables, self.tables / folder.REPORT, parts)
        folder.place(self.tables, self.out)
        folder.discard(self.out)

    def _join(self):
        """Exchanges that may go on in another connection, in parts of the clients."""
        parts, tables = -(-self.rows["_pieces"] // SUMMED) or 1, str(self.tables)
        steps = self._steps
        self.work.tasks(parts, lambda k: worker.join(k, parts, tables, steps))
        if self.rows.get("repeats"):
            self.work.tasks(1, lambda _: worker.repeated(tables))

    def _summarise(self):
        """Make the summaries; returns the report's PARTS, which are made beside them."""
        from .report.page import PARTS

        counted = sum(self.rows.get(t, 0) for t in summaries.TABLES)
        parts, tables = -(-counted // SUMMED) or 1, str(self.tables)
        todo = [(name, 0, 1) for name in PARTS]
        todo += [("devices", k, parts) for k in range(parts)] + [("brokers", 0, 1)]
        sizes = [DRAWN if name in PARTS else counted // parts for name, *_ in todo]
        hands = _dealt(sizes, max(parts, self.work.cores))

        def task(hand):
            made = {}
            for name, part, of in (todo[k] for k in hands[hand]):
                if name in PARTS:
                    made[name] = PARTS[name](tables)
                else:
                    worker.summarise(name, part, of, tables)
            return made

        done = self.work.tasks(len(hands), task)
        return {name: part for made in done for name, part in made.items()}

    def _only_tables(self):
        """Every table has a file, if without rows, and nothing else is beside them."""
        shutil.rmtree(self.tables / "_pieces", ignore_errors=True)
        schemas = TABLES | {name: summaries.schema(name) for name in summaries.GROUPS}
        for name, schema in schemas.items():
            made = self.tables / name
            made.mkdir(exist_ok=True)
            if not any(made.iterdir()):
                joining.write_empty(schema, made / "part-none.parquet")

    def cut_frames(self):
        """Of how many frames the captures kept only the beginning."""
        found = np.concatenate([s["headers"] for s in self.split])
        return int(found["count"][found["kind"] == P_SHORT].sum())

    def facts(self):
        """Files, frames, and how many of them were cut, for the report."""
        return {"files": [{"file": self.names[s["number"]], **{k: s[k] for k in (
            "frames", "segments", "bytes", "first", "last")}} for s in self.split],
            "ports": list(self.ports), "cut": self.cut_frames()}  # fmt: skip


def build(spark, paths, out, ports=(1883,)):
    """Make the whole audit with its report; spark: as Audit's. Raises Refused."""
    with begun(paths, out):
        make(spark, paths, out, ports)


def make(spark, paths, out, ports=(1883,), names=None):
    """The same between begun() and its end."""
    warm()
    audit = Audit(spark, paths, out, ports, names)
    for _, why in audit.unread:
        log.warning("left out: %s", why)
    started = time.monotonic()
    try:
        audit.packets()
        packets = audit.rows.get("packets", 0)
        log.info("frames: %d, MQTT packets: %d, in %.1f s", sum(s["frames"] for s in audit.split),
                 packets, time.monotonic() - started)  # fmt: skip
        audit.complete()
    except BaseException:
        folder.discard(out)
        raise
    if not packets:
        log.warning("%s; the report says where to look", nothing(audit.cut_frames()))
    log.info("wrote %s", Path(out, folder.REPORT))
