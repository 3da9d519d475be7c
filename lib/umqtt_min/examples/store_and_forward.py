"""Readings are in flash before they are sent: no network, no broker, no power loses one.

Run it, pull the plug of the access point, or the board's own: when both are back, every
reading arrives, in order. On a board with a raw flash region use FlashStore instead of
FileStore: it wears the flash far less (JOURNAL.md).
"""

import time

from umqtt_min import FileStore, MQTTClient, MQTTException
from umqtt_min.errors import STORE_FULL
from umqtt_min.reconnect import Reconnect

SERVER = "192.168.1.10"


def read_sensor(n):
    return "%d" % (200 + n)  # tenths of a degree; integers are exact


def main(server=SERVER, port=1883, folder="/mqtt", readings=1000000, pause_ms=1000):
    client = MQTTClient("store-and-forward", server, port, keepalive=60, store=FileStore(folder))
    link = Reconnect(client)
    for n in range(readings):
        try:
            # Durable when it returns, connected or not; nothing is awaited.
            client.publish("readings/cellar", read_sensor(n), qos=1, wait=False)
        except MQTTException as e:
            if e.reason != STORE_FULL:
                raise
            print("no room for reading", n)  # or give the store policy=DROP_OLDEST
        begin = time.ticks_ms()
        while True:
            link.step()  # sends what waits, connects again when it is time to
            if time.ticks_diff(time.ticks_ms(), begin) >= pause_ms:
                break
            time.sleep_ms(10)
    print("not acknowledged yet:", client.inflight())


if __name__ == "__main__":
    main()
