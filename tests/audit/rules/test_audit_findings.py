"""Findings: each is told by its rule, with the frames that show it, and none on clean traffic.

Knows: audit_kit, the rules. Must not know: how findings are made.
"""

import audit_kit as kit
import pytest
from mqtt_audit.rules import findings as rules
from real_traffic import captured


def found(talks, tmp_path):
    """The findings in conversations, as dicts, and their frames."""
    frames = sorted(f for talk in talks for f in talk.wrapped())
    return kit.findings(frames, tmp_path), frames


def opened(client, at, name="dev1", code=0, step=10**6):
    """A conversation from second `at` on, up to CONNACK."""
    talk = kit.Talk(client, start=kit.START + int(at * 1e9), step=step).open()
    return talk.client(kit.connect(name)).broker(kit.connack(code))


def storm(times, every, name="dev1"):
    return [opened(("10.0.0.2", 40_000 + k), k * every, name).segment(0, flags=kit.FIN | kit.ACK)
            .segment(1, flags=kit.FIN | kit.ACK) for k in range(times)]  # fmt: skip


def duel(times, answered=0):
    """Two clients with one id: the broker closes the one when the other one comes, and that closes
    its side so many seconds later."""
    talks = [opened((f"10.0.0.{2 + k % 2}", 40_000 + k), 2 * k) for k in range(times)]
    for k, talk in enumerate(talks[:-1]):
        talk.now = kit.START + (2 * k + 2) * 10**9 + 5 * 10**6
        talk.segment(1, flags=kit.FIN | kit.ACK).wait(answered)
        talk.segment(0, flags=kit.FIN | kit.ACK)
    return talks


def guesses(times, code=5):
    return [opened(("10.0.0.9", 40_000 + k), 3 * k, f"x{k}", code).close() for k in range(times)]


def held(clients, seconds):
    """Connections that send a CONNECT byte by byte."""
    raw, talks = kit.connect("slow"), []
    for k in range(clients):
        talk = kit.Talk(("10.0.0.8", 40_000 + k), start=kit.START + k * 10**7).open()
        for at in range(len(raw) - 2):
            talk.wait(seconds / len(raw)).client(raw[at : at + 1])
        talks.append(talk.wait(2 * seconds / len(raw)).segment(1, flags=kit.RST | kit.ACK))
    return talks


def flood(rate, seconds):
    talk = opened(("10.0.0.7", 40_000), 0, "loud")
    for k in range(rate * seconds):
        talk.now = kit.START + 10**9 + k * 10**9 // rate
        talk.client(kit.publish("a"))
    return [talk]


def burst(number, seconds):
    talk = opened(("10.0.0.7", 40_000), 0, "bursty").wait(seconds / 2)
    talk.now -= talk.now % 10**9
    talk.step = 10**6
    for _ in range(number):
        talk.client(kit.publish("a"))
    return [talk.wait(seconds / 2).client(kit.PINGREQ).broker(kit.PINGRESP)]


def late(number, ms, of=20):
    """So many messages, of which one in `of` is acknowledged after so many ms."""
    talk = opened(("10.0.0.7", 40_000), 0, "patient")
    for ident in range(1, number + 1):
        talk.client(kit.publish("a", qos=1, ident=ident))
        talk.wait((ms if ident % of == 0 else 5) / 1000).broker(kit.ack(4, ident))
    return [talk]


def lossy(number, every):
    talk = opened(("10.0.0.7", 40_000), 0, "far")
    for k in range(number):
        raw = kit.publish("a")
        talk.client(raw)
        if every and k % every == 0:
            talk.segment(0, raw, seq=talk.seq[0] - len(raw))
    return [talk]


#: What is wrong, by how little it is not, and what is told of it.
CASES = {
    "reconnect storm": (storm(10, 5), storm(9, 5), "dev1"),
    "clients push each other out": (duel(4), duel(3), "dev1"),
    "login guessing": (guesses(10), guesses(9), "10.0.0.9"),
    "slow handshake": (held(5, 14), held(4, 14), "10.0.0.8"),
    "flood": (flood(230, 20), flood(150, 12), "loud"),
    "burst": (burst(120, 90), burst(80, 90), "bursty"),
    "slow acknowledgements": (late(110, 1500, 55), late(80, 1500), "patient"),
    "lossy link": (lossy(200, 10), lossy(200, 50), "far"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_finding_is_told_with_its_frames(name, tmp_path):
    wrong, _, who = CASES[name]
    (one,), frames = found(wrong, tmp_path)
    assert (one["finding"], one["who"], one["broker"]) == (name, who, "10.0.0.1:1883")
    assert one["rule"] == rules.RULES[name] and one["count"] >= 1
    assert one["evidence"] and len(one["evidence"]) <= 20
    for place in one["evidence"]:
        assert place["file"].endswith("t.pcap") and 1 <= place["frame"] <= len(frames)


def waiting(clients, seconds):
    """Connections that send nothing for long, and then are as others."""
    talks = []
    for k in range(clients):
        talk = kit.Talk(("10.0.0.8", 40_000 + k), start=kit.START + k * 10**7).open().wait(seconds)
        talks.append(talk.client(kit.connect(f"s{k}")).broker(kit.connack())
                     .client(kit.DISCONNECT).close())  # fmt: skip
    return talks


def test_a_slow_handshake_that_comes_to_its_end(tmp_path):
    (one,), _ = found(waiting(7, 15), tmp_path)
    assert (one["finding"], one["count"]) == ("slow handshake", 7)
    assert found(waiting(7, 5), tmp_path)[0] == []


@pytest.mark.parametrize("name", CASES)
def test_what_keeps_below_the_numbers_of_the_rule_is_none(name, tmp_path):
    assert found(CASES[name][1], tmp_path)[0] == []


def test_refused_clients_of_which_only_their_own_side_was_captured(tmp_path):
    talks = [opened(("10.0.0.2", 40_000 + k), 3 * k, code=5).close() for k in range(14)]
    frames = [f for talk in talks for f in talk.wrapped() if bytes([10, 0, 0, 2]) == f[1][26:30]]
    assert len(frames) > 40 and kit.findings(sorted(frames), tmp_path) == []


def test_the_evidence_of_a_burst_is_its_first_message(tmp_path):
    talk = burst(120, 90)
    (one,), frames = found(talk, tmp_path)
    (place,) = one["evidence"]
    assert frames[place["frame"] - 1][1].rstrip(b"\0").endswith(kit.publish("a"))
    assert place["frame"] == 6


@pytest.mark.parametrize("wrong", [
    storm(12, 10), [t.client(kit.DISCONNECT) for t in (
        opened(("10.0.0.2", 40_000 + k), k) for k in range(30))],
    guesses(20, code=3), held(9, 5), storm(9, 1) + storm(9, 1, "dev2"), late(199, 1500, 100)],
    ids=["storm over two minutes", "a client that says goodbye", "a broker that is unavailable",
         "handshakes of five seconds", "two clients", "one slow answer of 199"])  # fmt: skip
def test_what_is_like_it_and_is_not(wrong, tmp_path):
    assert found(wrong, tmp_path)[0] == []


@pytest.mark.parametrize("code,lost", [(5, 4), (0, 5)], ids=["CONNACK", "DISCONNECT"])
def test_what_a_capture_lacks_makes_no_reconnect_storm(code, lost, tmp_path):
    """Each was refused, or said goodbye, in the frame that is missing."""
    talks = [opened(("10.0.0.2", 40_000 + k), k, code=code) for k in range(14)]
    if not code:
        talks = [talk.client(kit.DISCONNECT) for talk in talks]
    frames = sorted(frame for talk in talks
                    for k, frame in enumerate(talk.close().wrapped()) if k != lost)  # fmt: skip
    assert kit.findings(frames, tmp_path) == []
    found = kit.read([tmp_path / "t.pcap"], tmp_path)
    side = "broker" if code else "client"
    assert {(c[f"{side}_lost"], p["count"]) for c, p in zip(
        found["connections"], found["problems"], strict=True)} == {(4 if code else 2,) * 2}


@pytest.mark.parametrize("gone", [(1,), (0, 1, 2)], ids=["SYN with ACK", "the handshake"])
def test_login_guessing_without_the_beginning_of_each_connection(gone, tmp_path):
    frames = sorted(frame for talk in guesses(10)
                    for k, frame in enumerate(talk.wrapped()) if k not in gone)  # fmt: skip
    (one,) = kit.findings(frames, tmp_path)
    assert one["finding"] == "login guessing"


@pytest.mark.parametrize("silent", [True, False])
def test_of_a_capture_without_what_clients_send_no_slow_handshake_is_told(silent, tmp_path):
    """As of a mirror port of one direction: whether they are answered or not."""
    talks = [opened(("10.0.0.9", 40_000 + k), k / 100).wait(20) for k in range(6)]
    for talk in () if silent else talks:
        talk.client(kit.PINGREQ).broker(kit.PINGRESP)
    frames = sorted((time, tcp) for talk in talks for time, tcp in talk.close().wrapped()
                    if tcp[26:30] == b"\x0a\0\0\1")
    assert kit.findings(frames, tmp_path) == []


@pytest.mark.parametrize("answered", [0.5, 1.5, 30])
def test_who_is_pushed_out_may_close_its_side_much_later(answered, tmp_path):
    """As a program that does not read: the broker has ended the connection long before."""
    frames = sorted(frame for talk in duel(5, answered) for frame in talk.wrapped())
    [told] = kit.findings(frames, tmp_path)
    assert (told["finding"], told["who"]) == ("clients push each other out", "dev1")


def test_who_is_pushed_out_may_close_its_side_behind_the_end_of_the_capture(tmp_path):
    """As where a capture is one piece of a ring: the broker's FIN is in it, and acknowledged."""
    talks = duel(5)
    frames = sorted(frame for talk in talks for frame in talk.wrapped()
                    if not frame[1][47] & kit.FIN or frame[1][26:30] == b"\x0a\0\0\1")
    [told] = kit.findings(frames, tmp_path)
    assert (told["finding"], told["count"]) == ("clients push each other out", 4)
    found = kit.read([tmp_path / "t.pcap"], tmp_path)
    assert [c["ended"] for c in found["connections"]] == 4 * ["FIN by broker"] + ["open"]


@pytest.mark.parametrize("late", [0.03, 0.3])
def test_a_client_that_says_goodbye_is_pushed_out_by_nobody(late, tmp_path):
    """It leaves its socket open, which the broker then closes, and is there again meanwhile."""
    talks = [opened(("10.0.0.2", 40_000 + k), 2 * k).wait(1.8).client(kit.DISCONNECT).wait(
        0.2 + late).segment(1, flags=kit.FIN | kit.ACK).segment(0, flags=kit.FIN | kit.ACK)
        for k in range(6)]  # fmt: skip
    assert found(talks, tmp_path)[0] == []


@pytest.mark.parametrize("early", [1, 3, 50])
def test_a_client_that_closes_and_comes_back_is_pushed_out_by_nobody(early, tmp_path):
    """In a file made of both directions the clock of the broker's is some ms behind: its FIN is
    before the client's, which it answers, and its SYN with ACK before the end of the old one."""
    talks, at = [], 0
    for k in range(5):
        talks.append(opened(("10.0.0.2", 40_000 + k), at, step=400_000).wait(2)
                     .client(kit.DISCONNECT).close())  # fmt: skip
        at = (talks[-1].now - kit.START) / 10**9
    frames = sorted((time - early * 10**6 * (tcp[26:30] == b"\x0a\0\0\1"), tcp)
                    for talk in talks for time, tcp in talk.wrapped())
    assert kit.findings(frames, tmp_path) == []
    found = kit.read([tmp_path / "t.pcap"], tmp_path)
    assert {c["ended"] for c in found["connections"]} == {"FIN by client"}


def doubled(apart, tags=(), identified=True, six=False, unfilled=False):
    """Acknowledged messages, of which the capture has each frame twice, the second one `apart`
    seconds later, in VLANs. unfilled: with another checksum of TCP, as where it is sent."""
    ends = (("2001:db8::2", 7), ("2001:db8::1", 1883)) if six else (kit.CLIENT, kit.BROKER)
    made = kit.Talk(*ends, step=60_000).open().client(kit.connect()).broker(kit.connack())
    for k in range(150):
        made.client(kit.publish("a", b"%d" % k, 1, k + 1)).broker(kit.ack(4, k + 1))
    frames = []
    for number, (time, frame) in enumerate(made.close().frames):
        frame = kit.identified(frame, 7 + number) if identified and not six else frame
        frame = kit.summed(frame)
        other = frame[:36] + b"\x12\x34" + frame[38:] if unfilled else frame
        frames += [(time, kit.ethernet(frame)),
                   (time + int(apart * 1e9), kit.ethernet(other, tags))]
    return sorted(frames, key=lambda f: f[0]), len(made.frames)


@pytest.mark.parametrize("more", [
    {"apart": 0.0002}, {"apart": 0.00001, "tags": [(0x8100, 5)]}, {"apart": 0.05},
    {"apart": 0.0002, "unfilled": True},
    {"apart": 0.0003, "identified": False}, {"apart": 0.0003, "six": True}])  # fmt: skip
def test_what_the_capture_has_twice_was_not_sent_twice(more, tmp_path):
    """As two taps give it, or a mirror port with and without VLAN tags."""
    frames, sent = doubled(**more)
    assert kit.findings(frames, tmp_path) == []
    found = kit.read([tmp_path / "t.pcap"], tmp_path)
    (conn,) = found["connections"]
    some = sent // 20  # the first ones, and where one took another's place
    assert conn["client_resent"] + conn["broker_resent"] <= some
    assert conn["client_segments"] + conn["broker_segments"] <= sent + (
        some if more.get("identified", True) and "six" not in more else sent // 2 + some)
    assert {p["problem"] for p in found["problems"]} == {"doubled"}
    assert sent // 2 <= sum(p["count"] for p in found["problems"]) <= sent


def test_what_tcp_sends_again_has_another_identification(tmp_path):
    """Within a millisecond, with the same checksum."""
    made = lossy(200, 10)[0]
    frames = [(time, kit.ethernet(kit.summed(kit.identified(frame, number))))
              for number, (time, frame) in enumerate(made.frames)]  # fmt: skip
    assert [f["finding"] for f in kit.findings(frames, tmp_path)] == ["lossy link"]


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_real_traffic_has_none(broker, tmp_path):
    """Clients of three versions and mosquitto, with hundreds of messages."""
    assert kit.findings(captured(broker), tmp_path, ports=(broker.port,)) == []


@pytest.mark.parametrize("clients, who", [
    (["10.0.0.7"], "10.0.0.7:40000"),
    (["10.0.0.7", "10.0.0.8"], "2 clients without an id in the capture"),
])  # fmt: skip
def test_slow_acknowledgements_of_who_began_before_the_capture(tmp_path, clients, who):
    """Nobody knows its client id then; the report shows it all the same."""
    frames = []
    for host in clients:
        talk = opened((host, 40_000), 0)
        for ident in range(1, 201):
            talk.client(kit.publish("a", qos=1, ident=ident))
            talk.wait((1500 if ident % 40 == 0 else 5) / 1000).broker(kit.ack(4, ident))
        frames += sorted(talk.wrapped())[5:]  # behind CONNACK
    (one,) = kit.findings(sorted(frames), tmp_path)
    assert (one["finding"], one["who"]) == ("slow acknowledgements", who)


def test_frames_out_of_order_are_no_lossy_link(tmp_path):
    """Each frame is there once; a tenth of the broker's comes seconds late, at a later time."""
    talk = opened(("10.0.0.7", 40_000), 0, "far")
    for k in range(150):
        talk.broker(kit.publish("a", b"%d" % k)).segment(0, flags=kit.ACK).wait(0.1)
    frames = talk.wrapped()
    late = [k for k in range(5, len(frames)) if k % 20 == 5]
    order = sorted(range(len(frames)), key=lambda k: k + 70 * (k in late))
    shuffled = [(frames[at][0], frames[k][1]) for at, k in enumerate(order)]
    assert kit.findings(shuffled, tmp_path) == []
    (conn,) = kit.read([tmp_path / "t.pcap"], tmp_path)["connections"]
    assert conn["broker_resent"] <= 2 and conn["broker_disordered"] >= 10
