"""A copy of a board's journal and settings on this computer: how it is made, and read again.

A copy is a folder, readable by its owner only (settings hold passwords): manifest.json, the files
of the board under files/, the journal's region as journal.img. It gets its name when all of it is
there and its hashes, reckoned by the board, are right. The key of the board's commands is not in
it: a thief of the copy commands nobody.

Knows: which files of a board are its own state, how a region is read and written.
Must not know: what a journal's records mean, how a copy comes back (restoring.py).
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from umqtt_board import plain, private
from umqtt_board.backup import half, held, known
from umqtt_board.errors import BoardError, reason
from umqtt_board.flash import install, verify
from umqtt_board.ota import keys
from umqtt_board.ota.giving import name_of
from umqtt_board.settings import settings_file

MANIFEST = "manifest.json"
IMAGE = "journal.img"
DAY_S = 86400
_ASIDE = ".unfinished-"

UNLIKE = (
    "{what} on {port} did not come over as it is on the board: run the same command again; if it "
    "stays so see to the cable."
)

_HASH = """
import hashlib, binascii
_h = hashlib.sha256()
while True:
    _p = _next()
    if not _p:
        break
    _h.update(_p)
_say(binascii.hexlify(_h.digest()).decode())
"""


def folder_of_copies(environment=os.environ):
    """Where copies are kept unless a folder is given: $XDG_DATA_HOME/umqtt_min/backups."""
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "umqtt_min" / "backups"


def new_folder(target):
    """Return the path of a copy to be made after making sure that it can be; BoardError."""
    target = Path(target)
    if target.exists():
        raise BoardError(f"BACKUP={target} is there already: give the name of a new folder.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{_ASIDE}*"):  # of one that was killed: it has secrets
            if time.time() - left.stat().st_mtime > DAY_S:
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=_ASIDE):
            return target
    except OSError as error:
        raise BoardError(f"BACKUP={target} cannot be made: {error.strerror}. Give another folder.")


def backup(device, board, target, progress, transfer):
    """Copy the board's journal and settings into the folder `target`, which must not exist yet.

    Returns the manifest. Nothing on the board is changed. Raises BoardError.
    """
    target = new_folder(target)
    if half.of(device) is not None:
        raise BoardError(f"Nothing was copied: {half.TEXT}. Run that restore again: its copy is "
                         "whole.")  # fmt: skip
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_ASIDE) as aside:
        aside = Path(aside)  # made with mode 0700
        files, commands, print_ = _copy_files(device, aside, progress, transfer)
        manifest = {"board": board.name, "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
                    "files": files, "region": None, "commands": commands,
                    "key": print_}  # fmt: skip
        if board["journal"]["kind"] != "files":
            manifest["region"] = _copy_region(device, board, aside, transfer)
            if not manifest["region"]:
                progress("backup", "the board has no journal region, or cannot open it: readings "
                                   "that may be there are not in this copy")  # fmt: skip
        private.write(aside / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
        kept = aside / "whole"
        kept.mkdir(mode=0o700)
        for path in [*aside.iterdir()]:
            if path != kept:
                path.rename(kept / path.name)
        kept.rename(target)
    progress("backup", plain.counted(len(files), "file")
                       + (f", {manifest['region']['size']} bytes of journal"
                          if manifest["region"] else "") + f" -> {target}")  # fmt: skip
    return manifest


def _copy_files(device, aside, progress, transfer):
    """Returns ({path: SHA-256 of its copy}, whether the board has a key of commands, the key's
    fingerprint)."""
    commands, print_ = False, ""
    paths, others = held.stored_files(device)
    for path in others:
        progress("backup", f"not copied: {path!a:.80} is no file of the firmware's")
    paths = [*known.OWN, *paths]
    there = {path: sum_ for path, sum_ in install.hashes(device, paths).items() if sum_}
    for path in known.OWN:
        device.doing = f"reading {path}"
        if path not in there and device.read_file(path) is not None:
            raise BoardError(UNLIKE.format(what=path, port=device.port))
    for path, wanted in there.items():
        device.doing = f"reading {path}"
        data = device.read_file(path)
        if data is None or install.digest(data) != wanted:
            raise BoardError(UNLIKE.format(what=path, port=device.port))
        if path == settings_file.PATH:
            settings = settings_file.from_board(data) or {}
            if key := settings.pop("command_key", ""):
                commands, print_ = True, _fingerprint(device, settings, key)
                data = settings_file.as_item(settings).data
                there[path] = install.digest(data)
        place = aside / "files" / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        private.write(place, data)
        transfer(len(data), len(data), path)
    return there, commands, print_


def _fingerprint(device, settings, key):
    name = f"{settings.get('group', 'default')}/{name_of(device, settings)}"
    try:
        return keys.fingerprint(key, name)
    except (ValueError, TypeError):  # it is no key: the board obeys nobody
        return ""


def _copy_region(device, board, aside, transfer):
    device.doing = "reading its journal"
    opening = verify.opening(board["journal"])
    data = held.region(device, opening, transfer)
    if not data:
        return None
    wanted = region_hash(device, opening)
    if hashlib.sha256(data).hexdigest() != wanted:
        raise BoardError(UNLIKE.format(what="The journal", port=device.port))
    private.write(aside / IMAGE, data)
    return {"size": len(data), "sha256": wanted}


def region_hash(device, opening):
    """The SHA-256 of the board's journal region, as the board reckons it.

    opening  program that sets `region` on the board, see verify.opening()
    """
    return device.value(opening + held.READ + _HASH, str)


class Copy:
    """A copy that is whole, and of one kind of board. What its folder held when it was checked is
    what comes back, whoever writes there meanwhile.

    folder  where it lies
    files   {path on the board: bytes}
    image   the bytes of the journal's region; None without one
    digest  says which copy it is, whatever its folder is called
    made, key, commands  as in its manifest: when, the fingerprint of the command key that the
            board had, whether it had one
    """

    def __init__(self, folder, manifest):
        """Reads the files that the manifest names. Raises ValueError, KeyError, TypeError or
        OSError if it is no manifest of a copy or its files are not there."""
        self.folder = folder
        self.made, self.key = manifest["made"], manifest.get("key", "")
        self.commands = bool(manifest.get("commands"))
        self._sums, self._region = manifest["files"], manifest["region"]
        if not isinstance(self._sums, dict):
            raise TypeError("files is no table")
        if not all(isinstance(text, str) for text in (self.made, manifest["board"])):
            raise ValueError("it does not say when and of which board it was made")
        if not isinstance(self.key, str):
            raise ValueError("the fingerprint of its key of commands is no text")
        if self._region and type(self._region["size"]) is not int:
            raise ValueError("it does not say how large the journal's region is")
        for path in self._sums:
            if not known.is_known(path):
                raise known.Strange(f"{path!a:.80} is no file that a copy holds")
        self.files = {path: known.content(folder, f"files{path}") for path in self._sums}
        self.image = known.content(folder, IMAGE) if self._region else None
        self.image_sum = self._region["sha256"] if self._region else None
        sums = json.dumps([self._sums, self.image_sum], sort_keys=True)
        self.digest = hashlib.sha256(sums.encode()).hexdigest()

    def damaged(self):
        """Which of its files are not those of its manifest, a list of their names in the copy."""
        found = [f"files{path}" for path, data in self.files.items()
                 if install.digest(data) != self._sums[path]]  # fmt: skip
        if self._region and (len(self.image) != self._region["size"]
                             or install.digest(self.image) != self.image_sum):  # fmt: skip
            found.append(IMAGE)
        return found


def load(folder, board):
    """Return the Copy in `folder`. Raises BoardError if it is damaged, or not of this kind of
    board."""
    try:
        manifest = json.loads(known.content(folder, MANIFEST))
        copy = Copy(folder, manifest)
        made_of = manifest["board"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BoardError(f"BACKUP={folder} is no copy of a board ({reason(error)}).")
    if damaged := copy.damaged():
        raise BoardError(f"BACKUP={folder} is damaged: {', '.join(damaged)} is not what "
                         f"{MANIFEST} says. Nothing was changed: give another copy.")  # fmt: skip
    if made_of != board.name:
        raise BoardError(f"BACKUP={folder} is of BOARD={made_of}, not {board.name}.")
    return copy
