"""Traffic of paho with a real broker, captured by a relay."""

import shutil
import subprocess
import threading

import audit_kit as kit
import paho.mqtt.client as mqtt
from pipeline_kit import wait_for

PAYLOADS = [b"", b"x", b"reading " * 40, bytes(range(256)) * 40]


def connected(name, port, version, clean=True, **will):
    """A connected paho client; waits for its CONNACK."""
    up = threading.Event()
    clean = None if version == mqtt.MQTTv5 else clean
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, clean, protocol=version)
    client.on_connect = lambda *_: up.set()
    client.username_pw_set("user", "a secret")
    if will:
        client.will_set(**will)
    client.connect("127.0.0.1", port, 30)
    client.loop_start()
    assert up.wait(120)
    return client


def traffic(port, version):
    """A subscriber and a publisher at each QoS; both disconnect when all has arrived."""
    got, subscribed, gone = [], threading.Event(), threading.Event()
    listener = connected("listener", port, version)
    listener.on_message = lambda _c, _u, m: got.append(m.payload)
    listener.on_subscribe = lambda *_: subscribed.set()
    listener.on_unsubscribe = lambda *_: gone.set()
    wanted = [("a/+/t", 2), ("b/#", 1), ("c", 0)]
    if version == mqtt.MQTTv5:
        wanted = [(topic, mqtt.SubscribeOptions(qos)) for topic, qos in wanted]
    listener.subscribe(wanted)
    assert subscribed.wait(120)
    sender = connected("sender", port, version, topic="a/will", payload=b"gone", qos=1,
                       retain=True)
    for payload in PAYLOADS:
        for topic in ("a/ä/t", "b/c/d", "c"):
            for qos in (0, 1, 2):
                sender.publish(topic, payload, qos, retain=qos == 1).wait_for_publish(30)
    # More, if the broker still has retained ones of an earlier round.
    wait_for(lambda: len(got) >= 9 * len(PAYLOADS), what="all messages")
    listener.unsubscribe(["c", "b/#"])
    assert gone.wait(120)
    for client in (sender, listener):
        client.disconnect()
        client.loop_stop()


def properties_of(kind, **values):
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    made = Properties(getattr(PacketTypes, kind))
    for name, value in values.items():
        setattr(made, name, value)
    return made


def with_properties(port):
    """A client of MQTT 5 that sends every property that it may, and a topic alias."""
    got, up, done = [], threading.Event(), threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "five", protocol=mqtt.MQTTv5)
    client.on_connect = lambda *_: up.set()
    client.on_subscribe = lambda *_: done.set()
    client.on_unsubscribe = lambda *_: done.set()
    client.on_message = lambda _c, _u, m: got.append(m.topic)
    pairs = [("k", "v"), ("k", "w")]
    client.will_set("w", b"gone", 1, True, properties=properties_of(
        "WILLMESSAGE", WillDelayInterval=3, MessageExpiryInterval=9, ContentType="text/plain",
        ResponseTopic="r", CorrelationData=b"1", PayloadFormatIndicator=1, UserProperty=pairs))
    client.connect("127.0.0.1", port, 30, properties=properties_of(
        "CONNECT", SessionExpiryInterval=60, ReceiveMaximum=5, MaximumPacketSize=100_000,
        TopicAliasMaximum=4, RequestResponseInformation=1, RequestProblemInformation=1,
        UserProperty=pairs))  # fmt: skip
    client.loop_start()
    assert up.wait(120)
    client.subscribe("f/#", options=mqtt.SubscribeOptions(2, retainAsPublished=True),
                     properties=properties_of("SUBSCRIBE", SubscriptionIdentifier=200,
                                               UserProperty=pairs))  # fmt: skip
    assert done.wait(120)
    done.clear()
    for qos in (0, 1, 2):
        for topic in ("f/a/long/topic", ""):
            alias = properties_of(
                "PUBLISH", TopicAlias=1 + qos, ContentType="x", UserProperty=pairs,
                ResponseTopic="r", CorrelationData=b"abc", MessageExpiryInterval=77,
                PayloadFormatIndicator=1)  # fmt: skip
            client.publish(topic, b"text", qos, properties=alias).wait_for_publish(30)
    wait_for(lambda: len(got) >= 6, what="all messages")
    client.unsubscribe("f/#", properties=properties_of("UNSUBSCRIBE", UserProperty=pairs))
    assert done.wait(120)
    client.disconnect(mqtt.ReasonCode(mqtt.PacketTypes.DISCONNECT, identifier=4),
                      properties_of("DISCONNECT", SessionExpiryInterval=0, UserProperty=pairs))
    client.loop_stop()
    return got


def captured(broker):
    """Frames of what passes when clients of each version talk."""
    tap = kit.Tap(broker.port)
    for version in (mqtt.MQTTv311, mqtt.MQTTv5, mqtt.MQTTv31):
        traffic(tap.port, version)
    with_properties(tap.port)
    if shutil.which("mosquitto_pub"):
        argv = ["mosquitto_pub", "-p", str(tap.port), "-t", "x", "-q", "2", "-l"]
        subprocess.run(argv, input="line\n" * 40, text=True, timeout=60, check=True)
    wait_for(tap.idle, what="the end of all connections")
    tap.stop()
    return tap.frames()
