"""The parts of the demonstration, each of which can be started and killed.

Knows the virtual boards, their links, the broker, and the command lines of bridge and ingest.
Must not know when something is killed, nor what is counted.
"""

import json
import os
import secrets
import sys
import time
import uuid
from pathlib import Path

from . import sensorlog, tables
from .attack import Attack
from .broker import BrokerError, EmbeddedBroker, check_login, parse_address
from .link import Link
from .procs import Child, Guard, wait_until

# What the boards are told beside their names, the broker and the interval. The times are short
# because the demo is: a board in the field takes the defaults of firmware/settings.py.
SETTINGS = {"sensor": "simulated", "stall_s": 4, "keepalive": 10,
            "connect_s": 5, "report_s": 0, "ntp": "", "retry.first_ms": 200,
            "retry.max_ms": 1500}
# What firmware/app.py prints when it starts, and when nothing is left in its store.
BOOTED, DELIVERED = " stored\n", "umqtt: all delivered"
PIPELINE = [sys.executable, "-c", "from umqtt_pipeline.cli import main; main()"]


class Sensor:
    """One virtual board behind its own link. Everything of it lies in `folder`."""

    def __init__(self, name, folder, link, seed):
        from umqtt_board.virtual.board import VirtualBoard

        self.name = name
        self.link = link
        self.board = VirtualBoard(folder, name=name, seed=seed)
        self.on = False
        self.key = secrets.token_hex(32)
        self._starts = 0
        self._log = sensorlog.SensorLog()
        self._size = -1

    @property
    def log(self):
        """Its sensorlog.SensorLog, as of now."""
        path = Path(self.board.sensor_log)
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            self._log, self._size = sensorlog.read(path), size
        return self._log

    def delivered(self):
        """Whether its firmware has said, since it was switched on, that its store is empty."""
        return DELIVERED in self.board.printed().rpartition(BOOTED)[2]

    def last_words(self):
        """The last line on its console that tells something: an error, or the firmware's own."""
        lines = [line.strip() for line in self.board.printed().splitlines()
                 if line.startswith("umqtt:") or "Error" in line]
        return lines[-1] if lines else "nothing"

    def power_on(self):
        self.board.power_on()
        self.on = True
        self._starts += 1

    @property
    def cuts(self):
        """How often its power went and came back."""
        return max(0, self._starts - 1)

    def cut(self):
        """The current goes (SIGKILL); the flash stays as it is at that instant."""
        self.board.cut()
        self.on = False


class ExternalBroker:
    """Somebody else's broker: it can't be killed, only the way to it be cut."""

    external = True
    running = True

    def __init__(self, host, port, user, password):
        self.host, self.port = host, port
        self.user, self.password = user, password

    @property
    def address(self):
        return "%s:%d" % (self.host, self.port)

    def start(self):
        check_login(self.host, self.port, self.user, self.password)

    def stop(self):
        """It goes on without us."""


def make_broker(text, log):
    """The broker that BROKER=`text` names: "", "embedded", "embedded:PORT" or HOST:PORT.

    Raises BrokerError for anything else.
    """
    name, _, port = (text or "embedded").partition(":")
    if name != "embedded":
        return ExternalBroker(*parse_address(text), os.environ.get("UMQTT_BROKER_USER"),
                              os.environ.get("UMQTT_BROKER_PASSWORD"))
    if port and not (port.isdigit() and 1 <= int(port) <= 65535):
        raise BrokerError("BROKER=%s: expected embedded or embedded:PORT with a port of 1..65535"
                          % text)
    broker = EmbeddedBroker(int(port or 0), log=log)
    broker.external, broker.user, broker.password = False, None, None
    return broker


class Site:
    """All parts. Use as a context manager: at its end nothing of it runs any more.

    Arguments:
        out: folder for everything, made by the caller
        options: object with boards, readings, interval_ms, seed, broker, confirm,
            attack (whether a hostile publisher is to come), at_qos_1 (numbers of boards)
    """

    def __init__(self, out, options):
        self.out = Path(out).absolute()
        self.options = options
        self.logs = self.out / "logs"
        self.tables = self.out / "tables"
        self.metrics = self.out / "bridge.json"
        # A broker that is not ours may remember earlier runs: names that never come twice.
        self.run = uuid.uuid4().hex[:8]
        self.group = "demo-" + self.run
        self.sensors = []
        self.broker = make_broker(options.broker, self.logs / "broker.log")
        self.guard = self.bridge = self.spark = self.bridge_link = None

    def __enter__(self):
        self.guard = Guard()
        return self

    def __exit__(self, *_):
        self.close()

    # -- start -----------------------------------------------------------------------------

    def start_broker(self):
        """Raises BrokerError if it can't be used."""
        self.broker.start()

    def make_parts(self):
        """Links, boards (blank, without power), bridge and ingest (not started)."""
        def link():
            return Link(self.broker.host, self.broker.port).start()

        self.bridge_link = link()
        for n in range(self.options.boards):
            name = "board-%d" % (n + 1) + ("-" + self.run if self.broker.external else "")
            self.sensors.append(Sensor(name, self.out / "boards" / name, link(),
                                       (self.options.seed + 500 * n) % 1440))
        spool = self.out / "spool"
        env = {"TMPDIR": str(self.out / "scratch")}
        if self.broker.user is not None:
            env.update(UMQTT_BROKER_USER=self.broker.user,
                       UMQTT_BROKER_PASSWORD=self.broker.password or "")
        self.bridge = self._child("bridge", [
            "bridge", "--broker", "127.0.0.1:%d" % self.bridge_link.port, "--spool", spool,
            "--topic", "fleet/%s/+/telemetry" % self.group, "--client-id", "bridge-" + self.run,
            "--keepalive", "10", "--metrics", self.metrics, *self._keys("mark", "telemetry")], env)
        self.spark = self._child("spark", ["ingest", "--spool", spool, "--tables", self.tables,
                                           "--interval", "2", *self._keys("telemetry")], env)
        self.gold = self._child("gold", ["gold", "--tables", self.tables], env)

    def _keys(self, *names):
        """Options that name the files of keys, which are written here; none without an attack."""
        from umqtt_board import private
        from umqtt_board.ota import keys, marks_cli

        if not self.options.attack:
            return []
        purposes = {"mark": marks_cli.MARKS, "telemetry": marks_cli.TELEMETRY}
        records = [keys.Record(self.group, sensor.name, sensor.key) for sensor in self.sensors]
        found = []
        for name in names:
            path = self.out / "scratch" / (name + "-keys.json")
            made = marks_cli.made(records, purposes[name])
            private.write(path, json.dumps(made).encode())
            found += ["--%s-keys" % name, path]
        return found

    def attacker(self):
        """The hostile publisher, not started."""
        broker = self.broker
        topics = ["fleet/%s/%s/" % (self.group, sensor.name) for sensor in self.sensors]
        return Attack(broker.host, broker.port, broker.user, broker.password, topics,
                      self.options.seed)  # fmt: skip

    def _child(self, name, arguments, env):
        return Child(PIPELINE + arguments, self.logs / (name + ".log"), env, self.guard)

    def settings(self, n):
        """Settings of board number n; every third publishes at QoS 2.

        Not the one that loses an acknowledgement: at QoS 2 the broker removes what comes twice,
        and there would be nothing to see.
        """
        o = self.options
        settings = {**SETTINGS, "device": self.sensors[n].name, "group": self.group,
                    "interval_ms": o.interval_ms, "readings": o.readings, "confirm": o.confirm,
                    "qos": 2 if n % 3 == 1 and n not in o.at_qos_1 else 1,
                    "broker.host": "127.0.0.1",
                    "broker.port": self.sensors[n].link.port}
        if o.attack:
            settings.update({"command_key": self.sensors[n].key, "marks": "signed",
                             "telemetry": "signed"})  # fmt: skip
        if self.broker.user is not None:
            settings.update({"broker.user": self.broker.user,
                             "broker.password": self.broker.password or ""})
        return settings

    def spark_started(self):
        """Whether ingest has begun its query for the first time."""
        return (self.tables / "_checkpoint" / "metadata").exists()

    def flash(self, n):
        """Put library, firmware and settings on board number n, which runs then; seconds it took.

        Raises umqtt_board.errors.BoardError.
        """
        from umqtt_board.flash.steps import flash

        sensor, began = self.sensors[n], time.monotonic()
        sensor.power_on()
        with open(self.logs / ("flash-%s.log" % sensor.name), "w") as log:
            flash(board="unix", port=sensor.board.port, settings=self.settings(n),
                  progress=lambda *what: print(*what, file=log, flush=True))
        return time.monotonic() - began

    # -- state -----------------------------------------------------------------------------

    def bridge_connected(self, since):
        """Whether the bridge told after `since` (Unix seconds) that it is subscribed."""
        try:
            data = json.loads(self.metrics.read_text())
        except (FileNotFoundError, ValueError):
            return False
        return data["connected"] and data["started"] >= since - 1

    def spark_works(self, since):
        """Whether ingest has written a batch after `since` (Unix seconds), or has nothing to."""
        written = tables.files(self.tables, "silver") + tables.files(self.tables, "duplicates")
        if any(path.stat().st_mtime > since for path in written):
            return True
        return self.spark.running and self.ingested() and time.time() - since > 10

    def spooled(self):
        """Messages in the bridge's spool."""
        from umqtt_pipeline.spool import reader as spool

        folder = self.out / "spool"
        return sum(block.count for block, _ in spool.walk(folder, 0, spool.durable(folder)))

    def ingested(self):
        """Whether bronze holds every message of the spool."""
        return sum(tables.count(path) for path in tables.files(self.tables, "bronze")
                   ) == self.spooled()

    def parts(self):
        """{name: whether it runs} for the display."""
        return {"broker": self.broker.running and self.bridge_link.is_up,
                "bridge": self.bridge.running, "Spark": self.spark.running}

    # -- end --------------------------------------------------------------------------------

    def close(self):
        """End everything, whatever state it is in."""
        for child in (self.bridge, self.spark, getattr(self, "gold", None)):
            if child is not None:
                child.kill()
        for sensor in self.sensors:
            try:
                sensor.board.power_off()
            finally:
                sensor.link.stop()
        if self.bridge_link is not None:
            self.bridge_link.stop()
        self.forget_session()
        self.broker.stop()
        if self.guard is not None:
            self.guard.close()
            self.guard = None

    def forget_session(self):
        """Leave nothing of ours on a broker that is not ours: sessions and retained messages."""
        if not self.broker.external or self.bridge is None:
            return
        import paho.mqtt.client as paho

        topics = ["fleet/%s/%s/%s" % (self.group, sensor.name, name)
                  for sensor in self.sensors for name in ("status", "ack")]
        for client_id in ["bridge-" + self.run] + [sensor.name for sensor in self.sensors]:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, clean_session=True)
            if self.broker.user is not None:
                client.username_pw_set(self.broker.user, self.broker.password)
            try:
                client.connect(self.broker.host, self.broker.port)
                client.loop_start()
                sent = [client.publish(topic, b"", qos=1, retain=True) for topic in topics]
                for info in sent:
                    info.wait_for_publish(2)
                wait_until(client.is_connected, 2)
            except (OSError, RuntimeError, ValueError):
                continue
            finally:
                client.disconnect()
                client.loop_stop()
            topics = []
