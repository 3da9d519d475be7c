"""The MQIpdp draft and MQTT 3.1 as the strict broker read them; MQTT 5 is never taken for 3.1.1.

tshark does not know the draft, so what the audit finds in real traffic of the client is compared
with what the strict broker noted, packet by packet.
"""

import subprocess
from pathlib import Path

import audit_kit as kit
import device_plugin
import pytest
from pipeline_kit import wait_for
from strict_server import StrictServer

ROOT = Path(__file__).resolve().parents[2]
#: Both ways at each QoS, an UNSUBSCRIBE, a ping.
SCRIPT = """
import sys
sys.path[:0] = [{shim!r}, {lib!r}]
import time
import umqtt_min
from umqtt_min import MQTTClient
got = []
c = MQTTClient("draft", "127.0.0.1", {port}, keepalive=10, timeout=30,
               protocol=getattr(umqtt_min, {protocol!r}))
c.set_callback(lambda topic, msg: got.append(1))
c.set_last_will(b"w/x", b"gone", qos=1)
c.connect()
c.subscribe(b"a/#", 2)
for k in range(150):
    c.publish(b"a/" + str(k % 7).encode(), b"x" * k, qos=k % 3, retain=k % 5 == 0)
until = time.ticks_add(time.ticks_ms(), 30000)
while len(got) < 150 and time.ticks_diff(until, time.ticks_ms()) > 0:
    c.check_msg()
    time.sleep_ms(1)
assert len(got) == 150, len(got)
c.ping()
c.unsubscribe(b"a/#")
c.disconnect()
"""


def _noted(packet):
    """A packet of the broker's log under the names of the packet table."""
    row = {"type": packet.name, "flags": packet.flags}
    if packet.name == "CONNECT":
        row["client_id"] = packet.client_id.decode()
    elif packet.name == "PUBLISH":
        row |= {"topic": packet.topic.decode(), "payload_length": len(packet.payload),
                "qos": packet.qos, "retain": packet.retain, "dup": packet.dup}  # fmt: skip
    elif packet.name == "SUBSCRIBE":
        row |= {"filters": [f.decode() for f, _ in packet.filters],
                "qos_list": [q for _, q in packet.filters]}  # fmt: skip
    if packet.pid:
        row["packet_id"] = packet.pid
    return row


@pytest.mark.parametrize("protocol,name", [("MQIPDP_2", "MQIpdp"), ("MQTT_3_1", "3.1")])
def test_what_the_strict_broker_read(protocol, name, tmp_path):
    with StrictServer() as server:
        tap = kit.Tap(server.port)
        script = SCRIPT.format(lib=str(ROOT / "lib"), shim=str(ROOT / "boards/unix/shim"),
                               port=tap.port, protocol=protocol)  # fmt: skip
        argv = [*device_plugin.command("micropython", "1M"), "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(tap.idle, what="the end of all connections")
        tap.stop()
        with server.lock:
            noted = [_noted(p) for p in server.broker.packets]
    path = kit.pcap(tmp_path / "t.pcap", tap.frames())
    found = kit.read([path], tmp_path, ports=(server.port,))
    mine = [r for r in found["packets"] if r["sender"] == "client"]
    assert [{k: r[k] for k in n} for r, n in zip(mine, noted)] == noted
    assert len(mine) == len(noted) > 250 and max(r["packet_id"] or 0 for r in mine) < 1000
    assert [c["protocol"] for c in found["connections"]] == [name]
    # What came back has the same ids as the acknowledgements that the broker read.
    acked = [r["packet_id"] for r in mine if r["type"] in ("PUBACK", "PUBREC")]
    back = [r for r in found["packets"] if r["sender"] == "broker" and r["type"] == "PUBLISH"]
    assert [r["packet_id"] for r in back if r["qos"]] == acked
    flows = found["flows"]
    assert len(flows) == 200 and {f["outcome"] for f in flows} == {"acknowledged"}
    assert found["violations"] == [] and found["problems"] == []


def _v5(head, *parts):
    return kit.packet(head, b"".join(parts))


def test_mqtt_5_is_listed_and_not_read_as_311(tmp_path):
    """Properties and reason codes where 3.1.1 has neither; each would break a rule of 3.1.1."""
    ident, none, user = b"\0\x07", b"\0", b"\x06\x26\0\x01k\0\0"
    made = kit.Talk().open()
    made.client(_v5(0x10, kit.string("MQTT"), b"\x05\x02\0\x05\x05\x11\0\0\0\x0a", kit.string("")))
    made.broker(_v5(0x20, b"\0\0\x03\x21\0\x0a"))
    made.client(_v5(0x82, ident, none, kit.string("a/#"), b"\x2e"))
    made.broker(_v5(0x90, ident, none, b"\x97"))
    made.client(_v5(0x32, kit.string("a/b"), ident, user, b"21.5"))
    made.broker(_v5(0x40, ident, b"\x10", none))
    made.client(_v5(0x34, kit.string("a/c"), b"\0\x08", none, b"x"))
    made.broker(_v5(0x50, b"\0\x08\x87"))  # refused: the id is free again
    made.client(_v5(0x34, kit.string("a/d"), b"\0\x08", none, b"other"))
    made.client(_v5(0x30, kit.string(""), b"\x03\x23\0\x01", b"by alias"))
    made.wait(60).broker(_v5(0xF0, b"\x18\0")).client(_v5(0xE0, b"\x04\0")).close()
    # A refused connection, whose reason code 3.1.1 reserves.
    other = kit.Talk(("10.0.0.3", 1), start=made.now).open()
    other.client(_v5(0x10, kit.string("MQTT"), b"\x05\x02\0\x05\0", kit.string("two")))
    other.broker(_v5(0x20, b"\0\x87\0")).close()
    path = kit.pcap(tmp_path / "t.pcap", made.wrapped() + other.wrapped())
    found = kit.read([path], tmp_path)
    assert [r["type"] for r in found["packets"]] == [
        "CONNECT", "CONNACK", "SUBSCRIBE", "SUBACK", "PUBLISH", "PUBACK", "PUBLISH", "PUBREC",
        "PUBLISH", "PUBLISH", "AUTH", "DISCONNECT", "CONNECT", "CONNACK"]  # fmt: skip
    assert {c["protocol"] for c in found["connections"]} == {"5"}
    assert found["violations"] == []
    assert [p["problem"] for p in found["problems"]] == ["MQTT 5", "MQTT 5"]
    sent = [r for r in found["packets"] if r["type"] == "PUBLISH"]
    assert [(r["topic"], r["packet_id"], r["payload_length"]) for r in sent] == [
        ("a/b", 7, 4), ("a/c", 8, 1), ("a/d", 8, 5), ("", None, 8)]  # fmt: skip
    assert all(r["filters"] is None and r["qos_list"] is None for r in found["packets"])
    assert [f["outcome"] for f in sorted(found["flows"], key=lambda f: f["first"])] == [
        "acknowledged", "acknowledged", "open"]  # fmt: skip
    # Nothing is held against it if the capture lacks CONNECT, so that the version is not known.
    first = [made.wrapped()[k] for k in range(len(made.frames)) if k != 3]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", first)], tmp_path)
    assert found["violations"] == [] and found["packets"][0]["type"] == "CONNACK"
