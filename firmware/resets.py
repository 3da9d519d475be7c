"""Resets: how often this board started and why, and how many crashes there were in a row.

Knows machine.reset_cause and one small file. Must not know what crashes. Watchdog, power and
request are counted apart. Only a bite of the watchdog and an exception that ends the program are
crashes; no network fault is either of them. The chips do not tell everything: rp2 reports a
requested reset as the watchdog's, esp32 a panic as a "hard" one, so a reset that is asked for is
noted in the file first, and a hard one on esp32 that nobody asked for is a crash.
"""

import sys

import state

PATH = "/resets.json"
KINDS = ("power", "watchdog", "request", "crash", "other")
_CAUSES = ("PWRON_RESET", "HARD_RESET", "WDT_RESET", "DEEPSLEEP_RESET", "SOFT_RESET",
           "BROWNOUT_RESET")

_data: dict = {}


def cause():
    """Return why the board started, as one word; "unknown" where the port does not tell."""
    import machine

    if hasattr(machine, "reset_cause"):
        found = machine.reset_cause()
        for name in _CAUSES:
            if getattr(machine, name, None) == found:
                return name[:-6].lower()
    return "unknown"


def kind_of(cause, asked, platform=sys.platform):
    """Return which of KINDS a start counts as, None: of none of them.

    cause     word as cause() gives it
    asked     what a request noted before it reset the board, None when none did
    platform  sys.platform of the board
    """
    if cause == "deepsleep" or asked == "crash":
        return None  # a wake-up is no reset; a crash was counted as it happened
    if asked or cause == "soft":
        return "request"
    if cause == "wdt":
        return "watchdog"
    if cause in ("pwron", "brownout"):
        return "power"
    return "crash" if cause == "hard" and platform == "esp32" else "other"


def began(cause):
    """Count this start; to be called once, before the application. Returns the counters."""
    global _data
    try:
        _data = state.load(PATH)
    except state.StateError as error:
        print("umqtt: %s, counting from zero" % error)
        _data = {}
    asked = _data.pop("asked", None)
    kind = kind_of(cause, asked)
    if kind:
        _data[kind] = _data.get(kind, 0) + 1
    if kind in ("watchdog", "crash"):
        _data["row"] = row() + 1
    elif kind == "request":
        _data["row"] = 0
    if kind or asked:
        _save()
    return _data


def row():
    """Return how many crashes there were without an end of the row between them."""
    return _data.get("row", 0)


def counts():
    """Return a dict of the counters, as the status report gives them."""
    return {kind: _data.get(kind, 0) for kind in KINDS + ("row",)}


def asked(why):
    """Note durably that the reset to come is wanted; it ends the row of crashes."""
    _data["asked"] = why
    _save()


def by_cable():
    """As asked(), for a host tool at the prompt, where no start was counted yet."""
    global _data
    try:
        _data = state.load(PATH)
    except state.StateError:
        _data = {}
    asked("cable")


def crashed():
    """Count an exception that ends the program; the reset after it is not counted again."""
    _data["crash"] = _data.get("crash", 0) + 1
    _data["row"] = row() + 1
    _data["asked"] = "crash"
    _save()


def lasted():
    """The program has run for long enough, or is another one now: the row of crashes is over."""
    if row():
        _data["row"] = 0
        _save()


def _save():
    try:
        state.save(_data, PATH)
    except OSError as error:
        # Counting is not worth a crash: a full filesystem must not stop the sensor.
        print("umqtt: %s: %s" % (PATH, error))
