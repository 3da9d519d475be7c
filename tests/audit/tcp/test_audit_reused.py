"""Ports that are used again in a capture that has each frame twice: the second frames of the first
connection are no third one, whatever lies between the two.

Knows: audit_kit, lines that have each frame twice. Must not know: how copies are recognised.
"""

import random

import audit_kit as kit
import pytest
from test_audit_doubled import TELLS, Line, kinds, seen, told_of, twice

#: First numbers of both sides of the second connection; of the first they are 1000, 5000.
NUMBERS = {"the client's as before": (1000, 900_000), "higher": (7_000_000, 9_000_000),
           "lower": (900, 4000), "far": (3_000_000_000, 1_500_000_000)}  # fmt: skip
#: Seconds from the end of the first connection to the second, and from a frame to its copy.
TIMES = [(0.02, 0.3), (0.02, 1.5), (1.2, 1.5), (2.1, 2.1), (2.1, 60)]


def lives(tells, end, wait, numbers, times=2, payload=b"%d", messages=3):
    """Connections with the same ports, one after the other."""
    made = Line(tells, random.Random(1))
    for life in range(times):
        made.open().said(0, kit.connect(f"life {life}")).said(1, kit.connack())
        for k in range(1, messages + 1):
            text = payload % life if b"%" in payload else payload
            made.said(0, kit.publish("a", text, 1, k)).said(1, kit.ack(4, k))
        if end == "FIN":
            made.client(kit.DISCONNECT).close()
        elif end == "RST":
            made.segment(1, flags=kit.RST | kit.ACK)
        made.wait(wait).seq = list(numbers)
    return made


def read(frames, folder):
    return kit.read([kit.pcap(folder / "t.pcap", frames)], folder)


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("tells", TELLS)
def test_copies_of_the_first_connection_are_no_third_one(tells, numbers, tmp_path):
    for end in ("FIN", "RST", "nothing"):
        for wait, apart in TIMES:
            made = lives(tells, end, wait, NUMBERS[numbers])
            found = read(twice(made.frames, apart), tmp_path)
            told = [(c["client_id"], c["client_packets"], c["broker_packets"], c["client_lost"],
                     c["broker_lost"]) for c in found["connections"]]  # fmt: skip
            assert told == [(f"life {k}", 4 + (end == "FIN"), 4, 0, 0) for k in range(2)], (
                end, wait, apart)  # fmt: skip
            assert told_of(found) == []
            assert kinds(found) <= {"doubled", "clock", "after the end"}, (end, wait, apart)


@pytest.mark.parametrize("payload", [b"%d", b"x"])
@pytest.mark.parametrize("tells", ["nothing", "nothing in IPv6"])
def test_a_connection_that_may_be_the_first_one_once_more_is_told(tells, payload, tmp_path):
    """Both sides take the same first numbers again. Nothing tells it from the first one, which the
    capture may have twice."""
    for end in ("FIN", "RST", "nothing"):
        for wait in (0.02, 60):
            frames = twice(lives(tells, end, wait, (1000, 5000), payload=payload).frames, 0, 1)
            found = read(frames, tmp_path)
            (said,) = (p for p in found["problems"] if p["what"].startswith("SYN "))
            assert said["problem"] == "doubled" and said["count"] == 1
            assert said["frame"] == len(frames) // 2 + 1
            assert len(found["connections"]) == 1 and told_of(found) == []


def test_that_is_told_also_if_the_capture_lacks_the_first_syn(tmp_path):
    """And its answer: the first data show what number it had."""
    frames = twice(lives("nothing", "FIN", 0.02, (1000, 5000)).frames, 0, 1)
    found = read(frames[3:], tmp_path)
    (said,) = (p for p in found["problems"] if p["what"].startswith("SYN "))
    assert (said["count"], said["frame"]) == (1, len(frames) // 2 + 1 - 3)
    assert len(found["connections"]) == 1 and told_of(found) == []


@pytest.mark.parametrize("tells", ["identification", "stamps"])
def test_time_stamps_and_identifications_tell_it_from_the_first_one(tells, tmp_path):
    for end in ("FIN", "RST", "nothing"):
        found = read(twice(lives(tells, end, 0.02, (1000, 5000), 3).frames, 0, 1), tmp_path)
        assert [c["client_id"] for c in found["connections"]] == ["life 0", "life 1", "life 2"]
        assert found["problems"] == [] and told_of(found) == []


@pytest.mark.parametrize("apart", [0.5, 1])
@pytest.mark.parametrize("tells", ["stamps", "stamps of IPv6"])
def test_a_syn_with_a_newer_time_stamp_is_no_copy(tells, apart, tmp_path):
    """Although the connection before shows that the capture has each frame twice."""
    made = lives(tells, "FIN", 0.3, (1000, 900_000), 3, messages=30)
    found = read(twice(made.frames, apart), tmp_path)
    told = [(c["client_id"], c["client_packets"], c["broker_packets"])
            for c in found["connections"]]  # fmt: skip
    assert told == [(f"life {k}", 32, 31) for k in range(3)]
    assert told_of(found) == [] and kinds(found) == {"doubled", "clock"}


def test_an_answer_that_comes_only_behind_the_next_connections_syn_has_no_latency(tmp_path):
    """The capture lacks the first PUBACK, and has its copy two seconds later."""
    made = Line("stamps", random.Random(1))
    for life in range(2):
        made.open().said(0, kit.connect(f"life {life}")).said(1, kit.connack())
        for k in range(1, 121):
            made.said(0, kit.publish("a", b"%d" % life, 1, k)).said(1, kit.ack(4, k)).wait(0.1)
        made.client(kit.DISCONNECT).close().wait(0.02).seq = [9_000_000, 7_000_000]
    lacks = next(at for at, (_, frame) in enumerate(made.frames)
                 if frame.endswith(kit.ack(4, 117)))  # fmt: skip
    frames = twice(made.frames, 2)
    frames.remove(twice(made.frames, 0, 1)[lacks])
    told, found = seen(frames, tmp_path)
    assert told == [] and told_of(found) == [] and len(found["packets"]) == 2 * (2 * 120 + 3)
    taken = [flow["latency_ms"] for flow in found["flows"]]
    assert len(taken) == 240 and max(filter(None, taken), default=0) < 1000
