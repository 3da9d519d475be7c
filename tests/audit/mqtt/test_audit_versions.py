"""The MQIpdp draft and MQTT 3.1 as the strict broker read them.

tshark does not know the draft, so what the audit finds in real traffic of the client is compared
with what the strict broker noted, packet by packet.
"""

import subprocess
from pathlib import Path

import audit_kit as kit
import device_plugin
import mqtt5 as five
import pytest
from pipeline_kit import wait_for
from strict_server import StrictServer

ROOT = Path(__file__).resolve().parents[3]
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


@pytest.mark.parametrize("at_once", [True, False])
def test_a_connack_that_comes_before_its_connect_has_its_version(at_once, tmp_path):
    """In a file made of both directions with clocks that are apart: it is read when the CONNECT is
    there, which shows that it has properties."""
    from mqtt_audit.following import Following

    made = kit.Talk().open().client(five.connect()).broker(five.connack(
        five.prop(0x1F, kit.string("welcome"))))  # fmt: skip
    frames = made.client(five.publish("a")).close().wrapped()
    frames[3:5] = (frames[3][0], frames[4][1]), (frames[4][0], frames[3][1])
    path = kit.pcap(tmp_path / "t.pcap", frames)
    if at_once:
        found = kit.read([path], tmp_path)
    else:
        found, raw = {"violations": []}, path.read_bytes()
        following = Following(lambda name, rows: found.setdefault(name, []).extend(
            rows.to_pylist()))  # fmt: skip
        following.capture("t", [raw[k : k + 40] for k in range(0, len(raw), 40)])
        following.finish()
    (told,) = [p for p in found["packets"] if p["type"] == "CONNACK"]
    assert told["properties"] == [{"name": "Reason String", "key": None, "value": "welcome"}]
    assert len(found["packets"]) == 3 and found["violations"] == []
    assert [p["problem"] for p in found["problems"]] == ["order"]


def test_what_a_broker_says_waits_not_long_for_a_connect_that_is_lost(tmp_path):
    """The capture lacks the CONNECT; nothing else is lost."""
    made = kit.Talk().open().client(five.connect()).broker(five.connack())
    del made.frames[3]
    for _ in range(5):
        made.wait(0.4).broker(five.publish("a"))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert [p["type"] for p in found["packets"]] == ["CONNACK"] + ["PUBLISH"] * 5
    assert found["violations"] == []
