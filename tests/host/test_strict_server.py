"""The strict broker over TCP: another client passes it, a broken one is caught.

Knows: StrictServer, paho-mqtt.  Must not know: the device library.
"""

import socket
import time

import paho.mqtt.client as mqtt
import pytest
import strict_server
from strict_server import ProtocolError, StrictServer


def wait_until(condition, seconds=60):
    """Wait for the condition; fails the test after so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "not within %s s" % seconds
        time.sleep(0.01)


@pytest.mark.parametrize("protocol", [mqtt.MQTTv31, mqtt.MQTTv311])
def test_paho_passes(protocol):
    got = []
    with StrictServer() as server:
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, "paho", clean_session=True, protocol=protocol
        )
        client.on_message = lambda c, u, m: got.append((m.topic, m.payload, m.qos))
        client.connect(server.host, server.port, 60)
        client.loop_start()
        client.subscribe([("in/#", 2)])
        sessions = server.broker.sessions
        wait_until(lambda: b"paho" in sessions and sessions[b"paho"].subscriptions)
        for qos in (0, 1, 2):
            client.publish("out", b"%d" % qos, qos).wait_for_publish(10)
            server.publish(b"in/%d" % qos, b"down", qos)
        wait_until(lambda: len(got) == 3)
        wait_until(lambda: len(server.broker.acknowledged) == 2)
        client.disconnect()
        client.loop_stop()
        assert server.broker.payloads() == [b"0", b"1", b"2"]
    assert got == [("in/0", b"down", 0), ("in/1", b"down", 1), ("in/2", b"down", 2)]


def test_a_broken_client_is_caught_and_cut_off():
    with pytest.raises(ProtocolError, match="MQTT-3.1.0-1"):
        with StrictServer() as server:
            with socket.create_connection((server.host, server.port), 10) as s:
                s.sendall(b"\xc0\x00")
                s.settimeout(10)
                assert s.recv(1) == b""


def test_a_connection_left_open_after_disconnect_is_caught(monkeypatch):
    monkeypatch.setattr(strict_server, "GRACE", 0.3)
    with pytest.raises(ProtocolError, match="MQTT-3.14.4-1"):
        with StrictServer() as server:
            s = socket.create_connection((server.host, server.port), 10)
            s.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a" + b"\xe0\x00")
            wait_until(server.broker.closing)
    s.close()
