"""Silence and answers that do not come, on links that lose and delay: nobody is held to what did
not reach him, or to what he may not send.

Knows: the kit. Must not know: the code under test except by its tables.
"""

import random

import audit_kit as kit
import pytest

FIN_ACK = kit.FIN | kit.ACK
PUB = kit.publish("a", b"x")


def talk(keep_alive=10):
    return kit.Talk().open().client(kit.connect(keep_alive=keep_alive)).broker(kit.connack())


def broken(made, tmp_path):
    tables = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    return [(v["statement"], v["sender"]) for v in tables["violations"]]


def acked(made, way=1):
    """The other side acknowledges."""
    return made.segment(way, flags=kit.ACK)


def resent(made, raw, *after, way=0):
    """The latest bytes of a side once more, after so many seconds each."""
    for seconds in after:
        made.wait(seconds).segment(way, raw, seq=made.seq[way] - len(raw))
    return made


def shut(made, way):
    """A side says that its window is 0."""
    made.segment(way, flags=kit.ACK)
    ns, raw = made.frames[-1]
    made.frames[-1] = ns, raw[:34] + b"\0\0" + raw[36:]
    return made


def dead_link(made):
    """A PINGREQ that TCP sends again until the client gives up."""
    made = acked(made, 0).wait(10).client(kit.PINGREQ)
    return resent(made, kit.PINGREQ, 0.2, 0.4, 0.8, 1.6, 3.2, 4.4).segment(0, flags=FIN_ACK)


def dead_pipelined(made):
    """Nothing behind SYN is ever acknowledged."""
    made = kit.Talk().open().client(kit.connect(keep_alive=5))
    for _ in range(5):
        made.wait(4).client(kit.PINGREQ)
    return made.segment(0, flags=kit.RST)


def late_arrival(made):
    made = resent(acked(made, 0).client(PUB), PUB, 1, 2, 4)
    return acked(made).wait(8).client(kit.PINGREQ).broker(kit.PINGRESP)


def hole_first(made):
    """The second PINGREQ comes before the first."""
    made = acked(made, 0).wait(12)
    made.client(kit.PINGREQ, seq=made.seq[0] + 2).wait(0.2).client(kit.PINGREQ)
    made.seq[0] += 2
    return made.broker(kit.PINGRESP * 2)


def behind_another(made):
    """The second PINGREQ leaves TCP when the first one gets through."""
    made = resent(acked(made, 0).wait(9).client(kit.PINGREQ), kit.PINGREQ, 0.2, 0.4, 0.8, 9)
    made.wait(1).segment(0, kit.PINGREQ * 2, seq=made.seq[0] - 2)
    made.seq[0] += 2
    return made.broker(kit.PINGRESP * 2)


def vanished(made):
    """The broker's bytes are not acknowledged: the client is out of reach."""
    made = resent(acked(made, 0).broker(PUB), PUB, 0.2, 0.4, 0.8, 1.6, 3.2, way=1)
    return made.wait(8.75).segment(1, flags=kit.RST)


def full_broker(made):
    """The broker takes nothing for longer than one and a half times the keep alive."""
    made = shut(made.client(kit.publish("a", bytes(900))), 1)
    for seconds in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 6.4):
        made.wait(seconds).segment(0, flags=kit.ACK, seq=made.seq[0] - 1)
        shut(made, 1)
    return acked(made.wait(1)).client(kit.PINGREQ).broker(kit.PINGRESP)


def full_client(made):
    """The client takes nothing: PINGRESP cannot leave."""
    made = acked(shut(made.wait(9).client(kit.PINGREQ), 0))
    for _ in range(4):
        made.wait(6).client(PUB)
        acked(shut(made, 0))
    return acked(made.wait(1), 0).broker(kit.PINGRESP)


@pytest.mark.parametrize("path", [
    dead_link, dead_pipelined, late_arrival, hole_first, behind_another, vanished, full_broker,
    full_client])  # fmt: skip
def test_what_tcp_excuses_is_no_violation(path, tmp_path):
    made = path(talk())
    if path is not vanished:
        made.client(kit.DISCONNECT)
    assert broken(made, tmp_path) == []


def far(seconds):
    """The round trip, seen in the handshake, is long."""
    made = kit.Talk().segment(0, flags=kit.SYN).wait(seconds).segment(1, flags=kit.SYN | kit.ACK)
    made.segment(0, flags=kit.ACK).client(kit.connect(keep_alive=4)).wait(seconds)
    return acked(acked(made.broker(kit.connack()), 0).client(PUB).wait(seconds))


@pytest.mark.parametrize("late,sides", [(9.9, ["client"]), (12, ["client", "broker"])])
def test_the_round_trip_is_allowed_for(late, sides, tmp_path):
    """The client is silent for too long; the broker closes as late as a satellite makes it."""
    made = far(1.4).wait(6 + late).segment(1, flags=FIN_ACK).segment(0, flags=FIN_ACK)
    assert [side for _, side in broken(made, tmp_path)] == sides


def test_the_brokers_limit_counts_from_when_it_had_the_packet(tmp_path):
    made = resent(acked(talk(), 0).client(PUB), PUB, 1, 2, 4)
    made = acked(made).wait(15).segment(1, flags=FIN_ACK).segment(0, flags=FIN_ACK)
    assert broken(made, tmp_path) == [("MQTT-3.1.2-23", "client")]


def test_a_broker_that_cannot_be_heard_may_have_closed(tmp_path):
    """After its limit nothing of it comes, or only RST."""
    made = acked(talk(), 0).wait(30).client(PUB)
    assert broken(resent(made, PUB, 1, 2, 4), tmp_path) == [("MQTT-3.1.2-23", "client")]
    made.segment(1, flags=kit.RST)
    assert broken(made, tmp_path) == [("MQTT-3.1.2-23", "client")]


def test_a_broker_that_acknowledges_what_comes_after_its_limit_has_not_closed(tmp_path):
    made = acked(acked(talk(), 0).wait(30).client(PUB)).wait(1).client(kit.DISCONNECT)
    assert broken(made, tmp_path) == [("MQTT-3.1.2-23", "client"), ("MQTT-3.1.2-24", "broker")]


def test_a_client_whose_packet_comes_after_the_end_was_not_silent(tmp_path):
    """It was sent earlier, and lost before the capture."""
    made = acked(talk(), 0).wait(15).segment(1, flags=FIN_ACK).wait(0.5)
    made.client(kit.PINGREQ).segment(1, flags=kit.RST)
    assert broken(made, tmp_path) == []


@pytest.mark.parametrize("kept", range(16))
def test_a_fin_that_the_capture_lacks_ended_the_silence(kept, tmp_path):
    """The broker closes, the client sleeps on, and says goodbye a minute later. What came after
    the FIN has numbers that are one beyond the bytes, so that any part of it shows that it was
    there. A broker that stays open has no such numbers."""
    made = acked(talk(), 0).wait(5).segment(1, flags=FIN_ACK)
    del made.frames[-1]
    after = len(made.frames)
    made.segment(0, flags=kit.ACK).wait(60).client(kit.DISCONNECT)
    made.segment(0, flags=FIN_ACK).segment(1, flags=kit.RST)
    made.frames[after:] = [f for k, f in enumerate(made.frames[after:]) if kept >> k & 1]
    assert broken(made, tmp_path) == []
    made = acked(talk(), 0).wait(65).client(kit.DISCONNECT).segment(0, flags=FIN_ACK)
    assert broken(made, tmp_path) == [("MQTT-3.1.2-23", "client")]


@pytest.mark.parametrize("keep_alive,wait,other,told", [
    (0, 40, True, True), (0, 40, False, True), (60, 50, True, True), (0, 25, True, False),
    (60, 25, False, False), (10, 12, False, True), (10, 9, False, False)])  # fmt: skip
def test_a_ping_has_an_answer_within_the_keep_alive_or_half_a_minute(keep_alive, wait, other,
                                                                     told, tmp_path):  # fmt: skip
    """Whatever else the broker sends instead."""
    made = acked(talk(keep_alive).client(kit.PINGREQ)).wait(wait / 2).client(PUB)
    acked(made).wait(wait / 2)
    made = acked(made.broker(PUB) if other else acked(made), 0).client(kit.DISCONNECT).close()
    expected = [("MQTT-3.12.4-1", "broker")] if told else []
    assert [v for v in broken(made, tmp_path) if "12.4" in v[0]] == expected


def test_a_ping_that_is_answered_late_is_answered(tmp_path):
    made = acked(talk(0).client(kit.PINGREQ)).wait(40).broker(PUB).broker(kit.PINGRESP)
    assert broken(made.client(kit.DISCONNECT).close(), tmp_path) == []


def idle(k, lost):
    """A client that pings in time, on a link that loses what is sent: TCP sends it again, later
    and later, until it is acknowledged. Captured beside the client."""
    choice = random.Random(k)
    made = kit.Talk(("10.0.1.1", 1000 + k), isn=(k * 977, k * 31)).open()

    def sure(way, raw):
        made.segment(way, raw)
        after = 0.2
        while way == 0 and choice.random() < lost and after < 2:
            resent(made, raw, after)
            after *= 2
        if choice.random() < 0.5:
            acked(made, 1 - way)

    sure(0, kit.connect(f"dev{k}", 5))
    sure(1, kit.connack())
    for _ in range(choice.randrange(1, 8)):
        made.wait(choice.choice((1, 3, 4.7)))
        if choice.random() < 0.3:
            sure(1, PUB)
        sure(0, kit.PINGREQ)
        sure(1, kit.PINGRESP)
    return made if choice.random() < 0.3 else made.client(kit.DISCONNECT).close()


@pytest.mark.parametrize("lost,gone", [(0, 0), (0.4, 0), (0.4, 0.1), (0.2, 0.4)])
def test_no_damage_makes_a_silence(lost, gone, tmp_path):
    """lost: on the link; gone: of the frames, in the capture."""
    choice, frames = random.Random(7), []
    for k in range(150):
        frames += [f for f in idle(k, lost).wrapped() if choice.random() >= gone]
    frames.sort(key=lambda f: f[0])
    tables = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [(v["client_id"], v["what"]) for v in tables["violations"]] == []


@pytest.mark.parametrize("seen", [True, False])
def test_a_client_whose_bytes_are_not_here_was_not_silent(seen, tmp_path):
    """Its RST, at last, lies behind bytes that never came to the broker."""
    made = acked(talk(4), 0).wait(11)
    made.segment(0, flags=kit.RST | kit.ACK, seq=made.seq[0] + (0 if seen else 30))
    assert broken(made, tmp_path) == ([("MQTT-3.1.2-23", "client")] if seen else [])
