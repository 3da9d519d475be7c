"""Status: what the board says about itself on .../status, as JSON, retained.

Knows the counters of the parts and their names on the wire. Must not know how it is sent. Built
on connecting and once a minute or so: it allocates.
"""

import gc
import json
import sys

OFFLINE = b'{"online":false}'

_CLIENT = ("connects", "closed", "sent", "acked", "redelivered", "received", "duplicates",
           "oversize", "lost_sessions", "stall", "last_error")
_STORE = ("seq", "low", "live", "held", "free", "dropped", "skipped", "programs", "programmed",
          "erases")
_CONFIRM = ("mark", "given_up", "republished", "malformed")
_CAUSES = ("PWRON_RESET", "HARD_RESET", "WDT_RESET", "DEEPSLEEP_RESET", "SOFT_RESET",
           "BROWNOUT_RESET")


def _pick(part, names):
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def reset_cause():
    """Return why the board started, as one word; "unknown" where the port does not tell."""
    import machine

    if hasattr(machine, "reset_cause"):
        cause = machine.reset_cause()
        for name in _CAUSES:
            if getattr(machine, name, None) == cause:
                return name[:-6].lower()
    return "unknown"


def report(app, version, epoch):
    """Return the status message, bytes.

    app       the application: its client, store, confirm, sensor, uptime and counters are read
    version   of the firmware; epoch: 16 hexadecimal digits
    """
    data = {
        "online": True,
        "device": app.settings["device"],
        "version": version,
        "board": sys.platform,
        "epoch": epoch,
        "boot": app.store.boot,
        "reset": app.cause,
        "up": app.uptime.s,
        "taken": app.sensor.taken,
        "interval_ms": app.interval,
        "full": app.full,
        "late": app.late,
        "sensor_errors": app.sensor_errors,
        "store_errors": app.store_errors,
        "troubles": app.troubles,
        "commands_refused": app.commands.refused if app.commands else 0,
        "heap_free": gc.mem_free() if hasattr(gc, "mem_free") else -1,
        "client": _pick(app.client.counters, _CLIENT),
        "store": _pick(app.store, _STORE),
    }
    if app.confirm:
        data["confirm"] = _pick(app.confirm, _CONFIRM)
    return json.dumps(data).encode()
