"""umqtt.simple as it is shipped. No QoS 2, no window."""

import sys

from common import MSG, SUBSCRIBED, TOPIC, Count, until

OPS = ("qos0", "qos1", "receive0", "receive1", "wait0", "wait1", "ping", "idle")
MODULE = "umqtt.simple"


def load():
    __import__(MODULE)


def connect(host, port, name):
    c = sys.modules[MODULE].MQTTClient(name, host, port, keepalive=60)
    c.connect()
    return c


def do(c, op, n):
    if op == "ping":
        for _ in range(n):
            c.ping()
    elif op == "idle":
        for _ in range(n):
            c.check_msg()
    else:
        qos = int(op[3])
        for _ in range(n):
            c.publish(TOPIC, MSG, False, qos)


def receive(c, op, n):
    count = Count()
    c.set_callback(count.two)
    c.subscribe(SUBSCRIBED, int(op[-1]))
    return until(count, n, c.wait_msg if op.startswith("wait") else c.check_msg)
