"""What a user's trial found: rules that were told wrongly or not, words, names of files.

Knows: the kit, the command. Must not know: the code under test except by its tables and lines.
"""

import io
import json
import os
import re
import shutil
import subprocess

import audit_kit as kit
import mqtt5
import pyarrow as pa
import pytest
from mqtt_audit.report import columns
from mqtt_audit.rules.findings import RULES, findings
from pipeline_kit import AUDIT

BAD = os.fsdecode(b"bad\xffname.pcap")


def talk(sent, answer):
    return kit.Talk().open().client(sent).broker(answer)


def read(made, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)


def said(made, tmp_path):
    return [(v["statement"], v["sender"], v["what"]) for v in read(made, tmp_path)["violations"]]


@pytest.mark.parametrize("level,flags,rest,right", [
    (3, 0x82, b"", True), (3, 0xC2, kit.string("u"), True), (3, 0xC2, b"", True),
    (3, 0x82, b"\0", False), (3, 0x82, kit.string("u") + b"x", False), (4, 0x82, b"", False),
])  # fmt: skip
def test_mqtt_3_1_lets_a_user_name_or_a_password_be_missing(level, flags, rest, right, tmp_path):
    """"The Remaining Length takes precedence over the User Name flag" (3.1)."""
    name = "MQIsdp" if level == 3 else "MQTT"
    made = talk(kit.connect("a", 60, flags, name, level, rest), kit.connack())
    assert [what for *_, what in said(made, tmp_path)] == (
        [] if right else ["the payload of CONNECT does not hold what its flags announce"])


def test_an_alias_that_nobody_named_is_no_fault_of_the_capture(tmp_path):
    """Of a capture that lacks bytes it is; then it counts once."""
    for gone in (False, True):
        made = talk(mqtt5.connect(), mqtt5.connack(mqtt5.prop(0x22, mqtt5.number(2, 255))))
        if gone:
            made.seq[0] += 30
        made.client(mqtt5.publish("", mqtt5.prop(0x23, mqtt5.number(2, 200))))
        for _ in range(9):
            made.client(mqtt5.publish("a"))
        tables = read(made, tmp_path)
        found = [(p["problem"], p["count"]) for p in tables["problems"]
                 if p["problem"] == "MQTT 5"]  # fmt: skip
        assert found == ([("MQTT 5", 1)] if gone else [])
        assert len(tables["violations"]) == (not gone)


def test_a_syn_that_nothing_answers_never_opened(tmp_path):
    made = kit.Talk()
    for _ in range(3):
        made.segment(0, flags=kit.SYN, seq=1000).wait(1)
    assert [c["why"] for c in read(made, tmp_path)["connections"]] == [
        "TCP connection never answered by the broker"]  # fmt: skip
    opened = kit.Talk(("10.0.0.4", 4)).open()
    assert [c["why"] for c in read(opened, tmp_path)["connections"]] == [
        "open at the end of the capture"]  # fmt: skip


@pytest.mark.parametrize("level,records,told", [(5, 1, True), (4, 1, False), (5, 2, False)])
def test_pubrel_is_not_sent_again_on_the_same_connection(level, records, told, tmp_path):
    """In MQTT 5; but a second PUBREC, which is told itself, asks for another one."""
    five = level == 5
    made = talk(mqtt5.connect(), mqtt5.connack()) if five else talk(kit.connect(), kit.connack())
    publish = kit.packet(0x34, kit.string("a") + b"\0\1" + b"\0" * five + b"x")
    made.client(publish).broker(kit.ack(5, 1)).client(kit.ack(6, 1))
    if records == 2:
        made.broker(kit.ack(5, 1))
    made.wait(5).client(kit.ack(6, 1)).broker(kit.ack(7, 1))
    what = "{} with packet id 1 sent again on the same connection"
    wanted = [("MQTT-4.4.0-1", "client", what.format("PUBREL"))] * told
    wanted += [("MQTT-4.4.0-1", "broker", what.format("PUBREC"))] * (records == 2)
    assert said(made, tmp_path) == wanted


def test_an_acknowledgement_that_is_too_long_is_not_called_cut_short(tmp_path):
    made = talk(mqtt5.connect(), mqtt5.connack())
    made.client(kit.packet(0x32, kit.string("a") + b"\0\1\0x"))
    made.broker(kit.packet(0x40, b"\0\1\0\0zz"))
    assert said(made, tmp_path) == [
        ("MQTT 5, 1.2", "broker", "bytes follow the properties of the packet")]


def paced(*parts):
    """Messages: (how many a second, for how many seconds)."""
    made = talk(kit.connect("loud", 0), kit.connack())
    made.step, start = 0, kit.START + 10**9
    for rate, seconds in parts:
        for k in range(rate * seconds):
            made.now = start + k * 10**9 // rate
            made.client(kit.publish("a"))
        start += seconds * 10**9
    made.now = start
    return made.client(kit.DISCONNECT)


@pytest.mark.parametrize("parts,flood", [
    ([(201, 12)], True), ([(201, 11), (1, 60)], True), ([(1, 60), (400, 11), (1, 60)], True),
    ([(190, 30)], False), ([(201, 9), (1, 60)], False), ([(1500, 2), (1, 60)], False),
    ([(250, 8), (0, 5), (250, 8)], False)])  # fmt: skip
def test_a_flood_is_found_wherever_it_is(parts, flood, tmp_path):
    tables = read(paced(*parts), tmp_path)
    made = (pa.Table.from_pylist(tables[name], columns.TABLES[name])
            for name in ("connections", "latencies"))  # fmt: skip
    assert ("flood" in findings(*made)["finding"].to_pylist()) == flood


def run(folder, *arguments):
    done = subprocess.run([AUDIT, *arguments], cwd=folder, capture_output=True, text=True,
                          timeout=100)  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def test_a_name_that_is_no_utf_8_is_told_with_its_bytes(tmp_path):
    """In tables, report and lines; of a capture and of what is none; beside others or alone."""
    made = talk(kit.connect("dev1", 5), kit.connack(5)).client(kit.PINGREQ)
    kit.pcap(tmp_path / BAD, made.wrapped())
    kit.pcap(tmp_path / "good.pcap", kit.Talk(("10.0.0.9", 9)).open().wrapped())
    none = os.fsdecode(b"no\xfecapture")
    (tmp_path / none).write_bytes(b"no capture at all, but long enough")
    done = run(tmp_path, BAD, "good.pcap", none, "--out", "out")
    assert done.returncode == 0 and "no\\xfecapture" in done.stderr
    assert "bad\\xffname.pcap" in (tmp_path / "out" / "report.html").read_text()
    done = run(tmp_path, BAD, "good.pcap", none, "--json")
    files = {json.loads(line)["file"] for line in done.stdout.splitlines()}
    assert done.returncode == 0 and "bad\\xffname.pcap" in files
    shutil.copy(tmp_path / BAD, tmp_path / "copy")
    assert run(tmp_path, BAD, "copy", "--json").returncode == 0
    for arguments in ([none, "--out", "o"], [BAD, "copy", "--out", "o"], [BAD, BAD, "--out", "o"],
                      ["good.pcap", "--out", os.fsdecode(b"out\xff")]):  # fmt: skip
        done = run(tmp_path, *arguments)
        assert done.returncode == 2 and "\\x" in done.stderr


def test_live_counts_the_frames_that_dumpcap_dropped():
    from mqtt_audit.sources import dropped

    said = ("Packets captured: 9\nPackets received/dropped on interface 'Loopback: lo': 9/{} "
            "(pcap:1/dumpcap:0/flushed:0/ps_ifdrop:0) (90.0%)\n")  # fmt: skip
    assert (dropped(said.format(3)), dropped(said.format(0)), dropped("")) == (3, 0, 0)


def test_one_message_is_not_called_messages(tmp_path):
    from mqtt_audit.report.lines import connection

    made = talk(kit.connect(), kit.connack()).client(kit.publish("a"))
    row = read(made.segment(0, kit.PINGREQ[:1]), tmp_path)
    assert "1 message sent, 0 received;" in connection(row["connections"][0])
    assert [p["what"] for p in row["problems"]] == [
        "the capture ends inside a packet; 0 bytes of it are there"]  # behind its header
    made.segment(0, b"\5abcd", seq=made.seq[0] + 1)
    assert "1 byte of the stream is not" in str(read(made, tmp_path)["problems"])


def test_one_of_a_thing_is_told_in_the_singular(tmp_path):
    """In the report, and in the line of a packet."""
    from mqtt_audit import run

    made = kit.Talk().client(kit.connect() + kit.publish("a", b"x", 1, 7))
    path = kit.pcap(tmp_path / "t.pcap", made.wrapped())
    run.build(None, [path], tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert "1 frame,\n2 MQTT packets, 1 connection,\n1 message of" in page
    assert "QoS 1 packet id 7 1 byte\n" in words(path)


def words(path):
    """What the command says of a capture line by line."""
    from mqtt_audit.report.lines import TOLD, TextLines
    from mqtt_audit.sources import lines

    out = io.StringIO()
    lines([str(path)], TextLines(out, TOLD), (1883,))
    return out.getvalue()


def test_what_steers_a_terminal_is_written_as_python_writes_it(tmp_path):
    topic = "a\x1b\u202e\U000e0001\u00e9"
    made = talk(kit.connect(), kit.connack()).client(kit.publish(topic))
    said = words(kit.pcap(tmp_path / "t.pcap", made.wrapped()))
    assert r"a\x1b\u202e\U000e0001\u00e9 QoS 0".replace(r"\u00e9", "\u00e9") in said


def test_the_report_has_nothing_that_steers_a_terminal(tmp_path):
    from mqtt_audit import run

    made = talk(kit.connect("id\x1b[31m\u202e"), kit.connack()).client(kit.publish("a\x1b/#"))
    run.build(None, [kit.pcap(tmp_path / "t\x1b.pcap", made.wrapped())], tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert r"id\x1b[31m\u202e" in page and r"t\x1b.pcap" in page
    assert "\x1b" not in page and "\u202e" not in page


def test_a_second_connect_makes_no_negative_time(tmp_path):
    made = talk(kit.connect(), kit.connack()).wait(3).client(kit.connect())
    found = read(made, tmp_path)["connections"][0]
    assert found["connack_ms"] == 1 and found["handshake_ms"] == 3
    made.frames[3], made.frames[4] = [
        (t, f) for (t, _), (_, f) in zip(made.frames[3:5], made.frames[4:2:-1])]  # fmt: skip
    assert read(made, tmp_path)["connections"][0]["connack_ms"] is None


def test_a_silence_is_told_in_seconds_everywhere(tmp_path):
    made = talk(kit.connect(keep_alive=4), kit.connack()).segment(0, flags=kit.ACK).wait(30)
    for more in (made.client(kit.PINGREQ).broker(kit.PINGRESP), made.segment(0).wait(40)):
        told = said(more.segment(1, flags=kit.FIN | kit.ACK), tmp_path)
        assert len(told) >= 2 and not any(" ms" in t[2] for t in told)
        assert all(re.search(r" ?[34]0\.0 s ", t[2]) for t in told), told


def test_the_rule_of_clients_that_push_each_other_out_has_its_second():
    assert "within a second after another one of its client id begins" in (
        RULES["clients push each other out"])


@pytest.mark.parametrize("first,told", [
    (b"GARBAGE and more", "not MQTT"), (b"GETTING", "not MQTT"), (b"EHLO here\r\n", "not MQTT"),
    (b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"PRI * HTTP/2.0\r\n\r\n", "HTTP"),
    (b"DELETE /x HTTP/1.1\r\n\r\n", "HTTP")])  # fmt: skip
def test_capital_letters_are_not_always_http(first, told, tmp_path):
    """Nor is it "MQTT HTTP" in the line of the connection."""
    made = kit.Talk().open().client(first).close()
    found = read(made, tmp_path)
    assert [p["problem"] for p in found["problems"]] == [told]
    assert found["violations"] == []
    assert f"to 10.0.0.1:1883 {told} 0.00" in words(tmp_path / "t.pcap")


def test_one_acknowledgement_is_drawn(monkeypatch, tmp_path):
    """As a line from 0 to 100 %, over the width of the figure."""
    import pyarrow.parquet as pq
    from mqtt_audit.report import page

    (tmp_path / "latencies").mkdir()
    pq.write_table(pa.Table.from_pylist([dict(
        client_id="a", broker="b", sender="client", qos=1, outcome="acknowledged", latency_ms=3.0,
        messages=1, retransmissions=0, longest_ms=3.0)], columns.LATENCIES),
        tmp_path / "latencies" / "part.parquet")  # fmt: skip
    drawn = []
    monkeypatch.setattr(page, "_png", drawn.append)
    page.latency(tmp_path)
    left = drawn[0].axes[0]
    (line,) = left.lines
    assert line.get_ydata().tolist() == [0, 1, 1]
    assert [line.get_xdata()[0], line.get_xdata()[-1]] == list(left.get_xlim())
