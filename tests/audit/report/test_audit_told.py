"""What the command says at its end, and as it follows: violations counted, connections that were
refused summed for each pair of hosts.

Knows: audit_kit, the lines. Must not know: how connections are found.
"""

import io

import audit_kit as kit
import mqtt5
import pyarrow.parquet as pq
import pytest


def _refused(host, n):
    """So many SYN, each answered by RST."""
    frames = []
    for k in range(n):
        made = kit.Talk((host, 2000 + k), start=kit.START + k * 10**9, isn=(k * 1000, k * 2000))
        frames += made.segment(0, flags=kit.SYN).segment(1, flags=kit.RST | kit.ACK).wrapped()
    return frames


def _talk(*packets):
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    for raw in packets:
        made.client(raw)
    return made


@pytest.fixture
def audited(tmp_path):
    """Returns (lines that are told, the report) of frames."""

    def make(frames):
        from mqtt_audit import run
        from mqtt_audit.report import lines

        path = kit.pcap(tmp_path / "t.pcap", sorted(frames, key=lambda f: f[0]))
        run.build(None, [path], tmp_path / "out")
        out = io.StringIO()
        lines.told(tmp_path / "out", out)
        return out.getvalue().splitlines(), (tmp_path / "out" / "report.html").read_text()

    return make


def test_refused_connections_are_summed_for_each_pair_of_hosts(audited):
    """One that was accepted and then reset is none of them."""
    reset = kit.Talk(("10.0.0.9", 9)).open().segment(1, flags=kit.RST)
    frames = _refused("10.0.0.7", 300) + _refused("10.0.0.8", 1) + reset.wrapped()
    told, page = audited(frames + _talk().close().wrapped())
    assert told[0] == "0 violations"
    assert len(told) == 5 and "dev1" in told[1] + told[2]
    assert sum("reset by the broker" in line for line in told) == 1
    assert told[3:] == ["10.0.0.7 to 10.0.0.1:1883: 300 TCP connections refused",
                        "10.0.0.8 to 10.0.0.1:1883: 1 TCP connection refused"]  # fmt: skip
    summed = page.partition("Refused TCP connections")[2].partition("<h2>")[0]
    assert summed.count("10.0.0.7") == 1 and ">300<" in summed
    assert "10.0.0.7" not in page.partition("<h2>Connections")[2].partition("<h2>")[0]


def test_violations_are_told_with_the_first_place(audited):
    twice = kit.publish("a", b"x", dup=True)
    told, _ = audited(_talk(twice, twice, kit.publish("b/#")).close().wrapped())
    assert told[:3] == [
        "VIOLATION MQTT-3.3.1-2 (MQTT 3.1.1) by the client, 2 times, first: DUP 1 at QoS 0 "
        "[t.pcap frame 6]",
        "VIOLATION MQTT-3.3.2-2 (MQTT 3.1.1) by the client, 1 time, first: a wildcard in a topic "
        "name [t.pcap frame 8]", "3 violations"]  # fmt: skip
    assert not any("problem" in line for line in told)


def test_the_first_place_is_the_same_whichever_worker_ends_first(audited, tmp_path):
    """Spark's workers write a file each, in no order."""
    from mqtt_audit.report import lines

    twice = kit.publish("a", b"x", dup=True)
    told, _ = audited(_talk(twice, kit.publish("a/#"), kit.publish("b/#"), twice).wrapped())
    (path,) = (tmp_path / "out" / "violations").glob("*.parquet")
    rows, out = pq.read_table(path), io.StringIO()
    pq.write_table(rows.take(list(reversed(range(rows.num_rows)))), path)
    lines.told(tmp_path / "out", out)
    assert out.getvalue().splitlines() == told and "[t.pcap frame 6]" in told[0]


def test_one_number_of_two_versions_is_two_rules(audited):
    """MQTT-3.1.2-24 is the keep alive in 3.1.1, the Maximum Packet Size in 5."""
    old = kit.Talk(("10.0.0.8", 8)).open().client(kit.connect("old", 10)).broker(kit.connack())
    old.wait(60).client(kit.PINGREQ).broker(kit.PINGRESP)
    new = kit.Talk(("10.0.0.9", 9)).open()
    new.client(mqtt5.connect(mqtt5.prop(0x27, mqtt5.number(4, 32)))).broker(mqtt5.connack())
    new.broker(mqtt5.publish("t", payload=bytes(100)))
    told, page = audited(old.wrapped() + new.wrapped())
    assert sorted(line.partition(", first")[0] for line in told if "MQTT-3.1.2-24" in line) == [
        "VIOLATION MQTT-3.1.2-24 (MQTT 3.1.1) by the broker, 1 time",
        "VIOLATION MQTT-3.1.2-24 (MQTT 5) by the broker, 1 time"]  # fmt: skip
    for title in ("Violations", "Violations by device", "Where rules were broken"):
        listed = page.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]
        assert listed.count("MQTT-3.1.2-24") == 2, title
        assert ">3.1.1<" in listed and ">5<" in listed, title


def test_rules_that_are_not_listed_are_counted(audited, monkeypatch):
    from mqtt_audit.report import lines

    monkeypatch.setattr(lines, "SHOWN", 2)
    packets = kit.publish("a", dup=True), kit.publish("b/#"), kit.publish(""), b"\x36\x05\0\1a\0\1"
    told, _ = audited(_talk(*packets[:2]).wrapped())
    assert told[2] == "2 violations"
    told, _ = audited(_talk(*packets).wrapped())
    assert told[2:4] == ["... and 2 rules more: the table violations has all", "4 violations"]


def test_problems_of_the_capture_are_counted_beside_the_violations(audited):
    frames = _talk(*[kit.publish("a", b"x" * 50) for _ in range(9)]).wrapped()
    told, _ = audited(frames[:6] + frames[7:])
    assert told[:2] == ["0 violations", "2 problems of the capture, in the report"]


def test_where_no_mqtt_was_found_nothing_is_said_to_be_sound(audited, tmp_path, caplog):
    """By the tables, by lines of words and, on standard error, by those of JSON."""
    from mqtt_audit import sources
    from mqtt_audit.report.lines import TOLD, JsonLines, TextLines

    said = "0 violations: no MQTT was found, so nothing was judged"
    told, _ = audited(_refused("10.0.0.7", 1))
    assert told[0] == said
    words, path = io.StringIO(), str(tmp_path / "t.pcap")
    lines = TextLines(words, TOLD)
    sources.lines([path], lines, (1883,))
    lines.close()
    assert words.getvalue().splitlines()[-1] == said
    caplog.clear()
    sources.lines([path], JsonLines(io.StringIO(), TOLD), (1883,))
    assert caplog.messages == ["no MQTT was found, so nothing was judged"]


def test_where_frames_were_cut_it_is_not_said_that_there_was_no_mqtt(tmp_path, caplog):
    """By the tables, the page, lines of words and, on standard error, by both."""
    from mqtt_audit import run, sources
    from mqtt_audit.report.lines import TOLD, JsonLines, TextLines, told

    made = kit.Talk(broker=("10.0.0.1", 1999)).open().client(kit.connect()).broker(kit.connack())
    path = kit.pcap(tmp_path / "t.pcap", made.client(kit.publish("a", bytes(60))).wrapped(),
                    snap=60)  # fmt: skip
    said = ("no MQTT was found in what the capture has, so nothing was judged: it kept only the "
            "beginning of 2 frames; capture whole frames (tcpdump -s 0)")  # fmt: skip
    run.build(None, [path], tmp_path / "out")
    assert f"{said}; the report says where to look" in caplog.messages
    words = io.StringIO()
    told(tmp_path / "out", words)
    assert words.getvalue().splitlines() == [
        f"0 violations: {said}", "1 problem of the capture, in the report"]  # fmt: skip
    page = " ".join((tmp_path / "out" / "report.html").read_text().split())
    assert "it kept only the beginning of 2 frames. Capture whole frames" in page
    words = io.StringIO()
    lines = TextLines(words, TOLD)
    sources.lines([str(path)], lines, (1883,))
    lines.close()
    assert words.getvalue().splitlines()[-1] == f"0 violations: {said}"
    caplog.clear()
    sources.lines([str(path)], JsonLines(io.StringIO(), TOLD), (1883,))
    assert caplog.messages == [said]


@pytest.mark.parametrize("name", ["live", "warm-up"])
def test_the_usage_of_a_subcommand_is_how_it_is_called(name):
    from click.testing import CliRunner
    from mqtt_audit import commands

    command = {"live": commands.live, "warm-up": commands.warm_up}[name]
    said = CliRunner().invoke(command, [name, "--help"], prog_name="mqtt-audit").output
    assert said.splitlines()[0] == f"Usage: mqtt-audit {name} [OPTIONS]"


def test_lines_that_follow_tell_of_every_tenfold_refusal_and_of_their_number(tmp_path):
    from mqtt_audit import sources
    from mqtt_audit.report.lines import TOLD, TextLines

    frames = _refused("10.0.0.7", 112) + _talk(kit.publish("a", dup=True)).wrapped()
    path = kit.pcap(tmp_path / "t.pcap", sorted(frames, key=lambda f: f[0]))
    out = io.StringIO()
    told = TextLines(out, TOLD)
    sources.lines([str(path)], told, (1883,))
    told.close()
    lines = out.getvalue().splitlines()
    counts = [line.split(": ")[-1] for line in lines if "refused" in line]
    assert counts == ["1 TCP connection refused", "10 TCP connections refused",
                      "100 TCP connections refused", "112 TCP connections refused"]  # fmt: skip
    assert lines[-1] == "1 violation"
