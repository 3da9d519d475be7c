"""A hostile publisher: as long as the demonstration runs it publishes all that it may on a broker
without access lists, in the names of boards, bridge and operator.

Knows topics and what others publish. Must not know a key: it has only what it has recorded.
"""

import json
import random
import threading
from collections import deque

import paho.mqtt.client as paho

PAUSE_S = 0.1
RECORDED = 500
EPOCH = b"\x62ep\x48"


class Attack:
    """Begins at start(), ends at stop().

    host, port: of the broker; user, password: for it, or None
    topics: beginnings of the boards' topics, "fleet/GROUP/DEVICE/"
    seed: what it does is drawn from it
    """

    def __init__(self, host, port, user, password, topics, seed):
        self.sent = 0
        self._where, self._topics = (host, port), topics
        self._draw = random.Random(seed)
        self._recorded = deque(maxlen=RECORDED)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        if user is not None:
            self._client.username_pw_set(user, password)
        self._client.on_connect = lambda client, *_: client.subscribe(
            [(topic + "#", 1) for topic in topics])  # fmt: skip
        self._client.on_message = self._record
        self._client.reconnect_delay_set(1, 1)

    def start(self):
        """Begin; the broker may come and go."""
        self._client.connect_async(*self._where)
        self._client.loop_start()
        self._thread.start()

    def stop(self):
        """End; nothing is published after it returns."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(10)
        self._client.disconnect()
        self._client.loop_stop()

    def _record(self, client, userdata, message):
        if EPOCH in message.payload and message.topic.endswith("/telemetry"):
            self._recorded.append((message.topic, bytes(message.payload)))

    def _run(self):
        while not self._end.wait(PAUSE_S):
            if self._client.is_connected():
                for topic, payload, retain in self._round():
                    self._client.publish(topic, payload, 1, retain)
                    self.sent += 1

    def _round(self):
        """One act for each kind: (topic, payload, retain)."""
        base = self._draw.choice(self._topics)
        yield base + "cmd/restart", b'{"count":9007199254740990}.' + b"0" * 64, False
        yield base + "cmd/piece", self._draw.randbytes(300), False
        yield base + "status", b'{"online":true,"set":"forged","count":9007199254740990}', True
        if not self._recorded:
            return
        topic, payload = self._draw.choice(self._recorded)
        epoch = payload[payload.index(EPOCH) + 4 :][:8].hex()
        far = self._draw.choice((self._draw.randrange(1, 200), 10**6, 2**53 - 1))
        base = topic[: -len("telemetry")]
        for mark in ({"epoch": epoch, "upto": far, "missing": []},
                     {"epoch": epoch, "upto": 0, "missing": [[1, far]]}, {"missing": 7}):
            yield base + "ack", json.dumps(mark).encode(), self._draw.random() < 0.5
        yield topic, payload, False  # as it was: a duplicate
        at = self._draw.randrange(len(payload))
        yield topic, payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :], False
        yield topic, payload[: self._draw.randrange(len(payload))], False
        yield topic, json.dumps({
            "device": base.split("/")[2], "epoch": epoch, "sequence": far, "boot": 1, "up": 1,
            "low": far, "reading": far, "temperature": 99}).encode(), False  # fmt: skip
