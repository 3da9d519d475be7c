"""A hostile broker, or who has taken it: it acknowledges readings and throws them away, changes
marks, and gives commands when it likes. No reading is lost, and no command acts late or twice."""

import json
import threading
import time

import brokers
import littlefs
import paho.mqtt.client as paho
import pytest
from attack_kit import decoded, ordinals
from bench import Subscriber
from patience import PATIENCE, wait_until
from umqtt_board.ota import giving, keys, send
from umqtt_board.paths import FIRMWARE
from update_kit import board_cli

pytestmark = pytest.mark.usefixtures("home")


class Hostile:
    """Stands between the board's broker and the bridge's, and passes on what it likes.

    thrown   payloads of readings that it kept for itself when they came first
    changed  marks that it has made to cover one reading more
    """

    def __init__(self, near, far):
        self.thrown = set()
        self.changed = 0
        self._ready = threading.Semaphore(0)
        self.near = self._client(near, "fleet/+/+/telemetry", self._reading)
        self.far = self._client(far, "fleet/+/+/ack", self._mark)

    def _client(self, port, what, heard):
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="hostile")
        client.on_connect = lambda client, *_: client.subscribe(what, 1)
        client.on_subscribe = lambda *_: self._ready.release()
        client.on_message = lambda _, __, message: heard(message.topic, bytes(message.payload))
        client.connect("127.0.0.1", port)
        return client

    def __enter__(self):
        for client in (self.near, self.far):
            client.loop_start()
        for _ in range(2):
            assert self._ready.acquire(timeout=PATIENCE * 10), "no SUBACK"
        return self

    def __exit__(self, *_):
        for client in (self.near, self.far):
            client.disconnect()
            client.loop_stop()

    def _reading(self, topic, payload):
        if payload in self.thrown:
            self.far.publish(topic, payload, 1)
        self.thrown.add(payload)

    def _mark(self, topic, payload):
        mark = json.loads(payload)
        more = b'"upto":%d' % (mark["upto"] + 1)
        changed = payload.replace(b'"upto":%d' % mark["upto"], more).replace(b": ", b":")
        self.near.publish(topic, changed, 1)
        self.near.publish(topic, payload, 1)
        self.changed += changed != payload

    def give(self, messages):
        """Give these messages to the board."""
        for topic, payload in messages:
            self.near.publish(topic, payload, 1).wait_for_publish(PATIENCE * 10)


@pytest.fixture
def near():
    """The board's broker; `broker` is the bridge's."""
    own = brokers.Broker("iotcore")
    yield own
    own.stop()


def test_what_a_broker_throws_away_changes_or_withholds_changes_no_count(
    boards, near, broker, bridge, tmp_path
):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": near.port, "telemetry": "signed"}  # fmt: skip
    key = giving.give(flat, "b1")[0]["command_key"]
    for name in ("mark", "telemetry"):
        assert board_cli(f"{name}-keys", "--out", tmp_path / name) == 0
    bridge("--mark-keys", tmp_path / "mark", "--telemetry-keys", tmp_path / "telemetry")
    board = boards.make(near.port, "b1", command_key=key, confirm="pipeline", marks="signed",
                        telemetry="signed", readings=30, stall_s=1)  # fmt: skip
    record = keys.load("test", "b1")
    withheld, newer = (send.messages([record], "test", "interval", body) for body in (
        {"count": 11, "interval_ms": 7777}, {"count": 12, "interval_ms": 40}))  # fmt: skip
    with Hostile(near.port, broker.port) as hostile:
        board.power_on()
        board.wait_for("first publish acknowledged", 20)
        hostile.give(newer)
        board.wait_for("interval 40 ms by command", 10)
        hostile.give(withheld)
        board.wait_for("command interval refused: count 11 is not above 12", 10)
        hostile.give(newer)
        board.wait_for("command interval refused: count 12 is not above 12", 10)
        board.wait_for("mark refused: wrong code", 30)
        board.wait_for("all delivered: 30 readings", 60)
        assert len(hostile.thrown) >= 30 and hostile.changed >= 1
    found = decoded(tmp_path / "spool", tmp_path / "telemetry")
    assert ordinals(found) == list(range(1, 31))
    assert "7777" not in board.printed()
    assert board.printed().count("by command") == 1


def without_time(board):
    """Have the board, which is off, never know the time."""
    source = (FIRMWARE / "clock.py").read_text()
    changed = source.replace("return time.gmtime()[0] >= 2024", "return False")
    assert changed != source
    data, size = board.flash_image.read_bytes(), board.config["filesystem"]
    context = littlefs.UserContext(size)
    context.buffer[:] = data[:size]
    host = littlefs.LittleFS(context=context, block_size=4096, block_count=size // 4096,
                             prog_size=32, read_size=32, cache_size=128, lookahead_size=32)
    with host.open("clock.py", "w") as file:
        file.write(changed)
    board.flash_image.write_bytes(bytes(context.buffer) + data[size:])


def withhold(port, ms, valid):
    """What the operator's session sends for this interval, and the broker keeps for itself."""
    kept = []
    with send.Session("test", [keys.load("test", "b1")], {"host": "127.0.0.1", "port": port},
                      keys.next_count, valid) as session:  # fmt: skip
        session._client.publish = lambda topic, payload, qos: kept.append((topic, payload))
        session.send("interval", {"interval_ms": ms})
    return kept


def test_a_board_that_does_not_know_the_time_obeys_no_withheld_command(boards, broker):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port}  # fmt: skip
    key = giving.give(flat, "b1")[0]["command_key"]
    board = boards.make(broker.port, "b1", command_key=key, report_s=1, watchdog_s=0)
    without_time(board)
    with Subscriber(broker.port) as subscriber:

        def give(messages):
            for topic, payload in messages:
                subscriber.client.publish(topic, payload, 1).wait_for_publish(PATIENCE * 10)

        # While the broker hides the board's reports a command is for any start.
        record = keys.load("test", "b1")
        hidden = send.messages([record], "test", "interval", {
            "count": keys.next_count([record]), "until": int(time.time()) + 86400,
            "interval_ms": 7777})  # fmt: skip
        board.power_on()
        board.wait_for("first publish acknowledged", 20)
        give(hidden)
        board.wait_for("interval refused: it is for no start of this board", 10)
        short = withhold(broker.port, 7778, 1)
        ended = subscriber.status[-1]["up"] + 3
        wait_until(lambda: subscriber.status[-1].get("up", 0) > ended, 20, "a later report")
        give(short)
        board.wait_for("interval refused: expired [0-9]+ s ago", 10)
        long = withhold(broker.port, 7779, 86400)
        board.cut()
        since = len(board.printed())
        board.power_on()
        board.wait_for("first publish acknowledged", 20, since)
        give(long)
        board.wait_for("interval refused: it is for another start of this board", 10)
        late = json.loads(long[0][1].rpartition(b".")[0])["count"]
        wait_until(lambda: subscriber.status[-1].get("refused_late") == late, 10, "the report")
        assert board_cli("command", "--device", "b1", "--group", "test", "interval", "0.04") == 0
        board.wait_for("interval 40 ms by command", 10)
    assert "interval 777" not in board.printed()
