"""The audit reads real traffic as tshark does, field by field.

Real clients (paho, mosquitto_pub) and real brokers (mosquitto, iotcore), captured by a relay.
"""

import random
import shutil
import subprocess
import threading

import audit_kit as kit
import paho.mqtt.client as mqtt
import pytest
from pipeline_kit import wait_for

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")

PAYLOADS = [b"", b"x", b"reading " * 40, bytes(range(256)) * 40]


def _client(name, port, version, clean=True, **will):
    """A connected paho client; waits for its CONNACK."""
    up = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, clean, protocol=version)
    client.on_connect = lambda *_: up.set()
    client.username_pw_set("user", "a secret")
    if will:
        client.will_set(**will)
    client.connect("127.0.0.1", port, 30)
    client.loop_start()
    assert up.wait(30)
    return client


def _traffic(port, version):
    """A subscriber and a publisher at each QoS; both disconnect when all has arrived."""
    got, subscribed, gone = [], threading.Event(), threading.Event()
    listener = _client("listener", port, version)
    listener.on_message = lambda _c, _u, m: got.append(m.payload)
    listener.on_subscribe = lambda *_: subscribed.set()
    listener.on_unsubscribe = lambda *_: gone.set()
    listener.subscribe([("a/+/t", 2), ("b/#", 1), ("c", 0)])
    assert subscribed.wait(30)
    sender = _client("sender", port, version, topic="a/will", payload=b"gone", qos=1, retain=True)
    for payload in PAYLOADS:
        for topic in ("a/ä/t", "b/c/d", "c"):
            for qos in (0, 1, 2):
                sender.publish(topic, payload, qos, retain=qos == 1).wait_for_publish(30)
    # More, if the broker still has retained ones of an earlier round.
    wait_for(lambda: len(got) >= 9 * len(PAYLOADS), what="all messages")
    listener.unsubscribe(["c", "b/#"])
    assert gone.wait(30)
    for client in (sender, listener):
        client.disconnect()
        client.loop_stop()


def _true(values):
    return values[0] in ("1", "True")


def _expected(fields):
    """tshark's fields under the names of the packet table."""
    def number(name):
        return int(fields[name][0], 0) if name in fields else None

    kind = number("mqtt.msgtype")
    row = {"frame": fields["frame"][0], "type": kind, "length": number("mqtt.len"),
           "packet_id": number("mqtt.msgid")}  # fmt: skip
    if kind == 3:
        row |= {"dup": _true(fields["mqtt.dupflag"]), "qos": number("mqtt.qos"),
                "retain": _true(fields["mqtt.retain"]), "topic": fields["mqtt.topic"][0]}
        row["payload_length"] = len(fields.get("mqtt.msg", [""])[0].replace(":", "")) // 2
    elif kind == 1:
        row |= {"client_id": fields["mqtt.clientid"][0], "keep_alive": number("mqtt.kalive"),
                "protocol_level": number("mqtt.ver"),
                "clean_session": _true(fields["mqtt.conflag.cleansess"]),
                "user_name": _true(fields["mqtt.conflag.uname"]),
                "password": _true(fields["mqtt.conflag.passwd"]),
                "will": _true(fields["mqtt.conflag.willflag"]),
                "will_topic": fields.get("mqtt.willtopic", [None])[0]}  # fmt: skip
        if row["will"]:
            row |= {"will_qos": number("mqtt.conflag.qos"),
                    "will_retain": _true(fields["mqtt.conflag.retain"])}  # fmt: skip
    elif kind == 2:
        row |= {"return_code": number("mqtt.conack.val")}
        if "mqtt.conack.flags.sp" in fields:
            row["session_present"] = _true(fields["mqtt.conack.flags.sp"])
    elif kind in (8, 10):
        row["filters"] = fields["mqtt.topic"]
    if kind in (8, 9):
        name = "mqtt.sub.qos" if kind == 8 else "mqtt.suback.qos"
        row["qos_list"] = [int(v, 0) for v in fields[name]]
    return row


def assert_same(path, port, folder):
    """Every packet that tshark sees is in the table, with the same fields, and no other."""
    from mqtt_audit.compiled.layout import TYPES

    theirs = [_expected(f) for f in kit.tshark(path, port)]
    ours = kit.read([path], folder, ports=(port,))["packets"]
    assert len(ours) == len(theirs) > 0
    for mine, their in zip(ours, theirs):
        mine["type"] = TYPES.index(mine["type"])
        assert {k: mine[k] for k in their} == their
    return ours


@pytest.fixture
def tapped(broker):
    tap = kit.Tap(broker.port)
    yield tap, broker
    tap.stop()


@pytest.mark.parametrize("broker", ["mosquitto", "iotcore"], indirect=True)
def test_paho_311_and_31(tapped, tmp_path):
    tap, broker = tapped
    _traffic(tap.port, mqtt.MQTTv311)
    if broker.name == "mosquitto":  # iotcore speaks 3.1.1 only
        _traffic(tap.port, mqtt.MQTTv31)
    wait_for(tap.idle, what="the end of all connections")
    ours = assert_same(kit.pcap(tmp_path / "t.pcap", tap.frames()), broker.port, tmp_path)
    assert {r["type"] for r in ours} >= set(range(1, 12)) | {14}
    assert not any("secret" in str(r) for r in ours)


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_mosquitto_pub_shuffled(tapped, tmp_path):
    if not shutil.which("mosquitto_pub"):
        pytest.skip("mosquitto_pub is not installed (apt-get install mosquitto-clients)")
    tap, broker = tapped
    for qos in "012":
        argv = ["mosquitto_pub", "-p", str(tap.port), "-t", "dev/x", "-q", qos, "-l"]
        lines = "".join(f"line {k} {'y' * (k * 37 % 500)}\n" for k in range(60))
        subprocess.run(argv, input=lines, text=True, timeout=60, check=True)
    wait_for(tap.idle, what="the end of all connections")
    frames = shuffled(tap.frames(), random.Random(7))
    assert_same(kit.pcap(tmp_path / "t.pcap", frames), broker.port, tmp_path)


def shuffled(frames, choice):
    """Neighbours with payload of one sender change places now and then."""
    out = list(frames)
    for k in range(len(out) - 1):
        (t0, a), (t1, b) = out[k], out[k + 1]
        same = a[26:38] == b[26:38] and len(a) > 60 and len(b) > 60
        if same and not (a[47] | b[47]) & (kit.SYN | kit.FIN) and choice.random() < 0.3:
            out[k], out[k + 1] = (t0, b), (t1, a)
    return out
