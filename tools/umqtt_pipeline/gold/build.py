"""Gold: what an analyst and an operator ask first, of silver, clock, duplicates and quarantine.

Knows which days have changed since the last run, which files stay and which are made, and that
all is decided at one instant. Must not know spools, nor what a row says (days.py, fleet.py,
events.py).

A run reads the days of receipt whose files are not those of the last run: days.py keeps of each
what can be merged. gold_minute is replaced for the days whose readings are not the same, the other
tables are small and made of what is kept. To make all anew is the same with nothing kept.

    TABLES/_gold/intents/    which run was the last, and what each day was made of
"""

import hashlib
import json
import logging

import pyarrow.compute as pc
from pyspark.sql import functions as F
from umqtt_runtime import progress

from ..ingest import deleted, ledger
from ..spool.files import SpoolError
from ..tables import intents
from ..tables.schema import ALL, SEEN, ddl
from ..tables.store import Tables
from . import days, events, fleet
from .schema import MADE, OF_DAYS, TABLES

log = logging.getLogger("umqtt.gold")

DAILY = ("silver", "clock", "duplicates", "quarantine")  #: what a day is made of, beside batches
NAME = "_gold/intents"
VERSION = 3  #: of how rows are made: raised when the same readings give other rows
#: days: what each day of receipt was made of, as `made_of` says;  form: as `form` says
NONE = {**intents.NONE, "days": {}, "form": None}
CHUNK_ROWS = 20_000_000  #: so many rows of silver are worked on together, or one day of more
FILE_ROWS = 2_000_000  #: of silver, whose minutes go into one file


def build(spark, root, anew=False):
    """Bring all gold tables up to date with the tables below `root`; returns {table: rows}. An
    ingest or a compaction may work at the same time.

    anew: read all days, whatever is kept of them

    Raises InUse if another gold has done so meanwhile.
    """
    tables = Tables(root, {**ALL, **MADE}, owner="gold")
    tables.clean(older_than=86_400)
    with progress.Watch(spark, "gold") as watch:
        return _Run(spark, tables, watch, anew).run()


def form():
    """What the tables are like: VERSION, their names, columns and types. After another form all is
    made anew, or a new column would be null for every day that has not changed."""
    return f"{VERSION} {hashlib.sha256(json.dumps(MADE).encode()).hexdigest()[:16]}"


def made_of(files):
    """{day of receipt: digest of what it is made of}. files: {table: [File]}; no name of a file is
    used twice.

    A batch of which no row is in `batches`, not yet or no more, has no time of its commit: of
    silver's files it counts from where to where their batches have one.
    """
    ends = [end for file in files["batches"] for told in (file.told.least, file.told.greatest)
            if (end := told.get("batch")) is not None] or [0, -1]  # fmt: skip
    found = {}
    for name in DAILY:
        for file in files[name]:
            text = f"{name}/{file.path}"
            if name == "silver":
                least = max(file.told.least.get("batch", 0), min(ends))
                greatest = min(file.told.greatest.get("batch", max(ends)), max(ends))
                text += f" {least} {greatest}" if least <= greatest else " none"
            found.setdefault(file.day, []).append(text)
    return {day: hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]
            for day, texts in found.items()}  # fmt: skip


def lacking(held, batches):
    """How many readings silver has not, though `batches` tells that they were put there: (how
    many, first and last number of such a batch, None for none).

    held: rows of gold_day, an Arrow table;   batches: such a one, read before silver, or it tells
    of readings that silver did not have yet
    """
    held = held.group_by("batch").aggregate([("readings", "sum")])
    told = batches.group_by("batch").aggregate([("readings", "max")])
    both = told.join(held, "batch")
    less = pc.subtract(both["readings_max"], pc.fill_null(both["readings_sum"], 0))
    both = both.append_column("less", less).filter(pc.greater(less, 0))
    ends = pc.min_max(both["batch"]).as_py()
    return pc.sum(both["less"], min_count=0).as_py(), ends["min"], ends["max"]


class _Intents(intents.Intents):
    """What gold has decided. Tables that somebody has removed or put back are made anew."""

    advice = "all is made anew"

    def __init__(self, tables):
        super().__init__(tables, NAME, MADE, NONE, "gold")

    @classmethod
    def of(cls, tables):
        try:
            return cls(tables)
        except SpoolError as error:
            log.warning("%s", error)
            tables.storage.remove(NAME)
            return cls(tables)

    def next(self):
        return 1 + max(self.last["number"], *map(self.tables.number, MADE))

    def days(self):
        """What each day was made of that is in the tables, once the commits of a killed run are
        made; {} if the tables are not those of the last run."""
        if self.last.get("form") != form() or not all(map(self._fits, MADE)):
            return {}
        self.finish()
        return self.last["days"]

    def _fits(self, name):
        held, touched = self.tables.number(name), self.last["touched"].get(name, -1)
        if held == touched:
            return True
        if touched != self.last["number"] or held != self.last["before"].get(name, -1):
            return False
        return self.written(name)  # to be committed


class _Run:
    """One run. held: {table: Files before it}; now: {table: Files after it}; changed: the days of
    receipt that are not what they were."""

    def __init__(self, spark, tables, watch, anew):
        self.spark, self.tables, self.watch = spark, tables, watch
        self.decided = _Intents.of(tables)
        self.before = {} if anew else self.decided.days()
        # `batches` before silver tells what silver has to have, and behind it when all that silver
        # has was whole. The files of a commit stay, whoever compacts meanwhile.
        self.earlier = tables.files("batches")
        self.files = {name: tables.files(name) for name in (*DAILY, "batches")}
        self.days = made_of(self.files)
        self.changed = sorted(day for day in {*self.before, *self.days}
                              if self.before.get(day) != self.days.get(day))  # fmt: skip
        self.held = {name: tables.files(name) for name in MADE}
        if not self.before and not self.changed:  # nothing is left, though something was
            self.changed = sorted({file.day for file in self.held["gold_day"]})
        self.number = self.decided.next()
        self.now = dict(self.held)

    def run(self):
        if self.changed:
            self._read_days()
        self._tell_lacking()
        if self.changed:
            self._make()
            changes = {name: self._change(name) for name in MADE}
            changes = {name: both for name, both in changes.items() if any(both)}
            self.decided.decide("gold", changes, days=self.days, form=form(),
                                anew=not self.before)
            self.decided.finish()
        counts = {name: sum(file.rows for file in self.now[name]) for name in TABLES}
        if counts["conflicts"]:
            log.warning("%s what the reading of the same identity says: both are in the table "
                        "conflicts", _do_not_say(counts["conflicts"]))  # fmt: skip
        return counts

    def _change(self, name):
        """(Files that come, Files that go) of a table."""
        now, held = set(self.now[name]), set(self.held[name])
        return ([file for file in self.now[name] if file not in held],
                [file for file in self.held[name] if file not in now])  # fmt: skip

    def _kept(self, name, changed):
        """The Files of a table that stay when these days of it are replaced."""
        return [file for file in self.held[name] if self.before and file.day not in changed]

    def _input(self, name, chosen):
        """The rows of some days of receipt."""
        chosen = set(chosen)
        files = [file for file in self.files[name] if file.day in chosen]
        return self.tables.read(self.spark, name, files)

    def _output(self, name, files=None):
        """The rows of a table after this run, or of some of its Files."""
        return self.tables.read(self.spark, name, self.now[name] if files is None else files)

    def _store(self, name, rows):
        return self.tables.store(rows, name, self.number)

    def _read_days(self):
        """Have of each changed day what can be merged."""
        changed = set(self.changed)
        new = [day for day in self.changed if day in self.days]
        for name in OF_DAYS:
            self.now[name] = self._kept(name, changed)
        size = dict.fromkeys(new, 0)
        for file in self.files["silver"]:
            if file.day in size:
                size[file.day] += file.rows
        done = 0
        for chunk in _chunks(new, size):
            self.watch.doing(f"days of receipt that are new or have changed, {done} of {len(new)}")
            silver, clock, duplicates, quarantine = (self._input(name, chunk) for name in DAILY)
            batches = self.tables.read(self.spark, "batches", self.files["batches"])
            made = {
                "gold_boot_day": days.boot_days(silver, clock),
                "gold_device_day": days.device_days(silver, duplicates, quarantine, batches),
                "gold_day": days.days(silver),
            }
            tasks = min(len(chunk), self.spark.sparkContext.defaultParallelism)
            for name in OF_DAYS:
                self.now[name] += self._store(name, made[name].repartition(tasks, "date"))
            done += len(chunk)

    def _tell_lacking(self):
        self.watch.doing("comparing silver with what its batches brought")
        last = ledger.newest(self.tables.storage.root).get("expired", {}).get("silver", -1)
        batches = self.tables.load("batches", self.earlier)
        batches = batches.filter(pc.greater(batches["batch"], last))
        found = lacking(self.tables.load("gold_day", self.now["gold_day"]), batches)
        if found[0]:
            log.warning("silver lacks %d readings of batches %d to %d: files were removed, or an "
                        "older copy of its folder was put back; gold is made of what is there",
                        *found)  # fmt: skip

    def _make(self):
        """Make the tables in their order: the last one is made of others."""
        boots = self._output("gold_boot_day").persist()
        made = {
            "gold_boot": fleet.boots, "restarts": events.restarts, "gaps": self._gaps,
            "clock_corrections": events.clock_corrections, "conflicts": self._conflicts,
            "gold_device": self._devices,
        }  # fmt: skip
        try:
            for number, name in enumerate(TABLES, 1):
                self.watch.doing(f"{name}, {number} of {len(TABLES)} tables")
                if name == "gold_minute":
                    self._minutes()
                else:
                    self._replace(name, made[name](boots))
        finally:
            boots.unpersist()

    def _replace(self, name, rows):
        self.now[name] = self._store(name, rows.repartition(1))

    def _gaps(self, boots):
        # Behind the files of silver: what is deleted meanwhile is in both.
        storage = self.tables.storage
        gone = deleted.newest(storage, lambda: ledger.newest(storage.root)["state"])
        return events.gaps(boots, self._output("gold_device_day"),
                           self.spark.createDataFrame(gone, ddl(SEEN)))

    def _devices(self, boots):
        self._replace("gold_latency", self._latency())
        return fleet.devices(boots, *map(self._output, (
            "gold_device_day", "gold_latency", "gaps", "restarts")))  # fmt: skip

    def _pairs(self, files):
        """{(day of receipt, day of readings): (how many, which)} of some Files of gold_day."""
        rows = self.tables.load("gold_day", files).group_by(["date", "minutes_of"]).aggregate(
            [("readings", "sum"), ("digest", "sum")])  # fmt: skip
        return {(str(row["date"]), str(row["minutes_of"])): (
                row["readings_sum"], row["digest_sum"]) for row in rows.to_pylist()}  # fmt: skip

    def _minutes(self):
        """Replace the days of gold_minute whose readings are not the same."""
        old = self._pairs(self._change("gold_day")[1]) if self.before else {}
        new, changed = self._pairs(self.now["gold_day"]), set(self.changed)
        found = {key for key in {*old, *new} if key[0] in changed and old.get(key) != new.get(key)}
        minutes = {day for _, day in found}
        self.now["gold_minute"] = self._kept("gold_minute", minutes)
        size, sources = {}, {}
        for (received, day), (readings, _) in new.items():
            if day in minutes:
                size[day] = size.get(day, 0) + readings
                sources.setdefault(day, []).append(received)
        for chunk in _chunks(sorted(size), size):
            silver = self._input("silver", {day for each in chunk for day in sources[each]})
            silver = silver.where(F.to_date("time").isin(chunk))
            parts = 1 + max(size[day] for day in chunk) // FILE_ROWS
            part = F.pmod(F.xxhash64(*days.DEVICE), F.lit(parts))
            rows = fleet.minute(silver).repartition(len(chunk) * parts, "date", part)
            self.now["gold_minute"] += self._store("gold_minute", rows)

    def _conflicts(self, boots):
        """Those of copies and readings whose days are as they were stay; the others are found
        where the days kept have copies and readings of one number."""
        before = self.held["conflicts"] if self.before else []
        same = [~F.to_date(name).isin(self.changed) for name in ("received_at", "first_received")]
        kept = self._output("conflicts", before).where(same[0] & same[1])
        if not self.files["duplicates"]:
            return kept
        devices = self._output("gold_device_day")
        pairs = events.copies_of(boots, devices, self.changed).collect()
        copies = self._input("duplicates", {str(row["copied"]) for row in pairs})
        silver = self._input("silver", {str(row["kept"]) for row in pairs})
        return kept.union(events.conflicts(silver, copies).where(~(same[0] & same[1])))

    def _latency(self):
        """Those of all days: of the days that changed the old ones go, and the new ones come."""
        new, gone = self._change("gold_device_day")
        parts = [(1, self._output("gold_device_day", new))]
        if self.before:
            parts += [(1, self._output("gold_latency", self.held["gold_latency"])),
                      (-1, self._output("gold_device_day", gone))]  # fmt: skip
        return fleet.latency(*parts)


def _do_not_say(copies):
    return "1 copy does not say" if copies == 1 else f"{copies} copies do not say"


def _chunks(chosen, rows):
    """Lists of days that follow each other, of about CHUNK_ROWS rows together; rows: {day: number}
    """
    held, count = [], 0
    for day in chosen:
        held.append(day)
        count += rows[day]
        if count >= CHUNK_ROWS:
            yield held
            held, count = [], 0
    if held:
        yield held
