"""What is sent twice on a connection may be answered twice, and no more than that: by identifier,
and also when the identifier is another message's by then (MQTT 3.1.1, 4.3.2 and 4.3.3: it is free
as soon as the last answer came).

Knows: audit_kit, the tables. Must not know: how exchanges are put together.
"""

import audit_kit as kit
import mqtt5 as five
import pytest
from devices import Device, as_lines, rows

A1, A1_DUP, B1 = (kit.publish("t", text, 1, 1, dup=dup)
                  for text, dup in ((b"A", False), (b"A", True), (b"B", False)))  # fmt: skip
C1 = kit.publish("t", b"C", 1, 1)
A2, A2_DUP, B2 = (kit.publish("t", text, 2, 1, dup=dup)
                  for text, dup in ((b"A", False), (b"A", True), (b"B", False)))  # fmt: skip
PUBACK, PUBREC, PUBREL, PUBCOMP = (kit.ack(kind, 1) for kind in (4, 5, 6, 7))
REST = [(1, PUBREC), (0, PUBREL), (1, PUBCOMP)]  #: of QoS 2

#: What is said: (0 the sender of the messages, 1 their receiver; packet).
RIGHT = {
    "PUBACK, then QoS 2": [(0, A1), (0, A1_DUP), (1, PUBACK), (0, B2), (1, PUBACK), *REST],
    "PUBCOMP": [(0, A2), (1, PUBREC), (0, PUBREL), (0, PUBREL), (1, PUBCOMP), (0, B2),
                (1, PUBCOMP), *REST],
    "PUBREC, then QoS 1": [(0, A2), (0, A2_DUP), *REST, (0, B1), (1, PUBREC), (0, PUBREL),
                           (1, PUBACK), (1, PUBCOMP)],
    "PUBACK, then QoS 1": [(0, A1), (0, A1_DUP), (1, PUBACK), (0, B1), (1, PUBACK), (1, PUBACK)],
    "sent again before it was answered": [(0, A1), (1, PUBACK), (0, A1_DUP), (0, B1), (1, PUBACK),
                                          (1, PUBACK)],
    "so, then QoS 2": [(0, A1), (1, PUBACK), (0, A1_DUP), (0, B2), (1, PUBACK), *REST],
    "PUBREL before it was answered": [(0, A2), *REST, (0, PUBREL), (0, B1), (1, PUBCOMP),
                                      (1, PUBACK)],
    "PUBREL so, then QoS 2": [(0, A2), *REST, (0, PUBREL), (0, B2), (1, PUBCOMP), *REST],
    "so, and the next message is the same": [(0, A1), (1, PUBACK), (0, A1_DUP), (0, A1),
                                             (1, PUBACK), (1, PUBACK)],
    "twice twice": [(0, A1), (0, A1_DUP), (1, PUBACK), (1, PUBACK)],
    # It arrives behind the next message, whose sender takes it for the answer to that.
    "the second PUBACK frees it": [(0, A1), (0, A1_DUP), (1, PUBACK), (1, PUBACK), (0, B1),
                                   (0, C1), (1, PUBACK), (1, PUBACK)],
    "so, and the next is the same": [(0, A1), (0, A1_DUP), (1, PUBACK), (1, PUBACK), (0, B1),
                                     (0, B1), (1, PUBACK), (1, PUBACK)],
    "so, for a repetition behind its answer": [
        (0, A1), (1, PUBACK), (0, A1_DUP), (1, PUBACK), (0, B1), (0, C1), (1, PUBACK),
        (1, PUBACK)],
    "so, again and again": [(0, A1), (0, A1_DUP), (1, PUBACK), (1, PUBACK), (0, B1), (0, C1),
                            (1, PUBACK), (1, PUBACK), (0, B1), (0, C1), (1, PUBACK), (1, PUBACK)],
    "the second PUBCOMP frees it": [(0, A2), (1, PUBREC), (0, PUBREL), (0, PUBREL), (1, PUBCOMP),
                                    (1, PUBCOMP), (0, B2), (1, PUBREC), (0, PUBREL), (0, C1),
                                    (1, PUBCOMP), (1, PUBACK)],
}  # fmt: skip
WRONG = {
    "PUBACK": [(0, A1), (0, A1_DUP), (1, kit.ack(4, 99)), (1, PUBACK), (1, PUBACK)],
    "PUBREC": [(0, A1), (0, A1_DUP), (1, kit.ack(5, 99)), (1, PUBACK)],
    "PUBCOMP": [(0, A1), (0, A1_DUP), (1, kit.ack(7, 99)), (1, PUBACK)],
}
#: What its sender must not do: there were no more answers than messages.
TOO_EARLY = {
    "one answer": [(0, A1), (0, A1_DUP), (1, PUBACK), (0, B1), (0, C1)],
    "one of two is taken": [(0, A1), (0, A1_DUP), (1, PUBACK), (1, PUBACK), (0, B1), (0, C1),
                            (0, B1)],
    "PUBREL before PUBREC": [(0, A2), (1, PUBREC), (0, PUBREL), (0, B2), (0, PUBREL),
                             (1, PUBCOMP), (1, PUBREC), (1, PUBCOMP)],
    "PUBREC only": [(0, A2), (0, A2_DUP), *REST, (1, PUBREC), (0, B2), (1, PUBREC), (0, C1)],
    "before PUBREL": [(0, A2), (1, PUBREC), (0, PUBREL), (0, PUBREL), (1, PUBCOMP), (1, PUBCOMP),
                      (0, B2), (0, C1)],
}  # fmt: skip


def _found(sender, packets, tmp_path, flags=2):
    hello = kit.connect(flags=flags), kit.connack(present=not flags)
    made = kit.Talk().open().client(hello[0]).broker(hello[1])
    for side, packet in packets:
        made.segment(side ^ sender, packet)
    path = kit.pcap(tmp_path / "t.pcap", made.close().wrapped())
    return [v for v in kit.read([path], tmp_path)["violations"]
            if "DUP" not in v["what"] and "4.4.0-1" not in v["statement"]]  # fmt: skip


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("packets", RIGHT.values(), ids=RIGHT)
def test_the_second_answer_is_right_whoever_has_the_identifier(packets, sender, tmp_path):
    assert _found(sender, packets, tmp_path) == []


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("packets", WRONG.values(), ids=WRONG)
def test_an_answer_to_another_identifier_is_wrong(packets, sender, tmp_path):
    (one,) = _found(sender, packets, tmp_path)
    assert "99" in one["what"]


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("packets", TOO_EARLY.values(), ids=TOO_EARLY)
def test_each_answer_too_many_frees_the_identifier_once(packets, sender, tmp_path):
    one, *more = _found(sender, packets, tmp_path)
    assert one["sender"] == ("client", "broker")[sender] and "in flight" in one["what"]
    assert all("before PUBREC came" in v["what"] and v["sender"] == one["sender"] for v in more)


@pytest.mark.parametrize("ends", [(1, PUBACK), (0, kit.subscribe(1, ("a", 0)))])
def test_a_request_may_have_an_identifier_that_an_answer_too_many_has_freed(ends, tmp_path):
    said = [(0, A1), (0, A1_DUP), (1, PUBACK), (1, PUBACK), (0, B1),
            (0, kit.subscribe(1, ("a", 0))), (1, PUBACK), (1, kit.suback(1, 0))]  # fmt: skip
    told = _found(0, said if ends[0] else [*said[:3], *said[4:]], tmp_path)
    assert [v["sender"] for v in told] == ([] if ends[0] else ["client"])


@pytest.mark.parametrize("first", range(1, 6))
@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
def test_what_was_sent_twice_before_the_capture_is_answered_in_it(sender, first, tmp_path):
    said = [(0, A2), (1, PUBREC), (0, PUBREL), (0, PUBREL), (1, PUBCOMP), (0, B1), (1, PUBCOMP),
            (1, PUBACK)]  # fmt: skip
    made = kit.Talk()
    for side, packet in said[first:]:
        made.segment(side ^ sender, packet)
    path = kit.pcap(tmp_path / "t.pcap", made.close().wrapped())
    assert kit.read([path], tmp_path)["violations"] == []


def test_a_publish_of_the_session_before_is_in_flight_whatever_takes_its_identifier(tmp_path):
    """SUBSCRIBE may not, though the message with DUP comes behind it."""
    said = [(0, kit.subscribe(1, ("a", 0))), (0, A1_DUP), (1, PUBACK), (1, kit.suback(1, 0))]
    (one,) = _found(0, said, tmp_path, flags=0)
    assert one["sender"] == "client" and "in flight" in one["what"]


#: What goes on from the connection before, and its answer.
GOES_ON = {"PUBREL": (PUBREL, PUBCOMP), "QoS 1": (A1_DUP, PUBACK), "QoS 2": (A2_DUP, PUBREC)}


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("packet,answers", [(B1, [(1, PUBACK)]), (B2, REST)], ids=["B 1", "B 2"])
@pytest.mark.parametrize("first,answer", GOES_ON.values(), ids=GOES_ON)
def test_an_identifier_whose_message_goes_on_is_not_free(
        first, answer, packet, answers, sender, tmp_path):  # fmt: skip
    """Who answers both is right."""
    said = [(0, first), (0, packet), (1, answer), *answers]
    (one,) = _found(sender, said, tmp_path, flags=0)
    assert one["sender"] == ("client", "broker")[sender] and "in flight" in one["what"]


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
def test_a_pubrel_of_the_connection_before_may_come_late_too(sender, tmp_path):
    said = [(0, PUBREL), (1, PUBCOMP), (0, PUBREL), (0, B1), (1, PUBCOMP), (1, PUBACK)]
    assert _found(sender, said, tmp_path, flags=0) == []


@pytest.mark.parametrize("answer", [kit.suback(1, 0), kit.packet(0xB0, b"\0\1")])
def test_an_identifier_that_is_free_may_be_that_of_a_request(answer, tmp_path):
    asks = (kit.subscribe(1, ("a", 0)) if answer[0] == 0x90
            else kit.packet(0xA2, b"\0\1" + kit.string("a")))  # fmt: skip
    said = [(0, A1), (1, PUBACK), (0, A1_DUP), (0, asks), (1, PUBACK), (1, answer)]
    assert _found(0, said, tmp_path) == []


def test_a_gap_may_have_the_answer_with_the_end_of_the_connection(tmp_path):
    """The next one has the same text and, as a program that is started anew, the same number."""
    from mqtt_audit import run

    device = Device("dev", kit.START)
    talk = device.open(0).client(A1)
    lacking = len(talk.frames)
    device.over(talk.broker(PUBACK).client(kit.DISCONNECT))
    device.over(device.open().client(A1).broker(PUBACK))
    for gap in (slice(lacking, None), slice(0, 0)):
        first = talk.wrapped()
        del first[gap]
        path = kit.pcap(tmp_path / "t.pcap", [*first, *device.talks[1].wrapped()])
        run.build(None, [path], tmp_path / "out")
        assert rows(tmp_path / "out", "violations") == []


@pytest.mark.parametrize("ended", [True, False], ids=["PUBCOMP", "open"])
@pytest.mark.parametrize("over", [2, 3, 4])
def test_a_pubrel_goes_on_over_any_number_of_connections(over, ended, tmp_path):
    from mqtt_audit import run

    device = Device("dev", kit.START)
    for k in range(over):
        talk = device.open(k > 0)
        if not k:
            talk.client(A2).broker(PUBREC)
        talk.client(PUBREL)
        device.over(talk.broker(PUBCOMP) if ended and k == over - 1 else talk)
    paths = [kit.pcap(tmp_path / f"{k}.pcap", t.wrapped()) for k, t in enumerate(device.talks)]
    run.build(None, paths, tmp_path / "out")
    (flow,) = rows(tmp_path / "out", "flows")
    assert (flow["topic"], flow["connections"]) == ("t", over)
    assert flow["outcome"] == ("acknowledged" if ended else "open")


@pytest.mark.parametrize("qos", [1, 2])
def test_a_hundred_messages_go_on_over_the_next_connection(qos, tmp_path):
    """With DUP, as they have to; their rows are one for each."""
    from mqtt_audit import run

    idents = range(1, 101)
    device = Device("dev", kit.START)
    talk = device.open(0)
    for ident in idents:
        talk.client(kit.publish("t", b"%d" % ident, qos, ident))
    device.over(talk)
    talk = device.open()
    for ident in idents:
        talk.client(kit.publish("t", b"%d" % ident, qos, ident, dup=True))
    for kinds in ((4,),) if qos == 1 else ((5,), (6,), (7,)):
        for ident in idents:
            talk.segment(kinds[0] != 6, kit.ack(kinds[0], ident))
    device.over(talk)
    paths = [kit.pcap(tmp_path / f"{k}.pcap", t.wrapped()) for k, t in enumerate(device.talks)]
    run.build(None, paths, tmp_path / "out")

    flows = rows(tmp_path / "out", "flows")
    assert {(f["outcome"], f["sent"], f["connections"]) for f in flows} == {("acknowledged", 2, 2)}
    assert len(flows) == 100


def _five(*said, tmp_path):
    """What is told of a new session of MQTT 5 in which a client's message is spoken of."""
    made = kit.Talk().open().client(five.connect()).broker(five.connack())
    for side, packet in said:
        made.segment(side, packet)
    path = kit.pcap(tmp_path / "t.pcap", made.close().wrapped())
    return [(v["statement"], v["sender"]) for v in kit.read([path], tmp_path)["violations"]]


def test_what_an_earlier_connection_left_comes_with_dup_in_a_new_session(tmp_path):
    """As paho's client does it; nothing is sent twice on this connection."""
    said = [(side, packet) for ident in (1, 2, 3) for side, packet in (
        (0, five.publish("t", qos=1, ident=ident, dup=True)), (1, kit.ack(4, ident)))]  # fmt: skip
    assert _five(*said, tmp_path=tmp_path) == []


def test_a_pubrec_of_mqtt_5_that_refuses_what_another_one_took(tmp_path):
    """Who sent PUBREL had the first one, and is right."""
    said = (0, five.publish("t", qos=2, ident=1)), (1, PUBREC), (1, five.ack(5, 1, 0x87))
    found = _five(*said, (0, PUBREL), (1, PUBCOMP), tmp_path=tmp_path)
    assert found == [("MQTT-4.4.0-1", "broker")]


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
def test_who_answers_pubcomp_too_early_is_told_and_nobody_else(sender, tmp_path):
    """PUBREC demands its PUBREL all the same."""
    for said in ([(0, A2), (1, PUBREC), (1, PUBCOMP), (0, PUBREL), (1, PUBCOMP), (0, B1),
                  (1, PUBACK)],
                 [(0, A2), (1, PUBREC), (1, PUBCOMP), (0, PUBREL), (0, B1), (1, PUBACK)]):
        (one,) = _found(sender, said, tmp_path)
        assert one["sender"] == ("broker", "client")[sender] and "no PUBREL" in one["what"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_request_of_mqtt_3_1_that_comes_again_holds_its_identifier_until_an_answer(
        before, tmp_path):  # fmt: skip
    asks, again = (kit.packet(head, b"\0\1" + kit.string("a") + b"\0") for head in (0x82, 0x8A))
    answers = [(1, kit.suback(1, 0))] * 2
    made = kit.Talk().open().client(kit.connect(name="MQIsdp", level=3)).broker(kit.connack())
    for side, packet in [(0, asks), (0, again), *answers[:before], (0, A1), *answers[before:],
                         (1, PUBACK)]:  # fmt: skip
        made.segment(side, packet)
    path = kit.pcap(tmp_path / "t.pcap", made.close().wrapped())
    told = [v["sender"] for v in kit.read([path], tmp_path)["violations"]]
    assert told == ([] if before else ["client"])


@pytest.mark.parametrize("sender", [0, 1], ids=["client", "broker"])
def test_a_pubrel_that_goes_on_gives_back_of_the_quota(sender, tmp_path):
    """MQTT 5, 4.9: each PUBCOMP does, up to the Receive Maximum and no further."""
    limit = five.prop(0x21, five.number(2, 1))
    hello = [five.connect(flags=0), five.connack(present=1)]
    hello[1 - sender] = (five.connack(limit, present=1) if sender == 0
                         else five.connect(limit, flags=0))  # fmt: skip
    made = kit.Talk().open().client(hello[0]).broker(hello[1])
    sends = [five.publish("t", qos=1, ident=ident) for ident in (2, 3, 4)]
    told = []
    for more in (sends[:2], sends):
        talk = [PUBREL, sends[0]]
        for packet in talk:
            made.segment(sender, packet)
        made.segment(1 - sender, PUBCOMP)
        for packet in more[1:]:
            made.segment(sender, packet)
        for ident in range(2, 2 + len(more)):
            made.segment(1 - sender, kit.ack(4, ident))
        path = kit.pcap(tmp_path / "t.pcap", made.wrapped())
        told.append([v["sender"] for v in kit.read([path], tmp_path)["violations"]])
    assert told == [[], [("client", "broker")[sender]]]


@pytest.mark.parametrize("skew", [0, 3600], ids=["one clock", "two clocks"])
def test_what_was_on_its_way_to_a_client_that_resets_answers_its_message(skew, tmp_path):
    """However much else is in flight then: what is open is swept when there is much of it."""
    busy = kit.Talk(start=kit.START + skew * 10**9).open()
    busy.client(kit.connect("busy")).broker(kit.connack())
    busy.step = 1000
    for ident in range(1, 4000):
        busy.client(kit.publish("t", b"x", 1, ident))
    short = kit.Talk(client=("10.0.0.99", 5000), start=busy.now - skew * 10**9)
    short.open().client(kit.connect("short")).broker(kit.connack()).client(A1)
    short.segment(0, flags=kit.RST)
    frames = busy.wrapped() + short.wrapped()
    del busy.frames[:]
    for _ in range(50_000):
        busy.client(kit.publish("t", b"x"))
    frames += busy.wrapped()
    del short.frames[:]
    short.wait(0.06).broker(PUBACK)
    kit.pcap(tmp_path / "t.pcap", frames + short.wrapped())
    assert as_lines(tmp_path / "out") == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_pubcomp_gives_back_of_the_quota_though_it_comes_too_early(qos, tmp_path):
    limit = five.prop(0x21, five.number(2, 1))
    made = kit.Talk().open().client(five.connect()).broker(five.connack(limit))
    for side, packet in [(0, five.publish("t", qos=qos, ident=1)), *[(1, PUBREC)] * (qos == 2),
                         (1, PUBCOMP), *[(0, PUBREL)] * (qos == 2),
                         (0, five.publish("t", qos=1, ident=2)), (1, kit.ack(4, 2))]:  # fmt: skip
        made.segment(side, packet)
    path = kit.pcap(tmp_path / "t.pcap", made.wrapped())
    assert {v["sender"] for v in kit.read([path], tmp_path)["violations"]} == {"broker"}


def test_who_mixes_two_messages_under_one_identifier_is_told_once(tmp_path):
    """PUBREC demands its PUBREL, whichever of the two it is of."""
    said = (0, five.publish("t", qos=2, ident=1)), (0, five.publish("t", qos=1, ident=1))
    found = _five(*said, (1, PUBREC), (1, PUBACK), (0, PUBREL), (1, PUBCOMP), tmp_path=tmp_path)
    assert found == [("MQTT-2.2.1-3", "client")]
