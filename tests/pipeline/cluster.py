"""make cluster: bridges, Spark and tables on machines of their own, all of which are lost at some
time. `python tests/pipeline/cluster.py [--messages N] [--rounds N] [--seed N]`.

A fleet publishes readings and keeps each until a mark covers it, as the firmware does. Two bridges
share its subscription; each ships its spool to an object store. Ingest runs on a standalone Spark
cluster of two workers, by spark-submit with the packages shipped: it reads the logs and writes
the tables in the object store. Meanwhile SIGKILL hits, by turns: an executor; the driver of
ingest, whose disk is deleted; a bridge, whose disk is deleted; a worker. Each is replaced by
another one that has nothing of its files. In the end silver has each reading once. Exit status 1
if not.

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
from object_store import BUCKET, ObjectStore  # noqa: E402
from patience import wait_until  # noqa: E402
from pipeline_kit import end, killed, senml, spawn, topic  # noqa: E402
from spark_cluster import SparkCluster, ended  # noqa: E402
from umqtt_pipeline.spool import shipped  # noqa: E402
from umqtt_pipeline.tables.store import dataset  # noqa: E402

TURNS = ("executor", "driver", "bridge", "worker")
PATIENCE = 150  # a machine may be very busy
BRIDGES = 2
AGAIN_S = 5.0  #: a device publishes again what no mark has covered for so long
STEP_S = 0.2  #: the fleet takes readings so often
AGAIN = 300  #: so many of them at once


class Fleet:
    """Devices on one connection, each of which takes its share of `messages` readings."""

    def __init__(self, port, messages, rate, devices=40):
        share = -(-messages // devices)
        self.names = [f"d{n}" for n in range(devices)]
        self.taken = dict.fromkeys(self.names, 0)
        self.goal = {name: min(share, messages - n * share)
                     for n, name in enumerate(self.names)}  # fmt: skip
        self.upto = dict.fromkeys(self.names, 0)
        self.moved = dict.fromkeys(self.names, time.monotonic())
        self.published = 0
        self.rate = rate
        self.allowed = 0.0  #: share of all readings that may have been taken by now
        self._stop = threading.Event()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "cluster-fleet")
        self.client.max_inflight_messages_set(1000)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = lambda c, *_: c.subscribe("fleet/g/+/ack", 1)
        self.client.on_message = self._told
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _told(self, _client, _data, message):
        device, mark = message.topic.split("/")[2], json.loads(message.payload)
        if mark["upto"] > self.upto[device]:
            self.upto[device] = mark["upto"]
            self.moved[device] = time.monotonic()

    def _publish(self, device, number):
        low = min(self.upto[device] + 1, number)
        payload = senml(number, device=device, low=low)
        self.published += 1
        return self.client.publish(topic(device), payload, 1)

    def _live(self):
        info, each = None, max(1, round(self.rate * STEP_S / len(self.names)))
        while not self._stop.is_set():
            for name in self.names:
                for _ in range(each):
                    if self.taken[name] < int(self.goal[name] * self.allowed):
                        self.taken[name] += 1
                        info = self._publish(name, self.taken[name])
            self._again()
            if info is not None and not info.is_published():
                self._stop.wait(0.05)  # the broker sets the pace
            self._stop.wait(STEP_S)

    def _again(self):
        now = time.monotonic()
        for name, taken in self.taken.items():
            if self.upto[name] < taken and now - self.moved[name] > AGAIN_S:
                self.moved[name] = now
                for number in range(self.upto[name] + 1, min(taken, self.upto[name] + AGAIN) + 1):
                    self._publish(name, number)

    @property
    def covered(self):
        return sum(self.upto.values())

    def finish(self):
        """Wait until all is taken, and every reading is covered."""
        self.allowed = 1.0
        try:
            wait_until(lambda: self.upto == self.goal, PATIENCE, "the marks of all readings")
        finally:
            self.close()

    def close(self):
        self._stop.set()
        self._thread.join()
        self.client.disconnect()
        self.client.loop_stop()


class Campaign:
    """Everything in `folder`; say: where progress goes."""

    def __init__(self, folder, seed, say=print):
        self.folder, self.say = Path(folder), say
        self.choose = random.Random(seed)
        self.begun = time.monotonic()
        self.fleet = self.spark = self.broker = self.store = self.driver = None
        self.bridges, self.lives = [], Counter()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        (self.folder / "store").mkdir()
        self.store = ObjectStore(self.folder / "store")
        os.environ.update(self.store.environment)
        self.log, self.tables = f"s3://{BUCKET}/log", f"s3://{BUCKET}/tables"
        self.broker = brokers.Broker("mosquitto" if brokers.find_mosquitto() else "iotcore")
        others = [self.folder / name for name in ("driver", *(f"bridge-{n}"
                                                              for n in range(BRIDGES)))]
        for folder in (*others, self.folder / "spark"):
            folder.mkdir()
        self.spark = SparkCluster(self.folder / "spark", others, self.store.environment)
        for _ in range(2):
            self.spark.worker()
        self.bridges = [self._bridge(n) for n in range(BRIDGES)]
        self.driver = self._driver()

    def _machine(self, kind):
        """An empty disk for one more life of a bridge or a driver."""
        self.lives[kind] += 1
        path = self.folder / kind / str(self.lives[kind])
        path.mkdir(parents=True)
        return path

    def _bridge(self, number):
        home = self._machine(f"bridge-{number}")
        return spawn("bridge", "--broker", f"127.0.0.1:{self.broker.port}", "--spool",
                     home / "spool", "--topic", "$share/site/fleet/+/+/telemetry", "--client-id",
                     f"bridge-{number}", "--ship", self.log, "--peer", self.log,
                     "--ship-interval", 0.3, "--segment-bytes", 1 << 20,
                     log=self.folder / f"bridge-{number}.log")  # fmt: skip

    def _driver(self):
        home = self._machine("driver")
        return self.spark.submit(
            home, self.folder / "ingest.log", "ingest", "--spool", self.log, "--tables",
            self.tables, "--work", home / "work", "--interval", 1, "--compact-files", 30)

    def _batches(self):
        log = self.folder / "ingest.log"
        return log.read_text().count("messages: ") if log.exists() else 0

    def _batch(self, more=1):
        """Wait until ingest finishes so many batches more, so that each kill finds it at work."""
        before = self._batches()
        wait_until(lambda: self.driver.poll() is not None or self._batches() >= before + more,
                   PATIENCE, "a batch")  # fmt: skip
        assert self.driver.poll() is None, (self.folder / "ingest.log").read_text()[-3000:]

    def kill(self, what):
        """Lose one, and have another one in its place."""
        self._batch()
        time.sleep(self.choose.uniform(0, 1))
        if what == "executor":
            pids = wait_until(self.spark.executors, PATIENCE, "an executor")
            os.kill(self.choose.choice(pids), signal.SIGKILL)
        elif what == "worker":
            killed(self.spark.workers.pop(self.choose.randrange(len(self.spark.workers))))
            self.spark.worker()
        elif what == "driver":
            killed(self.driver)
            shutil.rmtree(self.folder / "driver" / str(self.lives["driver"]))
            self.driver = self._driver()
        else:
            number = self.choose.randrange(BRIDGES)
            killed(self.bridges[number])
            name = f"bridge-{number}"
            shutil.rmtree(self.folder / name / str(self.lives[name]))
            self.bridges[number] = self._bridge(number)
        self.say(f"{time.monotonic() - self.begun:.0f} s: {what} killed; {self.fleet.covered} "
                 f"readings covered, {self._batches()} batches")  # fmt: skip

    def run(self, messages, rate, turns):
        """The campaign; raises AssertionError where silver is not as it should be."""
        self._wait_for_bridges()
        self.spark.check_hidden()
        self.fleet = Fleet(self.broker.port, messages, rate)
        for number, what in enumerate(turns, 1):
            self.fleet.allowed = number / (len(turns) + 1)
            self.kill(what)
        self.fleet.finish()
        self.say(f"{time.monotonic() - self.begun:.0f} s: all {messages} readings are covered "
                 f"({self.fleet.published} messages published)")  # fmt: skip
        for bridge in self.bridges:
            assert end(bridge, seconds=PATIENCE) == 0
        wait_until(self._drained, PATIENCE, "all logs in the tables")
        assert ended(self.driver, PATIENCE) == 0, (self.folder / "ingest.log").read_text()[-3000:]
        self.check()

    def _wait_for_bridges(self):
        logs = [self.folder / f"bridge-{n}.log" for n in range(BRIDGES)]
        wait_until(lambda: all(log.exists() and "subscribed to" in log.read_text()
                               for log in logs), PATIENCE, "the bridges")  # fmt: skip

    def _drained(self):
        """Whether ingest has all: it releases a batch with the next one, so only the last may be
        left, and the tables say the rest."""
        assert self.driver.poll() is None, (self.folder / "ingest.log").read_text()[-3000:]
        at = (self.tables, "silver")
        return dataset(*at).count_rows() >= sum(self.fleet.goal.values())

    def check(self):
        """Silver has each reading once."""
        rows = dataset(self.tables, "silver").to_table(columns=["device", "sequence"])
        come = Counter(zip(rows["device"].to_pylist(), rows["sequence"].to_pylist()))
        expected = Counter((name, n) for name, goal in self.fleet.goal.items()
                           for n in range(1, goal + 1))  # fmt: skip
        assert come == expected, (f"{len(expected)} readings were taken; silver has {len(come)}, "
                                  f"in {sum(come.values())} rows")  # fmt: skip
        logs = shipped.spools(self.log)
        self.say(f"{time.monotonic() - self.begun:.0f} s: exact: {len(rows)} rows of silver, of "
                 f"{dataset(self.tables, 'bronze').count_rows()} messages in {len(logs)} logs; "
                 f"{self._batches()} batches")  # fmt: skip

    def close(self):
        if self.fleet is not None:
            self.fleet.close()
        for process in self.bridges:
            killed(process)
        for each in (self.spark, self.store):
            if each is not None:
                each.close()
        if self.broker is not None:
            self.broker.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000, help="readings of the fleet")
    parser.add_argument("--rate", type=int, default=1000, help="of them in a second, at most")
    parser.add_argument("--rounds", type=int, default=2, help="of four kills each")
    parser.add_argument("--seed", type=int, default=None, help="gives the same choices again")
    arguments = parser.parse_args()
    if min(arguments.messages, arguments.rate) < 1 or arguments.rounds < 0:
        parser.error("--messages and --rate: at least 1; --rounds: at least 0")
    seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="umqtt-cluster-")
    campaign = None
    try:
        campaign = Campaign(folder, seed, lambda text: print(text, flush=True))
        campaign.run(arguments.messages, arguments.rate, TURNS * arguments.rounds)
    except AssertionError as error:
        print(f"FAILED (seed {seed}, files in {folder}): {error}", file=sys.stderr)
        return 1
    finally:
        if campaign is not None:
            campaign.close()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
