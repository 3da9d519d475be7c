"""A sensor on a battery: wake up, take a reading, send what there is, sleep.

The reading goes into flash first. Then the radio gets `awake` seconds; what is not
acknowledged by then waits in flash for the next time. `main.py` of the board calls main().
On a host nothing sleeps: the unix port has no machine.deepsleep, so that the last line ends there
with an AttributeError, when all else is done.
"""

import machine
from umqtt_min import FileStore, MQTTClient, MQTTException

SERVER = "192.168.1.10"


def main(server=SERVER, port=1883, folder="/mqtt", awake=10, asleep=300, reading="21.5"):
    client = MQTTClient("deep-sleep", server, port, keepalive=60, store=FileStore(folder),
                        timeout=awake)  # fmt: skip
    client.publish("readings/garden", reading, qos=1, wait=False)
    try:
        client.connect()  # the session is the old one: what waited is sent
        print("all acknowledged:", client.flush(awake))
        client.disconnect()
    except (OSError, MQTTException) as e:
        print("later:", e)
    machine.deepsleep(asleep * 1000)


if __name__ == "__main__":
    main()
