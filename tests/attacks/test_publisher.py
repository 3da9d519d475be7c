"""A publisher: may write on the broker, in a board's name, and has recorded. He gets no board to
let go of a reading, and no forgery into the table."""

import json
import pickle

import paho.mqtt.client as paho
import pytest
from attack_kit import decoded, ordinals
from bench import Subscriber
from commands import seal
from decode_kit import rows as bronze
from patience import wait_until
from pipeline_kit import EPOCH, NOON, flat, publish, senml, senml_text
from signed_readings import GOOD, OTHER, signed
from signed_readings import TOPIC as DEV1
from umqtt_board.ota import giving, keys
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.decode import firmware_packs, rows
from umqtt_pipeline.decode.signed import NONE, WRONG
from update_kit import board_cli

pytestmark = pytest.mark.usefixtures("home")

def forged_marks(status):
    """Marks for the board that has said this status: of who may publish, and has other keys."""
    topic = b"fleet/test/b1/ack"
    mark = {"epoch": status["epoch"], "upto": status["store"]["seq"] - 1, "missing": []}
    text = json.dumps(mark).encode()
    yield text
    yield seal(bytes(32), topic, text)
    yield seal(bytes.fromhex(keys.load("test", "b1").key), topic, text)
    yield text[:-1] + b',"code":""}'


def test_a_board_lets_go_of_nothing_but_for_a_mark_of_its_bridge(
    boards, broker, bridge, tmp_path, capsys
):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port}  # fmt: skip
    key = giving.give(flat, "b1")[0]["command_key"]
    board = boards.make(broker.port, "b1", command_key=key, confirm="pipeline", marks="signed",
                        report_s=1, readings=30, stall_s=1)  # fmt: skip
    with Subscriber(broker.port) as subscriber:

        def told(condition):
            fitting = [status for status in subscriber.status if "confirm" in status]
            return fitting and condition(fitting[-1]) and fitting[-1]

        board.power_on()
        status = wait_until(lambda: told(lambda said: said["store"]["held"] >= 20), 20, "readings")
        for payload in forged_marks(status):
            subscriber.client.publish("fleet/test/b1/ack", payload, 1, True).wait_for_publish(10)
        status = wait_until(lambda: told(lambda said: said["confirm"]["malformed"] == 4), 20,
                            "four marks refused")  # fmt: skip
        assert status["confirm"]["mark"] == 0 and status["store"]["low"] == 1
        board.wait_for("mark refused: wrong code", 10)
        assert "all delivered" not in board.printed()
        file = tmp_path / "mark-keys.json"
        assert board_cli("mark-keys", "--out", file) == 0
        assert "keys for the marks of 1 board" in capsys.readouterr().out
        assert file.stat().st_mode & 0o777 == 0o600 and key not in file.read_text()
        bridge("--mark-keys", file)
        board.wait_for("all delivered: 30 readings", 60)


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


def test_only_what_the_board_has_signed_is_a_reading_and_moves_its_mark(
    boards, broker, bridge, tmp_path, capsys  # noqa: F811
):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port, "telemetry": "signed"}  # fmt: skip
    key = giving.give(flat, "b1")[0]["command_key"]
    for name in ("mark", "telemetry"):
        assert board_cli(f"{name}-keys", "--out", tmp_path / name) == 0
    assert "keys for the signed readings of 1 board" in capsys.readouterr().out
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
    found = decoded(tmp_path / "spool", tmp_path / "telemetry")
    assert {row["reason"] for row in found} == {None, NONE, WRONG}
    assert sum(row["reason"] is not None for row in found) == 15
    assert ordinals(found) == list(range(1, 41))


HIGHEST = 2**53 - 1
SECOND = 1_000_000  # in us
ACK = (DEV1, EPOCH)


def feed(marks, *payloads, now=0):
    """Hand readings of one device over as the bridge does."""
    marks.feed(b"".join(map(publish, payloads)), now=now)


def upto(marks):
    return json.loads(marks.ack(ACK)[1])["upto"]


@pytest.mark.parametrize("low", [500, HIGHEST])
@pytest.mark.parametrize("forged", [
    lambda n: senml(n, device="other", low=n), lambda n: flat(n, device="other", low=n, x=1),
    lambda n: senml(n, [("clock", "s", 5)], low=n), lambda n: flat(n, low=n),
    lambda n: flat(n, low=n, x="warm"), lambda n: flat(n, low=n, clock=5),
    lambda n: senml_text(n, [("t", "Cel", "warm")], low=n), lambda n: flat(n, low=n, x=1) + b"x",
    lambda n: senml(n, [("t", "Cel", float("nan"))], low=n), lambda n: senml(n, low=n) + b"x",
    lambda n: senml_text(n, low=n).replace(b"Cel", b"\xff"),
    lambda n: flat(n, low=n, x=1).replace(b'"x"', b'"\\ud800"'),
    lambda n: flat(n, low=n, x=1).replace(b'"x": 1', b'"x": NaN'),
    lambda n: senml(n, low=n) + bytes(1 << 20), lambda n: flat(n, low=n, boot=-1, x=1),
])  # fmt: skip
def test_low_of_what_is_no_reading_of_the_device_moves_no_mark(forged, low):
    """It goes to quarantine, as the tables have it; the number itself has arrived."""
    feed(marks := Marks(), *map(senml, range(1, 11)), forged(low))
    told = json.loads(marks.ack(ACK)[1])
    assert (told["upto"], told["missing"]) == (10, [[11, low - 1]])


@pytest.mark.parametrize("ahead", [5000, HIGHEST])
@pytest.mark.parametrize("forged", [
    lambda n: senml(n, low=n), lambda n: senml(n), lambda n: flat(n, low=n, x=1),
    lambda n: senml_text(n, low=n), lambda n: senml(n, device="other", low=n),
])  # fmt: skip
def test_what_no_device_can_have_made_moves_no_mark_and_is_told(forged, ahead, caplog):
    feed(marks := Marks(), *map(senml, range(1, 11)), now=NOON)
    for _ in range(5):
        feed(marks, forged(ahead), now=NOON + SECOND // 10)
    assert (upto(marks), marks.held_back) == (10, 5)
    assert json.loads(marks.ack(ACK)[1])["missing"] == []
    assert caplog.text.count("moves no mark") == 3 and "fleet/g/dev1/telemetry" in caplog.text
    feed(marks, senml(11, low=9), now=NOON + SECOND)
    assert (upto(marks), marks.held_back) == (11, 5)


def forged_readings():
    """(payload, reason) of what somebody without the key may publish who has recorded GOOD[0]."""
    good = GOOD[0]
    yield senml(9), NONE
    yield flat(9, x=1), NONE
    yield b"", NONE
    yield b"\xff", NONE
    yield good[:-12], NONE
    yield good + b"\x00", NONE
    yield signed(senml(9), OTHER), WRONG
    yield signed(senml(9), topic=b"fleet/h/dev1/telemetry"), WRONG
    yield signed(senml(9), topic=b"fleet/g/dev2/telemetry"), WRONG
    yield senml(9) + b"\x62mc\x48" + bytes(8), WRONG
    for at in range(len(good)):
        yield good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], None


def test_every_forgery_is_in_quarantine_with_its_reason(signers):
    payloads, reasons = zip(*forged_readings())
    found = rows.decode(bronze(*payloads), keys=signers).to_pylist()
    for payload, reason, row in zip(payloads, reasons, found):
        assert row["reason"] in ({reason} if reason else {NONE, WRONG}), payload
    _, known = firmware_packs.readings(bronze(*payloads, *GOOD), signers)
    assert list(known) == [False] * len(payloads) + [True] * 4


def test_readings_from_before_a_board_signed_hold_its_mark_until_a_bridge_takes_them_without_keys(
    signers, caplog
):
    """The bridge says so; with the keys again the mark goes on from there."""
    key = DEV1, EPOCH
    marks = Marks(keys=signers)
    old = [senml(1, low=1), senml(2, low=1)]
    packets = [publish(each) for each in (*old, signed(senml(3, low=1)))]
    marks.feed(b"".join(packets))
    assert marks.marks[key].upto == 0 and marks.marks[key].missing() == [[1, 2]]
    assert "its mark stands until" in caplog.text and "without --telemetry-keys" in caplog.text
    without = Marks()
    without.marks = marks.marks
    without.feed(b"".join(packets[:2]))
    marks.feed(publish(signed(senml(4, low=1))))
    assert marks.marks[key].upto == 4 and marks.marks[key].missing() == []


def test_no_forgery_moves_a_mark_and_it_is_told(signers, caplog):
    marks = Marks(keys=pickle.loads(pickle.dumps(signers)))
    payloads = [payload for payload, _ in forged_readings()]
    marks.feed(b"".join(publish(each) for each in payloads))
    assert not marks.marks and marks.unsigned == len(payloads)
    assert "moves no mark: it has no code" in caplog.text
    assert caplog.text.count("moves no mark") == len(payloads).bit_length()
    marks.feed(b"".join(publish(each) for each in (GOOD[0], senml(5, low=5), GOOD[1])))
    assert [mark.upto for mark in marks.marks.values()] == [2]
    marks.feed(publish(senml(7, device="dev2"), "dev2"))
    assert len(marks.marks) == 2
