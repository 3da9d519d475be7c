"""Loader: which set of files this board runs.

Knows the pointer file and where the sets lie. Must not know how a set comes onto the board
(ota.py), whether it is any good (trial.py) nor what it does. Slot 0 is what the cable put: `/` and
`/lib`; it is never changed over the air and is what runs when anything about the pointer is wrong.
Slots 1 and 2 are the files /sets/1 and /sets/2; the one that runs is mounted as a file system
(setfs.py). Renaming the pointer file into place is the one step that decides.

boot.py, main.py and what FIXED names are the same for every set: they decide whether a set is any
good, so they cannot be part of one. Only the cable changes them.
"""

import os
import sys

import resets
import state
import watchdog

# What a set may ask of the files above; a set that needs more is refused.
VERSION = 2
FIXED = ("guard", "loader", "release", "resets", "rsa", "setfs", "state", "trial", "watchdog")
# Neither is "/ota": a folder hides a module of its name.
ROOT = "/sets"
MOUNT = "/set"
# Pauses before a program that crashed is started again: 1, 2, 4 ... seconds, and at most
_PAUSE_S = 60


def place(slot):
    """Return the path of the file of slot 1 or 2."""
    return "%s/%d" % (ROOT, slot)


def pointer():
    """Return what the pointer file says: a dict with "slot" 0, 1 or 2.

    With a set from over the air "id", "version", "index" (length, bytes), "need" (bytes of flash),
    "sha" (first half of its SHA-256), "security" (version, 0 if it is not signed) and "before"
    (what the pointer said until then); on trial also "left" (tries) and "seconds"; "failed" {"id",
    "why"} after one was taken back.
    """
    try:
        found = state.load(ROOT + "/boot.json")
    except state.StateError:
        found = {}
    slot = found.get("slot")
    if slot not in (0, 1, 2) or isinstance(slot, bool):
        return {"slot": 0}
    if slot and not (isinstance(found.get("index"), int) and exists(place(slot))):
        return {"slot": 0}
    return found


def point(what):
    """Put a new pointer in force; durable when it returns. Raises OSError: the old one stands."""
    state.save(what, ROOT + "/boot.json")


def on_trial(found):
    """Tell whether the pointer's set has not shown yet that it is healthy."""
    return "left" in found


def exists(path):
    """Tell whether there is a file or a folder of that name."""
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def late(module, work, *args):
    """Call a function of trial.py or guard.py, and let go of the module, for the room."""
    try:
        return getattr(__import__(module), work)(*args)
    finally:
        sys.modules.pop(module, None)


def healthy():
    """The running set works: end its trial, if it is on one. Returns whether it was."""
    found = pointer()
    if not on_trial(found):
        return False
    del found["left"], found["seconds"]
    point(found)
    watchdog.trial(0)
    # Only now: a set that fails its trial must find a way back.
    if found.get("security"):
        late("guard", "settle")
    return True


def run(program):
    """Start `program()` and start it again when it crashes; from main.py.

    Returns only to leave the board at its prompt: settings that cannot be used, the console.
    """
    import machine

    tried = False
    try:
        resets.began(resets.cause())
        tried = on_trial(late("trial", "try_once"))
        program()
        if not tried:
            return
        resets.asked("trial")
    except Exception as error:
        sys.print_exception(error)
        resets.crashed()
    _pause()
    machine.reset()


def _pause():
    # Crashes may follow each other closely: not at the price of the flash, nor of the network.
    from time import sleep

    seconds = min(_PAUSE_S, 1 << min(6, max(0, resets.row() - 1)))
    print("umqtt: the program has ended, starting again in %d s" % seconds)
    sleep(seconds)
