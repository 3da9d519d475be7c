"""Nobody is accused of what a correct client and broker do, nor of what the capture did to it; and
what is wrong is told of the one who did it.

Knows: audit_kit, the statements of MQTT 3.1.1. Must not know: how they are found.
"""

import itertools
import struct

import audit_kit as kit
import pytest

PUB1, PUB1_DUP = (kit.publish("a", b"x", 1, 7, dup=dup) for dup in (False, True))
PUB2, PUB2_DUP = (kit.publish("a", b"x", 2, 7, dup=dup) for dup in (False, True))
REC, REL, COMP = (kit.ack(kind, 7) for kind in (5, 6, 7))
UNSUBSCRIBE = kit.packet(0xA2, b"\0\x07" + kit.string("a"))


def later(qos):
    return kit.publish("a", b"y", qos, 8)


def talk(**more):
    return kit.Talk().open().client(kit.connect(**more)).broker(kit.connack())


def said(made, packets):
    """The talk, with packets of the client (c) and of the broker (b) at its end."""
    for who, raw in packets:
        made.segment("cb".index(who), raw)
    return made


def read(frames, tmp_path, **more):
    return kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path, **more)


def broken(frames, tmp_path, **more):
    found = read(frames, tmp_path, **more)["violations"]
    return [(v["statement"], v["sender"]) for v in found]


RIGHT = {
    "PUBLISH twice, PUBACK twice": [
        ("c", PUB1), ("c", PUB1_DUP), ("b", kit.ack(4, 7)), ("b", kit.ack(4, 7))],
    "PUBLISH of QoS 2 twice, PUBREC twice": [
        ("b", PUB2), ("b", PUB2_DUP), ("c", REC), ("b", REL), ("c", COMP), ("c", REC)],
    "PUBREL twice, PUBCOMP twice": [
        ("c", PUB2), ("b", REC), ("c", REL), ("c", REL), ("b", COMP), ("b", COMP)],
    "an identifier for SUBSCRIBE after its PUBACK": [
        ("c", PUB1), ("b", kit.ack(4, 7)), ("c", kit.subscribe(7, ("a", 0))),
        ("b", kit.suback(7, 0)), ("c", UNSUBSCRIBE), ("b", kit.ack(11, 7)), ("c", PUB1),
        ("b", kit.ack(4, 7))],
    "the same identifier from both sides": [
        ("b", PUB1), ("c", kit.subscribe(7, ("a", 0))), ("c", kit.ack(4, 7)),
        ("b", kit.suback(7, 0))],
    "a broker that acknowledges in any order": [
        ("c", PUB1), ("c", later(1)), ("b", kit.ack(4, 8)), ("b", kit.ack(4, 7)),
        ("c", PUB2), ("c", later(2)), ("b", kit.ack(5, 8)), ("b", REC), ("c", kit.ack(6, 8)),
        ("c", REL), ("b", COMP), ("b", kit.ack(7, 8))],
    "PUBACK of what was sent twice": [
        ("b", PUB1), ("b", later(1)), ("b", PUB1_DUP), ("c", kit.ack(4, 8)),
        ("c", kit.ack(4, 7)), ("c", kit.ack(4, 7))],
    "PUBREC and PUBACK, each in its order": [
        ("b", PUB2), ("b", later(1)), ("c", kit.ack(4, 8)), ("c", REC), ("b", REL),
        ("c", COMP)],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_no_violation(name, tmp_path):
    assert broken(said(talk(), RIGHT[name]).wrapped(), tmp_path) == []


WRONG = {
    "two SUBSCRIBE with one identifier": ([
        ("c", kit.subscribe(7, ("a", 0))), ("c", kit.subscribe(7, ("b", 0), ("c", 1))),
        ("b", kit.suback(7, 0)), ("b", kit.suback(7, 0, 1))], "2.3.1-2", "client"),
    "SUBSCRIBE with the identifier of a PUBLISH": ([
        ("c", PUB1), ("c", kit.subscribe(7, ("a", 0))), ("b", kit.ack(4, 7)),
        ("b", kit.suback(7, 0))], "2.3.1-2", "client"),
    "PUBLISH with the identifier of a SUBSCRIBE": ([
        ("c", kit.subscribe(7, ("a", 0))), ("c", PUB1), ("b", kit.suback(7, 0)),
        ("b", kit.ack(4, 7))], "2.3.1-2", "client"),
    "UNSUBACK that answers SUBSCRIBE": ([
        ("c", kit.subscribe(7, ("a", 0))), ("b", kit.ack(11, 7))], "2.3.1-7", "broker"),
    "UNSUBACK of nothing": ([("b", kit.ack(11, 7))], "2.3.1-7", "broker"),
    "PUBCOMP of nothing": ([("b", COMP)], "4.3.3-2", "broker"),
    "PUBCOMP before PUBREL": ([("c", PUB2), ("b", REC), ("b", COMP)], "4.3.3-2", "broker"),
    "PUBACK before that of an earlier PUBLISH": ([
        ("b", PUB1), ("b", later(1)), ("c", kit.ack(4, 8)), ("c", kit.ack(4, 7))],
        "4.6.0-2", "client"),
    "PUBREC before that of an earlier PUBLISH": ([
        ("b", PUB2), ("b", later(2)), ("c", kit.ack(5, 8)), ("c", REC), ("b", REL), ("c", COMP),
        ("b", kit.ack(6, 8)), ("c", kit.ack(7, 8))], "4.6.0-3", "client"),
    "PUBREL before that of an earlier PUBREC": ([
        ("c", PUB2), ("c", later(2)), ("b", REC), ("b", kit.ack(5, 8)), ("c", kit.ack(6, 8)),
        ("c", REL), ("b", COMP), ("b", kit.ack(7, 8))], "4.6.0-4", "client"),
    "a third PUBACK": ([
        ("c", PUB1), ("c", PUB1_DUP), *[("b", kit.ack(4, 7))] * 3], "2.3.1-6", "broker"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_violation_is_of_the_one_who_did_it(name, tmp_path):
    packets, statement, sender = WRONG[name]
    got = broken(said(talk(), packets).wrapped(), tmp_path)
    assert got == [(f"MQTT-{statement}", sender)]


WITHOUT_ID = kit.packet(0x82, b"\0\0" + kit.string("a") + b"\0")
MIXED = {
    "an identifier in flight used again, and both answered": ([
        ("c", PUB1), ("c", kit.publish("a", b"other", 1, 7)), ("b", kit.ack(4, 7)),
        ("b", kit.ack(4, 7))], [("2.3.1-2", "client")]),
    "and a third answer": ([
        ("b", PUB1), ("b", kit.publish("a", b"other", 1, 7)), *[("c", kit.ack(4, 7))] * 3],
        [("2.3.1-4", "broker"), ("2.3.1-6", "client")]),
    "SUBSCRIBE with the identifier 0, and its answer": ([
        ("c", WITHOUT_ID), ("b", kit.suback(0, 0))], [("2.3.1-1", "client")]),
    "SUBACK with the identifier 0 of nothing": ([("b", kit.suback(0, 0))],
                                                [("2.3.1-7", "broker")]),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_the_other_side_is_not_accused_of_what_it_answers(name, tmp_path):
    packets, wanted = MIXED[name]
    got = broken(said(talk(), packets).wrapped(), tmp_path)
    assert got == [(f"MQTT-{statement}", sender) for statement, sender in wanted]


@pytest.mark.parametrize("answers", [1, 2])
def test_mqtt_3_1_has_dup_in_subscribe_and_unsubscribe(answers, tmp_path):
    """MQTT 3.1, section 2.1. The next one with that identifier is another one."""
    made = kit.Talk().open().client(kit.connect(name="MQIsdp", level=3)).broker(kit.connack())
    for first, answer in ((kit.subscribe(7, ("a", 0)), kit.suback(7, 0)),
                          (UNSUBSCRIBE, kit.ack(11, 7))):  # fmt: skip
        for _ in range(2):
            said(made, [("c", first), ("c", bytes([first[0] | 8]) + first[1:])])
            said(made, [("b", answer)] * answers)
    assert broken(made.wrapped(), tmp_path) == []
    assert broken(said(made, [("c", PUB1), ("c", kit.subscribe(7, ("a", 0)))]).wrapped(),
                  tmp_path) == [("MQTT 3.1, 2.4", "client")]  # fmt: skip


@pytest.mark.parametrize("present,wanted", [(1, []), (0, ["MQTT-2.3.1-6"] * 2)])
def test_an_answer_to_a_message_of_the_session_before_is_right(present, wanted, tmp_path):
    made = kit.Talk().open().client(kit.connect(flags=0)).broker(kit.connack(present=present))
    said(made, [("c", kit.ack(4, 3)), ("b", kit.ack(5, 4)), ("c", kit.ack(6, 4)),
                ("b", kit.ack(7, 4))])  # fmt: skip
    assert [statement for statement, _ in broken(made.wrapped(), tmp_path)] == wanted


@pytest.mark.parametrize("topic,statement", [("a/+", "4.7.1-1"), ("#", "4.7.1-1"),
                                             ("", "4.7.3-1"), ("a", None)])  # fmt: skip
def test_the_topic_of_a_will_is_one(topic, statement, tmp_path):
    rest = kit.string(topic) + kit.string("gone")
    made = talk(flags=6, rest=rest)
    assert broken(made.wrapped(), tmp_path) == ([(f"MQTT-{statement}", "client")] if statement
                                               else [])  # fmt: skip


def test_a_connect_without_a_byte_is_told(tmp_path):
    made = kit.Talk().open().client(b"\x10\0").close()
    assert ("MQTT-3.1.3-1", "client") in broken(made.wrapped(), tmp_path)


def _few_identifiers(made):
    """Each identifier is used again at once, its messages answered one by one or together."""
    for k in range(3):
        for qos, answers in ((1, ((1, 4),)), (2, ((1, 5), (0, 6), (1, 7)))):
            for way in (0, 1):
                for ident in (1, 2) if k else (2, 1):
                    made.segment(way, kit.publish("a", b"%d" % k, qos, ident))
                for turn, kind in answers:
                    for ident in (1, 2) if k else (2, 1):
                        made.segment(turn ^ way, kit.ack(kind, ident))
    return made


def test_the_order_of_answers_accuses_nobody_if_frames_are_missing(tmp_path):
    """Every frame, every two that are next to each other, and all before or after one."""
    whole = len(_few_identifiers(talk()).frames)
    gone = [{k} for k in range(whole)] + [{k, k + 1} for k in range(whole)]
    gone += [set(range(k)) for k in range(whole)] + [{k, k + 4} for k in range(whole)]
    frames = []
    for number, without in enumerate(gone):
        made = kit.Talk((f"10.0.1.{number % 250}", 1000 + number)).open()
        made = _few_identifiers(made.client(kit.connect()).broker(kit.connack())).close()
        frames += [f for k, f in enumerate(made.wrapped()) if k not in without]
    assert broken(sorted(frames, key=lambda f: f[0]), tmp_path) == []


def test_the_order_of_answers_accuses_nobody_who_sends_one_again_that_the_capture_lacks(tmp_path):
    """PUBREL comes again on the same connection, as MQTT 3.1.1 allows; so late that the client's
    side is trusted again."""
    made = said(talk(), [("c", PUB2), ("c", later(2)), ("b", REC), ("b", kit.ack(5, 8))])
    made.seq[0] += len(REL)
    said(made, [("c", kit.ack(6, 8)), ("b", kit.ack(7, 8))]).wait(2)
    said(made, [("c", kit.PINGREQ), ("b", kit.PINGRESP)] * 10)
    assert broken(said(made, [("c", REL), ("b", COMP)]).wrapped(), tmp_path) == []


def test_a_packet_of_type_0_is_a_violation_and_the_next_is_read(tmp_path):
    made = talk().client(kit.packet(0x00, b"ab")).client(kit.PINGREQ).broker(kit.PINGRESP)
    tables = read(made.wrapped(), tmp_path)
    assert [(v["statement"], v["type"]) for v in tables["violations"]] == [
        ("MQTT 3.1.1, 2.2.1", "RESERVED")]  # fmt: skip
    assert [p["type"] for p in tables["packets"]][2:] == ["RESERVED", "PINGREQ", "PINGRESP"]


@pytest.mark.parametrize("asked,statement", [(kit.PINGREQ, "3.12.4-1"), (b"", "3.1.4-4")])
def test_what_is_never_answered_is_told_if_the_client_disconnects(asked, statement, tmp_path):
    made = kit.Talk().open().client(kit.connect(keep_alive=2))
    made = made.broker(kit.connack()).client(asked) if asked else made
    made.segment(1, flags=kit.ACK)
    for k in range(3):
        made.wait(1).client(kit.publish("a", b"%d" % k)).segment(1, flags=kit.ACK)
    made.client(kit.DISCONNECT).close()
    assert broken(made.wrapped(), tmp_path) == [(f"MQTT-{statement}", "broker")]


def test_a_connection_that_is_closed_inside_a_packet_has_a_row(tmp_path):
    made = talk().client(kit.publish("a", bytes(50))[:20]).close()
    found = read(made.wrapped(), tmp_path)
    assert [(p["problem"], p["sender"], p["count"]) for p in found["problems"]] == [
        ("closed inside", "client", 18)]  # fmt: skip
    assert found["violations"] == []


def test_bytes_that_are_sent_again_with_another_content_are_told(tmp_path):
    first, other = kit.publish("a", b"on "), kit.publish("a", b"off")
    for again, told in ((first, []), (other, [("other content", 2)])):
        made = talk().client(first)
        made.segment(0, again, seq=made.seq[0] - len(first))
        found = read(made.client(kit.PINGREQ).broker(kit.PINGRESP).wrapped(), tmp_path)
        assert [(p["problem"], p["count"]) for p in found["problems"]] == told
        assert [p["type"] for p in found["packets"]].count("PUBLISH") == 1


def test_a_frame_that_is_cut_by_the_snap_length_is_not_too_large(tmp_path):
    made = talk().client(kit.subscribe(1, *[(f"topic/{k}", 0) for k in range(40)]))
    path = kit.pcap(tmp_path / "t.pcap", made.broker(kit.suback(1, *[0] * 40)).wrapped(),
                    snap=120)  # fmt: skip
    found = kit.read([path], tmp_path)
    assert {p["problem"] for p in found["problems"]} == {"snapped"}
    assert found["violations"] == []


def _every_kind(made, keep_alive=10):
    """Every kind of packet in both directions, the keep alive kept."""
    made.open().client(kit.connect("dev", keep_alive)).broker(kit.connack())
    made.client(kit.subscribe(1, ("a", 2))).broker(kit.suback(1, 2))
    for k in range(6):
        ident = struct.pack(">H", 20 + k)
        for way in (0, 1):
            made.segment(way, kit.publish("a", b"%d" % k, 1, 20 + k))
            made.segment(1 - way, b"\x40\x02" + ident)
            made.segment(way, kit.publish("a", b"%d" % k, 2, 40 + k))
            made.segment(1 - way, kit.ack(5, 40 + k)).segment(way, kit.ack(6, 40 + k))
            made.segment(1 - way, kit.ack(7, 40 + k))
        made.wait(8).client(kit.PINGREQ).broker(kit.PINGRESP)
    return made.client(UNSUBSCRIBE).broker(kit.ack(11, 7)).client(kit.DISCONNECT).close()


CLOCKS = {
    "all zero": lambda t, k, n: 0,
    "an hour on": lambda t, k, n: t + 3600 * 10**9 * (k > n // 2),
    "an hour back": lambda t, k, n: t - 3600 * 10**9 * (k > n // 2),
    "there and back": lambda t, k, n: t + 3600 * 10**9 * (n // 3 < k < n // 2),
    "1970 in between": lambda t, k, n: 0 if k == n // 2 else t,
    "five seconds back": lambda t, k, n: t - 5 * 10**9 * (k > n // 2),
}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("closes", [True, False])
def test_a_clock_that_is_wrong_accuses_nobody(clock, closes, tmp_path):
    frames = _every_kind(kit.Talk()).wrapped()
    frames = frames if closes else frames[:-5]
    made = [(CLOCKS[clock](t, k, len(frames)), f) for k, (t, f) in enumerate(frames)]
    assert broken(made, tmp_path) == []


def test_a_time_that_does_not_fit_is_that_of_the_frame_before(tmp_path):
    frames = _every_kind(kit.Talk()).wrapped()
    out = [kit.section(), kit.interface(resolution=9)]
    for k, (t, frame) in enumerate(frames):
        out.append(kit.enhanced("<", 0, (1 << 64) - 1 if k in (20, 40) else t, frame))
    path = tmp_path / "t.pcapng"
    path.write_bytes(b"".join(out))
    found = kit.read([path], tmp_path)
    assert found["violations"] == []
    assert [p["problem"] for p in found["problems"]] == ["bad time"] * 2
    times = [p["time"].timestamp() for p in found["packets"]]
    assert max(times) - min(times) < 60


@pytest.mark.parametrize("ng", [False, True])
def test_an_impossible_time_of_the_first_frame_is_that_of_the_next(ng, tmp_path):
    frames = _every_kind(kit.Talk()).wrapped()
    path = kit.pcap(tmp_path / "t.pcap", frames)
    raw = path.read_bytes()
    path.write_bytes(raw[:24] + b"\xff" * 8 + raw[32:])
    if ng:
        path = tmp_path / "t.pcapng"
        path.write_bytes(kit.section() + kit.interface(resolution=9) + b"".join(
            kit.enhanced("<", 0, t if k else (1 << 64) - 1, f)
            for k, (t, f) in enumerate(frames)))  # fmt: skip
    found = kit.read([path], tmp_path)
    (conn,) = found["connections"]
    assert conn["first"].timestamp() == pytest.approx(frames[1][0] / 1e9)
    (told,) = found["problems"]
    assert told["problem"] == "bad time" and told["frame"] == 1 and found["violations"] == []


def test_a_connection_that_just_stops_is_not_accused(tmp_path):
    """Its frames may be missing, while those of another go on. It stops anywhere."""
    frames = _every_kind(kit.Talk(("10.0.0.3", 999), start=kit.START + 30 * 10**9)).wrapped()
    for k in range(4, len(frames)):
        frames += _every_kind(kit.Talk(("10.0.1.2", 1000 + k))).wrapped()[:k]
    assert broken(sorted(frames, key=lambda f: f[0]), tmp_path) == []


def test_a_rule_of_silence_names_no_packet(tmp_path):
    made = talk(keep_alive=1).client(PUB1).broker(kit.ack(4, 7)).wait(12)
    made.segment(1, flags=kit.ACK).segment(0, flags=kit.FIN | kit.ACK)
    found = read(made.wrapped(), tmp_path)["violations"]
    assert [(v["statement"], v["type"]) for v in found] == [
        ("MQTT-3.1.2-23", None), ("MQTT-3.1.2-24", None)]  # fmt: skip


HTTP = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
HELLO = b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + bytes(range(41))
OTHERS = {
    "HTTP": (b"POST /x HTTP/1.1\r\n\r\n", HTTP, "HTTP"),
    "HTTP, the answer alone": (b"", HTTP, "HTTP"),
    "TLS": (HELLO, b"\x16\x03\x03\x00\x02ab", "TLS"),
    "TLS, the answer alone": (b"", b"\x16\x03\x03\x00\x02ab", "TLS"),
    "SSH": (b"", b"SSH-2.0-OpenSSH_9.2\r\n", "not MQTT"),
    "SMTP": (b"", b"220 mail.example ESMTP\r\n", "not MQTT"),
    "Redis": (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n", "not MQTT"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("begun", [True, False])
def test_another_protocol_on_a_port_of_mqtt_is_named_and_not_judged(name, begun, tmp_path):
    asked, answer, told = OTHERS[name]
    made = kit.Talk()
    made = made.open() if begun else made
    for _ in range(4):
        made = said(made, [("c", asked), ("b", answer)])
    found = read(made.close().wrapped(), tmp_path)
    assert found["violations"] == [] and found["packets"] == []
    if begun:
        assert [p["problem"] for p in found["problems"]] == [told]


PROXIES = {
    "version 1": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 1883\r\n",
    "version 2": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12),
}


@pytest.mark.parametrize("version", PROXIES)
@pytest.mark.parametrize("together", [True, False])
def test_a_header_of_the_proxy_protocol_is_passed_over(version, together, tmp_path):
    made = kit.Talk(broker=("10.0.0.1", 17_501)).open()
    hello = kit.connect("behind")
    if together:
        made.client(PROXIES[version] + hello)
    else:
        made.client(PROXIES[version]).client(hello)
    found = read(made.broker(kit.connack()).client(kit.DISCONNECT).close().wrapped(), tmp_path)
    assert [p["type"] for p in found["packets"]] == ["CONNECT", "CONNACK", "DISCONNECT"]
    assert [p["problem"] for p in found["problems"]] == ["PROXY"] and not found["violations"]


@pytest.mark.parametrize("version", PROXIES)
@pytest.mark.parametrize("port", [1883, 17_501])
def test_a_header_of_the_proxy_protocol_may_come_in_pieces(version, port, tmp_path):
    """Its rest comes with CONNECT or before it; also a byte at a time."""
    header, frames, count = PROXIES[version], [], 0
    cuts = [[cut] for cut in range(1, len(header))] + [[4, 9, 17], [*range(1, len(header))]]
    for count, cut in enumerate(cuts):
        made = kit.Talk(("10.0.0.2", 2000 + count), ("10.0.0.1", port)).open()
        for since, until in itertools.pairwise([0, *cut]):
            made.client(header[since:until])
        rest, hello = header[cut[-1] :], kit.connect("behind")
        if count % 2 and port == 1883:
            made.client(rest + hello)
        else:
            made.client(rest).client(hello)
        frames += made.broker(kit.connack()).client(kit.DISCONNECT).close().wrapped()
    found = read(sorted(frames), tmp_path)
    sent = [p["type"] for p in found["packets"]]
    assert [sent.count(kind) for kind in ("CONNECT", "CONNACK", "DISCONNECT")] == [count + 1] * 3
    told = [(p["problem"], p["count"]) for p in found["problems"]]
    assert told == [("PROXY", len(header))] * (count + 1) and not found["violations"]


@pytest.mark.parametrize("first, rest", [
    (b"P", b"\2\0\1"), (b"\r\n", b"hello\r\n"),
    (b"PROXY ", b"x" * 120 + b"\r\n"), (b"\r\n\r\n\0\r\nQ", b"UIET\n\x21\x11\0\0")])  # fmt: skip
def test_what_only_begins_as_such_a_header_is_read_as_before(first, rest, tmp_path):
    pieces, whole = (
        read(made.client(kit.connect("late")).close().wrapped(), tmp_path) for made in (
            kit.Talk().open().client(first).client(rest), kit.Talk().open().client(first + rest)))
    assert [p["type"] for p in pieces["packets"]] == [p["type"] for p in whole["packets"]]
    assert [p["problem"] for p in pieces["problems"]] == [p["problem"] for p in whole["problems"]]
    assert [v["statement"] for v in pieces["violations"]] == [
        v["statement"] for v in whole["violations"]]  # fmt: skip


def test_session_present_is_not_known_before_311(tmp_path):
    for name, level, told in (("MQIsdp", 3, None), ("MQTT", 4, False)):
        made = kit.Talk().open().client(kit.connect(name=name, level=level)).broker(kit.connack())
        found = read(made.wrapped(), tmp_path)
        assert found["connections"][0]["session_present"] is told
        assert found["packets"][1]["session_present"] is told
