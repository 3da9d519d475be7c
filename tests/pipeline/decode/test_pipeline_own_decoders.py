"""Decoders of one's own: a function from a packet to a reading, whatever it does wrong. Ingest and
the bridge ask the same one."""

import json
import signal
from decimal import Decimal
from pathlib import Path

import numpy as np
import paho.mqtt.client as mqtt
import pyarrow as pa
import pytest
from decode_kit import rows, told
from pipeline_kit import (
    EPOCH,
    QUICK,
    clock,
    end,
    fill,
    flat,
    publish,
    run,
    senml,
    spawn,
    topic,
    wait_for,
)
from pipeline_tables import arrow, numbers, table
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.decode import Malformed, Reading, reasons
from umqtt_pipeline.decode.own import Decoders
from umqtt_pipeline.decode.rows import decode
from umqtt_pipeline.tables.quarantine import numbered

WHOLE = {"device": "dev1", "epoch": EPOCH, "sequence": 7, "boot": 3, "uptime_ms": 12500,
         "low": None, "measurements": [("t", "Cel", 1.5)]}  # fmt: skip


def gives(**changes):
    """A decoder that gives a Reading with these fields."""
    def mine(topic, payload):
        return Reading(**{**WHOLE, **changes})

    return mine


def row(decoder, payload=b"x", name=None):
    return told([(name or topic(), payload)], decoder)[0]


def test_a_reading_becomes_a_row():
    r = row(gives())
    assert r.reason is None and (r.group, r.device, r.epoch, r.sequence, r.boot, r.uptime_ms) == (
        "g", "dev1", EPOCH.hex(), 7, 3, 12500)  # fmt: skip
    assert r.measurements == [("t", "Cel", 1.5)]


@pytest.mark.parametrize("changes,values", [
    ({"epoch": EPOCH.hex().upper()}, None), ({"sequence": np.int64(7)}, None),
    ({"low": 99}, None), ({"low": 0}, None),
    ({"measurements": (("t", None, np.float32(1.5)),)}, [("t", None, 1.5)]),
    ({"measurements": iter([("t", "", Decimal("0.1")), ("u", None, -3)])},
     [("t", "", 0.1), ("u", None, -3.0)]),
])  # fmt: skip
def test_what_python_takes_for_the_same(changes, values):
    r = row(gives(**changes))
    assert (r.reason, r.epoch, r.sequence) == (None, EPOCH.hex(), 7)
    assert values is None or r.measurements == values


@pytest.mark.parametrize("changes,said", [
    ({"device": None}, "the decoder mine gave not all of device, epoch, sequence, boot"),
    ({"measurements": None}, "gave not all of device"), ({"device": "other"}, "the topic is not"),
    ({"device": b"dev1"}, "TypeError: b'dev1' is no text"),
    ({"device": "dev1\ud800"}, r"UnicodeEncodeError: 'utf-8' codec can't encode character '\ud8"),
    ({"epoch": "zz"}, "epoch is not 8 bytes"), ({"epoch": bytes(7)}, "epoch is not 8 bytes"),
    ({"epoch": 5}, "epoch is not"), ({"sequence": 0}, "sequence is not an integer in 1.."),
    ({"sequence": -4}, "sequence is not"), ({"sequence": 1 << 53}, "sequence is not"),
    ({"sequence": 7.0}, "sequence is not an integer in 1.."),
    ({"sequence": "7"}, "sequence is not an integer"), ({"sequence": True}, "sequence is not"),
    ({"boot": -1}, "boot is not an integer in 0.."), ({"boot": 5 << 32}, "boot is not"),
    ({"uptime_ms": 5.0}, "uptime_ms is not an integer in 0.."),
    ({"uptime_ms": -5}, "uptime_ms is not"), ({"uptime_ms": 1 << 62}, "uptime_ms is not"),
    ({"low": "x"}, "TypeError"), ({"measurements": []}, "no measurement"),
    ({"measurements": 5}, "TypeError"),
    ({"measurements": [("t", 1.5)]}, "gave the measurement ('t', 1.5): one has a name, a unit"),
    ({"measurements": [(None, "u", 1.0)]}, "has no name"),
    ({"measurements": [("", "u", 1.0)]}, "has no name"),
    ({"measurements": [("a", 5, 1.0)]}, "TypeError: 5 is no text"),
    *(({"measurements": [("a", "u", bad)]}, "not a finite") for bad in (
        float("nan"), float("-inf"), None, "1", True, 10**400, Decimal("1e999"))),
    ({"measurements": [("clock", "s", 5)]}, "a clock outside 2020..2100"),
])  # fmt: skip
def test_what_is_wrong_is_in_quarantine_with_a_reason(changes, said):
    assert said in row(gives(**changes)).reason


def test_what_is_no_reading_at_all():
    assert row(lambda topic, payload: 5).reason == (
        "the decoder <lambda> gave 5, which is no Reading")


def test_what_it_raises_goes_to_quarantine_with_its_words():
    def fails(topic, payload):
        return payload[99]

    def refuses(topic, payload):
        raise Malformed("out of paper \ud800")

    r = row(fails)
    line = fails.__code__.co_firstlineno + 1
    assert r.reason == (
        f"the decoder fails: IndexError: index out of range ({__file__}, line {line})")
    assert row(refuses).reason == r"out of paper \ud800"


@pytest.mark.parametrize("words", [(), ("",), (" \n",)])
def test_a_refusal_without_a_reason_is_told_with_its_line(words):
    """An empty reason would look like none, in the quarantine and in its counts."""
    def refuses(topic, payload):
        raise Malformed(*words)

    r = row(refuses)
    line = refuses.__code__.co_firstlineno + 1
    assert r.reason == f"the decoder refuses: Malformed ({__file__}, line {line})"


class Odd(Exception):
    def __str__(self):
        return 5


def mute(kind, raised):
    """An exception of a kind that cannot be made a text, as `raised` comes instead."""
    class Mute(kind):
        def __str__(self):
            raise raised

    return Mute()


@pytest.mark.parametrize("kind", [Malformed, ValueError])
@pytest.mark.parametrize("raised", [AttributeError("sensor"), SystemExit(3)])
def test_what_it_raises_may_have_no_words(kind, raised):
    def fails(topic, payload):
        raise mute(kind, raised)

    assert row(fails).reason in ("Mute", "the decoder fails: Mute")
    marks = Marks(Decoders((fails,)))
    marks.feed(publish(b"x"))
    assert marks.unreadable == 1


@pytest.mark.parametrize("raised,said", [
    (SystemExit(3), "the decoder ends: SystemExit: 3 ("),
    (SystemExit(), "the decoder ends: SystemExit ("),
    (GeneratorExit(), "the decoder ends: GeneratorExit ("), (Odd(), "the decoder ends: Odd"),
])  # fmt: skip
def test_what_is_no_usual_exception(raised, said):
    def ends(topic, payload):
        raise raised

    assert row(ends).reason.startswith(said)


class Slow(Malformed):
    """Ctrl-C comes while this exception says what it is, or which number it has."""

    def __init__(self, where):
        self.where = where

    def __str__(self):
        return self._slow("words")

    @property
    def identity(self):
        return self._slow("identity")

    def _slow(self, what):
        if what == self.where:
            signal.raise_signal(signal.SIGINT)
        return None if what == "identity" else "slow"


@pytest.mark.parametrize("where", ["function", "words", "identity"])
def test_the_users_own_ctrl_c_still_ends_a_program_of_his(where):
    """Python's own handler raises it, in whatever code it finds."""
    # Whoever starts the tests may have SIGINT ignored, as a shell has it in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def slow(topic, payload):
        if where == "function":
            signal.raise_signal(signal.SIGINT)
        raise Slow(where)

    try:
        with pytest.raises(KeyboardInterrupt):
            row(slow)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_a_library_raises_is_told_with_the_line_that_called_it():
    def called(topic, payload):
        return json.loads(payload)

    reason = row(called).reason
    line = called.__code__.co_firstlineno + 1
    assert "JSONDecodeError" in reason and reason.endswith(f"({__file__}, line {line})")


def test_it_is_asked_first_and_only_of_telemetry():
    asked = []

    def mine(topic, payload):
        asked.append((topic, payload))
        return Reading(**WHOLE) if payload.startswith(b"m") else None

    packets = [(topic(), b"mine"), (topic(), senml(2)), ("plant/x", b"mine"),
               ("fleet/g/dev1/status", b"mine"), (topic(), None), (topic(), b"other")]
    found = told(packets, mine)
    assert asked == [packets[0], packets[1], packets[5]]
    assert [r.sequence for r in found] == [7, 2, None, None, None, None]
    assert [r.other for r in found] == [False] * 3 + [True] + [False] * 2
    assert "topic" in found[2].reason and "too large" in found[4].reason
    assert found[5].reason == reasons.ENCODING


def test_the_first_that_takes_a_packet_and_one_that_is_long():
    first = [lambda topic, payload: None, gives(sequence=8), gives(sequence=9)]
    assert told([b"x", b"y" * (2 << 20)], *first)[1].sequence == 8


def test_the_bridge_marks_what_it_says():
    """Else a device with such a payload would never be told that its readings have come."""
    def lines(topic, payload):
        if not payload.startswith(b"n="):
            return None
        return Reading(**{**WHOLE, "sequence": int(payload[2:]), "low": int(payload[2:])})

    marks = Marks(Decoders((lines,)))
    packets = [publish(b"n=4"), publish(senml(9, epoch=bytes(8))), publish(b"n=x"),
               publish(b"n=7", "dev2"), publish(b"n=1", topic="plant/telemetry")]  # fmt: skip
    marks.feed(b"".join(packets))
    name = topic().encode()
    assert marks.marks[name, EPOCH].upto == 4  # all below low is settled on the device
    assert marks.marks[name, bytes(8)].upto in (0, 9)
    other = marks.marks[topic("dev2").encode(), EPOCH]
    assert (other.upto, other.starts) == (0, [7]), "another device's low settles nothing"
    assert marks.unreadable == 2


NAN = [("t", "Cel", float("nan"))]
WRONG_VALUES = [{"measurements": NAN}, {"measurements": []}, {"measurements": None},
                {"measurements": [("a", 5, 1.0)]}, {"measurements": [("clock", "s", 5)]},
                {"uptime_ms": -5}, {"boot": None}, {"low": "x"}, {"device": None}]  # fmt: skip


@pytest.mark.parametrize("changes", WRONG_VALUES)
def test_a_wrong_value_is_in_quarantine_and_in_the_mark(changes):
    """As with flat JSON: else the mark stands before it for ever, and the device sends the reading
    again and again."""
    wrong = gives(**{**changes, "low": changes.get("low", 7)})
    r = row(wrong)
    assert r.reason and (r.epoch, r.sequence) == (EPOCH.hex(), 7)
    marks = Marks(Decoders((wrong,)))
    marks.feed(publish(b"x"))
    mark = marks.marks[topic().encode(), EPOCH]
    assert (mark.upto, list(mark.starts)) == (0, [7]), "what is no reading settles no low"
    assert marks.unreadable == 0 and (topic().encode(), EPOCH) in marks.due


@pytest.mark.parametrize("named", [(EPOCH, 7), (EPOCH, 0), (b"x", 7), (EPOCH,), 7])
def test_a_decoder_names_the_number_of_what_it_refuses(named):
    """A name that is none is as if it had given none."""
    def refuses(topic, payload):
        raise Malformed("no value", identity=named)

    known = named == (EPOCH, 7)
    r, marks = row(refuses), Marks(Decoders((refuses,)))
    assert (r.reason, r.epoch, r.sequence) == ("no value", *([EPOCH.hex(), 7] if known
                                                             else [None, None]))  # fmt: skip
    marks.feed(publish(b"x"))
    assert [key for key in marks.marks] == [(topic().encode(), EPOCH)] * known
    assert marks.unreadable == (not known)


@pytest.mark.parametrize("changes", [{"sequence": 0}, {"sequence": 1.5}, {"epoch": "zz"},
                                     {"epoch": None}])  # fmt: skip
def test_a_reading_without_an_identity_moves_no_mark(changes):
    wrong = gives(**changes)
    r, marks = row(wrong), Marks(Decoders((wrong,)))
    marks.feed(publish(b"x"))
    assert r.reason and r.epoch is r.sequence is None
    assert marks.marks == {} and marks.unreadable == 1


def test_gold_knows_that_what_is_in_quarantine_has_come():
    def lines(topic, payload):
        return Reading(**{**WHOLE, "sequence": int(payload), "measurements": NAN})

    given = decode(rows(b"7", b"9", b"x", flat(4)), Decoders((lines,)))
    refused = given.select(["topic", "payload", "epoch", "sequence", "date"]).to_batches()
    found = pa.Table.from_batches(list(numbered(refused))).to_pylist()
    assert [(r["device"], r["epoch"], r["sequence"]) for r in found] == [
        ("dev1", EPOCH.hex(), n) for n in (7, 9, 4)]  # fmt: skip


MODULE = '''
from umqtt_pipeline.decode import Reading

def lines(topic, payload):
    if payload[:1] not in b"0123456789x":
        return None
    number, value = payload.split(b";")
    return Reading(topic.split("/")[2], bytes(8), int(number), 1, 0, None,
                   [("t", None, float(value))])
'''


def test_ingest_with_one_and_what_it_raises(tmp_path):
    """In Spark's workers, by the command; the batch goes on behind what it raises."""
    root = tmp_path / "tables"
    (tmp_path / "mine.py").write_text(MODULE)
    fill(tmp_path / "spool", [publish(p) for p in (b"5;1.5", senml(1), b"x;2", b"6;2.5",
                                                  clock(2, 1_767_268_800))])  # fmt: skip
    done = run("ingest", "--spool", tmp_path / "spool", "--tables", root, "--once",
               "--decoder", "mine:lines", *QUICK, PYTHONPATH=str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert numbers(root) == [1, 5, 6] and arrow(root, "clock")["sequence"].to_pylist() == [2]
    (refused,) = table(root, "quarantine")
    assert refused["reason"].startswith("the decoder lines: ValueError: invalid literal for int()")
    assert refused["reason"].endswith(f"({Path(tmp_path, 'mine.py')}, line 8)")


ENDING = '''
import sys
from umqtt_pipeline.decode import Reading

def ending(topic, payload):
    if payload == b"exit":
        sys.exit(3)
    if payload == b"interrupt":
        raise KeyboardInterrupt("of its own")
    return Reading(topic.split("/")[2], bytes(8), int(payload), 1, 0, None, [("t", None, 1.0)])
'''


def test_one_that_would_end_the_program_ends_neither_bridge_nor_ingest(broker, tmp_path):
    """Else one packet would stop a whole fleet, again at each start. The signals of those who run
    them do end them."""
    folder, root, log = tmp_path / "spool", tmp_path / "tables", tmp_path / "bridge.log"
    (tmp_path / "ends.py").write_text(ENDING)
    own = {"PYTHONPATH": str(tmp_path)}
    bridge = spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", folder,
                   "--decoder", "ends:ending", log=log, **own)  # fmt: skip
    wait_for(lambda: "subscribed to" in log.read_text(), what="subscription")
    acks = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_message = lambda *told: acks.append(json.loads(told[-1].payload))
    client.connect("127.0.0.1", broker.port)
    client.subscribe("fleet/g/dev1/ack", 1)
    client.loop_start()
    for payload in (b"1", b"exit", b"interrupt", b"2"):
        client.publish(topic(), payload, 1)
    wait_for(lambda: acks and acks[-1]["upto"] == 2, what="the mark")
    client.disconnect()
    client.loop_stop()
    assert end(bridge, signal.SIGINT) == 0, log.read_text()
    done = run("ingest", "--spool", folder, "--tables", root, "--once", "--decoder", "ends:ending",
               *QUICK, **own)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert numbers(root) == [1, 2]
    line = f"({tmp_path / 'ends.py'}, line "
    assert sorted(refused["reason"] for refused in table(root, "quarantine")) == [
        f"the decoder ending: KeyboardInterrupt: of its own {line}9)",
        f"the decoder ending: SystemExit: 3 {line}7)"]  # fmt: skip


@pytest.mark.parametrize("code,said", [
    ("\n\nHERE = nonsense", "NameError: name 'nonsense'"),
    ("import json\n\njson.loads('{')", "JSONDecodeError: Expecting"),
    ("import sys\n\nsys.exit(0)", "SystemExit: 0"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["replay", "bridge"])
def test_a_module_that_fails_when_it_is_imported(tmp_path, command, code, said):
    (tmp_path / "early.py").write_text(code)
    rest = {"replay": ("--tables", tmp_path),
            "bridge": ("--broker", "localhost:1", "--spool", tmp_path / "s")}[command]
    done = run(command, *rest, "--decoder", "early:HERE", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    last = " ".join(done.stderr.splitlines()[2:])
    assert said in last and (f"({tmp_path}/early.py, line 3)" in last or "json" in code)
