"""A board that signs its readings, the real bridge, and a publisher who forges and repeats what
the board may have said: no forgery moves a mark or is a reading, and the count is exact."""

import json

import paho.mqtt.client as paho
import pyarrow as pa
import pytest
from bench import Subscriber
from patience import wait_until
from test_signed_marks import board_cli, bridge, home  # noqa: F401
from umqtt_board.ota import keys, marks_cli
from umqtt_pipeline import wire
from umqtt_pipeline.decode import rows
from umqtt_pipeline.decode.signed import NONE, WRONG, TelemetryKeys
from umqtt_pipeline.spool import reader as spooling

TOPIC = "fleet/test/b1/telemetry"


def forge(client, recorded):
    """What somebody may publish who has recorded a reading of the board."""
    for payload in (recorded, recorded[:-12], recorded[:-1] + bytes([recorded[-1] ^ 1]),
                    recorded.replace(b"\x62sq", b"\x62sr"), recorded[:-8] + bytes(8),
                    json.dumps({"device": "b1", "epoch": "00" * 8, "sequence": 5, "boot": 1,
                                "up": 1, "x": 1}).encode()):  # fmt: skip
        client.publish(TOPIC, payload, 1).wait_for_publish(10)


class Recorder(Subscriber):
    """A subscriber that keeps the payloads as they came; what is forged is not looked into."""

    def telemetry(self, message):
        self.readings.append(bytes(message.payload))


def spooled(folder):
    """[(topic, payload)] in the order in which the bridge made them durable."""
    found = []
    for _, body in spooling.walk(folder, spooling.begin(folder), spooling.durable(folder)):
        f = wire.frames(body)
        found += [(body[a:b].decode(), body[c:d])
                  for a, b, c, d in zip(f.topic, f.topic_end, f.payload, f.end)]  # fmt: skip
    return found


def test_only_what_the_board_has_signed_is_a_reading_and_moves_its_mark(
    boards, broker, bridge, tmp_path, capsys  # noqa: F811
):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port, "telemetry": "signed"}  # fmt: skip
    key = keys.give(flat, "b1")[0]["command_key"]
    for name in ("mark", "telemetry"):
        assert board_cli(f"{name}-keys", "--out", tmp_path / name) == 0
    assert "keys for the readings of 1 boards" in capsys.readouterr().out
    metrics = tmp_path / "metrics.json"
    bridge("--mark-keys", tmp_path / "mark", "--telemetry-keys", tmp_path / "telemetry",
           "--metrics", metrics)  # fmt: skip
    board = boards.make(broker.port, "b1", command_key=key, confirm="pipeline", marks="signed",
                        telemetry="signed", readings=40, stall_s=1)  # fmt: skip
    with Recorder(broker.port, "recorder") as recorder:
        board.power_on()
        wait_until(lambda: len(recorder.readings) >= 5, 30, "readings")
        forger = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="forger")
        forger.connect("127.0.0.1", broker.port)
        forger.loop_start()
        for recorded in recorder.readings[:3]:
            forge(forger, recorded)
        board.wait_for("all delivered: 40 readings", 60)
        forger.disconnect()
        forger.loop_stop()
    wait_until(lambda: json.loads(metrics.read_text())["unsigned"] >= 15, 10, "15 forgeries told")
    held = spooled(tmp_path / "spool")
    table = pa.table({"topic": [t for t, _ in held], "payload": [p for _, p in held]},
                     schema=pa.schema([("topic", pa.string()), ("payload", pa.binary())]))
    found = rows.decode(table, keys=TelemetryKeys(tmp_path / "telemetry")).to_pylist()
    assert {row["reason"] for row in found} == {None, NONE, WRONG}
    assert sum(row["reason"] is not None for row in found) == 15
    values = {(row["epoch"], row["sequence"]): {m["name"]: m["value"] for m in row["measurements"]}
              for row in found if row["reason"] is None}  # fmt: skip
    ordinals = [value["reading"] for value in values.values() if "reading" in value]
    assert sorted(ordinals) == list(range(1, 41)) and len({epoch for epoch, _ in values}) == 1


def test_host_and_firmware_make_the_same_code(tmp_path):
    from signing import signer
    from telemetry import Packer

    record = keys.Record("g", "oven", "000102030405060708090a0b0c0d0e0f", signs=True)
    made = marks_cli.made([record], marks_cli.TELEMETRY)
    (tmp_path / "keys").write_text(json.dumps(made))
    (tmp_path / "keys").chmod(0o600)
    held = TelemetryKeys(tmp_path / "keys")
    settings = {"telemetry": "signed", "command_key": record.key, "group": "g", "device": "oven"}
    packer = Packer("oven", bytes(8), 1, (("t", "Cel", 2), ("n", None, 0)), signer(settings))
    payload = bytes(packer.view(packer.pack(1, 1, 0, 0, (5, 6))))
    assert held.fault(b"fleet/g/oven/telemetry", payload) is None
    assert held.fault(b"fleet/g/oven/telemetry", payload[:-1] + b"x") == WRONG


def test_only_boards_that_sign_are_in_the_file(tmp_path):
    for device, telemetry in (("a", "signed"), ("b", "plain"), ("c", None)):
        more = {"telemetry": telemetry} if telemetry else {}
        keys.give({"device": device, "group": "g", "broker.host": "h", **more}, device)
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert list(json.loads((tmp_path / "keys").read_text())) == ["fleet/g/a"]
    # Flashed once more without it.
    keys.give({"device": "a", "group": "g", "broker.host": "h"}, "a")
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert json.loads((tmp_path / "keys").read_text()) == {}


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_a_file_of_keys_is_its_owners_alone(name, tmp_path):
    assert board_cli(name, "--out", tmp_path / "keys") == 0
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
