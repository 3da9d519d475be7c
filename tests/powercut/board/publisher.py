"""What the boards of test_kill.py run, on both interpreters: publishes until told to stop.

Knows: the client's API, a store, a line log that no power cut can touch.
Must not know: brokers, how it is killed.

A message is "number boot", its QoS 1, or 1 and 2 by the number. The log says what the
application knows: "boot N" the journal is open, "s N" the broker has confirmed the subscription
in boot N, "f N" all up to it is acknowledged, "i TEXT" an incoming message was delivered, "end"
all is done. Around publish() stand the two lines of the simulated sensor (firmware/sensors):
"take BOOT EPOCH N 0 0" before it and "done BOOT EPOCH N" when it has returned.
"""

import time
from binascii import hexlify

from umqtt_min import MQTTClient, MQTTException


def main(host, port, most, store, log):
    """Publish, take what comes; returns after the message "stop". most: the highest QoS."""
    store.open()
    log("boot %d" % store.boot)
    heard = []

    def on_message(topic, msg):
        log("i " + msg.decode())
        heard.append(msg)

    c = MQTTClient("board", host, port, keepalive=60, store=store, timeout=10)
    c.set_callback(on_message)
    for _ in range(3):
        _publish(c, most, store, log)
    while b"stop" not in heard:
        try:
            if not c.connected:
                c.connect()
                c.subscribe(b"to/board", most)
                log("s %d" % store.boot)
            _work(c, most, store, log)
        except (OSError, MQTTException):
            time.sleep_ms(20)
    while not c.flush(30):
        c.connect()
    c.disconnect()
    log("end")


def _work(c, most, store, log):
    for _ in range(12):
        _publish(c, most, store, log)
        c.check_msg()
        time.sleep_ms(2)
    if c.flush(5):
        log("f %d" % (store.seq - 1))


def _publish(c, most, store, log):
    # The payload names the number that the journal will give it.
    n = store.seq
    qos = 1 + n % most
    name = "%d %s %d" % (store.boot, hexlify(store.epoch).decode(), n)
    log("take %s 0 0" % name)
    c.publish(b"from/%d" % qos, b"%d %d" % (n, store.boot), qos=qos, wait=False)
    log("done " + name)
