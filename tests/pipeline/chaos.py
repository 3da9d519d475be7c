"""make chaos: bridge, driver, workers and broker are killed at random instants, and the tables
come out as if nothing had happened. `python tests/pipeline/chaos.py [--kills N] [--seed N]`.

A fleet publishes readings and keeps each until the bridge's mark covers it, as the firmware does.
Meanwhile SIGKILL hits, by turns in an order that the seed gives: the bridge, the driver of ingest
with its JVM, a Python worker of Spark, the broker (which forgets everything), and the driver just
after a batch, which is when it compacts. Then the same spool goes through an ingest that nobody
disturbs, and all tables are compared, row by row, by pyarrow and by Spark; silver and clock hold
exactly what the fleet has taken. Exit status 1 if they differ.

Knows: processes, what was taken. Must not know: how anything is written.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import paho.mqtt.client as mqtt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "audit")]

import brokers  # noqa: E402
import process_starts  # noqa: E402
from pipeline_kit import (  # noqa: E402
    NOON,
    QUICK,
    clock,
    end,
    family,
    run,
    senml,
    spawn,
    topic,
    wait_for,
)
from pipeline_tables import tables  # noqa: E402
from umqtt_pipeline.spool import consumers  # noqa: E402

TURNS = ("compact", "bridge", "worker", "broker", "driver")
DEVICES = 3
PATIENCE = 600  # a machine may be very busy


class Fleet:
    """Some devices on one connection; a reading is kept until the mark covers it."""

    def __init__(self, port, rate=40):
        self.taken = {f"c{n}": [] for n in range(DEVICES)}  # payloads, by sequence number - 1
        self.upto = dict.fromkeys(self.taken, 0)
        self.moved = time.monotonic()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "chaos-fleet")
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = lambda c, *_: c.subscribe("fleet/g/+/ack", 1)
        self.client.on_message = self._told
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self._thread = threading.Thread(target=self._live, args=(1 / rate,), daemon=True)
        self._thread.start()

    def _told(self, _client, _data, message):
        device, mark = message.topic.split("/")[2], json.loads(message.payload)
        with self._lock:
            if mark["upto"] > self.upto[device]:
                self.upto[device] = mark["upto"]
                self.moved = time.monotonic()

    @staticmethod
    def _epoch(device):
        return bytes(7) + device[-1:].encode()

    def _live(self, pause):
        names = list(self.taken)
        while not self._stop.wait(pause):
            with self._lock:
                device = names[sum(map(len, self.taken.values())) % len(names)]
                number = len(self.taken[device]) + 1
                self.taken[device].append(self._reading(device, number))
                self._publish(device, number)
            self._again()

    def _reading(self, device, number):
        """Every 40th is a boot's clock, which comes after readings of its boot."""
        boot = 1 + number // 60
        more = {"device": device, "epoch": self._epoch(device), "boot": boot}
        if number % 60 == 40:
            return clock(number, NOON // 1_000_000 + number, **more)
        return senml(number, **more)

    def _publish(self, device, number):
        self.client.publish(topic(device), self.taken[device][number - 1], 1)

    def _again(self):
        """Publish what is not covered once more when the marks stand still."""
        if time.monotonic() - self.moved < 2 or not self.client.is_connected():
            return
        with self._lock:
            for device, held in self.taken.items():
                for number in range(self.upto[device] + 1, len(held) + 1):
                    self._publish(device, number)
            self.moved = time.monotonic()

    def finish(self):
        """Take no more readings; wait until every one is covered."""
        self._stop.set()
        self._thread.join()
        until = time.monotonic() + PATIENCE
        while any(self.upto[d] < len(held) for d, held in self.taken.items()):
            if time.monotonic() > until:
                raise AssertionError(f"marks {self.upto}, taken "
                                     f"{ {d: len(h) for d, h in self.taken.items()} }")
            time.sleep(0.1)
            self._again()
        self.client.disconnect()
        self.client.loop_stop()


class Chaos:
    """One campaign in `folder`; say: where progress goes."""

    def __init__(self, folder, seed, say=print):
        self.folder, self.say = Path(folder), say
        self.choose = random.Random(seed)
        self.spool, self.tables = self.folder / "spool", self.folder / "tables"
        self.broker = brokers.Broker("mosquitto" if brokers.find_mosquitto() else "iotcore")
        self.log = self.folder / "ingest.log"
        self.bridge = self._bridge()
        wait_for(lambda: (self.spool / "spool.json").exists(), PATIENCE, "the spool")
        consumers.register(self.spool, "keep", 0)  # for the undisturbed run
        self.ingest = self._ingest()

    def _bridge(self):
        return spawn("bridge", "--broker", f"127.0.0.1:{self.broker.port}", "--spool", self.spool,
                     "--segment-bytes", 16_384, log=self.folder / "bridge.log")  # fmt: skip

    def _ingest(self):
        return spawn("ingest", "--spool", self.spool, "--tables", self.tables, "--interval", 0.5,
                     "--compact-files", 2, *QUICK, log=self.log)  # fmt: skip

    def _batches(self):
        return self.log.read_text().count("ingest: batch ") if self.log.exists() else 0

    def _batch(self):
        """Wait until ingest finishes one more batch, so that each kill finds it at work."""
        before = self._batches()
        wait_for(lambda: self.ingest.poll() is not None or self._batches() > before, PATIENCE,
                 "a batch")  # fmt: skip
        assert self.ingest.poll() is None, self.log.read_text()[-3000:]

    def kill(self, what):
        self._batch()
        time.sleep(self.choose.uniform(0, 0.4 if what == "compact" else 2))
        pause = self.choose.uniform(0, 1)
        if what == "bridge":
            end(self.bridge, signal.SIGKILL)
            time.sleep(pause)
            self.bridge = self._bridge()
        elif what == "broker":
            self.broker.kill()
            time.sleep(pause)
            self.broker.start()
        elif what == "worker":
            os.kill(wait_for(self._workers, PATIENCE, "a worker")[0], signal.SIGKILL)
        else:
            end(self.ingest, signal.SIGKILL)
            time.sleep(pause)
            self.ingest = self._ingest()

    def _workers(self):
        """Process ids of Spark's Python workers below this ingest, in random order."""
        found = [pid for pid, line in family(self.ingest.pid) if b"-m\0pyspark." in line]
        self.choose.shuffle(found)
        return found

    def run(self, kills, calm=None):
        """The campaign; raises AssertionError where a table is not as it should be.

        calm  function(root): an ingest that nobody disturbs makes the tables below root of the
              spool, by default a command of its own
        """
        fleet = Fleet(self.broker.port)
        for number in range(kills):
            what = TURNS[number % len(TURNS)]
            self.kill(what)
            self.say(f"{number + 1} of {kills}: {what} killed")
        fleet.finish()
        assert end(self.bridge, seconds=PATIENCE) == 0
        self._batch_end()
        self.check(fleet, calm or self._once)

    def _batch_end(self):
        """End ingest in good order, then take what is left."""
        end(self.ingest, seconds=PATIENCE)
        self._once(self.tables, "--compact-files", 2)

    def _once(self, root, *more):
        done = run("ingest", "--once", "--spool", self.spool, "--tables", root, "--consumer",
                   f"once-{root.name}", *more, *QUICK, timeout=PATIENCE)  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    def check(self, fleet, undisturbed):
        calm = self.folder / "calm"
        undisturbed(calm)
        found, expected = tables(self.tables), tables(calm)
        for name in expected:
            assert found[name] == expected[name], f"{name} differs from the undisturbed run"
        come = Counter((r["device"], r["sequence"]) for name in ("silver", "clock")
                       for r in found[name])  # fmt: skip
        assert come == Counter((d, n + 1) for d, held in fleet.taken.items()
                               for n in range(len(held)))  # fmt: skip
        self.say("pyarrow: " + ", ".join(f"{name} {len(rows)}" for name, rows in found.items()))

    def stop(self):
        for process in (self.ingest, self.bridge):
            if process.poll() is None:
                process.kill()
                process.wait()
        self.broker.stop()


def same_for_spark(spark, one, other):
    """Compare all tables below two folders as Spark reads them; raises AssertionError."""
    from umqtt_pipeline.ingest.query import COLUMNS
    from umqtt_pipeline.tables.store import Tables

    mine, calm = Tables(one, COLUMNS), Tables(other, COLUMNS)
    for name in COLUMNS:
        a, b = (held.read(spark, name).drop("batch") for held in (mine, calm))
        assert not a.exceptAll(b).head(1) and not b.exceptAll(a).head(1), f"{name} differs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="gives the same order again")
    parser.add_argument("--starts", type=int, default=0,
                        help="instead: so many commands are ended, or their Java, at any moment")
    arguments = parser.parse_args()
    if arguments.kills < 1 or arguments.starts < 0:
        parser.error("--kills: at least 1")
    seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="umqtt-chaos-")
    if arguments.starts:
        process_starts.campaign(folder, random.Random(seed), arguments.starts,
                        lambda text: print(text, flush=True))
        shutil.rmtree(folder)
        return 0
    campaign = Chaos(folder, seed, lambda text: print(text, flush=True))
    try:
        campaign.run(arguments.kills)
        from umqtt_runtime.session import session

        spark = session("chaos")
        same_for_spark(spark, campaign.tables, Path(folder, "calm"))
        print("Spark: the same")
    except AssertionError as error:
        print(f"FAILED (seed {seed}, files in {folder}): {error}", file=sys.stderr)
        return 1
    finally:
        campaign.stop()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
