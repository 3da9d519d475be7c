"""The client over real sockets against the strict broker on the host.

Knows: the client's API.  Must not know: anything in memory; every byte is checked on the host.
"""
# needs: strict

import os
import socket
import time

import machine
from interop_common import silent
from umqtt_min import MQIPDP_2, MQTT_3_1, MQTT_3_1_1, MQTTClient

HOST = os.getenv("BROKER_HOST")
PORT = int(os.getenv("BROKER_PORT"))
PROTOCOLS = (MQTT_3_1_1, MQTT_3_1, MQIPDP_2)


def client(name, **options):
    """A client of a name of its own, that collects what it receives in .got."""
    name = "%s-%d" % (name, time.ticks_us() & 0xFFFF)
    c = MQTTClient(name, HOST, PORT, keepalive=20, timeout=20, **options)
    got = []
    c.set_callback(lambda topic, msg: got.append((topic, msg)))
    return c, got


def wait(c, got, n):
    """Pump until n messages are there, 40 seconds at most."""
    end = time.ticks_add(time.ticks_ms(), 40000)
    while len(got) < n and time.ticks_diff(end, time.ticks_ms()) > 0:
        c.check_msg()
        time.sleep_ms(5)
    assert len(got) == n, got


def test_every_protocol_and_qos_both_ways():
    for protocol in PROTOCOLS:
        c, got = client("m", protocol=protocol)
        assert c.connect() is False
        topic = b"echo/" + c.client_id
        c.subscribe(topic, 2)
        sent = []
        for qos in (0, 1, 2):
            for n in (0, 1, 100, 300, 5000):
                sent.append((topic, b"x" * n))
                c.publish(topic, sent[-1][1], qos=qos)
        wait(c, got, len(sent))
        assert got == sent
        c.unsubscribe(topic)
        c.disconnect()


def test_a_session_is_resumed():
    c, got = client("s")
    c.connect(False)
    topic = b"echo/" + c.client_id
    c.subscribe(topic, 1)
    c.disconnect()
    other, _ = client("o")
    other.connect()
    other.publish(topic, b"while away", qos=1)
    other.disconnect()
    assert c.connect(False) is True
    wait(c, got, 1)
    c.disconnect()


def test_asleep_with_a_timer():
    c, got = client("k", timer=machine.Timer(-1))
    c.keepalive = 2
    c.connect()
    time.sleep(6)  # more than the keep-alive and the broker's patience
    c.publish(b"t", b"alive", qos=1)
    c.disconnect()


def test_nobody_listens():
    s = socket.socket()
    s.bind(socket.getaddrinfo("127.0.0.1", 0)[0][-1])
    c = MQTTClient("n", "127.0.0.1", 1, keepalive=10, timeout=20)
    try:
        c.connect()
    except OSError:
        s.close()
        return
    raise AssertionError("connected to nothing")


def test_somebody_listens_and_says_nothing():
    listener, port = silent()
    c = MQTTClient("n", "127.0.0.1", port, keepalive=10, timeout=1)
    start = time.ticks_ms()
    try:
        c.connect()
    except Exception as e:
        assert not isinstance(e, (AssertionError, AttributeError, IndexError)), e
        assert time.ticks_diff(time.ticks_ms(), start) < 20000
        listener.close()
        return
    raise AssertionError("connected to silence")


def test_many_messages_in_a_row():
    c, got = client("many")
    c.connect()
    topic = b"echo/" + c.client_id
    c.subscribe(topic, 1)
    for i in range(300):
        c.publish(topic, b"%d" % i, qos=i % 2)
    wait(c, got, 300)
    assert [m for _, m in got] == [b"%d" % i for i in range(300)]
    c.disconnect()
