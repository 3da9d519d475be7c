# needs: iotcore
"""The main loop against a real broker: identity, a full store, a bad driver, the heap.

Both interpreters. The store is in RAM; what a power cut does is tests/firmware's matter.
"""

import gc
import os
import time

import app
import console
import settings
import state
import stores
from sensors.base import Sensor
from umqtt_min.store.ram import RAMStore

HOST, PORT = os.getenv("BROKER_HOST"), int(os.getenv("BROKER_PORT"))


class Steady(Sensor):
    """A sensor of fixed values that counts in small ints."""

    fields = (("temperature", "Cel", 2), ("reading", None, 0))

    def sample(self):
        self.values[0] = 2150
        self.values[1] = self.taken + 1


class Broken(Steady):
    """A driver with a fault in it."""

    def sample(self):
        raise KeyError("driver")


def make(name, store=None, sensor=None, port=PORT, **changes):
    """An App on this store and sensor, without a word on the console."""
    flat = {"device": name, "broker.host": HOST, "broker.port": port, "interval_ms": 5,
            "report_s": 0, "watchdog_s": 0, "sensor": "simulated",
            "retry.first_ms": 20, "retry.max_ms": 50}
    flat.update(changes)
    lines = []
    saved = stores.make, app.sensors.make, state.PATH
    stores.make = lambda *args: store or RAMStore(16384, hold=args[1])
    app.sensors.make = lambda flat: sensor or Steady()
    console.print = lambda _, text: lines.append(text)
    try:
        made = app.App(settings.complete(flat))
    finally:
        stores.make, app.sensors.make, _ = saved
    made.lines = lines
    return made


def run(made, condition, seconds=20):
    """Step until the condition holds."""
    end = time.ticks_add(time.ticks_ms(), seconds * 1000)
    while not condition():
        if time.ticks_diff(end, time.ticks_ms()) <= 0:
            raise AssertionError(made.lines[-5:])
        made.step()
        time.sleep_ms(made.pause())


def leave(made):
    if made.client.connected:
        made.client.disconnect()


def test_readings_reach_the_broker_and_leave_the_store():
    made = make("fw-a", readings=20)
    run(made, lambda: made._finished)
    # 20 readings and the clock record
    assert made.client.counters.acked == 21
    assert made.store.live == 0 and made.store.seq == 22
    assert "first publish acknowledged seq=1" in made.lines
    assert "all delivered: 20 readings, next number 22" in made.lines
    leave(made)


def test_readings_go_on_without_a_broker():
    # Port 1 refuses at once.
    made = make("fw-b", port=1, readings=20)
    run(made, lambda: made.sensor.taken == 20)
    assert made.store.live == 21 and made.client.counters.connects == 0
    assert "next try in" in made.lines[-1] or "reading 20 taken" in made.lines[-1]


def test_full_store_stops_the_readings_until_there_is_room():
    store = RAMStore(2048)
    made = make("fw-c", store, port=1)
    run(made, lambda: made.full)
    taken, seq, live = made.sensor.taken, store.seq, store.live
    for _ in range(50):
        made.step()
        time.sleep_ms(10)
    assert (made.sensor.taken, store.seq, store.live) == (taken, seq, live)
    made.client.port = PORT
    run(made, lambda: made.sensor.taken > taken + 5)
    # Not one number was left out, and the reading that waited was the next one.
    assert made.client.counters.acked + store.live == store.seq - 1
    assert store.seq - 1 == made.sensor.taken + 1
    leave(made)


def test_a_reading_counts_when_publish_has_returned_whatever_the_store_says():
    made = make("fw-h", port=1, readings=5)
    run(made, lambda: made.sensor.taken == 1)
    seq = made.store.seq
    made.client.publish = lambda *args: None  # a store that swallows what it is given
    run(made, lambda: made.sensor.taken == 5)
    assert made.store.seq == seq


def test_full_store_of_held_readings_gives_up_the_oldest_if_told_to():
    store = RAMStore(4096, hold=True)
    made = make("fw-d", store, confirm="pipeline", full="release", readings=100)
    run(made, lambda: made.sensor.taken == 100)
    assert made.confirm.given_up > 0 and made.full == 0
    assert made.confirm.given_up + store.live == store.seq - 1
    leave(made)


def test_driver_that_fails_touches_neither_store_nor_connection():
    made = make("fw-e", sensor=Broken())
    run(made, lambda: made.sensor_errors >= 20 and made.client.counters.acked)
    assert made.client.counters.connects == 1 and made.client.connected
    assert made.store.seq == 2, "only the clock record"
    # The 1st, 2nd, 4th, 8th and 16th time; why() names the kind
    assert len([line for line in made.lines if line.startswith("sensor: KeyError")]) == 5
    leave(made)


def test_steady_state_takes_nothing_from_the_heap():
    if not hasattr(gc, "mem_alloc"):
        return  # CPython: its heap is none of ours
    made = make("fw-g")
    run(made, lambda: made.client.counters.acked >= 100)
    # One view for each length that a record can have, made when it first has it: all of them now.
    for length in range(len(made._packer.buffer) + 1):
        made._packer.view(length)
    gc.collect()
    gc.disable()
    try:
        before, acked = gc.mem_alloc(), made.client.counters.acked
        end = time.ticks_add(time.ticks_ms(), 20000)
        while made.client.counters.acked < acked + 100:
            assert time.ticks_diff(end, time.ticks_ms()) > 0
            made.step()
            time.sleep_ms(made.pause())
        after = gc.mem_alloc()
    finally:
        gc.enable()
    leave(made)
    assert after - before == 0, after - before


def test_a_session_that_was_cut_off_before_its_subscription_gets_it_the_next_time():
    # The broker has lost everything, the link goes before SUBACK, and then the session is present.
    made = make("fw-cut-%d" % int.from_bytes(os.urandom(3), "big"), confirm="pipeline")
    made.link.owed = False
    subscribe, asked = made.client.subscribe, []

    def cut_once(topics, timeout):
        asked.append(topics)
        if len(asked) == 1:
            raise OSError(104)
        return subscribe(topics, timeout=timeout)

    made.client.subscribe = cut_once
    run(made, lambda: len(asked) == 2 and made.link.up)
    assert asked[0] == asked[1] == [(made._ack, 1)]
    leave(made)


def test_a_session_whose_beginning_was_not_heard_gets_its_subscription():
    # The broker has lost everything, CONNACK gets lost, and then the session is present.
    made = make("fw-unheard-%d" % int.from_bytes(os.urandom(3), "big"), confirm="pipeline")
    connect, subscribe, tried, asked = made.client.connect, made.client.subscribe, [], []

    def cut_once(**options):
        tried.append(options)
        if len(tried) == 1:
            raise OSError(104)
        connect(**options)
        return True

    def ask(topics, timeout):
        asked.append(topics)
        return subscribe(topics, timeout=timeout)

    made.link.owed = False
    made.client.connect = cut_once
    made.client.subscribe = ask
    run(made, lambda: len(tried) == 2 and made.link.up)
    assert asked == [[(made._ack, 1)]]
    leave(made)
