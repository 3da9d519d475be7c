"""A segment that was damaged on its way, and sent again as it was: nobody answers for what the
damage looks like.

Knows: audit_kit, TCP's checksum. Must not know: how the audit decides.
"""

import random

import audit_kit as kit
import audit_traffic as traffic
import pytest

PUB = kit.publish("topic/a", b"payload", 1, 1)
BAD_TEXT = PUB[:6] + bytes([PUB[6] ^ 0x80]) + PUB[7:]
QOS_3 = b"\x36" + PUB[1:]
LONG = PUB[:1] + bytes([PUB[1] ^ 0x40]) + PUB[2:]


def damaged(frame, content):
    """The frame with another payload and the checksum that it had."""
    return frame[: len(frame) - len(content)] + content


def talk(six=False):
    ends = (("2001:db8::2", 7), ("2001:db8::1", 1883)) if six else (kit.CLIENT, kit.BROKER)
    return kit.Talk(*ends).open().client(kit.connect()).broker(kit.connack())


def spoilt(content, six=False, ack=True):
    """PUB, damaged to `content`, comes 0.3 s later as it was sent; then it is answered, and things
    go on. Returns (talk, number of the damaged frame in it)."""
    made, place = talk(six), 0
    place = len(made.frames)
    made.client(PUB).wait(0.3).segment(0, PUB, seq=made.seq[0] - len(PUB))
    made.broker(kit.ack(4, 1))
    for k in range(10):
        made.client(kit.publish("a", b"%d" % k, 1, 2)).broker(kit.ack(4, 2))
    made.frames = [(t, kit.summed(f)) for t, f in made.client(kit.DISCONNECT).close().frames]
    made.frames[place] = made.frames[place][0], damaged(made.frames[place][1], content)
    return made, place


def read(made, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("content", [BAD_TEXT, QOS_3, LONG, bytes(len(PUB))])
def test_a_damaged_segment_that_is_sent_again_accuses_nobody(content, six, tmp_path):
    found = read(spoilt(content, six)[0], tmp_path)
    assert found["violations"] == []
    assert [p["problem"] for p in found["problems"]][0] == "other content"
    said = found["problems"][0]["what"].replace("first have", "first has")  # of one byte, of more
    assert "the first has a wrong TCP checksum" in said


def test_a_fault_that_stands_in_both_is_the_senders(tmp_path):
    """And one before the damage."""
    made = talk().client(kit.publish("a/#"))
    made.client(PUB).wait(0.3).segment(0, PUB, seq=made.seq[0] - len(PUB))
    made.client(kit.publish("b/#"))
    made.frames = [(t, kit.summed(f)) for t, f in made.frames]
    found = read(made, tmp_path)
    assert [(v["statement"], v["sender"]) for v in found["violations"]] == [
        ("MQTT-3.3.2-2", "client")] * 2  # fmt: skip


def test_a_damaged_second_copy_changes_nothing(tmp_path):
    """The first one is right, and what comes later is judged."""
    made = talk()
    made.client(PUB).segment(0, PUB, seq=made.seq[0] - len(PUB)).broker(kit.ack(4, 1))
    made.client(kit.publish("b/#"))
    made.frames = [(t, kit.summed(f)) for t, f in made.frames]
    at = len(made.frames) - 3
    made.frames[at] = made.frames[at][0], damaged(made.frames[at][1], BAD_TEXT)
    found = read(made, tmp_path)
    assert [p["what"] for p in found["problems"]] == [
        "1 byte was sent again with another content and a wrong TCP checksum; the first is "
        "read"]  # fmt: skip
    assert [v["statement"] for v in found["violations"]] == ["MQTT-3.3.2-2"]


@pytest.mark.parametrize("wrong", ["zero", "offload"])
def test_nobody_is_accused_if_the_capture_does_not_tell_which_copy_is_right(wrong, tmp_path):
    made, place = spoilt(QOS_3)
    if wrong == "zero":
        made.frames = [(t, f[:36] + b"\0\0" + f[38:]) for t, f in made.frames]
    else:
        made.frames = [(t, kit.summed(f, 0x1234)) for t, f in made.frames]
    found = read(made, tmp_path)
    assert found["violations"] == []
    assert "does not tell which is right" in found["problems"][0]["what"]


def test_wrong_checksums_alone_say_nothing(tmp_path):
    """The network card puts them in behind the capture; TCP sends one segment again as it was."""
    made = talk().client(PUB).segment(0, PUB, seq=1000 + 1 + len(kit.connect()))
    made.broker(kit.ack(4, 1)).client(kit.publish("a/#")).broker(kit.ack(4, 9))
    made.frames = [(t, kit.summed(f, 0x1234)) for t, f in made.frames]
    found = read(made, tmp_path)
    assert [(v["statement"], v["sender"]) for v in found["violations"]] == [
        ("MQTT-3.3.2-2", "client"), ("MQTT-2.3.1-6", "broker")]  # fmt: skip
    assert found["problems"] == []


def test_a_message_that_damage_made_is_not_in_flight(tmp_path):
    """Its identifier is used later, when the client is trusted again; the broker's Receive Maximum
    is not counted by it."""
    made = talk()
    right, other = kit.publish("a", b"x", 1, 1), kit.publish("a", b"x", 1, 3)
    place = len(made.frames)
    made.client(right).wait(0.3).segment(0, right, seq=made.seq[0] - len(right))
    made.broker(kit.ack(4, 1))
    for k in range(20):
        made.client(kit.publish("a", b"%d" % k, 1, 2)).broker(kit.ack(4, 2))
    made.client(kit.publish("b", b"y", 1, 3)).broker(kit.ack(4, 3))
    made.frames = [(t, kit.summed(f)) for t, f in made.frames]
    made.frames[place] = made.frames[place][0], damaged(made.frames[place][1], other)
    assert read(made, tmp_path)["violations"] == []


@pytest.mark.parametrize("way", [0, 1])
def test_a_probe_of_tcps_keep_alive_may_have_any_byte(way, tmp_path):
    """RFC 1122, 4.2.3.6: one byte before the next."""
    made = talk().segment(0, flags=kit.ACK)
    for _ in range(3):
        made.wait(9).segment(way, b"\x36", seq=made.seq[way] - 1).segment(1 - way, flags=kit.ACK)
    made.client(kit.publish("a/#")).client(kit.DISCONNECT).close()
    found = read(made, tmp_path)
    assert found["problems"] == []
    assert [v["statement"] for v in found["violations"]] == ["MQTT-3.3.2-2"]
    assert not found["connections"][0]["client_resent"]


def _hurt(frames, choice):
    """The frames with right checksums; some segments come damaged first. The right copy comes
    before the other side sends something that it may only know from it."""
    out, owed = [], {}
    for t, frame in frames:
        packet = frame[14 : 14 + int.from_bytes(frame[16:18], "big")]
        one, other = packet[12:16] + packet[20:22], packet[16:20] + packet[22:24]
        out += [(t, kit.ethernet(right)) for right in owed.pop(other, ())]
        right, payload = kit.summed(packet), bytearray(packet[40:])
        if not payload or choice.random() > 0.08:
            out.append((t, kit.ethernet(right)))
            continue
        payload[choice.randrange(len(payload))] ^= 1 << choice.randrange(8)
        out.append((t, kit.ethernet(damaged(right, bytes(payload)))))
        owed.setdefault(one, []).append(right)
    last = frames[-1][0]
    return out + [(last, kit.ethernet(right)) for rights in owed.values() for right in rights]


@pytest.mark.parametrize("seed", range(40))
def test_correct_traffic_that_is_damaged_on_its_way_accuses_nobody(seed, tmp_path):
    choice = random.Random(seed)
    frames = _hurt(traffic.sound(choice), choice)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert found["violations"] == []
    assert seed or "other content" in {p["problem"] for p in found["problems"]}
