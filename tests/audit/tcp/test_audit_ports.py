"""Ports that are used again, while the capture has a gap: the old connection's words are no
evidence against the new one.

Knows: audit_kit. Must not know: how the audit tells connections apart.
"""

import itertools

import audit_kit as kit
import pytest

#: From the last number of the old connection to the first of the new one, in bytes.
JUMPS = [50_000, 1 << 20, 1 << 28, 1 << 30, (1 << 31) + 5, 3 << 30, (1 << 32) - (1 << 20)]
ENDS = {
    "nothing": lambda made: made,
    "DISCONNECT": lambda made: made.client(kit.DISCONNECT),
    "RST": lambda made: made.segment(1, flags=kit.RST | kit.ACK),
}
#: What the capture has first of the new connection, its SYN is never there.
FIRST = {
    "ACK": lambda made: in_with(made.segment(0, flags=kit.ACK)),
    "CONNECT": lambda made: in_with(made),
    "PUBLISH": lambda made: made,
    "PUBLISH of the broker": lambda made: made.broker(kit.publish("t", b"z", 1, 7)).client(
        kit.ack(4, 7)),
}  # fmt: skip


def in_with(made):
    return made.client(kit.connect("new", keep_alive=60)).broker(kit.connack())


def old(number, end, keep_alive=5):
    made = kit.Talk((f"10.3.0.{number + 1}", 50_000), start=kit.START + number * 10**6).open()
    made.client(kit.connect(f"old{number}", keep_alive)).broker(kit.connack())
    made.client(kit.publish("a", b"x", 1, 1)).broker(kit.ack(4, 1)).wait(4)
    return end(made.client(kit.PINGREQ).broker(kit.PINGRESP))


def jump(made, client, broker):
    made.seq = [(made.seq[0] + client) & kit.MASK, (made.seq[1] + broker) & kit.MASK]
    return made.wait(30)


def read(talks, folder):
    frames = sorted((f for t in talks for f in t.wrapped()), key=lambda f: f[0])
    return kit.read([kit.pcap(folder / "t.pcap", frames)], folder)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("first", FIRST)
def test_what_the_old_connection_said_is_not_held_against_the_new_one(first, end, tmp_path):
    """The same message again, with the identifier of the first, and pauses of nine seconds."""
    talks = []
    for number, (client, broker) in enumerate(itertools.product(JUMPS, JUMPS)):
        made = FIRST[first](jump(old(number, ENDS[end]), client, broker))
        for k in range(6):
            made.client(kit.publish("a", b"x", 1, 1 + k)).broker(kit.ack(4, 1 + k)).wait(9)
        talks.append(made)
    found = read(talks, tmp_path)
    assert [(v["client_id"], v["sender"], v["statement"], v["what"])
            for v in found["violations"]] == []  # fmt: skip
    # Most are two connections, and of the others it is told.
    jumps = sum(p["problem"] == "jump" for p in found["problems"])
    assert len(found["connections"]) + jumps >= 2 * len(talks) - len(JUMPS)
    assert len(found["connections"]) >= 1.5 * len(talks)


def test_a_syn_with_ack_begins_a_connection_also_if_the_old_one_began_before(tmp_path):
    """The capture has the SYN of neither; the numbers of the client go back."""
    made = old(0, ENDS["nothing"])
    made.frames = made.frames[4:]
    jump(made, 3 << 30, 1 << 30).segment(1, flags=kit.SYN | kit.ACK).segment(0, flags=kit.ACK)
    found = read([in_with(made).client(kit.DISCONNECT).close()], tmp_path)
    assert found["violations"] == []
    assert [c["client_id"] for c in found["connections"]] == [None, "new"]
    assert [c["client_packets"] for c in found["connections"]] == [2, 2]


@pytest.mark.parametrize("client, broker", [(5000, 1 << 30), (1 << 30, 3 << 30),
                                            (3 << 30, 3 << 30),
                                            ((1 << 32) - 9, 3 << 30)])  # fmt: skip
def test_the_next_connection_is_no_sign_of_life(client, broker, tmp_path):
    """The old client is dead, and the broker closes; then come an ACK and the CONNECT of another
    one, whose SYN is not in the capture. A client's first number may always be the same."""
    made = old(0, ENDS["nothing"], keep_alive=10).wait(20)
    for _ in range(3):
        made.segment(1, flags=kit.FIN | kit.ACK, seq=made.seq[1]).wait(0.3)
    in_with(jump(made, client, broker).segment(0, flags=kit.ACK))
    made.client(kit.publish("a", b"x", 1, 1)).broker(kit.ack(4, 1)).close()
    found = read([made], tmp_path)
    assert [(v["sender"], v["what"]) for v in found["violations"]] == []
    assert [c["client_id"] for c in found["connections"]] == ["old0", "new"]


@pytest.mark.parametrize("isn", [1000, 777_777])
def test_a_device_that_begins_anew_is_no_sign_of_life_of_the_old_connection(isn, tmp_path):
    """It lost power, and takes the same port again, and maybe the same first number."""
    made = old(0, ENDS["nothing"], keep_alive=10).wait(18)
    for _ in range(3):
        made.segment(1, flags=kit.FIN | kit.ACK, seq=made.seq[1]).wait(0.3)
    made.wait(5).seq = [isn, 90_000_000]
    in_with(made.open()).client(kit.DISCONNECT).close()
    found = read([made], tmp_path)
    assert [(v["sender"], v["what"]) for v in found["violations"]] == []
    assert [c["client_id"] for c in found["connections"]] == ["old0", "new"]


def _numbered(made):
    """Each packet has the next identification, so that none is a copy of another."""
    return [(ns, kit.ethernet(kit.identified(raw, 1 + k)))
            for k, (ns, raw) in enumerate(made.frames)]  # fmt: skip


def _lives(end, wait):
    """A device whose initial number is always the same, and the broker's too. In its second life
    it breaks a rule."""
    made = kit.Talk().open().client(kit.connect("first")).broker(kit.connack())
    end(made.client(kit.publish("a", b"x", 1, 1)).broker(kit.ack(4, 1))).wait(wait)
    made.seq = [1000, 5000]
    made.open().client(kit.connect("second")).broker(kit.connack()).client(kit.DISCONNECT)
    return made.client(kit.publish("a", b"late")).close()


@pytest.mark.parametrize("end", [*ENDS, "FIN"])
@pytest.mark.parametrize("who, wait", [
    *itertools.product(["both", "the client"], [0.02, 5]), ("the client, ids as before", 5)])
def test_a_device_that_takes_the_same_numbers_again_has_two_connections(who, end, wait, tmp_path):
    """A board after a power cut: its stack has no random numbers. A board whose identifications
    begin anew, too, is known by its pause, or by the end before."""
    made = _lives({**ENDS, "FIN": kit.Talk.close}[end], wait)
    frames = made.wrapped() if "ids" in who else _numbered(made)
    if who != "both":
        frames = [f for f in frames if f[1][26:30] == b"\x0a\0\0\2"]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [c["client_id"] for c in found["connections"]] == ["first", "second"]
    assert all(c["begun"] for c in found["connections"])
    assert [c["client_packets"] for c in found["connections"]] == [
        3 if end == "DISCONNECT" else 2, 3]  # fmt: skip
    assert [(v["client_id"], v["statement"]) for v in found["violations"]] == [
        ("second", "MQTT-3.14.4-2")]  # fmt: skip
    assert found["problems"] == []


def _syn(made):
    return made.segment(0, flags=kit.SYN, seq=1000)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_syn_that_is_sent_again_begins_no_connection(numbered, tmp_path):
    """Nobody answers at first, and SYN with ACK comes twice."""
    made = _syn(_syn(_syn(kit.Talk()).wait(1)).wait(3)).wait(7).open()
    made.frames[-1:-1] = [made.frames[-2]]
    made.client(kit.connect()).broker(kit.connack()).client(kit.DISCONNECT).close()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", _numbered(made) if numbered else
                               made.wrapped())], tmp_path)  # fmt: skip
    assert [(c["client_packets"], c["ended"]) for c in found["connections"]] == [
        (2, "FIN by client")]  # fmt: skip
    assert found["violations"] == []


@pytest.mark.parametrize("both", [True, False])
def test_a_copy_of_the_syn_behind_later_segments_begins_no_connection(both, tmp_path):
    """The capture has it twice, and out of order."""
    made = kit.Talk().open().client(kit.connect())
    made.frames.append((made.now, made.frames[0][1]))
    made.broker(kit.connack()).client(kit.DISCONNECT).close()
    frames = [f for f in made.wrapped() if both or f[1][26:30] == b"\x0a\0\0\2"]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [(c["client_packets"], c["client_lost"]) for c in found["connections"]] == [(2, 0)]
    assert found["violations"] == []

def test_a_connect_behind_missing_bytes_begins_a_connection(tmp_path):
    """Some hundred bytes are missing, as no more were sent; then keep alive and session are the
    new CONNECT's."""
    made = old(0, ENDS["nothing"])
    in_with(jump(made, 300, 200)).wait(20)
    found = read([made.client(kit.PINGREQ).broker(kit.PINGRESP).close()], tmp_path)
    assert found["violations"] == []
    assert [c["client_id"] for c in found["connections"]] == ["old0", "new"]


@pytest.mark.parametrize("end, said", [
    ("nothing", ["MQTT-3.1.0-2"]), ("DISCONNECT", ["MQTT-3.1.0-2", "MQTT-3.14.4-2"])])  # fmt: skip
def test_a_second_connect_on_a_whole_connection_stays_a_violation(end, said, tmp_path):
    made = in_with(old(0, ENDS[end]).wait(1)).close()
    found = read([made], tmp_path)
    assert sorted(v["statement"] for v in found["violations"] if v["sender"] == "client") == said
    assert len(found["connections"]) == 1


def test_a_long_connection_stays_one_when_its_numbers_come_round(tmp_path):
    """Three gigabytes each way of TLS, of which the capture has a segment in each megabyte;
    nothing is known of such bytes but their numbers."""
    made = kit.Talk(broker=("10.0.0.1", 8883)).open().client(b"\x16\x03\x01\0\x05\1\0\0\1\0")
    made.broker(b"\x16\x03\3\0\x05\2\0\0\1\0")
    for _ in range(3200):
        made.client(b"\x17\x03\3\x10\0").broker(b"\x17\x03\3\x10\0")
        made.seq = [(n + 1_000_000) & kit.MASK for n in made.seq]
    assert len(read([made.close()], tmp_path)["connections"]) == 1


def test_a_connect_in_a_payload_with_a_hole_begins_no_connection(tmp_path):
    """A message that carries a CONNECT, which begins a segment behind one that is missing."""
    inner = kit.connect("inner")
    raw = kit.publish("a", b"x" * 100 + inner + b"y" * 50)
    at = raw.index(inner)
    made = old(0, ENDS["nothing"]).client(raw[:40])
    made.seq[0] += at - 40
    made.client(inner).client(raw[at + len(inner) :]).segment(1, flags=kit.ACK).wait(2)
    found = read([made.client(kit.PINGREQ).broker(kit.PINGRESP).close()], tmp_path)
    assert [c["client_id"] for c in found["connections"]] == ["old0"]
    assert found["violations"] == []
