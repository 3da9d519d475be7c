"""What the drivers of the benchmark share, on the device.

Knows: the message that everybody sends, how to wait for the host. Never knows: a client.

A driver is a module with
    OPS             the operations that the client offers, see run.py
    load()          import the client, nothing else
    connect(host, port, name) -> client
    do(client, op, n)   the operation n times
    receive(client, op, n) -> microseconds from the host's word to the last message
"""

import sys
import time

TOPIC = b"bench/t"
TOPIC_QOS2 = b"bench/2"  # the broker does not count QoS 2 by itself
MSG = b"x" * 100
SUBSCRIBED = b"bench/in"
LIMIT_S = 60  # nothing in the benchmark takes longer


def go():
    """Tell the host that messages may come; return when it says that they are there."""
    print("ready")
    sys.stdin.readline()


class Count:
    """Counts messages in the callback of any client."""

    def __init__(self):
        self.n = 0

    def two(self, topic, msg):
        self.n += 1

    def four(self, a, b, c, d):
        self.n += 1


def until(count, n, step):
    """Call step() until n messages were counted; returns microseconds."""
    go()
    t = time.ticks_us()
    end = time.ticks_add(time.ticks_ms(), LIMIT_S * 1000)
    while count.n < n:
        step()
        if time.ticks_diff(end, time.ticks_ms()) < 0:
            raise OSError("%d of %d messages came" % (count.n, n))
    return time.ticks_diff(time.ticks_us(), t)
