"""The audit reads real traffic as tshark does, field by field.

Real clients (paho, mosquitto_pub) and real brokers (mosquitto, iotcore), captured by a relay.
"""

import random
import shutil
import subprocess

import audit_kit as kit
import paho.mqtt.client as mqtt
import pytest
from pipeline_kit import wait_for
from real_traffic import traffic, with_properties

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


def _true(values):
    return values[0] in ("1", "True")


def _properties(fields):
    """[(name, value)] of all properties, those of a will behind the packet's own; value None: not
    compared (binary, which tshark shows as text)."""
    from mqtt_audit.mqtt.properties import BINARY, PAIR, PROPERTIES, TEXT

    taken = {name: iter(fields.get(f"mqtt.{name}", ())) for name in (
        "prop_number", "prop_string", "prop_key", "prop_value", "property.content_type",
        "property.max_qos", "property.topic_alias")}  # fmt: skip
    own = {"Content Type": "property.content_type", "Maximum QoS": "property.max_qos",
           "Topic Alias": "property.topic_alias"}  # fmt: skip
    out = []
    for ident in fields.get("mqtt.property_id", ()):
        name, kind = PROPERTIES[int(ident, 0)]
        if kind == PAIR:
            out.append((name, next(taken["prop_key"]), next(taken["prop_value"])))
            continue
        value = next(taken[own.get(name, "prop_string" if kind in (TEXT, BINARY) else
                                   "prop_number")])  # fmt: skip
        if kind != TEXT and kind != BINARY:
            value = str(int(value, 0))
        out.append((name, None, None if kind == BINARY else value))
    return out


def _five(fields, row):
    """What only MQTT 5 has."""
    for kind in ("connack", "puback", "pubrec", "pubrel", "pubcomp", "disconnect", "auth"):
        if f"mqtt.{kind}.reason_code" in fields:
            row["reason_code"] = int(fields[f"mqtt.{kind}.reason_code"][0], 0)
    for kind in ("suback", "unsuback"):
        if f"mqtt.{kind}.reason_code" in fields:
            row["reason_codes"] = [int(v, 0) for v in fields[f"mqtt.{kind}.reason_code"]]
    if "mqtt.subscription_options" in fields:
        row["options"] = [int(v, 0) for v in fields["mqtt.subscription_options"]]
        row["qos_list"] = [int(v, 0) for v in fields["mqtt.subscription_options_qos"]]
    row["all properties"] = _properties(fields)


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
        if "mqtt.conack.val" in fields:
            row |= {"return_code": number("mqtt.conack.val")}
        if "mqtt.conack.flags.sp" in fields:
            row["session_present"] = _true(fields["mqtt.conack.flags.sp"])
    elif kind in (8, 10):
        row["filters"] = fields["mqtt.topic"]
    name = {8: "mqtt.sub.qos", 9: "mqtt.suback.qos"}.get(kind)
    if name in fields:  # not in MQTT 5
        row["qos_list"] = [int(v, 0) for v in fields[name]]
    _five(fields, row)
    return row


def _all_properties(row):
    both = (row["properties"] or []) + (row["will_properties"] or [])
    binary = ("Correlation Data", "Authentication Data")
    return [(p["name"], p["key"], None if p["name"] in binary else p["value"]) for p in both]


def assert_same(path, port, folder):
    """Every packet that tshark sees is in the table, with the same fields, and no other."""
    from mqtt_audit.compiled.layout import TYPES

    theirs = [_expected(f) for f in kit.tshark(path, port)]
    ours = kit.read([path], folder, ports=(port,))["packets"]
    assert len(ours) == len(theirs) > 0
    for mine, their in zip(ours, theirs):
        mine["type"] = TYPES.index(mine["type"])
        mine["all properties"] = _all_properties(mine)
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
    traffic(tap.port, mqtt.MQTTv311)
    if broker.name == "mosquitto":  # iotcore speaks 3.1.1 only
        traffic(tap.port, mqtt.MQTTv31)
    wait_for(tap.idle, what="the end of all connections")
    ours = assert_same(kit.pcap(tmp_path / "t.pcap", tap.frames()), broker.port, tmp_path)
    assert {r["type"] for r in ours} >= set(range(1, 12)) | {14}
    assert not any("secret" in str(r) for r in ours)


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_paho_5(tapped, tmp_path):
    """Every packet type but AUTH. Where a topic is empty, tshark has it from the alias, too."""
    tap, broker = tapped
    traffic(tap.port, mqtt.MQTTv5)
    got = with_properties(tap.port)
    wait_for(tap.idle, what="the end of all connections")
    path = kit.pcap(tmp_path / "t.pcap", tap.frames())
    ours = assert_same(path, broker.port, tmp_path)
    assert {r["type"] for r in ours} >= set(range(1, 12)) | {14}
    assert not any("secret" in str(r) for r in ours)
    sent = [r for r in ours if r["properties"] and r["type"] == 3 and r["sender"] == "client"]
    assert len(sent) == len(got) == 6 and {r["topic"] for r in sent} == {"f/a/long/topic"}
    found = kit.read([path], tmp_path, ports=(broker.port,))
    assert found["violations"] == [] and found["problems"] == []


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
