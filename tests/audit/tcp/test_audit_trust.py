"""After a loss a side is believed again, when its packets stand where they must.

Knows: audit_kit. Must not know: how the audit keeps what it believes.
"""

import audit_kit as kit
import pytest


def lossy(gone, after, way=0, calm=12):
    """A client, of which `gone` frames are lost, or of the broker (way 1); then `calm` messages,
    each in a segment, then what `after` says."""
    made = kit.Talk().open().client(kit.connect(keep_alive=10)).broker(kit.connack())
    before = len(made.frames)
    for k in range(gone):
        made.segment(way, kit.publish("lost", b"%d" % k))
    del made.frames[before : before + gone]
    for k in range(calm + 1):  # the first of them shows the loss, which is one after a second
        made.segment(way, kit.publish("t", b"%d" % k)).segment(1 - way, flags=kit.ACK)
        made.wait(2 * (k < 2))
    after(made)
    return made.close()


def told(made, tmp_path):
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert "loss" in {p["problem"] for p in found["problems"]}
    return [(v["statement"], v["sender"]) for v in found["violations"]]


def silence(made):
    made.wait(12).client(kit.PINGREQ).broker(kit.PINGRESP)


def one_identifier_twice(made):
    made.client(kit.publish("a", b"1", 1, 7)).segment(1, flags=kit.ACK)
    made.client(kit.publish("b", b"2", 1, 7)).broker(kit.ack(4, 7))


def one_identifier_twice_later(made):
    """When what was repeated in the gap must have been answered, too."""
    for ident in range(100, 160):
        made.client(kit.publish("t", b"1", 1, ident)).broker(kit.ack(4, ident))
    one_identifier_twice(made)


AFTER = {
    "silence": (silence, [("MQTT-3.1.2-23", "client")]),
    "QoS 3": (lambda made: made.client(b"\x36\x05\0\1a\0\1"), [("MQTT-3.3.1-4", "client")]),
    "identifier": (one_identifier_twice_later, [("MQTT-2.3.1-2", "client")]),
    "identifier, soon": (one_identifier_twice, []),
}


@pytest.mark.parametrize("name", AFTER)
def test_what_comes_long_after_a_loss_counts(name, tmp_path):
    after, wanted = AFTER[name]
    assert told(lossy(3, after), tmp_path) == wanted


def test_a_loss_of_the_broker_hides_only_what_it_may_have_answered(tmp_path):
    def reused(made):
        made.broker(kit.publish("x"))
        one_identifier_twice_later(made)

    assert told(lossy(3, reused, way=1), tmp_path) == [("MQTT-2.3.1-2", "client")]


def test_a_loss_between_hides_an_answer(tmp_path):
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    made.client(kit.publish("a", b"1", 1, 7)).broker(kit.ack(4, 7))
    del made.frames[-1]
    made.broker(kit.publish("x")).wait(2).client(kit.publish("b", b"2", 1, 7))
    made.broker(kit.ack(4, 7)).wait(2).client(kit.PINGREQ).broker(kit.PINGRESP)
    assert told(made.close(), tmp_path) == []


@pytest.mark.parametrize("calm", [0, 3])
def test_what_comes_soon_after_a_loss_does_not_count(calm, tmp_path):
    for name in ("QoS 3", "identifier, soon"):
        assert told(lossy(3, AFTER[name][0], calm=calm), tmp_path) == []


def test_packets_in_a_payload_are_not_believed(tmp_path):
    """The beginning of a PUBLISH is lost; what it carries looks like packets, one with QoS 3."""
    inner = b"".join(kit.publish("in", b"%03d" % k) for k in range(900)) + b"\x36\x05\0\1a\0\1"
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    raw = kit.publish("out", inner * 3)
    gone = len(made.frames)
    for at in range(0, len(raw), 1400):
        made.client(raw[at : at + 1400])
    del made.frames[gone]
    for _ in range(12):
        made.client(kit.PINGREQ).broker(kit.PINGRESP)
    assert told(made.close(), tmp_path) == []
