"""Status: what the board says about itself on .../status, retained.

Knows the counters of the parts and their names on the wire. Must not know how it is sent. Built
on connecting and once a minute or so: it allocates.
"""

import gc
import sys

import loader
import resets

OFFLINE = b'{"online":false}'

_CLIENT = ("connects", "closed", "sent", "acked", "redelivered", "received", "duplicates",
           "oversize", "lost_sessions", "stall", "last_error")
_STORE = ("seq", "low", "live", "held", "dropped", "skipped", "programs", "programmed",
          "erases")
_CONFIRM = ("mark", "given_up", "republished", "malformed")


def _pick(part, names):
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def common(settings, remote, version):
    """Return what the report says whatever the board does: a dict.

    settings  flat; remote: a remote.Remote; version: of the firmware
    """
    found = loader.pointer()
    return {
        "online": True,
        "device": settings["device"],
        "version": version,
        "board": sys.platform,
        "reset": resets.cause(),
        "resets": resets.counts(),
        # which set of files runs: "" is what the cable put
        "set": found.get("id", ""),
        "trial": loader.on_trial(found),
        "failed": found.get("failed"),
        "commands_off": remote.off,
        "commands_refused": remote.refused,
        "heap_free": gc.mem_free() if hasattr(gc, "mem_free") else -1,
    }


def report(app, version, epoch):
    """Return the status report, a dict.

    app       the application: its client, store, confirm, sensor, uptime and counters are read
    version   of the firmware; epoch: 16 hexadecimal digits
    """
    data = common(app.settings, app.remote, version)
    data.update({
        "epoch": epoch,
        "boot": app.store.boot,
        "up": app.uptime.s,
        "taken": app.sensor.taken,
        "interval_ms": app.interval,
        "full": app.full,
        "late": app.late,
        "sensor_errors": app.sensor_errors,
        "store_errors": app.store_errors,
        "troubles": app.troubles,
        "client": _pick(app.client.counters, _CLIENT),
        "store": _pick(app.store, _STORE),
    })
    data["store"]["free"] = app.store.free()
    if app.confirm:
        data["confirm"] = _pick(app.confirm, _CONFIRM)
    return data
