"""The bench: virtual boards with the firmware on them, a subscriber, and a bridge that marks.

Knows how the firmware gets onto a virtual board and how its messages are read. Must not know what
a test is about.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from contextlib import suppress
from pathlib import Path

import cbor2
import paho.mqtt.client as mqtt
from patience import PATIENCE, PatientBoard, wait_until
from umqtt_board.flash.steps import flash
from umqtt_demo import sensorlog
from umqtt_demo.verdict import Row, judge
from umqtt_pipeline import wire
from umqtt_pipeline.bridge.marks import Marks

MPREMOTE = [sys.executable, "-m", "mpremote", "connect"]

Reading = namedtuple("Reading", "epoch seq boot low ordinal celsius dup")


def make_image(folder, **options):
    """Return a flash image with the firmware and no settings on it; made once, copied after."""
    with PatientBoard(folder / "template", name="template", **options) as board:
        board.power_on()
        flash("unix", port=board.port)
    return board.flash_image


def make_board(image, folder, settings, **options):
    """Return a virtual board, switched off, with the firmware and these settings on it."""
    board = PatientBoard(folder, **options)
    shutil.copy(image, board.flash_image)
    os.truncate(board.flash_image, board.config["filesystem"] + board.config["journal"])
    source = Path(folder) / "settings.json"
    source.write_text(json.dumps(settings))
    board.power_on()
    subprocess.run([*MPREMOTE, board.port, "resume", "fs", "cp", str(source), ":settings.json"],
                   check=True, capture_output=True, timeout=60)  # fmt: skip
    board.power_off()
    board.console_log.unlink()
    return board


def taken(board):
    """What the sensor itself counted, as the demo reads it: a SensorLog."""
    return sensorlog.read(board.sensor_log)


class Subscriber:
    """A client of the broker that keeps what it gets on fleet/#, and comes back by itself."""

    def __init__(self, port, client_id="subscriber", clean=False):
        self.readings = []
        self.clocks = []
        self.status = []
        self.lock = threading.Lock()
        self.subscribed = threading.Event()
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean
        )
        self.client.on_connect = lambda client, *_: client.subscribe("fleet/#", 1)
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = self._on_message
        self.client.reconnect_delay_set(1, 1)
        self.client.connect_async("127.0.0.1", port, keepalive=10)
        self.client.loop_start()

    def __enter__(self):
        assert self.subscribed.wait(PATIENCE * 10), "no SUBACK"
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()

    def _on_message(self, client, userdata, message):
        if message.topic.endswith("/telemetry"):
            self.telemetry(message)
        elif message.topic.endswith("/status"):
            self.status.append(json.loads(message.payload))

    def telemetry(self, message):
        stream = io.BytesIO(message.payload)
        pack = cbor2.CBORDecoder(stream).decode()
        assert stream.tell() == len(message.payload)
        first = pack[0]
        values = {record[0]: record[2] for record in pack}
        if "clock" in values:
            self.clocks.append((first["bo"], values["clock"]))
            return
        reading = Reading(
            first["ep"].hex(), first["sq"], first["bo"], first["lo"],
            values["reading"], values["temperature"], message.dup,
        )  # fmt: skip
        with self.lock:
            self.readings.append(reading)

    def ordinals(self):
        """Each reading once, by (epoch, seq): its ordinals, sorted."""
        with self.lock:
            seen = {(r.epoch, r.seq): r.ordinal for r in self.readings}
        return sorted(seen.values())

    def rows(self, device):
        """What arrived as the rows that the demo's verdict judges, each reading once."""
        with self.lock:
            seen = {(r.epoch, r.seq): r for r in self.readings}
        return [Row(device, r.epoch, r.seq, r.ordinal, value={"temperature": r.celsius})
                for r in seen.values()]

    def verdict(self, board, count):
        """The demo's verdict on the board, which was told to take `count` readings. Sequence
        numbers that are no reading's are the clock records'."""
        cuts = max(0, len(re.findall(r"\bboot \d+ after", board.printed())) - 1)
        found = judge(board.name, count, taken(board), self.rows(board.name), cuts=cuts)
        found.gaps = []
        return found

    def await_all(self, board):
        """Wait until each reading that the board's sensor says was accepted has arrived."""
        wait_until(lambda: set(taken(board).taken) <= {(r.epoch, r.seq) for r in self.readings},
                   10, "all readings")  # fmt: skip

    def await_readings(self, count):
        """Wait until so many different readings have arrived."""
        wait_until(lambda: len(self.ordinals()) >= count, 30, f"{count} readings")


class Bridge(Subscriber):
    """A subscriber that marks like the pipeline's bridge, with that bridge's own arithmetic.

    marking   set to False: it takes everything and says nothing
    """

    def __init__(self, port, marking=True):
        self.marks = Marks()
        self.marking = marking
        super().__init__(port, client_id="bridge")

    def telemetry(self, message):
        super().telemetry(message)
        topic, payload = message.topic.encode(), bytes(message.payload)
        self.marks.feed(wire.publish_packet(topic, payload, 1, False, 1))
        self.mark()

    def mark(self):
        """Publish the marks of all that was heard since the last time."""
        if self.marking:
            for key in list(self.marks.due):
                del self.marks.due[key]
                topic, payload = self.marks.ack(key)
                self.client.publish(topic.decode(), payload, qos=1, retain=True)


class Boards:
    """Makes boards with the firmware; switches them off at the end."""

    def __init__(self, image, folder):
        self._image = image
        self._folder = folder
        self._made = []

    def make(self, port, name="b1", journal=0x10000, **settings):
        settings = {"device": name, "group": "test", "broker": {"host": "127.0.0.1", "port": port},
                    "interval_ms": 50, "retry": {"first_ms": 100, "max_ms": 500},
                    "report_s": 0, **settings}  # fmt: skip
        board = make_board(self._image, self._folder / name, settings, name=name,
                           journal=journal)
        self._made.append(board)
        return board

    def close(self):
        for board in self._made:
            with suppress(OSError):
                board.power_off()
