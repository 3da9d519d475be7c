"""publish() from an interrupt, at each line of the library while another call runs.

Knows: the client's API, the strict broker, CPython's trace function, which makes the interrupt.
Must not know: how the client works.

The inner call has another topic, QoS and `wait`. It may be refused. What the outer one sends and
returns is as if it had been alone.
"""
# only: cpython
# deadline: 240

import sys

from harness import Bench
from strict_wire import PUBLISH
from umqtt_min import MQTTException, RAMStore

LIBRARY = "/umqtt_min/"
OUTER = (b"temperature", b"21.5")
INNER = (b"alarm", b"on")


class Interrupt:
    """Calls `act` before line number `at` of the library that runs, counted from 1."""

    def __init__(self, act, at):
        self.act = act
        self.at = at
        self.lines = 0

    def __enter__(self):
        sys.settrace(self._call)

    def __exit__(self, *error):
        sys.settrace(None)

    def _call(self, frame, event, arg):
        return self._line if LIBRARY in frame.f_code.co_filename else None

    def _line(self, frame, event, arg):
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                sys.settrace(None)  # an interrupt is not interrupted
                frame.f_trace = None
                self.act()
        return self._line


def publishes(b):
    """What the broker received: (topic, payload, QoS) of each PUBLISH."""
    return [(p.topic, p.payload, p.qos) for p in b.broker.packets if p.type == PUBLISH]


def disturbance(client, qos, done):
    """What the interrupt does; `done` tells whether its message was taken."""

    def act():
        try:
            client.publish(*INNER, qos=qos, wait=qos == 2)
            done.append(True)
        except (MQTTException, ValueError):
            done.append(False)

    return act


def interrupted(make, outer, expected, inner):
    """Run outer(bench) with the inner publish() at each line of it; (taken, refused)."""
    at = taken = refused = 0
    while True:
        at += 1
        b = make()
        done = []
        interrupt = Interrupt(disturbance(b.client, inner, done), at)
        with interrupt:
            result = outer(b)
        if interrupt.lines < at:
            return taken, refused
        b.pump()
        found = publishes(b)
        assert [p for p in found if p[0] == OUTER[0]] == expected, (at, found)
        assert all(p == (*INNER, inner) for p in found if p[0] != OUTER[0]), (at, found)
        assert len([p for p in found if p[0] == INNER[0]]) == sum(done), (at, found, done)
        pid = [p.pid for p in b.broker.packets if p.type == PUBLISH and p.topic == OUTER[0]]
        assert not expected or expected[0][2] == 0 or result == pid[0], (at, result, pid)
        taken += sum(done)
        refused += len(done) - sum(done)


def bench(store):
    """Makes benches that are connected, with a store or without."""

    def make():
        b = Bench(store=store and store())
        b.connect()
        del b.broker.packets[:]
        return b

    return make


def publish(qos, wait):
    """The outer publish(). If it waits it is acknowledged when it returns."""

    def outer(b):
        pid = b.client.publish(*OUTER, qos=qos, wait=wait)
        if wait and qos and b.client.store:
            store = b.client.store
            seq = store.next(0)
            while seq:  # what the interrupt has stored may still be there
                assert not (store.find(seq) and store.pid == pid)
                seq = store.next(seq)
        return pid

    return outer


def test_while_publish_runs_without_a_store():
    for qos in (0, 1, 2):
        taken, refused = interrupted(bench(None), publish(qos, True), [(*OUTER, qos)], 0)
        assert taken and refused, (qos, taken, refused)


def test_while_publish_runs_with_a_store():
    cases = (1, True, 1), (1, False, 2), (2, True, 1), (0, True, 1), (1, True, 2), (2, True, 2)
    for qos, wait, inner in cases:
        taken, refused = interrupted(bench(RAMStore), publish(qos, wait), [(*OUTER, qos)], inner)
        assert taken and refused, (qos, wait, taken, refused)


def test_while_check_msg_or_a_tick_runs():
    for outer in (lambda b: b.client.check_msg(), lambda b: b.client.tick()):
        taken, refused = interrupted(bench(RAMStore), outer, [], 1)
        assert taken and refused, (taken, refused)
