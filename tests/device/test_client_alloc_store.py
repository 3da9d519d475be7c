"""What a client with a store takes from the heap in the steady state: nothing.

Knows: MicroPython's heap counters.  Must not know: how client and journal avoid allocation.
"""
# only: micropython
# heap: 2M

import gc

import micropython
from broker_stream import Echo
from umqtt_min import MQTTClient, RAMStore

TIMES = 10
MSG = b"xyz"


def test_publish_and_acknowledge_with_a_ram_store():
    echo = Echo()
    client = MQTTClient(
        b"dev", "broker", keepalive=60, timer=False, connector=echo.connect, store=RAMStore(65536)
    )
    client.connect()
    for qos in (1, 2):

        def go(qos=qos):
            client.publish(b"a/topic", MSG, False, qos, True)

        def go_on(qos=qos):
            client.publish(b"a/topic", MSG, False, qos, False)
            client.check_msg()

        for f in (go, go_on):
            f()
            gc.collect()
            gc.disable()
            taken = micropython.mem_total()
            left = gc.mem_alloc()
            for _ in range(TIMES):
                f()
            left = gc.mem_alloc() - left
            taken = micropython.mem_total() - taken
            gc.enable()

            assert (left, taken) == (0, 0), (qos, left, taken)
