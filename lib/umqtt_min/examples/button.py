"""A button on a battery: asleep until it is pressed, then each press arrives exactly once.

The press goes into flash before the radio is switched on: one pressed where there is no network is
sent with the next. QoS 2, so that a doorbell does not ring twice. `main.py` of the board calls
main(). esp32 wakes by the level of a pin; a port without `esp32` sleeps until its reset button.
"""

import machine
from umqtt_min import FileStore, MQTTClient, MQTTException

SERVER = "192.168.1.10"
PIN = 4  # an RTC pin, pulled up; the button pulls it down


def sleep_until_pressed(pin):
    try:
        import esp32

        esp32.wake_on_ext0(machine.Pin(pin, machine.Pin.IN, machine.Pin.PULL_UP), 0)
    except ImportError:
        print("this port cannot wake by a pin")
    machine.deepsleep()


def main(server=SERVER, port=1883, folder="/mqtt", awake=10, pin=PIN):
    store = FileStore(folder)
    client = MQTTClient("door-button", server, port, keepalive=30, store=store, timeout=awake)
    client.publish("door/bell", b"%d" % store.seq, qos=2, wait=False)  # its number: no two alike
    try:
        client.connect(timeout=awake)
        print("all presses have arrived:", client.flush(awake))
        client.disconnect()
    except (OSError, MQTTException) as e:
        print("later:", e)
    sleep_until_pressed(pin)


if __name__ == "__main__":
    main()
