"""One measurement of speed: run.py DRIVER OP HOST PORT COUNT. The last line it prints is
"done SENT", the number of messages that the broker must have got.

OP: qos0, prepared (QoS 0 with a publisher for the topic), qos0all (with one of QoS 1 at the end:
until the broker has them all), qos1 (one at a time), window (QoS 1, 16 in flight), qos2, receive0,
receive1 (a callback with bytes), wait0, wait1 (likewise, but by wait_msg()), views0, views1 (a
callback with views).

Publishing is measured in slices; the limit and the client take turns, so that what else runs on
this computer slows both down. Each slice prints "us CLIENT LIMIT", microseconds per message. A
slice ends with a message of QoS 1, not measured: the broker has got everything then.
Receiving, and link1 and link16 (qos1 and window where the delay of the link is all), print
"us CLIENT".
"""

import gc
import sys
import time

_SLICES = 6
_LIMIT = {"prepared": "qos0"}  # for the limit it is the same


def _slice(driver, c, op, n):
    gc.collect()
    t = time.ticks_us()
    driver.do(c, op[:4] if op == "qos0all" else op, n)
    if op == "qos0all":
        driver.do(c, "qos1", 1)
        return time.ticks_diff(time.ticks_us(), t) / n
    t = time.ticks_diff(time.ticks_us(), t)
    driver.do(c, "qos1", 1)
    return t / n


def _publish(driver, c, op, limit, n):
    for _ in range(_SLICES):
        a = _slice(driver, c, op, n)
        b = _slice(limit[0], limit[1], _LIMIT.get(op, op), n if a < 1000 else _SLICES)
        print("us", a, b)
        sent = n + 1 + (n if a < 1000 else _SLICES) + 1
        yield sent


def main(driver, op, host, port, n):
    driver = __import__("drive_" + driver)
    link = op.startswith("link")
    if link:
        op = "window" if op == "link16" else "qos1"
    if op not in driver.OPS and op != "qos0all":
        raise ValueError("no such operation")
    driver.load()
    n = int(n)
    c = driver.connect(host, int(port), "bench-device")
    sent = 0
    if op[:3] in ("rec", "wai", "vie"):
        print("us", driver.receive(c, op, n) / n)
    elif link:
        print("us", _slice(driver, c, op, n))
        sent = n + 1
    else:
        limit = __import__("drive_limit")
        limit = limit, limit.connect(host, int(port), "bench-limit")
        sent = sum(_publish(driver, c, op, limit, n // _SLICES))
    print("done", sent)


main(*sys.argv[1:])
