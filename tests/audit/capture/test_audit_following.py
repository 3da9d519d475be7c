"""Captures that are read while they come: from a pipe, as lines of JSON.

Knows: the command, the tables. Must not know: how a capture is cut into pieces.
"""

import gzip
import io
import json
import os
import random
import signal
import subprocess
import threading

import audit_kit as kit
import pyarrow.parquet as pq
import pytest
from mqtt_audit.capture import files as captures
from patience import wait_until
from pipeline_kit import AUDIT

WHOLE = 6 * (5 + 21 * 4) + 1  #: packets of _talks()
SECONDS = 60  #: that a command may take on a machine with much else to do


def _talks():
    """Conversations on three ports, some of them out of order, one with a fault; the password is
    "a secret"."""
    choice, frames = random.Random(3), []
    for k in range(6):
        broker = ("10.0.0.1", (1883, 1883, 2883)[k % 3])
        talk = kit.Talk((f"10.0.1.{k}", 50_000 + k), broker, start=kit.START + k * 400_000).open()
        login = kit.string("u") + kit.string("a secret")
        talk.client(kit.connect(f"dev{k}", flags=0xC2, rest=login))
        talk.broker(kit.connack()).client(kit.subscribe(1, ("a/#", 1))).broker(kit.suback(1, 1))
        for ident in range(9, 30):
            whole = kit.publish("a/b", bytes([ident]) * 300, 2, ident)
            at = choice.randrange(1, len(whole))
            talk.client(whole[:at]).client(whole[at:])
            if choice.random() < 0.3:
                talk.frames[-2:] = talk.frames[:-3:-1]
                talk.frames[-2:] = [(ns, raw) for (ns, _), (_, raw) in zip(
                    sorted(talk.frames[-2:]), talk.frames[-2:])]  # fmt: skip
            talk.broker(kit.ack(5, ident)).client(kit.ack(6, ident)).broker(kit.ack(7, ident))
        if k == 4:
            talk.client(kit.publish("a/#"))
        frames += talk.client(kit.DISCONNECT).close().wrapped()
    return sorted(frames)


def _pcapng(path, frames):
    blocks = [kit.section(), kit.interface(resolution=9)]
    path.write_bytes(b"".join(blocks + [kit.enhanced("<", 0, ns, raw) for ns, raw in frames]))
    return path


#: Columns that are not compared.
OTHERS = {"connection", "file"}


def _rows(tables, name):
    # Of a connection to a port that is not named only SYN is kept from before its CONNECT.
    return sorted(repr({k: v for k, v in row.items() if k not in OTHERS and not (
        k == "client_segments" and row["broker"].endswith(":2883"))})
                  for row in tables.get(name, ()))  # fmt: skip


def _members(raw):
    """What `cat a.gz b.gz` and bgzip make: several members, an empty one, zeros at the end."""
    third = len(raw) // 3
    parts = raw[:third], b"", raw[third : third + 9], raw[third + 9 :]
    return b"".join(map(gzip.compress, parts)) + bytes(30)


PACKED = {"gzip": gzip.compress, "members": _members, "members 2": lambda raw: (
    _members(raw) + gzip.compress(b""))}  # fmt: skip


@pytest.mark.parametrize("form", ["pcap", "pcapng", *PACKED])
def test_what_comes_in_pieces_is_what_lies_in_a_file(form, tmp_path):
    frames, path = _talks(), tmp_path / "t"
    if form == "pcapng":
        _pcapng(path, frames)
    else:
        kit.pcap(path, frames, nano=True)
    raw = PACKED.get(form, bytes)(path.read_bytes())
    wanted = kit.read([path], tmp_path)
    if form in PACKED:
        packed, again = tmp_path / "t.gz", tmp_path / "again"
        packed.write_bytes(raw)
        assert captures.unpack(packed, again) is None and captures.magic(packed)[0] == "pcap"
        assert again.read_bytes() == path.read_bytes()
    assert len(wanted["packets"]) == WHOLE and len(wanted["violations"]) == 1
    choice = random.Random(7)
    for most in (1 << 20, 3000, 40):
        _same(_followed(raw, choice, most), wanted)


def _followed(raw, choice, most):
    """What is told of a capture that comes in pieces of up to so many bytes."""
    from mqtt_audit.following import Following
    from mqtt_audit.report.columns import TABLES

    found, at, pieces = {}, 0, []
    while at < len(raw):
        n = choice.randrange(1, most)
        pieces.append(raw[at : at + n])
        at += n

    def sink(table, rows):
        table = "flows" if table == "_pieces" else table
        found.setdefault(table, []).extend(rows.select(TABLES[table].names).to_pylist())

    following = Following(sink)
    following.capture("t", pieces)
    following.finish()
    return found


def _same(found, wanted):
    from mqtt_audit.report.columns import TABLES

    flows = [{k: f[k] for k in TABLES["flows"].names} for f in wanted["flows"]]
    for name in ("packets", "flows", "violations", "problems", "connections"):
        assert _rows(found, name) == _rows({**wanted, "flows": flows}, name), name


def _after_the_end():
    """What comes behind the end of connections, soon or later, of the same ports or not."""
    talks = []
    for port in range(14):
        made = kit.Talk(("10.0.0.9", 1000 + port), start=kit.START + port * 10**7).open()
        made.client(kit.connect(f"dev{port}")).broker(kit.connack())
        made.client(kit.publish("a", b"x", 1, 1)).broker(kit.ack(4, 1))
        late = 0.02 if port % 2 else 3
        kind = port // 2
        if kind < 2:  # the last ACK is lost, or FIN is sent again
            made.client(kit.DISCONNECT).close()
            made.frames = made.frames[:-1] if kind else made.frames
            for _ in range(3):
                made.wait(late).segment(1, flags=kit.FIN | kit.ACK, seq=made.seq[1] - 1)
                made.segment(0, flags=kit.ACK)
        elif kind == 2:  # who was reset had bytes on their way
            made.segment(0, flags=kit.RST).broker(kit.publish("b")).wait(late)
            made.segment(0, flags=kit.RST)
        elif kind == 3:  # both reset
            made.segment(1, flags=kit.RST | kit.ACK).wait(late).segment(0, flags=kit.RST)
        elif kind == 4:  # bytes are missing before it
            made.seq[0] += 9
            made.client(kit.PINGREQ).segment(1, flags=kit.RST | kit.ACK).wait(late)
            made.segment(0, flags=kit.RST)
        else:  # the ports are used again, with the same numbers or others
            made.client(kit.DISCONNECT).close().wait(late)
            made.seq = [1000, 5000] if kind == 5 else [1000, 90_000]
            made.open().client(kit.connect("again")).broker(kit.connack()).close()
        made.frames = [(ns, kit.identified(raw, k)) for k, (ns, raw) in enumerate(made.frames, 1)]
        talks.append(made)
    return sorted(f for t in talks for f in t.wrapped())


def test_what_comes_behind_the_end_of_a_connection_counts_the_same_in_pieces(tmp_path):
    """Then its row was told already, or not yet."""
    path = kit.pcap(tmp_path / "t", _after_the_end(), nano=True)
    wanted, choice = kit.read([path], tmp_path), random.Random(5)
    assert {p["problem"] for p in wanted["problems"]} == {"loss", "resynchronised"}
    for most in (1 << 20, 3000, 400, 40):
        _same(_followed(path.read_bytes(), choice, most), wanted)


def _fragmented(packet, size):
    """An IPv4 packet as fragments of `size` bytes."""
    for at in range(20, len(packet), size):
        part = packet[at : at + size]
        mark = (at - 20) // 8 | (0x2000 if at + size < len(packet) else 0)
        total = (20 + len(part)).to_bytes(2, "big")
        yield packet[:2] + total + packet[4:6] + mark.to_bytes(2, "big") + packet[8:20] + part


def test_a_connection_whose_connect_is_missing_is_told_with_all_its_packets(tmp_path):
    """Though it ends before anybody can say that the CONNECT does not come any more."""
    refused = kit.Talk(("10.0.0.9", 1000)).open().client(kit.connect("lost"))
    refused.broker(kit.connack(5)).segment(1, flags=kit.FIN | kit.ACK)
    refused.segment(0, flags=kit.FIN | kit.ACK).segment(1, flags=kit.ACK)
    del refused.frames[3]
    other = kit.Talk(start=kit.START + 100_000).open().client(kit.connect()).broker(kit.connack())
    for _ in range(20):
        other.client(kit.PINGREQ).broker(kit.PINGRESP).wait(1)
    frames = sorted(refused.wrapped() + other.close().wrapped(), key=lambda f: f[0])
    path = kit.pcap(tmp_path / "t", frames)
    wanted = kit.read([path], tmp_path)
    assert [c["return_code"] for c in wanted["connections"]] == [5, 0]
    _same(_followed(path.read_bytes(), random.Random(1), 300), wanted)


@pytest.mark.parametrize("packed", [False, True])
def test_pieces_have_the_offsets_silences_and_fragments_of_the_file(packed, tmp_path):
    """Of a frame with a bad header, and of bytes that contradict others; of the silence before
    FIN."""
    from mqtt_audit.following import Following

    long = kit.publish("long", random.Random(1).randbytes(900), 1, 5)
    talk = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    talk.client(kit.PINGREQ).broker(kit.PINGRESP).client(long).broker(kit.ack(4, 5))
    talk.segment(0, bytes(len(long)), seq=talk.seq[0] - len(long))
    silent = kit.Talk(("10.0.0.4", 2), start=talk.now).open().client(kit.connect())
    silent.broker(kit.connack()).wait(5).close()
    frames = [(ns, kit.ethernet(p)) for ns, packet in talk.frames + silent.frames for p in (
        _fragmented(packet, 200) if long in packet else [packet])]  # fmt: skip
    cut = kit.Talk(("10.0.0.3", 1)).segment(0).frames[0][1]
    frames[9:9] = [(frames[8][0], kit.ethernet(cut[:32] + b"\0" + cut[33:]))]
    path = kit.pcap(tmp_path / "t", frames)
    wanted, raw = kit.read([path], tmp_path), path.read_bytes()
    raw = gzip.compress(raw) if packed else raw
    found = {}
    following = Following(lambda table, rows: found.setdefault(table, []).extend(rows.to_pylist()))
    third = len(raw) // 3  # between the fragments
    following.capture("t", [raw[:third], raw[third:]])
    following.finish()
    assert [p["topic"] for p in found["packets"] if p["topic"]] == ["long"]
    assert {"bad header", "other content"} <= {p["problem"] for p in found["problems"]}
    places = [sorted((p["problem"], p["offset"] or 0) for p in rows["problems"])
              for rows in (found, wanted)]  # fmt: skip
    assert places[0] == places[1]
    silences = [{c["client"]: c["longest_silence_s"] for c in rows["connections"]}
                for rows in (found, wanted)]  # fmt: skip
    assert silences[0] == silences[1] and silences[0]["10.0.0.4:2"] > 5


def test_damage_between_frames_is_told_and_passed_over(tmp_path):
    from mqtt_audit.following import Following

    raw = kit.pcap(tmp_path / "t", _talks()).read_bytes()
    raw = raw[:4000] + b"\xff" * 700 + raw[4000:]
    found = {}
    following = Following(lambda table, rows: found.setdefault(table, []).extend(rows.to_pylist()))
    following.capture("t", [raw[k : k + 500] for k in range(0, len(raw), 500)])
    following.finish()
    assert "damaged" in {p["problem"] for p in found["problems"]}
    assert len(found["packets"]) > WHOLE * 8 // 10


@pytest.mark.parametrize("most", [500, 1 << 20])
@pytest.mark.parametrize("zeros", [30, 50, 700, 4096])
@pytest.mark.parametrize("inside", [0, 40, 100])
def test_zeros_from_within_a_frame_to_the_end_accuse_nobody(inside, zeros, most, tmp_path):
    """As a power cut leaves them. What stands before them in the frame may be a whole packet, with
    more zeros behind it, which are none."""
    frames = _talks()[:60]
    path = kit.pcap(tmp_path / "t", frames)
    raw = path.read_bytes()
    end = len(raw) - len(frames[-1][1]) + min(inside, len(frames[-1][1]))
    path.write_bytes(raw[: end if inside else len(raw)] + bytes(zeros))
    wanted = kit.read([path], tmp_path)
    found = _followed(path.read_bytes(), random.Random(zeros), most)
    for rows in (wanted, found):
        assert not rows.get("violations")
        assert {p["problem"] for p in rows["problems"]} <= {
            "bad header", "cut", "damaged", "loss", "snapped"}  # fmt: skip
    _same(found, wanted)


@pytest.mark.parametrize("kinds", [12, pytest.param(40, marks=pytest.mark.campaign)])
def test_a_damaged_file_is_read_in_pieces_as_at_once(tmp_path, kinds):
    """What is damaged, and what of the frame in front of it is believed."""
    choice, frames = random.Random(11), _talks()
    sound = kit.pcap(tmp_path / "t", frames).read_bytes()
    for kind in range(kinds):
        raw, at = bytearray(sound), choice.randrange(200, len(sound) - 200)
        if kind % 4 == 0:
            raw[at:] = choice.randbytes(len(raw) - at)
        elif kind % 4 == 1:
            raw[at : at + 150] = bytes(150)
        elif kind % 4 == 2:
            del raw[at : at + choice.randrange(1, 90)]
        else:
            raw[at:] = bytes(choice.randrange(1, len(raw) - at))
        path = tmp_path / "damaged"
        path.write_bytes(raw)
        found = _followed(bytes(raw), choice, (300, 3000)[kind // 4 % 2])
        _same(found, kit.read([path], tmp_path))


@pytest.mark.parametrize("damage,left", [
    (lambda raw: raw[: len(raw) // 2], 0.3), (lambda raw: raw + b"no gzip", 1),
    (lambda raw: raw[: len(raw) // 2] + b"\xff" * 40 + raw[len(raw) // 2 :], 0.3)])  # fmt: skip
def test_a_damaged_gzip_file_gives_what_stands_before_the_damage(damage, left, tmp_path):
    """The same in pieces as in a folder of tables, and a row says so."""
    from mqtt_audit.following import Following

    raw = damage(gzip.compress(kit.pcap(tmp_path / "t", _talks()).read_bytes()))
    (tmp_path / "t.gz").write_bytes(raw)
    wrong, found = captures.unpack(tmp_path / "t.gz", tmp_path / "whole"), {}
    wanted = kit.read([tmp_path / "whole"], tmp_path)["packets"]
    assert wrong and WHOLE >= len(wanted) >= left * WHOLE
    following = Following(lambda table, rows: found.setdefault(table, []).extend(rows.to_pylist()))
    following.capture("t", [raw[k : k + 100] for k in range(0, len(raw), 100)])
    following.finish()
    assert len(found["packets"]) == len(wanted)
    told = [p["what"] for p in found["problems"] if p["problem"] == "gzip"]
    assert told == [f"damaged, what could be unpacked is read: {wrong}"]


@pytest.mark.parametrize("byte", [-8, -1], ids=["checksum", "length"])
@pytest.mark.parametrize("frames", [None, 30], ids=["whole", "less than a piece"])
def test_a_gzip_file_with_a_wrong_trailer_is_whole(frames, byte, tmp_path):
    """zlib says so with the last bytes, and keeps what it made of these to itself."""
    plain = kit.pcap(tmp_path / "t", _talks()[:frames]).read_bytes()
    raw = bytearray(gzip.compress(plain))
    raw[byte] ^= 1
    (tmp_path / "t.gz").write_bytes(raw)
    assert captures.unpack(tmp_path / "t.gz", tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == plain
    assert captures.magic(tmp_path / "t.gz")


def _events(text):
    return [json.loads(line) for line in text.splitlines()]


def test_lines_tell_the_addresses_of_whom_they_are_about(tmp_path):
    """Also without a CONNECT, which names the client, and of a PUBLISH that the next connection
    repeats, which is known at the end only."""
    from mqtt_audit import sources
    from mqtt_audit.report.lines import EVENTS, JsonLines

    nameless = kit.Talk(("10.0.0.7", 7)).open().client(kit.publish("a", b"", 1, 1))
    nameless.broker(kit.ack(4, 1)).client(kit.PINGREQ[:1])
    again = []
    for port in (8, 9):
        made = kit.Talk(("10.0.0.8", port), start=nameless.now + port * 10**9).open()
        made.client(kit.connect("again", flags=0)).broker(kit.connack(0, port - 8))
        again += made.client(kit.publish("b", b"", 1, 5)).close().wrapped()
    out = io.StringIO()
    path = kit.pcap(tmp_path / "t.pcap", nameless.wrapped() + again)
    sources.lines([str(path)], JsonLines(out, set(EVENTS.values())), (1883,))
    found = _events(out.getvalue())
    ends = {e["connection"]: (e["client"], e["broker"]) for e in found
            if e["event"] == "connection"}  # fmt: skip
    told = [e for e in found if e["event"] in ("packet", "violation", "problem", "message")]
    assert sum(e["event"] == "message" for e in told) == 3
    assert all((e["client"], e["broker"]) == ends[e["connection"]] for e in told)
    whose = {(e["event"], e["client"]) for e in told}
    assert whose >= {("packet", "10.0.0.7:7"), ("violation", "10.0.0.7:7"),
                     ("message", "10.0.0.7:7"), ("message", "10.0.0.8:9"),
                     ("problem", "10.0.0.7:7"), ("violation", "10.0.0.8:9")}  # fmt: skip


def test_a_line_is_one_to_every_program(tmp_path):
    """Also to one that takes U+2028 for the end of a line; and nothing turns a terminal round."""
    from mqtt_audit import sources
    from mqtt_audit.report.lines import TOLD, JsonLines

    topic, out = "a\u2028b\u2029c\u202ed\x85e\U000e0001f\u00fc", io.StringIO()
    talk = kit.Talk().open().client(kit.connect()).client(kit.publish(topic)).close()
    sources.lines([str(kit.pcap(tmp_path / "t", talk.wrapped()))], JsonLines(out, TOLD), (1883,))
    text = out.getvalue()
    assert text.splitlines() == text.split("\n")[:-1] and "f\u00fc" in text
    assert all(line.isprintable() for line in text.split("\n"))
    assert topic in [e.get("topic") for e in _events(text)]


class TestTheCommand:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_a_pipe_with_all_that_was_read(self, number, tmp_path):
        """Nobody can read it again. Open connections and findings are told at the end only."""
        talks = [kit.Talk(("10.0.0.2", 40_000 + k), start=kit.START + k * 10**9).open()
                 .client(kit.connect()).broker(kit.connack()) for k in range(11)]  # fmt: skip
        raw = kit.pcap(tmp_path / "t", [f for t in talks for f in t.wrapped()]).read_bytes()
        program = subprocess.Popen([AUDIT, "--json", "-"], stdin=subprocess.PIPE, text=False,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(program.stdout), daemon=True)
        reader.start()
        try:
            program.stdin.write(raw)
            program.stdin.flush()
            wait_until(lambda: len(lines) >= 22, SECONDS, "the packets")
            program.send_signal(number)
            assert program.wait(SECONDS) == 0
            reader.join(SECONDS)
            said = program.stderr.read()
        finally:
            program.kill()
            program.wait()
        found = [json.loads(line)["event"] for line in lines]
        assert found.count("connection") == 11 and found.count("finding") == 1
        assert b"start it again" not in said

    def test_events_come_while_the_capture_does(self, tmp_path):
        raw = kit.pcap(tmp_path / "t", _talks()).read_bytes()
        program = subprocess.Popen([AUDIT, "--json", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(program.stdout), daemon=True)
        reader.start()
        try:
            program.stdin.write(raw[:2000])
            program.stdin.flush()
            wait_until(lambda: lines, SECONDS, "the first event")
            assert json.loads(lines[0])["type"] == "CONNECT"
            program.stdin.write(raw[2000:])
            program.stdin.close()
            assert program.wait(SECONDS) == 0
            reader.join(SECONDS)
        finally:
            program.kill()
            program.wait()
        found = [json.loads(line) for line in lines]
        assert len([e for e in found if e["event"] == "packet"]) == WHOLE
        ended = [e["why"] for e in found if e["event"] == "connection"]
        assert ended == ["client sent DISCONNECT"] * 6
        assert [e["statement"] for e in found if e["event"] == "violation"] == ["MQTT-3.3.2-2"]
        assert b"secret" not in b"".join(lines)

    def test_events_are_chosen_and_files_may_be_several(self, tmp_path):
        frames = _talks()
        one, two = (kit.pcap(tmp_path / name, part) for name, part in (
            ("b", frames[:400]), ("a", frames[400:])))  # fmt: skip
        done = subprocess.run([AUDIT, "--json", "--events", "message,connection", two, one],
                              capture_output=True, text=True, timeout=SECONDS)  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = _events(done.stdout)
        assert {e["event"] for e in found} == {"message", "connection"}
        assert len(found) == 6 * 21 + 6
        assert {e["outcome"] for e in found if e["event"] == "message"} == {"acknowledged"}

    @pytest.mark.parametrize("ended", ["by its end", "by a signal"])
    def test_standard_input_into_a_folder(self, ended, tmp_path):
        """Ctrl-C is how one ends tcpdump, and goes to all programs of the pipe."""
        more = [(kit.START, bytes(12) + b"\x08\x06" + bytes(1000))] * 1200  # than a pipe holds
        raw = kit.pcap(tmp_path / "t", _talks() + more).read_bytes()
        program = subprocess.Popen([AUDIT, "-", "--out", tmp_path / "out"], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        try:
            program.stdin.write(raw)  # some of it is read when this returns
            program.stdin.flush()
            if ended == "by a signal":
                program.send_signal(signal.SIGINT)
                assert program.wait(300) == 0
            said = program.communicate(timeout=300)[1]
        finally:
            program.kill()
            program.wait()
        assert program.returncode == 0 and b"start it again" not in said, said
        assert pq.read_table(tmp_path / "out" / "packets").num_rows == WHOLE
        facts = json.loads((tmp_path / "out" / "audit.json").read_text())
        assert facts["files"][0]["file"] == "standard input"
        assert "standard input" in (tmp_path / "out" / "report.html").read_text()

    @pytest.mark.parametrize("arguments, said", [
        (["t"], "Give either --out or --json"),
        (["t", "--json", "--out", "x"], "Give either --out or --json"),
        (["t", "--json"], "neither pcap nor pcapng"),
        (["t", "--json", "--events", "frames"], "is none of"),
        (["t", "--out", "o", "--events", "packet"], "With --out leave it away"),
        (["live", "-i", "no-such-interface"], "dumpcap"),
    ])  # fmt: skip
    def test_what_cannot_be_done_is_said(self, arguments, said, tmp_path):
        (tmp_path / "t").write_bytes(b"no capture at all, but long enough")
        done = subprocess.run([AUDIT, *arguments], cwd=tmp_path, capture_output=True, text=True,
                              timeout=SECONDS)  # fmt: skip
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
        assert "following" not in done.stderr

    def test_without_dumpcap_it_says_what_to_install(self, tmp_path):
        done = subprocess.run([AUDIT, "live", "-i", "lo"], capture_output=True, text=True,
                              timeout=SECONDS,
                              env={**os.environ, "PATH": str(tmp_path)})  # fmt: skip
        assert done.returncode == 2 and "apt install tshark" in done.stderr
