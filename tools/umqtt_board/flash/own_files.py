"""Somebody's own files on a board: which of them lie in the place of ours, or hide them, and are
kept under another name.

Knows names and where MicroPython looks for a module. It must not know when they are renamed.
"""

import ast
import hashlib
import posixpath
import re

from umqtt_board.flash.there import (
    BOOT,
    BOOT_OFF,
    FOLDER,
    KEPT,
    MAIN,
    MIXED,
    OFF,
    OURS,
    RECORD,
    SHORT,
    UPDATES,
    hashes,
    kinds,
)  # fmt: skip
from umqtt_board.port import built_in

_PASSING = (OFF, BOOT_OFF, MIXED, KEPT)  # files that are there while a flash goes on
_HIDES_ITS_OWN = {f"/{name}{end}" for name in (*built_in.EXTENSIBLE, *built_in.FROZEN)
                  for end in ("", ".py", ".mpy")}  # fmt: skip
#: The boot.py that MicroPython makes on an esp32; with other comments it is somebody's own.
_STOCK = b"""\
# This file is executed on every boot (including wake-boot from deepsleep)
#import esp
#esp.osdebug(None)
#import webrepl
#webrepl.start()
"""
_NOBODYS = {hashlib.sha256(data).hexdigest() for data in (
    b"", *(_STOCK.replace(b"\n", end) for end in (b"\n", b"\r\n", b"\r")))}  # fmt: skip
# Somebody's file goes aside, under a name that no file has. Which one is noted before: after a cut
# nothing else tells it from older ones.
_KEEP = f"""
import os
def _keep(path, name):
    to, n = name + ".own", 0
    while True:
        try:
            os.stat(to)
        except OSError:
            break
        n += 1
        to = "%s.own%d" % (name, n)
    if path == {KEPT!r}:
        os.rename(path, to)
    with open({KEPT!r}, "a") as f:
        f.write(repr((name, to)) + ",")
    if path != {KEPT!r}:
        os.rename(path, to)
"""
_NAMED_SO = """
import os
def _named_so(folder):
    try:
        return [folder + "/" + e[0] for e in os.ilistdir(folder or "/") if ".own" in e[0]]
    except OSError:
        return []
_say(_named_so("") + _named_so("/lib"))
"""


def keep(device, pairs):
    """Rename somebody's own files. pairs: (where it lies, what somebody calls it)"""
    for place, name in pairs:
        device.run(f"{_KEEP}\n_keep({place!r}, {name!r})")


def told(device):
    """([(name, new name)] of all files that were renamed, by a flash that was cut, too; None, or
    what has such names, if the notes of that are damaged)"""
    text = (device.read_file(KEPT) or b"").decode(errors="replace")
    noted, damaged = {}, False
    for note in filter(None, text.split("),")):
        try:
            name, to = ast.literal_eval(note + ")")
        # A board may say anything.
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            name = to = None
        if _is_kept_as(name, to):
            noted[name, to] = None
        else:
            damaged = True
    there = kinds(device, [to for _, to in noted])  # none, if it was cut in between
    named = sorted(device.value(_NAMED_SO, [str])) if damaged else None
    return [(name, to) for name, to in noted if there[to]], named


def _is_kept_as(name, to):
    """Whether _KEEP may have given somebody's file this name."""
    return isinstance(name, str) and isinstance(to, str) and re.fullmatch(
        re.escape(name) + r"\.own\d*", to) is not None  # fmt: skip


def may_be_own(path):
    """Whether a compiled module lies where somebody may have put one of that name, too."""
    return path.endswith(".mpy") and not path.startswith(OURS + "/")


def folders_of(items):
    """The folders in which these Items lie, and those in which these lie; a set."""
    found, more = set(), {posixpath.dirname(item.path) for item in items}
    while more:
        found |= more
        more = {posixpath.dirname(path) for path in more} - found
    return found - {"/"}


def of_starts(rename, recorded, places):
    """(Where it lies, its name) of each main.py and boot.py that is to be replaced, and that is
    not what an installation has put there, nor MicroPython. places: {name: (where it lies, its
    digest)}"""
    return [(place, item.path) for item in rename if item.path in places
            for place, found in [places[item.path]] if found and found not in _NOBODYS
            and recorded.get(item.path) not in ("", found[:SHORT])]  # fmt: skip


def sources(device, items):
    """{path: (SHA-256 of what is on the board, that of our own source)} of the sources that would
    hide a compiled module; whatever lies where only files of ours do is ours."""
    modules = {item.path[:-4] + ".py": item for item in items if item.path.endswith(".mpy")}
    return {path: (found, modules[path].source if may_be_own(modules[path].path) else found)
            for path, found in hashes(device, modules).items() if found}  # fmt: skip


def hiding(device, items, image):
    """Paths of what lies where MicroPython would find it before our own, or before a module of its
    own: a folder comes before a module of that name, the root before /lib, and that before the
    ROMFS."""
    folders = folders_of(items)
    paths = {item.path[:-4]: False for item in items if may_be_own(item.path)}
    library = posixpath.basename(OURS)
    places = (["/" + library] if image or OURS in folders else []) + [OURS] * bool(image)
    paths |= {place + end: True for place in places for end in ("", ".py", ".mpy")}
    paths |= {path: path.endswith("py") for path in _HIDES_ITS_OWN}
    ours = {*folders, OURS, *(item.path for item in items)}
    paths = {path: files for path, files in paths.items() if path not in ours}
    return [path for path, kind in kinds(device, paths).items()
            if kind == FOLDER or kind and paths[path]]  # fmt: skip


def in_the_way(device, items):
    """Paths of files where we need a folder, and of folders where we need a file: nothing can be
    written there."""
    wanted = dict.fromkeys(folders_of(items) | {OURS, UPDATES}, True)
    for path in (*(item.path for item in items), MAIN, BOOT):
        wanted |= {path: False, path + ".new": False}
    wanted |= dict.fromkeys(_PASSING, False)
    return [path for path, kind in kinds(device, wanted).items()
            if kind and (kind == FOLDER) != wanted[path]]  # fmt: skip


def why(name, items):
    """Why somebody's own file or folder cannot keep its name, in words."""
    ours = {item.path for item in items} | folders_of(items) | {MAIN, BOOT, RECORD, OURS, UPDATES}
    if name in ours:
        return "the firmware has one"
    if name.endswith(".new") or name in _PASSING:
        return "a flash needs that name"
    if name in _HIDES_ITS_OWN:
        return "it would hide MicroPython's"
    return "it would hide the firmware's"
