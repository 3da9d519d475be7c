"""What the firmware says on the serial line, and what it does when somebody is at the keyboard.

Knows the form of a line. Must not know who says it, nor settings, network and readings.
"""

import resets


def log(text):
    """Print one line; whoever flashes the board follows these."""
    print("umqtt:", text)


def log_rarely(text, times, log=log):
    """Give log(text) the 1st, 2nd, 4th, 8th ... of a line that may come again and again."""
    if times & times - 1 == 0:
        log("%s (%d times)" % (text, times))


def stopped(dog):
    """Somebody is at the console: leave time, and do not take the reset after it for a crash."""
    dog.console()
    resets.asked("console")
    log("stopped at the console")
