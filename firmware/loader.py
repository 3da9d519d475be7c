"""Loader: which set of files this board runs, and whether a new set is kept or taken back.

Knows the pointer file and where the sets lie. Must not know how a set comes onto the board
(ota.py) nor what it does. Slot 0 is what the cable put: `/` and `/lib`; it is never changed over
the air and is what runs when anything about the pointer is wrong. Slots 1 and 2 are the files
/sets/1 and /sets/2; the one that runs is mounted as a file system (setfs.py). Renaming the pointer
file into place is the one step that decides.

A new set is on trial: each start of the program takes one of its tries, durably, before any of it
is loaded, and the watchdog is fed for so many seconds only. When the set says that it is healthy
the trial is over; when the tries are used up the set before it comes back.

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
FIXED = ("loader", "release", "resets", "rsa", "setfs", "state", "watchdog")
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

    With a set from over the air "id", "version", "index" (length, bytes) and "need" (bytes of
    flash); on trial also "before" (what the pointer said until then), "left" (tries) and
    "seconds"; "failed" {"id", "why"} after one was taken back.
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


def choose(found=None):
    """Put the set that is in force first on sys.path, and no other."""
    found = found or pointer()
    if MOUNT in sys.path:
        import vfs

        sys.path.remove(MOUNT)
        vfs.umount(MOUNT)
    if found["slot"]:
        try:
            _mount(place(found["slot"]), found["index"])
        except OSError as error:
            _take_back(found, found.get("before") or {"slot": 0}, "cannot be read: %s" % error)


def _mount(path, index):
    import vfs
    from setfs import SetFS

    vfs.mount(SetFS(path, index), MOUNT)
    sys.path.insert(0, MOUNT)


def _take_back(found, before, why):
    # Put the set before this one in force, and say so from now on.
    before["failed"] = {"id": found.get("id"), "why": why}
    _pointed(before)
    choose(before)
    resets.lasted()  # the crashes were the other set's
    print("umqtt: update %s taken back: %s" % (found.get("id"), why))
    return before


def try_once():
    """Take one of the tries of a set on trial, or take the set back; return the pointer then."""
    found = pointer()
    if not on_trial(found):
        return found
    try:
        # The power may have gone between the swap and the end of the update.
        os.remove(ROOT + "/get.json")
    except OSError:
        pass  # it was gone
    if found["left"] > 0:
        found["left"] -= 1
        if _pointed(found):
            watchdog.trial(found["seconds"])
            return found
    return _take_back(found, found["before"], "not healthy within its starts")


def _pointed(what):
    # A full filesystem must not keep the board from starting: then it runs the set before.
    try:
        point(what)
        return True
    except OSError as error:
        print("umqtt: %s/boot.json: %s" % (ROOT, error))
        return False


def healthy():
    """The running set works: end its trial, if it is on one. Returns whether it was."""
    found = pointer()
    if not on_trial(found):
        return False
    for key in ("left", "seconds", "before"):
        found.pop(key, None)
    point(found)
    watchdog.trial(0)
    return True


def exists(path):
    """Tell whether there is a file or a folder of that name."""
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def run(program):
    """Start `program()` and start it again when it crashes; from main.py.

    Returns only to leave the board at its prompt: settings that cannot be used, the console.
    """
    import machine

    trial = False
    try:
        resets.began(resets.cause())
        trial = on_trial(try_once())
        program()
        if not trial:
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
