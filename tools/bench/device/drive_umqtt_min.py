"""umqtt_min without a store. drive_ram.py and drive_flash.py are the same with one."""

import time

from common import LIMIT_S, MSG, SUBSCRIBED, TOPIC, TOPIC_QOS2, Count, until

OPS = ("qos0", "prepared", "qos1", "qos2", "ping", "idle")
OPS += ("receive0", "receive1", "wait0", "wait1", "views0", "views1")

_names = {}


def load(store=None):
    if store:
        import umqtt_min

        _names["store"] = getattr(umqtt_min, store)
    from umqtt_min import MQTTClient

    _names["client"] = MQTTClient


def connect(host, port, name, store=None, **options):
    c = _names["client"](name, host, port, keepalive=60, timer=False, store=store, **options)
    c.connect()
    return c


def do(c, op, n):
    if op == "window":
        _window(c, n)
    elif op == "prepared":
        publish = c.publisher(TOPIC)
        for _ in range(n):
            publish(MSG)
    elif op == "ping":
        for _ in range(n):
            c.ping()
    elif op == "idle":
        for _ in range(n):
            c.check_msg()
    else:
        qos = int(op[3])
        topic = TOPIC_QOS2 if qos == 2 else TOPIC
        for _ in range(n):
            c.publish(topic, MSG, False, qos)


def _window(c, n):
    for _ in range(n):
        while c.inflight() > 15:
            c.check_msg()
        c.publish(TOPIC, MSG, False, 1, False)
    if not c.flush(LIMIT_S):
        raise OSError("not all was acknowledged")


def receive(c, op, n):
    count = Count()
    if op.startswith("views"):
        c.set_view_callback(count.four)
    else:
        c.set_callback(count.two)
    c.subscribe(SUBSCRIBED, int(op[-1]))
    us = until(count, n, c.wait_msg if op.startswith("wait") else c.check_msg)
    time.sleep_ms(20)
    c.check_msg()
    return us
