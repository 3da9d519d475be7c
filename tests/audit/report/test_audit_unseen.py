"""What the audit does not read, or reads only in part, is said: TLS, WebSocket, fragments, two
captures of one connection.

Knows: audit_kit, the tables and the page. Must not know: how it is found.
"""

import gzip
import random
import struct

import audit_kit as kit
import pyarrow.parquet as pq
import pytest


def hello(*extensions):
    """A ClientHello; extensions: (type, content)."""
    more = b"".join(struct.pack(">HH", t, len(c)) + c for t, c in extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + kit.string(more)
    shake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(shake)) + shake


ALPN = (16, b"\0\x05\x04mqtt")
UPGRADE = (b"GET /mqtt HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")  # fmt: skip


@pytest.mark.parametrize("port,first,told", [
    (8883, hello(), "TLS"), (443, hello(ALPN), "TLS"), (443, hello(), None),
    (9001, UPGRADE, "HTTP"), (9001, b"GET /index.html HTTP/1.1\r\n\r\n", None)],
    ids=["port", "ALPN", "web", "WebSocket", "HTTP"])  # fmt: skip
def test_mqtt_that_is_hidden_is_named_on_any_port(port, first, told, tmp_path):
    made = kit.Talk(broker=("10.0.0.1", port)).open().client(first).broker(b"\x16\x03\x03\0\x01a")
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.close().wrapped())], tmp_path)
    assert [c["protocol"] for c in found["connections"]] == ([told] if told else [])
    assert [p["problem"] for p in found["problems"]] == ([told] if told else [])


def test_tls_that_began_before_the_capture_is_named(tmp_path):
    made = kit.Talk(broker=("10.0.0.1", 8883))
    for _ in range(3):
        made.client(b"\x17\x03\x03\0\x50" + bytes(80)).broker(b"\x17\x03\x03\0\x50" + bytes(80))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert [p["problem"] for p in found["problems"]] == ["TLS"] and not found["packets"]


def _web(n, size=600):
    """So many connections that are no MQTT, with answers of so many bytes."""
    frames = []
    for k in range(n):
        made = kit.Talk(("10.0.0.2", 4000 + k), ("10.0.0.1", 443), start=kit.START + k * 10**8)
        made.open().client(hello()).broker(b"\x16\x03\x03" + bytes(size)).close()
        frames += made.wrapped()
    return sorted(frames)


def _mqtt(port):
    """A connection at this port."""
    made = kit.Talk(broker=("10.0.0.1", port)).open().client(kit.connect()).broker(kit.connack())
    return made.client(kit.publish("a/b", bytes(60))).close().wrapped()


def _upgrade():
    """A WebSocket whose first request shows that it is for MQTT behind its 100th byte."""
    first = UPGRADE.replace(b"Host: b", b"Host: " + b"b" * 100)
    made = kit.Talk(broker=("10.0.0.1", 9001)).open().client(first)
    return made.broker(b"HTTP/1.1 101\r\n\r\n").close().wrapped()


@pytest.mark.parametrize("frames,snap,cut", [
    (_mqtt(1999), 60, (4, 2)), (_upgrade(), 96, (4, 1)), (_web(20), 100, (4, 40)),
    (_mqtt(1999), 65_535, None), (_upgrade(), 65_535, None), (_web(20), 65_535, None),
    (_mqtt(1999)[:3], 54, None)],
    ids=["MQTT", "WebSocket", "TLS", "whole MQTT", "whole WebSocket", "whole TLS", "padding"])
def test_frames_of_which_the_capture_has_the_beginning_are_told_once(frames, snap, cut, tmp_path):
    """On any port, whether or not the beginning shows what they are; what fills up a frame is not
    missed."""
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames, snap=snap)], tmp_path)
    rows = [(r["frame"], r["count"]) for r in found["problems"] if r["problem"] == "snapped"]
    assert rows == ([cut] if cut else [])
    if cut:
        assert not found["connections"] and "-s 0" in found["problems"][0]["what"]


def _cut_heads(kind):
    """A connection at port 1883, as frames whose TCP headers a short snap length cuts."""
    broker, client = (("fd00::1", 1883), ("fd00::2", 40_000)) if kind == "IPv6" else (
        kit.BROKER, kit.CLIENT)  # fmt: skip
    made = kit.Talk(client, broker).open().client(kit.connect()).broker(kit.connack())
    made.client(kit.publish("a/b", bytes(700))).close()
    tags = [(0x88A8, 100), (0x8100, 10)] if kind == "QinQ" else []
    return [(t, kit.ethernet(f, tags)) for t, f in made.frames]


@pytest.mark.parametrize("kind,snap", [("IPv6", 68), ("IPv6", 50), ("QinQ", 60), ("IPv4", 50),
                                       ("IPv4", 30)])  # fmt: skip
def test_a_snap_length_that_cuts_the_header_of_tcp_is_told(kind, snap, tmp_path):
    """With tables and report, and with --json."""
    from mqtt_audit import run, sources

    frames = _cut_heads(kind)
    path, told = kit.pcap(tmp_path / "t.pcap", frames, snap=snap), []
    run.build(None, [path], tmp_path / "out")
    sources.lines([str(path)], lambda table, rows: told.extend(
        rows.to_pylist() if table == "problems" else ()), (1883,))  # fmt: skip
    for rows in (pq.read_table(tmp_path / "out" / "problems").to_pylist(), told):
        assert [(r["problem"], r["frame"], r["count"]) for r in rows] == [
            ("snapped", 1, len(frames))]  # fmt: skip
        assert "-s 0" in rows[0]["what"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"the beginning of {len(frames)} frames" in " ".join(page.split())


def test_a_header_that_is_wrong_in_a_cut_frame_is_told_as_such(tmp_path):
    frames = [(t, f[:46] + b"\x10" + f[47:]) for t, f in _cut_heads("IPv4")]  # of 4 bytes
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames, snap=54)], tmp_path)
    assert [(r["problem"], r["count"]) for r in found["problems"]] == [("bad header", len(frames))]


def test_fragments_that_are_cut_are_told(tmp_path):
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    made.client(kit.publish("long", bytes(900), 1, 5)).broker(kit.ack(4, 5)).close()
    frames = []
    for k, (ns, packet) in enumerate(made.frames):
        pieces = list(fragmented(packet, 200)) if k == 5 else [packet]
        frames += [(ns + j * 1000, kit.ethernet(p)) for j, p in enumerate(pieces)]
    for snap, cut in ((100, 5), (240, 0)):
        found = kit.read([kit.pcap(tmp_path / "t.pcap", frames, snap=snap)], tmp_path)
        rows = [(r["frame"], r["count"]) for r in found["problems"] if r["problem"] == "snapped"]
        assert rows == ([(6, cut)] if cut else [])
        assert bool(cut) == any(r["problem"] == "fragment" for r in found["problems"])


def test_the_parts_of_a_large_capture_count_cut_frames_together(tmp_path):
    path = kit.pcap(tmp_path / "t.pcap", _web(200), snap=100)
    found = kit.read([path], tmp_path, part_size=8_000)
    assert [(r["frame"], r["count"]) for r in found["problems"]] == [(4, 400)]


def fragmented(packet, size):
    """An IPv4 packet as fragments of `size` bytes."""
    head, body = packet[:20], packet[20:]
    for at in range(0, len(body), size):
        more = at + size < len(body)
        part = body[at : at + size]
        mark = struct.pack(">H", at // 8 | (0x2000 if more else 0))
        yield head[:2] + struct.pack(">H", 20 + len(part)) + head[4:6] + mark + head[8:] + part


@pytest.mark.parametrize("order", ["as sent", "shuffled", "one lost", "one twice", "all twice",
                                   "once more"])  # fmt: skip
def test_fragments_are_put_together(order, tmp_path):
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    made.client(kit.publish("long", random.Random(1).randbytes(900), 1, 5)).broker(kit.ack(4, 5))
    made.client(kit.publish("next", b"x", 1, 6)).broker(kit.ack(4, 6)).close()
    frames = []
    for k, (ns, packet) in enumerate(made.frames):
        pieces = list(fragmented(packet, 200)) if k == 5 else [packet]
        if len(pieces) > 1 and order == "shuffled":
            random.Random(2).shuffle(pieces)
        if len(pieces) > 1 and "twice" in order:  # as a mirror port gives them
            pieces = [p for j, p in enumerate(pieces[:-1]) for _ in range(
                1 + (j == 2 or order == "all twice"))] + pieces[-1:]  # fmt: skip
        pieces *= 1 + (len(pieces) > 1 and order == "once more")
        frames += [(ns + j * 1000, kit.ethernet(p)) for j, p in enumerate(pieces)]
    if order == "one lost":
        del frames[7]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    topics = [(p["topic"], p["frame"]) for p in found["packets"] if p["topic"]]
    assert found["violations"] == []
    if order == "one lost":
        assert topics == [("next", 11)]
        assert {"fragment", "loss"} <= {p["problem"] for p in found["problems"]}
    else:
        more = {"one twice": 1, "all twice": 4}.get(order, 0)
        behind = 5 * (order == "once more")
        assert topics == [("long", 10 + more), ("next", 12 + more + behind)]
        assert found["problems"] == [] and found["connections"][0]["client_resent"] == 0
        assert [f["outcome"] for f in found["flows"]] == ["acknowledged"] * 2


def test_a_later_datagram_may_have_the_identification_of_another_one(tmp_path):
    """And fragments with the same content."""
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    for k in range(3):
        made.client(kit.publish("long", bytes(900), 1, k + 1)).broker(kit.ack(4, k + 1)).wait(1)
    frames = [(ns + j * 1000, kit.ethernet(part)) for ns, packet in made.close().frames
              for j, part in enumerate(fragmented(packet, 200))]  # fmt: skip
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [f["outcome"] for f in found["flows"]] == ["acknowledged"] * 3
    assert found["problems"] == []


def test_captures_of_one_connection_are_told(tmp_path):
    from mqtt_audit import run

    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    for k in range(1, 40):
        made.client(kit.publish("a", b"%d" % k, 1, k)).broker(kit.ack(4, k))
    frames = made.close().wrapped()
    halves = [kit.pcap(tmp_path / f"{k}.pcap", frames[k::2]) for k in (0, 1)]
    run.build(None, halves, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "problems").to_pylist()
    assert [(r["file"], r["problem"]) for r in rows] == [(str(halves[1]), "together")]
    assert pq.read_table(tmp_path / "out" / "violations").num_rows == 0
    still = [kit.pcap(tmp_path / f"s{k}.pcap", [(0, f) for _, f in frames[k::2]]) for k in (0, 1)]
    run.build(None, still, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "problems").to_pylist()
    assert [r["file"] for r in rows if r["problem"] == "together"] == [str(still[1])]
    assert pq.read_table(tmp_path / "out" / "violations").num_rows == 0
    one, two = frames[: len(frames) // 2], frames[len(frames) // 2 :]
    rotated = [kit.pcap(tmp_path / f"r{k}.pcap", part) for k, part in enumerate((one, two))]
    run.build(None, rotated, tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "problems").num_rows == 0


def test_the_report_has_files_frames_and_refusals_and_a_time_line(tmp_path):
    """Of captures that lie years apart: each has its part of the time line."""
    from mqtt_audit import run

    files = []
    for k, year in enumerate((0, 3, 9)):
        start = kit.START + year * 365 * 86_400 * 10**9
        made = kit.Talk(start=start, step=10**9, isn=(k * 10**6, k * 10**7)).open()
        made.client(kit.connect("d")).broker(kit.connack())
        for _ in range(30):
            made.client(kit.PINGREQ).broker(kit.PINGRESP)
        refused = kit.Talk(("10.0.0.7", 7), start=made.now, isn=(k, k)).open()
        refused.client(kit.connect("no"))
        refused.broker(kit.connack(5)).close()
        if k == 1:
            made.client(kit.connect("d"))
        files.append(kit.pcap(tmp_path / f"y{k}.pcap", made.wrapped() + refused.wrapped()))
    run.build(None, files, tmp_path / "out")
    line = pq.read_table(tmp_path / "out" / "timeline").to_pylist()
    assert len({r["time"] for r in line}) > 60
    assert {r["time"].year for r in line} == {2026, 2028, 2034}
    page = (tmp_path / "out" / "report.html").read_text()
    where = page.partition("Where rules were broken")[2].partition("<h2>")[0]
    assert "y1.pcap</td>" in where and "66</td>" in where and "second CONNECT" in where
    assert page.partition("Refused connections")[2].partition("<h2>")[0].count(">no<") == 3
    per_file = page.partition("<h2>Files</h2>")[2]
    assert per_file.count("<td>64</td>") == 2 and "<td>65</td>" in per_file
    assert 'class="bad">1<' in per_file


def test_a_copy_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    from mqtt_audit import run, worker

    monkeypatch.setattr(worker, "split", None)

    one = kit.pcap(tmp_path / "1.pcap", kit.Talk().open().client(kit.connect()).wrapped())
    two = tmp_path / "2.pcap"
    two.write_bytes(one.read_bytes())
    with pytest.raises(run.Refused, match="2.pcap: is a copy of .*1.pcap"):
        run.build(None, [one, two], tmp_path / "out")


def test_lines_tell_that_a_packed_capture_holds_a_connection_of_another_one(tmp_path):
    """It is read once, from beginning to end, so that they are not read as one."""
    from mqtt_audit import sources

    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    for k in range(1, 40):
        made.client(kit.publish("a", b"%d" % k, 1, k)).broker(kit.ack(4, k))
    frames, rows = made.close().wrapped(), []
    one, two, three = frames[:50], frames[50:], frames[20:60]
    files = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate((one, two, three))]
    files[2].write_bytes(gzip.compress(files[2].read_bytes()))

    def problems(paths):
        rows.clear()
        sources.lines(list(map(str, paths)), lambda table, found: rows.extend(
            found.to_pylist() if table == "problems" else ()), (1883,))  # fmt: skip
        return [(r["file"], r["what"].split(" at ")[0]) for r in rows if r["problem"] == "shared"]

    assert problems(files[:2]) == []
    assert problems(files) == [(str(files[2]), f"has connections of {files[0]}"),
                               (str(files[1]), f"has connections of {files[2]}")]
