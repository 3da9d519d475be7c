"""Keeping what a board holds: a copy of its journal and settings on this computer, and back.

A copy is a folder, readable by its owner only (settings hold passwords): manifest.json, the files
of the board under files/, the journal's region as journal.img. It gets its name when all of it is
there and its hashes, reckoned by the board, are right. The key of the board's commands is not in
it: a restore gives the board the one that is valid then, and a thief of the copy commands nobody.

Knows: which files of a board are its own state, how a region is read and written.
Must not know: what a journal's records mean beyond how many messages still wait.
"""

import base64
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from umqtt_board import private
from umqtt_board.backup import held, journal, known
from umqtt_board.backup.held import PIECE, SECTOR
from umqtt_board.errors import BoardError, reason
from umqtt_board.flash import install, verify
from umqtt_board.flash.build import Item
from umqtt_board.identity import own
from umqtt_board.ota import counters, keys
from umqtt_board.ota.giving import name_of
from umqtt_board.settings import ca_file, settings_file, subject

MANIFEST = "manifest.json"
IMAGE = "journal.img"
DAY_S = 86400
# Settings that say whom a board trusts, and when it lets go of a reading.
_TRUST = ("broker.host", "broker.port", "broker.tls", "broker.ca", "confirm", "full", "marks",
          "telemetry", "update.key", "update.spare")  # fmt: skip
_ASIDE = ".unfinished-"

_HASH = """
import hashlib, binascii
_h = hashlib.sha256()
while True:
    _p = _next()
    if not _p:
        break
    _h.update(_p)
print(repr(binascii.hexlify(_h.digest()).decode()))
"""


def folder_of_copies(environment=os.environ):
    """Where copies are kept unless a folder is given: $XDG_DATA_HOME/umqtt_min/backups."""
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "umqtt_min" / "backups"


# ---- board -> host


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
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_ASIDE) as aside:
        aside = Path(aside)  # made with mode 0700
        files, commands, print_ = _copy_files(device, aside, progress, transfer)
        manifest = {"board": board.name, "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
                    "files": files, "region": None, "commands": commands,
                    "key": print_}  # fmt: skip
        if board["journal"]["kind"] != "files":
            manifest["region"] = _copy_region(device, board, aside, transfer)
        private.write(aside / MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
        kept = aside / "whole"
        kept.mkdir(mode=0o700)
        for path in [*aside.iterdir()]:
            if path != kept:
                path.rename(kept / path.name)
        kept.rename(target)
    progress("backup", f"{_files(manifest)}"
                       + (f", {manifest['region']['size']} bytes of journal"
                          if manifest["region"] else "") + f" -> {target}")  # fmt: skip
    return manifest


def _files(manifest):
    count = len(manifest["files"])
    return f"{count} file{'' if count == 1 else 's'}"


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
            raise BoardError(_UNLIKE.format(what=path, port=device.port))
    for path, wanted in there.items():
        device.doing = f"reading {path}"
        data = device.read_file(path)
        if data is None or install.digest(data) != wanted:
            raise BoardError(_UNLIKE.format(what=path, port=device.port))
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


_NUMBERS = 1 << 29  # a reading each second for seventeen years; JOURNAL.md ends at 2**30

_UNLIKE = (
    "{what} on {port} did not come over as it is on the board: run the same command again; if it "
    "stays so see to the cable."
)


def _copy_region(device, board, aside, transfer):
    device.doing = "reading its journal"
    opening = verify.opening(board["journal"])
    data = held.region(device, opening, transfer)
    if not data:
        return None
    wanted = _region_hash(device, opening)
    if hashlib.sha256(data).hexdigest() != wanted:
        raise BoardError(_UNLIKE.format(what="The journal", port=device.port))
    private.write(aside / IMAGE, data)
    return {"size": len(data), "sha256": wanted}


def _region_hash(device, opening):
    return device.value(opening + held.READ + _HASH)


# ---- host -> board


def _file(folder, path):
    return known.content(folder, f"files{path}")


def load(folder, board):
    """Return the manifest of a copy after checking that it is whole and of this kind of board."""
    try:
        manifest = json.loads(known.content(folder, MANIFEST))
        files, region = dict(manifest["files"]), manifest["region"]
        if not all(isinstance(text, str)
                   for text in (manifest["made"], manifest["board"], manifest.get("key", ""))):
            raise ValueError("it does not say when and of which board it was made")
        if region and type(region["size"]) is not int:
            raise ValueError("it does not say how large the journal's region is")
        strange = [path for path in files if not known.is_known(path)]
        if strange:
            raise known.Strange(f"{strange[0]!a:.80} is no file that a copy holds")
        sums = {path: install.digest(_file(folder, path)) for path in files}
        image = install.digest(known.content(folder, IMAGE)) if region else None
        wanted = region["sha256"] if region else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BoardError(f"BACKUP={folder} is no copy of a board ({reason(error)}).")
    if sums != files or image != wanted:
        raise BoardError(f"BACKUP={folder} is damaged: its files are not those of its manifest.")
    if manifest["board"] != board.name:
        raise BoardError(f"BACKUP={folder} is of BOARD={manifest['board']}, not {board.name}.")
    return manifest


def restore(device, board, folder, confirm, progress, transfer, giving=None):
    """Put a copy back: settings, state, journal. The board starts with it at its next reset.

    confirm  function(text): True if the messages that the board has now may be replaced, and
             settings written with which it does not start
    giving   as in steps.flash(): a board that takes commands gets the key that is valid now,
             not that of the copy, and obeys none of the commands that it had after the copy
    Until all of it is there the board has no main.py; a run that is cut is done again.
    """
    manifest = load(folder, board)
    opening = _same_size(device, board, manifest)
    now = _region_hash(device, opening) if opening else None
    if opening and now != manifest["region"]["sha256"] and not _is_blank(device, opening):
        text = (f"the messages that the board on {device.port} has now will be replaced"
                f"{_given_since(device, opening, folder)}")  # fmt: skip
        if not confirm(text):
            raise BoardError(f"Nothing was changed: {text}. `make backup` keeps them; then "
                             "YES=1.")  # fmt: skip
    right = _see_settings(device, folder, manifest, confirm, progress)
    if not right:
        giving = None  # a board that does not start obeys nobody
    _see_messages(device, folder, manifest, confirm)
    if giving:
        _see_key(device, folder, manifest, confirm, giving)
    files = _files_to_put(device, folder, manifest, giving, progress)
    with install.without_main(device):
        _put_files(device, files, transfer)
        if opening and now != manifest["region"]["sha256"]:
            _put_region(device, opening, folder, manifest, transfer)
        _main_back(device)
    if giving:
        giving.arrived(device, settings_file.from_board(files.get(settings_file.PATH)))
    what = "the journal" if opening else "no journal region"
    progress("restore", f"{_files(manifest)} and {what} from {folder}")
    if not install.hashes(device, [install.MAIN])[install.MAIN]:
        progress("restore", "the board has no firmware: `make flash` brings it, and keeps what "
                            "was restored")  # fmt: skip


def _given_since(device, opening, folder):
    """What is to be said of a board whose journal is that of the copy, and has gone on since."""
    try:
        then = journal.Journal(known.content(folder, IMAGE))
        now = journal.Journal(held.region(device, opening))
    except journal.NoJournal:
        return ""
    first, last = then.state["seq"], now.state["seq"] - 1
    if now.epoch != then.epoch or last < first:
        return ""
    return (f". It ran on after this copy, and has given the numbers {first} to {last} since: the "
            "next readings would get them again, and the pipeline would take these for copies")


def _main_back(device):
    there = install.hashes(device, [install.OFF])[install.OFF]
    if there:
        install.allow_main(device, False)


def _same_size(device, board, manifest):
    """The program that opens the board's region, None without one; BoardError if sizes differ."""
    if board["journal"]["kind"] == "files" or not manifest["region"]:
        return None
    opening = verify.opening(board["journal"])
    size = held.region_size(device, opening)
    if size != manifest["region"]["size"]:
        raise BoardError(
            f"The journal region of the board on {device.port} has {size or 0} bytes, that of the "
            f"copy {manifest['region']['size']}: flash the board first, with the same board.toml."
        )
    return opening


def _is_blank(device, opening):
    device.doing = "looking at its journal"
    code = "_blank = b'\\xff' * %d\n_yes = True\n" % PIECE
    code += "while _yes:\n _p = _next()\n if not _p:\n  break\n _yes = _p == _blank\nprint(_yes)"
    return device.value(opening + held.READ + code)


def _see_settings(device, folder, manifest, confirm, progress):
    """Say what the settings of a copy change on the board: who has had it in hand may have changed
    them. False if the board does not start with them; BoardError unless that is wanted."""
    if settings_file.PATH not in manifest["files"]:
        return True
    rules = settings_file.firmware_settings()
    new = settings_file.from_board(_file(folder, settings_file.PATH))
    if new is None:
        text = f"the settings of {folder} are damaged: without them the board keeps those it has"
        if not confirm(text):
            raise BoardError(f"Nothing was changed: {text}. YES=1 restores the rest.")
        return False
    faults = rules.validate(new)
    if faults:
        text = f"the board does not start with the settings of {folder}: {'; '.join(faults)}"
        if not confirm(text):
            raise BoardError(f"Nothing was changed: {text}. YES=1 writes them all the same; "
                             "`make flash SETTINGS=...` gives it others then.")  # fmt: skip
    old = settings_file.from_board(device.read_file(settings_file.PATH)) or {}
    for key in sorted({*old, *new} - {"command_key"}):
        if old.get(key) != new.get(key):
            before, after = (_shown(rules, key, one.get(key)) for one in (old, new))
            progress("settings", f"{key}: {before} becomes {after}")
    usual = {row[0]: row[4] for row in rules.SCHEMA}
    if not faults:
        own.refuse_other(device, new, confirm)
    changed = [key for key in _TRUST
               if old and old.get(key, usual[key]) != new.get(key, usual[key])]  # fmt: skip
    if not (manifest.get("commands") or new.get("command_key")):
        progress("commands", "the copy is of a board without a command key: with it the "
                             "board obeys no command and no update until a flash with "
                             "SETTINGS=")  # fmt: skip
        changed += ["command_key"] if old.get("command_key") else []
    if changed:
        text = (f"the copy changes {', '.join(changed)} of the board. Who has had it in hand may "
                "have written that")  # fmt: skip
        if not confirm(text):
            raise BoardError(f"Nothing was changed: {text}. YES=1 restores it.")
    return not faults


def _shown(rules, key, value):
    if value is None:
        return "(default)"
    if value and key in rules.SECRETS:
        return "(secret)"
    return subject.words(value) if ca_file.is_pem(value) else json.dumps(value)


def _see_key(device, folder, manifest, confirm, giving):
    """Readings in the copy may be signed with a key that is neither in it nor on this computer."""
    if settings_file.PATH not in manifest["files"]:
        return
    flat = settings_file.from_board(_file(folder, settings_file.PATH)) or {}
    if flat.get("telemetry") != "signed" or not flat.get("device"):
        return
    there = settings_file.from_board(device.read_file(settings_file.PATH))
    if not giving.knows(device, flat, there, manifest.get("key", "")):
        text = (f"the readings in the copy are signed with a key of {flat['device']} that this "
                "computer does not have: no bridge with --telemetry-keys takes them, and the "
                "board publishes them again and again. `umqtt-board keys import` brings the key "
                "from the computer that flashed the board; write telemetry-keys anew "
                "then")  # fmt: skip
        if not confirm(text):
            raise BoardError(f"Nothing was changed: {text}. YES=1 restores without it.")


def _see_messages(device, folder, manifest, confirm):
    """Who has had the copy in hand may have put another journal into it: a board cannot deliver
    what is not its own, and all that it takes waits behind that."""
    flat = None
    if settings_file.PATH in manifest["files"]:
        flat = settings_file.from_board(_file(folder, settings_file.PATH))
    if flat is None:  # it keeps its own
        flat = settings_file.from_board(device.read_file(settings_file.PATH))
    if not flat:
        return
    name = f"{flat.get('group', 'default')}/{name_of(device, flat)}"
    own = f"fleet/{name}/telemetry".encode(errors="replace")
    stored = [path for path in manifest["files"] if path not in known.OWN]
    images = [held.image_of({path: _file(folder, path) for path in stored})]
    if manifest["region"]:
        images.append(known.content(folder, IMAGE))
    for image in images:
        try:
            there = journal.Journal(image)
        except journal.NoJournal:
            continue
        foreign = sum(topic != own or not pid or flags >> 1 not in (1, 2)
                      for pid, flags, _, topic, *_ in there.live.values())  # fmt: skip
        text = ""
        if foreign:
            text = (f"{foreign} of {len(there.live)} messages in the copy are no readings of "
                    f"{name}: the board cannot deliver them, and all that it takes waits behind "
                    "them")  # fmt: skip
        elif _no_boards_numbers(there, len(image)):
            text = ("the numbers in the copy's journal are those of no board: with them a board "
                    "may let go of readings that nobody has, or not start")  # fmt: skip
        if text and not confirm(text):
            raise BoardError(f"Nothing was changed: {text}. YES=1 restores it all the same.")


def _no_boards_numbers(there, size):
    """Whether a journal.Journal of so many bytes has numbers that no board writes."""
    state = there.state
    # Each message takes more than 16 bytes, and the index has a place for each number.
    wide = state["seq"] - min(there.live, default=state["seq"]) > size // 16
    return wide or state["confirmed"] >= state["seq"] or max(state["seq"],
                                                             state["boot"]) > _NUMBERS  # fmt: skip


def _see_interval(state, progress):
    """The bytes of the state in a copy; says which interval, that once came by command, they
    bring. One that the board would not heed is left out."""
    held = counters.state(state) or {}
    if counters.INTERVAL not in held:
        return state
    ms = held[counters.INTERVAL]
    rules = settings_file.firmware_settings()
    if type(ms) is int and not rules.validate({"broker.host": "-", counters.INTERVAL: ms}):
        progress("settings", f"interval_ms, given by command: {ms} from this copy; `umqtt-board "
                             "command interval` changes it")  # fmt: skip
        return state
    progress("settings", "the interval_ms in the state of the copy is none, and is left out")
    del held[counters.INTERVAL]
    return json.dumps(held).encode()


def _files_to_put(device, folder, manifest, giving, progress):
    """{path: content}: the copy's, but for the key and the counter of commands."""
    files = {path: _file(folder, path) for path in manifest["files"]}
    least = 0
    settings = settings_file.from_board(files.pop(settings_file.PATH, None))
    if settings is not None:
        key = settings.get("command_key") and settings.pop("command_key")
        if key or settings and manifest.get("commands"):
            least = counters.now()
            if giving:
                there = settings_file.from_board(device.read_file(settings_file.PATH))
                settings, count = giving.for_board(device, settings, there,
                                                 tell=lambda text: progress("commands", text))
                least = max(least, count)
        # Written anew: what MicroPython reads in other bytes may be something else.
        files[settings_file.PATH] = settings_file.as_item(settings).data
    if counters.STATE in files:
        kept = _see_interval(files[counters.STATE], progress)
        if counters.ahead(counters.count(counters.state(kept)) or 0):
            progress("commands", "the counter in the copy is months ahead of this computer's "
                                 "clock: it does not count")  # fmt: skip
        files[counters.STATE] = counters.forward(device.read_file(counters.STATE), kept, least)
    elif least:
        files[counters.STATE] = counters.forward(None, b"{}", least)
    return files


def _put_files(device, files, transfer):
    for path, data in files.items():
        device.doing = f"writing {path}"
        parent = path.rpartition("/")[0]
        if parent:
            device.run(f"import os\ntry:\n os.mkdir({parent!r})\nexcept OSError:\n pass")
        install.replace(device, Item(path, data))
        transfer(len(data), len(data), path)


def _put_region(device, opening, folder, manifest, transfer):
    device.doing = "writing its journal"
    data = known.content(folder, IMAGE)
    device.run(opening + "\nfrom binascii import a2b_base64 as _d")
    for at in range(0, len(data), SECTOR):
        device.run(f"region.ioctl(6, {at // SECTOR})")
        for off in range(0, SECTOR, PIECE):
            piece = data[at + off : at + off + PIECE]
            if piece != b"\xff" * PIECE:
                text = base64.b64encode(piece)
                device.run(f"region.writeblocks({at // SECTOR}, _d({text!r}), {off})")
        transfer(at + SECTOR, len(data), "journal")
    if _region_hash(device, opening) != manifest["region"]["sha256"]:
        raise BoardError(_UNLIKE.format(what="The journal", port=device.port))
