"""A WebSocket on a port that nobody named, of which the capture lacks what asks for it.

Knows: audit_kit, RFC 6455. Must not know: what is taken for evidence.
"""

import random

import audit_kit as kit
import pytest
from web_frames import AGREED, ASKED, frame

WEB = ("10.0.0.1", 9001)


def _talk(client=kit.CLIENT, start=kit.START, broker=WEB):
    """A connection: 4 frames to GET, the 5th grants it, the 6th has CONNECT."""
    made = kit.Talk(client, broker, start=start).open().client(ASKED).broker(AGREED)
    said = [(0, kit.connect("web")), (1, kit.connack()), (0, kit.subscribe(1, ("a/#", 1))),
            (1, kit.suback(1, 1))]  # fmt: skip
    for ident in range(2, 6):
        said += [(0, kit.publish("a/b", bytes(200 * ident), 1, ident)), (1, kit.ack(4, ident))]
    for sender, raw in [*said, (0, kit.PINGREQ), (1, kit.PINGRESP)]:
        made.segment(sender, frame(raw, mask=None if sender else b"\x81\x0f\xa5\x5a"))
    return made.segment(0, flags=kit.ACK)


def _read(frames, tmp_path, **more):
    return kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path, **more)


def _of(way, frames):
    return [(t, f) for t, f in frames if (f[26:30] == b"\x0a\0\0\1") == (way == "broker")]


def _as_lines(path):
    """{table: rows} of the same with --json."""
    from mqtt_audit import sources

    told = {}
    sources.lines([str(path)], lambda table, rows: told.setdefault(table, []).extend(
        rows.to_pylist()), (1883,))  # fmt: skip
    return told


LACKING = {"GET": [3], "all up to the answer": [0, 1, 2, 3], "the answer": [4], "both": [3, 4],
           "all up to there": [0, 1, 2, 3, 4],
           "all up to the first PUBLISH": list(range(9))}  # fmt: skip


@pytest.mark.parametrize("side", ["both", "client", "broker"])
@pytest.mark.parametrize("lost", LACKING.values(), ids=LACKING)
def test_it_has_a_row(lost, side, tmp_path):
    """The same with --json, in parts of a file, and beside a connection that is whole."""
    frames = [f for k, f in enumerate(_talk().wrapped()) if k not in lost]
    frames = frames if side == "both" else _of(side, frames)
    found = _read(frames, tmp_path)
    (one,) = found["connections"]
    assert (one["client"], one["broker"]) == ("10.0.0.2:40000", "10.0.0.1:9001")
    missing = [n for n, k in (("client", 3), ("broker", 4)) if k in lost and side in (n, "both")]
    assert bool(found["problems"]) == bool(missing)
    assert found["violations"] == []
    (told,) = _as_lines(tmp_path / "t.pcap")["connections"]
    assert [told[n] for n in ("client", "broker")] == [one[n] for n in ("client", "broker")]
    assert len(_read(frames, tmp_path, part_size=800)["connections"]) == 1
    other = _talk(("10.0.0.3", 41_000), kit.START + 10**9).wrapped()
    found = _read(sorted(frames + other), tmp_path)
    assert [c["client"] for c in found["connections"]] == ["10.0.0.2:40000", "10.0.0.3:41000"]


def test_both_directions_in_two_files(tmp_path):
    frames = [f for k, f in enumerate(_talk().wrapped()) if k != 3]
    paths = [kit.pcap(tmp_path / f"{side}.pcap", _of(side, frames))
             for side in ("client", "broker")]  # fmt: skip
    (one,) = kit.read(paths, tmp_path)["connections"]
    assert (one["broker"], one["unseen"]) == ("10.0.0.1:9001", None)


@pytest.mark.parametrize("lost", [[3], [4], [3, 4], list(range(9))], ids=str)
def test_nobody_knows_whether_what_cannot_be_read_has_the_answers(lost, tmp_path):
    """Both sides are there; the capture lacks what makes one of them readable."""
    made = _talk()
    for ident in range(6, 9):
        made.broker(frame(kit.publish("a/b", b"x", 1, ident)))
        made.client(frame(kit.ack(4, ident), mask=b"\x81\x0f\xa5\x5a"))
    found = _read([f for k, f in enumerate(made.wrapped()) if k not in lost], tmp_path)
    [row] = found["connections"]
    unread = [n for n in ("client", "broker") if not row[f"{n}_packets"]]
    assert len(unread) == 1 and row["unseen"] is None
    told = {(f["sender"], f["outcome"]) for f in found["flows"]}
    assert [s for s, outcome in told if outcome == "unseen"] == [
        n for n in ("client", "broker") if n not in unread]
    assert "open" not in {outcome for _, outcome in told}


TLS = b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"
CHAT = AGREED.replace(b"Protocol: mqtt", b"Protocol: chat")


def _other(kind, choice):
    """[(sender, bytes)] of what is no WebSocket with MQTT."""
    raw = choice.randbytes
    if kind == "HTTP":
        return [(0, b"GET /mqtt HTTP/1.1\r\nHost: b\r\n\r\n"),
                (1, b"HTTP/1.1 200 OK\r\n\r\nsec-websocket-protocol: mqtt websocket")]  # fmt: skip
    if kind == "TLS":
        return [(0, TLS + raw(240)), (1, b"\x16\x03\x03\0\x7a\x02" + raw(1200)),
                *((k % 2, b"\x17\x03\x03\0\x45" + raw(69)) for k in range(20))]  # fmt: skip
    if kind == "SSH":
        hello = [(1, b"SSH-2.0-x\r\n"), (0, b"SSH-2.0-y\r\n")]
        return [*hello, *((k % 2, raw(36)) for k in range(9))]
    if kind == "random":
        return [(k % 2, b"\x82" + raw(choice.choice((1, 5, 60)))) for k in range(60)]
    if kind == "text":
        return [(k % 2, frame(b'{"a": 1}', 1, mask=None if k % 2 else raw(4))) for k in range(40)]
    if kind == "chat":
        return [(0, ASKED.replace(b"mqtt", b"chat")), (1, CHAT), *(
            (k % 2, frame(raw(choice.choice((2, 5, 60))), mask=None if k % 2 else raw(4)))
            for k in range(60))]  # fmt: skip
    return [(k % 2, frame(b"", 9 + k % 2, mask=None if k % 2 else raw(4))) for k in range(40)]


@pytest.mark.parametrize("kind", ["HTTP", "TLS", "SSH", "random", "text", "chat", "pings"])
def test_other_traffic_has_none(kind, tmp_path):
    """Also at an address that is a broker's for other connections."""
    choice, frames = random.Random(kind), _talk(("10.0.0.3", 41_000)).wrapped()
    for k in range(6):
        made = kit.Talk(("10.0.0.2", 40_000 + k), WEB, start=kit.START + k * 10**9)
        if k % 2:
            made.open()
        for sender, raw in _other(kind, choice):
            made.segment(sender, raw)
        frames += made.wrapped()
    found = _read(sorted(frames), tmp_path)
    assert [c["client"] for c in found["connections"]] == ["10.0.0.3:41000"]
    assert found["problems"] == []


@pytest.mark.parametrize("snap", [56, 57, 60])
def test_a_short_snap_length_makes_no_packets_of_its_frames(snap, tmp_path):
    """The header of a frame may be that of a SUBSCRIBE, and both are as long as they say."""
    made = kit.Talk(broker=WEB).open().client(ASKED).broker(AGREED)
    for ident in range(1, 20):
        made.broker(frame(kit.publish("a/b", b"x", 1, ident))).client(
            frame(kit.ack(4, ident), mask=b"\x81\x0f\xa5\x5a"))  # fmt: skip
    path = kit.pcap(tmp_path / "t.pcap", made.close().wrapped(), snap=snap)
    found = kit.read([path], tmp_path)
    assert found["connections"] == []
    assert [p["problem"] for p in found["problems"]] == ["snapped"]


def test_a_capture_that_begins_with_the_answer_has_what_the_client_sends(tmp_path):
    """Its frames were taken for the rest of its request, and the broker accused."""
    made = _talk()
    for ident in range(7, 10):
        for sender, raw in ((1, kit.publish("a/c", b"x", 2, ident)), (0, kit.ack(5, ident)),
                            (1, kit.ack(6, ident)), (0, kit.ack(7, ident))):  # fmt: skip
            made.segment(sender, frame(raw, mask=None if sender else b"\x81\x0f\xa5\x5a"))
    found = _read(made.wrapped()[4:], tmp_path)
    assert found["violations"] == []
    sent = [p["type"] for p in found["packets"] if p["sender"] == "client"]
    assert sent.count("PUBREC") == sent.count("PUBCOMP") == 3 and "PUBLISH" in sent
    assert "began before" in {p["problem"] for p in found["problems"]}


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_capture_that_begins_with_the_request_has_all_of_it(lost, tmp_path):
    found, whole = (_read(_talk().wrapped()[n:], tmp_path) for n in (lost, 0))
    assert found["violations"] == found["problems"] == []
    assert [(p["sender"], p["type"], p["topic"]) for p in found["packets"]] == [
        (p["sender"], p["type"], p["topic"]) for p in whole["packets"]]  # fmt: skip


MASKS = {"PUBACK": b"\x40\x02\x48\xbd", "PUBREC": b"\x50\x02\1\2", "PUBREL": b"\x62\x02\1\2",
         "PUBCOMP": b"\x70\x02\1\2", "PUBLISH": b"\x30\x06\0\1", "other": b"\x81\x0f\xa5\x5a"}


def _zeros(mask, count, size, piece, broker=WEB):
    """A WebSocket on which the client sends payloads of zeros, as mqtt.js does: a frame for the
    header, one for the payload; piece: bytes of a segment, else each message has its own."""
    made, parts = kit.Talk(broker=broker), []
    for ident in range(1, count + 1):
        raw = kit.publish("a/b", bytes(size), 1, ident)
        parts.append(frame(raw[:-size], mask=b"\x81\x0f\xa5\x5a") + frame(raw[-size:], mask=mask))
    if piece:
        sent = b"".join(parts) if count > 1 else parts[0][-size:]
        parts = [sent[at : at + piece] for at in range(0, len(sent), piece)]
    for ident, part in enumerate(parts, 1):
        made.client(part)
        if ident <= count:
            made.broker(frame(kit.ack(4, ident)))
    return made


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("ports", [(1883,), (WEB[1],)], ids=["any", "named"])
@pytest.mark.parametrize("size, piece", [
    (1000, None), (9000, None), (1000, 10_000), (1000, 500), (9000, 1448)])  # fmt: skip
def test_masked_payloads_of_equal_bytes_are_no_packets(kind, ports, size, piece, tmp_path):
    """What four bytes hide repeats these, and they may be an acknowledgement."""
    for first in (0, 1, 5):
        frames = _zeros(MASKS[kind], 12, size, piece).wrapped()[first:]
        found = _read(frames, tmp_path, ports=ports)
        assert [p for p in found["packets"] if p["sender"] == "client"] == []
        assert found["violations"] == []
        told = [p["sender"] for p in found["problems"] if p["problem"] == "WebSocket"]
        assert told == ["client"] or piece


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("piece", [300, 1448, 21_000])
def test_neither_are_those_of_a_payload_of_which_no_header_is_there(kind, piece, tmp_path):
    for port in (1883, WEB[1]):
        made = _zeros(MASKS[kind], 1, 20_000, piece, ("10.0.0.1", port))
        found = _read(made.wrapped()[2:] or made.wrapped(), tmp_path)
        assert [p for p in found["packets"] if p["sender"] == "client"] == []
        assert found["violations"] == []


def test_a_long_subscribe_is_no_frame_of_a_websocket(tmp_path):
    """It begins with the same byte, and a connection of MQTT may begin with it for the capture."""
    choice = random.Random(9)
    made = kit.Talk()
    for ident in range(1, 60):
        filters = [("a/" + "b" * choice.randrange(1, 40), 1) for _ in range(choice.randrange(9))]
        made.client(kit.subscribe(ident, ("a/b", 1), *filters))
    found = _read(made.wrapped(), tmp_path)
    assert [p["type"] for p in found["packets"]] == ["SUBSCRIBE"] * 59
    assert "WebSocket" not in {p["problem"] for p in found["problems"]}
