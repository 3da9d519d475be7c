"""MQTT on a port that nobody named, on connections that began before the capture.

Knows: audit_kit, what other protocols look like. Must not know: what is taken for evidence.
"""

import random

import audit_kit as kit
import pytest

OTHER = ("10.0.0.1", 17_501)


def read(made, tmp_path, **more):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path, **more)


def sent(made, count, qos=0, size=40):
    for k in range(1, count + 1):
        made.client(kit.publish("a/b", bytes(size), qos, k))
        if qos:
            made.broker(kit.ack(4, k))
    return made


def test_a_stream_of_publish_is_found(tmp_path):
    found = read(sent(kit.Talk(broker=OTHER), 5), tmp_path)
    assert [p["topic"] for p in found["packets"]] == ["a/b"] * 5
    assert [(c["client"], c["broker"]) for c in found["connections"]] == [
        ("10.0.0.2:40000", "10.0.0.1:17501")]  # fmt: skip
    assert found["violations"] == []


@pytest.mark.parametrize("first", [1, 2, 3, 51])
@pytest.mark.parametrize("size", [40, 3000])
def test_every_packet_in_two_segments_and_more(first, size, tmp_path):
    made = kit.Talk(broker=OTHER)
    for k in range(1, 7):
        raw = kit.publish("a/b", bytes(size), 1, k)
        made.client(raw[:first])
        for at in range(first, len(raw), 1400):
            made.client(raw[at : at + 1400])
        made.broker(kit.ack(4, k))
    found = read(made, tmp_path)
    assert len([p for p in found["packets"] if p["topic"] == "a/b"]) >= 5
    assert found["violations"] == []


@pytest.mark.parametrize("piece", [
    b"0", b"00", b"000", b"\x820", b"0\x82", b"@", b"@@", b"bb", b"PP", b"pp"])  # fmt: skip
def test_the_same_byte_again_and_again_is_no_packet(piece, tmp_path):
    """As a program wakes itself up, over a connection of its own (paho-mqtt: b"0")."""
    made = kit.Talk(broker=OTHER)
    for _ in range(900):
        made.client(piece)
    found = read(made, tmp_path)
    assert found["connections"] == found["packets"] == found["problems"] == []


def test_the_end_that_asks_is_the_client_whatever_its_port(tmp_path):
    made = kit.Talk(("10.0.0.2", 1_024), ("10.0.0.1", 50_000))
    for _ in range(8):
        made.client(kit.PINGREQ).broker(kit.PINGRESP)
    (row,) = read(made, tmp_path)["connections"]
    assert row["broker"] == "10.0.0.1:50000" and row["client_packets"] == 8


def test_a_capture_without_the_connect(tmp_path):
    """SYN is there, the frame of CONNECT is missing."""
    made = kit.Talk(broker=OTHER).open().client(kit.connect()).broker(kit.connack())
    sent(made, 6, qos=1)
    del made.frames[3]
    found = read(made, tmp_path)
    assert len([p for p in found["packets"] if p["topic"]]) >= 5 and found["violations"] == []


def test_another_short_connection_of_the_same_broker_is_read(tmp_path):
    """Also in another file."""
    one = sent(kit.Talk(broker=OTHER), 8)
    two = sent(kit.Talk(("10.0.0.3", 40_001), OTHER, start=one.now), 1)
    files = [kit.pcap(tmp_path / f"{k}.pcap", t.wrapped()) for k, t in enumerate((one, two))]
    found = kit.read(files, tmp_path)
    assert len(found["packets"]) == 9


def _noise(choice, kind):
    """Bytes of some protocol that is not MQTT."""
    if kind == "random":
        return choice.randbytes(choice.randrange(1, 1400))
    if kind == "DER":
        inner = choice.randbytes(choice.randrange(3, 100))
        return b"\x30" + bytes([len(inner) + 3, 2, 1, choice.randrange(128)]) + inner
    if kind == "text":
        words = ("200 OK", "0x30", "GET /", "hello", "0", "P", "@")
        return " ".join(choice.choices(words, k=9)).encode() + b"\r\n"
    if kind == "records":  # of a length and so many bytes
        inner = choice.randbytes(choice.randrange(200))
        return bytes([choice.choice((0x30, 0x32, 0x40, 0xC0, 0x90)), len(inner)]) + inner
    return b"\x17\x03\x03" + (300).to_bytes(2, "big") + choice.randbytes(300)


@pytest.mark.parametrize("kind", ["random", "DER", "text", "records", "TLS"])
def test_nothing_else_is_taken_for_it(kind, tmp_path):
    choice, frames = random.Random(kind), []
    for k in range(20):
        made = kit.Talk(("10.0.0.2", 30_000 + k), ("10.0.0.1", 9_000 + k))
        for _ in range(200):
            made.segment(choice.randrange(2), _noise(choice, kind))
        frames += made.wrapped()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert found["connections"] == [] and found["packets"] == []


def test_it_is_found_while_the_capture_comes(tmp_path):
    from mqtt_audit.following import Following

    made = sent(kit.Talk(broker=OTHER), 30, qos=1)
    path, rows = kit.pcap(tmp_path / "t.pcap", made.wrapped()), []
    following = Following(lambda table, found: rows.extend(
        found.to_pylist() if table == "packets" else ()))  # fmt: skip
    raw = path.read_bytes()
    following.capture("t", (raw[at : at + 500] for at in range(0, len(raw), 500)))
    following.finish()
    assert 50 < len(rows) <= 60
