"""A bridge as a process, a device that waits for its marks, and what is in the spool."""

import json
import time

import paho.mqtt.client as mqtt
import pytest
from patience import PATIENCE
from pipeline_kit import EPOCH, messages, senml, spawn, topic, wait_for
from umqtt_pipeline.decode.payloads import identity
from umqtt_pipeline.spool import reader

BOTH = pytest.mark.parametrize("broker", ["iotcore", "mosquitto"], indirect=True)


def spooled(folder, first=0, stop=None):
    """All messages of a spool, from one position up to another: (topic, payload)."""
    stop = reader.durable(folder) if stop is None else stop
    bodies = (body for _, body in reader.walk(folder, first, stop))
    return [m for body in bodies for m in messages(body)]


def sequences(folder, first=0, stop=None, device="dev1"):
    """Sequence numbers spooled for a device, copies and all."""
    name = topic(device).encode()
    return [identity(p)[1] for t, p in spooled(folder, first, stop) if t == name]


def start(broker, folder, *more, environment=()):
    """A bridge process; waits until it has subscribed."""
    log = folder.parent / "bridge.log"
    before = log.read_text().count("subscribed to") if log.exists() else 0
    process = spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", folder,
                    "--mark-interval", "0.05", "--metrics", folder.parent / "metrics.json",
                    *more, log=log, **dict(environment))  # fmt: skip
    wait_for(lambda: process.poll() is not None
             or log.read_text().count("subscribed to") > before, what="subscription")  # fmt: skip
    return process


class Device:
    """A paho client that keeps every reading until the bridge's mark covers it, as the firmware
    does, and publishes again what is not covered. lows: its readings say what it still holds."""

    def __init__(self, broker, name="dev1", lows=True):
        self.name, self.broker, self.lows = name, broker, lows
        self.upto, self.next = 0, 1
        self.marks = []
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "paho-" + name)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = self._told
        self.client.on_connect = lambda c, *_: c.subscribe(f"fleet/g/{name}/ack", 1)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()

    def _told(self, _client, _data, message):
        mark = json.loads(message.payload)
        if mark["epoch"] == EPOCH.hex():
            self.marks.append(mark)
            self.upto = max(self.upto, mark["upto"])

    def publish(self, first, last):
        for sequence in range(first, last + 1):
            low = min(self.upto + 1, sequence) if self.lows else 1
            info = self.client.publish(topic(self.name), senml(sequence, low=low), 1)
        return info

    def take(self, count):
        """Take `count` readings."""
        info = self.publish(self.next, self.next + count - 1)
        self.next += count
        return info

    def confirmed(self, seconds=30):
        """Wait until all is covered, publishing again what is not after each second."""
        until = time.monotonic() + PATIENCE * seconds
        while self.upto < self.next - 1:
            assert time.monotonic() < until, f"mark at {self.upto} of {self.next - 1}"
            before = self.upto
            time.sleep(1)
            if self.upto == before and self.client.is_connected():
                self.publish(self.upto + 1, self.next - 1)

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()
