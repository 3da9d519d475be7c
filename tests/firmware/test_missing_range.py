"""The firmware on a virtual board and the pipeline's own bridge: what a broker lost with its
memory, the bridge asks for by its range, and the board publishes it again."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
from bench import taken
from patience import wait_until
from umqtt_pipeline import wire
from umqtt_pipeline.decode import payloads
from umqtt_pipeline.spool import reader

PROGRAM = Path(sys.executable).parent / "umqtt-pipeline"


@contextmanager
def bridging(broker, folder):
    """The bridge as a process, from its subscription until SIGKILL."""
    with open(folder / "bridge.log", "a+") as log:
        before = (folder / "bridge.log").read_text().count("subscribed")
        process = subprocess.Popen([PROGRAM, "bridge", "--broker", f"127.0.0.1:{broker.port}",
                                    "--spool", folder / "spool"],
                                   stdout=log, stderr=log)  # fmt: skip
        try:
            wait_until(lambda: (folder / "bridge.log").read_text().count("subscribed") > before,
                       20, "the bridge")  # fmt: skip
            yield
        finally:
            process.kill()
            process.wait()


@contextmanager
def listening(broker, marks):
    """A client that has subscribed to the marks, and appends each to a list."""
    subscribed = []
    listener = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "listener")
    listener.on_message = lambda c, d, m: marks.append(json.loads(m.payload))
    listener.on_connect = lambda c, *_: c.subscribe("fleet/+/+/ack", 1)
    listener.on_subscribe = lambda *_: subscribed.append(True)
    listener.connect("127.0.0.1", broker.port)
    listener.loop_start()
    try:
        wait_until(lambda: subscribed, 20, "SUBACK")
        yield
    finally:
        listener.disconnect()
        listener.loop_stop()


def spooled(folder):
    """Identity of every message in the spool: (epoch, sequence)."""
    found = []
    for _, body in reader.walk(folder, 0, reader.durable(folder)):
        f = wire.frames(body)
        for begin, end in zip(f.payload, f.end):
            epoch, sequence, _ = payloads.identity(body[begin:end])
            found.append((epoch.hex(), sequence))
    return found


def test_a_missing_range_is_asked_for_and_filled(boards, broker, tmp_path):
    marks = []
    board = boards.make(broker.port, confirm="pipeline", readings=1000, stall_s=3600)
    with bridging(broker, tmp_path):
        board.power_on()
        wait_until(lambda: len(spooled(tmp_path / "spool")) >= 20, 30, "20 readings")
    count = len(taken(board).taken)
    wait_until(lambda: len(taken(board).taken) >= count + 20, 30, "readings for the broker alone")
    lost = set(taken(board).taken)
    broker.kill()
    broker.start()
    # The listener is there before the bridge: a mark that names what is missing may come once.
    with listening(broker, marks), bridging(broker, tmp_path):
        # Nothing but the range asked for can bring them: the mark may stand still an hour.
        board.wait_for("readings missing at the pipeline: published again", 60)
        wait_until(lambda: lost <= set(spooled(tmp_path / "spool")), 30, "what was lost")
    assert any(mark["missing"] for mark in marks)
    assert "mark stands" not in board.printed()
