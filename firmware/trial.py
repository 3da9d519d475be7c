"""Trial: which set starts, whether it stays, and what runs in place of one that is no good.

Knows tries, crashes and the SHA-256 of a set's file. Must not know how a set comes, nor what it
does. In memory only while the board starts. Not part of a set.

The file of the set in force is hashed at each start, before anything of it is loaded. A new set is
on trial: each start of the program takes one of its tries, durably, and the watchdog is fed for so
many seconds only. When the set is healthy the trial is over; when the tries are used up the set
before it comes back. That one stays in flash until the next update: so many crashes in a row bring
it back after the trial, too, but never one below the lowest security version (guard.py).
"""

import hashlib
import os
import sys
from binascii import hexlify

import loader
import resets
import watchdog

# Fewer than settings.safe_after: first the set before is tried, then the safe mode.
CRASHES = 3


def choose(found=None):
    """Put the set that is in force first on sys.path, and no other.

    found  pointer; None: what the pointer file says
    """
    found = found or loader.pointer()
    if loader.MOUNT in sys.path:
        import vfs

        sys.path.remove(loader.MOUNT)
        vfs.umount(loader.MOUNT)
    if found["slot"]:
        try:
            whole = _whole(found)
            if whole:
                _mount(loader.place(found["slot"]), found["index"])
        except OSError as error:
            _take_back(found, _before(found), "cannot be read: %s" % error)
        else:
            if not whole:
                _take_back(found, _before(found), "its SHA-256 is wrong")


def _whole(found):
    # Whether the file is what was received. Older code has not noted the SHA-256.
    digest, buf = hashlib.sha256(), bytearray(512)
    with open(loader.place(found["slot"]), "rb") as file:
        n = file.readinto(buf)
        while n:
            digest.update(memoryview(buf)[:n])
            n = file.readinto(buf)
    return hexlify(digest.digest()).decode().startswith(found.get("sha", ""))


def _mount(path, index):
    import vfs
    from setfs import SetFS

    vfs.mount(SetFS(path, index), loader.MOUNT)
    sys.path.insert(0, loader.MOUNT)


def _before(found):
    # The pointer to the set before this one, None when that one may not run.
    before = found.get("before")
    try:
        if before and before["slot"] and not _whole(before):
            return None  # an update on its way has taken its place
    except OSError:
        return None
    return before if before and loader.late("guard", "allows", before) else None


def _take_back(found, before, why):
    # Put the set before this one in force, and say so from now on. None: what the cable put.
    before = before or {"slot": 0}
    before["failed"] = {"id": found.get("id"), "why": why}
    _pointed(before)
    choose(before)
    resets.lasted()  # the crashes were the other set's
    print("umqtt: update %s taken back: %s" % (found.get("id"), why))
    return before


def try_once():
    """Take one of the tries of a set on trial, or take the set back; return the pointer then.

    A set that has passed its trial is taken back after CRASHES in a row.
    """
    found = loader.pointer()
    if not loader.on_trial(found):
        loader.late("guard", "settle")
        before = resets.row() >= CRASHES and _before(found)
        if before:
            return _take_back(found, before, "%d crashes in a row" % resets.row())
        return found
    try:
        # The power may have gone between the swap and the end of the update.
        os.remove(loader.ROOT + "/get.json")
    except OSError:
        pass  # it was gone
    if found["left"] > 0:
        found["left"] -= 1
        if _pointed(found):
            watchdog.trial(found["seconds"])
            return found
    why = "its trial did not end in its starts: no acknowledged reading, or no commit"
    return _take_back(found, _before(found), why)


def _pointed(what):
    # A full filesystem must not keep the board from starting: then it runs the set before.
    try:
        loader.point(what)
        return True
    except OSError as error:
        print("umqtt: %s/boot.json: %s" % (loader.ROOT, error))
        return False
