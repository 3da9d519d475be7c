"""The bare limit: prebuilt packets, sock.write and sock.readinto, no library.

What a client written for one message on one topic could do at best in this interpreter.
"""

import socket
import time

from common import MSG, SUBSCRIBED, TOPIC, TOPIC_QOS2, go

OPS = ("qos0", "qos1", "window", "qos2", "receive0", "receive1", "views0", "views1")
_WINDOW = 16


def load():
    pass


def _string(s):
    return bytes((len(s) >> 8, len(s) & 255)) + s


def _packet(op, body):
    n = len(body)
    return bytes((op, n)) + body if n < 128 else bytes((op, n & 127 | 128, n >> 7)) + body


def _expect(data, wanted):
    if data != wanted:  # assert is gone at -O2, and what it reads with it
        raise OSError("the broker answers %s" % data)


def connect(host, port, name):
    s = socket.socket()
    s.connect(socket.getaddrinfo(host, port)[0][-1])
    s.write(_packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x3c" + _string(name.encode())))
    _expect(s.read(4), b"\x20\x02\x00\x00")
    return s


def do(s, op, n):
    # Nagle's algorithm, as sockets are, where nothing is waited for: it is faster.
    s.setsockopt(6, 1, 0 if op == "qos0" else 1)
    ack = bytearray(4)
    p0 = _packet(0x30, _string(TOPIC) + MSG)
    p1 = _packet(0x32, _string(TOPIC) + b"\x00\x01" + MSG)
    p2 = _packet(0x34, _string(TOPIC_QOS2) + b"\x00\x01" + MSG)
    if op == "qos0":
        for _ in range(n):
            s.write(p0)
    elif op == "qos1":
        for _ in range(n):
            s.write(p1)
            s.readinto(ack)
    elif op == "window":
        _window(s, n, ack)
    elif op == "qos2":
        release = b"\x62\x02\x00\x01"
        for _ in range(n):
            s.write(p2)
            s.readinto(ack)
            s.write(release)
            s.readinto(ack)


def _window(s, n, ack):
    # 16 packets with ids of their own are on their way at any time.
    packets = [_packet(0x32, _string(TOPIC) + bytes((0, i + 1)) + MSG) for i in range(_WINDOW)]
    first = min(n, _WINDOW)
    for i in range(first):
        s.write(packets[i])
    for i in range(n - first):
        s.readinto(ack)
        s.write(packets[i & 15])
    for _ in range(first):
        s.readinto(ack)


def receive(s, op, n):
    qos = 1 if op.endswith("1") else 0
    s.write(_packet(0x82, b"\x00\x01" + _string(SUBSCRIBED) + bytes((qos,))))
    _expect(s.read(5)[:1], b"\x90")
    size = len(_packet(0x30, _string(SUBSCRIBED) + MSG)) + 2 * qos
    go()
    buf = bytearray(size)
    ack = b"\x40\x02\x00\x01"
    t = time.ticks_us()
    if qos:
        for _ in range(n):
            s.readinto(buf)
            s.write(ack)
    else:
        for _ in range(n):
            s.readinto(buf)
    return time.ticks_diff(time.ticks_us(), t)
