"""The step that puts files on a board: only what differs, and never half of a set in force.

While anything is changed the board has no main.py (it is called main.py.off), so a board that is
cut in the middle comes up at its prompt instead of running old and new files together, and no
watchdog that main.py would start can fire. New content is written aside as NAME.new; when all of
it is there and its hashes are right, the files are renamed, main.py last, and boot.py, which is
away meanwhile, before it. A run that was cut is taken up again: what already lies aside is not
sent twice.

Knows files and hashes. It must not know what the files are for.
"""

import contextlib
import hashlib
import json
import posixpath
from dataclasses import dataclass, field

from umqtt_board.errors import BoardError
from umqtt_board.flash import own_files, romfs
from umqtt_board.flash.build import Item
from umqtt_board.flash.there import (
    BOOT,
    BOOT_OFF,
    KEPT,
    MAIN,
    MIXED,
    OFF,
    OURS,
    RECORD,
    SHORT,
    UPDATES,
    hashes,
)  # fmt: skip
from umqtt_board.port.device import DeviceError

STAYING = ("/settings.json", "/state.json")  # when they are not given anew
BLOCK = 4096
ENOSPC = 28
_FULL = (
    "The filesystem on {port} is full: {detail}. Remove files of your own (`mpremote fs ls`), or "
    "erase the board and flash it anew."
)
HALF = "the board is half written and stands still until then"
SPARE = 4 * BLOCK  # what littlefs needs to turn around in

_LIST = """
def _list(folder):
    try:
        return [folder + "/" + e[0] for e in os.ilistdir(folder) if e[1] == 0x8000]
    except OSError:
        return []
"""
_REMOVE = """
def _remove(path):
    try:
        os.remove(path)
    except OSError:
        pass
"""
_FREE = "import os\n_s=os.statvfs('/')\n_say(_s[0]*_s[3])"
_CLEAR = """
import os
def _clear(folder):
    try:
        entries = list(os.ilistdir(folder))
    except OSError:
        return
    for e in entries:
        path = folder + "/" + e[0]
        _clear(path) if e[1] == 0x4000 else os.remove(path)
    os.rmdir(folder)
_clear({folder!r})
"""
_EXISTS = """
import os
try:
    os.stat({path!r})
    _say(True)
except OSError:
    _say(False)
"""
_MAKE = """
def _make(path):
    try:
        os.mkdir(path)
    except OSError as e:
        if e.errno != 17:
            raise
"""


@dataclass
class Plan:
    """What has to be done to a board."""

    write: list = field(default_factory=list)  # Items whose content is not on the board at all
    rename: list = field(default_factory=list)  # Items written aside or to be written aside
    remove: list = field(default_factory=list)  # paths that an earlier installation left
    remains: list = field(default_factory=list)  # those of a flash that was cut, of other files
    own: list = field(default_factory=list)  # (where somebody's own file lies, its name)
    first: list = field(default_factory=list)  # the same of those without which nothing goes on
    rom: object = None  # the romfs.Image to be written
    hides: bool = False  # a folder in the filesystem, be it empty, that hides the library in there
    same: int = 0
    cut: bool = False  # an earlier run ended before main.py was in place and alone

    @property
    def nothing_to_do(self):
        return not (self.rename or self.remove or self.remains or self.rom or self.hides
                    or self.cut or self.own or self.first)  # fmt: skip


def digest(data):
    """SHA-256 of bytes, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def plan(device, items, image=None):
    """Compare the board with what it should hold; return the Plan. Changes nothing.

    image  the romfs.Image that its ROMFS should hold, None for a board without
    """
    device.doing = "comparing its files"
    record = record_item(items)
    items = [*items, record]
    passing = OFF, BOOT_OFF, MIXED, KEPT
    there = hashes(device, [*passing, *(path for i in items for path in (
        i.path, i.path + ".new"))])  # fmt: skip
    off, boot_off, mixed, kept = (there.pop(path) for path in passing)
    result = Plan(cut=bool(mixed or kept or off and there.get(MAIN)))
    for item in items:
        wanted = digest(item.data)
        if there[item.path] == wanted:
            result.same += 1
            continue
        if item.path == MAIN and off == wanted and there[MAIN] is None:
            result.cut = True
            continue
        if item.path == BOOT and boot_off == wanted and there[BOOT] is None:
            continue  # it is cut, as `mixed` says
        result.rename.append(item)
        if there.pop(item.path + ".new") != wanted:
            result.write.append(item)
    stale = [path for path, content in there.items() if content and path.endswith(".new")]
    recorded, coming, present = _listed(device)
    ours = {*recorded, *(coming if mixed else ())}
    hiding = own_files.sources(device, items)
    strange = [path for path, (found, own) in hiding.items() if path not in ours and found != own]
    result.remove = stale + _leftovers(items, recorded, {*present, *hiding} - {*strange})
    result.remains = _remains(device, items, recorded, coming, mixed)
    # What lay there before new files were put in force was kept before that.
    main = (MAIN, there[MAIN]) if there[MAIN] else (OFF, None if mixed else off)
    places = {MAIN: main, BOOT: (BOOT, there.get(BOOT))}
    result.own = own_files.of_starts(result.rename, recorded, places)
    replaced = [item.path for item in result.rename if own_files.may_be_own(item.path)
                and item.path not in ours and there[item.path]]  # fmt: skip
    before = own_files.hiding(device, items, image)
    result.own += [(path, path) for path in sorted(strange + replaced + before)]
    # What is in the place of the notes of this, first of all.
    result.first = [(path, path) for path in sorted(own_files.in_the_way(device, items),
                                                    key=lambda path: (path != KEPT, path))]
    if there[MAIN] and off and not mixed:  # somebody has put another one there since a cut
        result.first += own_files.of_starts(result.rename, recorded, {MAIN: (OFF, off)})
    if image:
        result.rom = None if romfs.holds(device, image) else image
        result.hides = device.value(_EXISTS.format(path=OURS), bool)
    return result


def record_item(items):
    """The file on the board that lists what was installed, with a digest of what somebody may put
    in the place of."""
    there = {item.path: digest(item.data)[:SHORT] if item.path in (MAIN, BOOT) else ""
             for item in items if item.path not in STAYING}  # fmt: skip
    return Item(RECORD, json.dumps(there, sort_keys=True).encode())


def _listed(device):
    """Paths on the board: (what was installed, with digests; what a flash was bringing that was
    cut; what lies where only files of ours do)."""
    told = device.value(f"""
import json
{_LIST}
def _read(path):
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError):
        return []
_say((_read({RECORD!r}), _read({RECORD!r} + '.new'), _list({OURS!r}) + _list({UPDATES!r})))
""", (object, object, [str]))
    recorded, *others = (each if isinstance(each, (dict, list)) else [] for each in told)
    digests = recorded if isinstance(recorded, dict) else {}
    return {str(path): digests.get(path, "") for path in recorded}, *(
        set(map(str, each)) for each in others)  # fmt: skip


def _leftovers(items, recorded, present):
    """Files of an earlier installation, `recorded` by it, and others that are to go: `present`."""
    wanted = {item.path for item in items}
    aside = {path + ".new" for path in wanted}
    return sorted((present | set(recorded)) - wanted - aside - set(STAYING))


def _remains(device, items, recorded, coming, mixed):
    """What a flash that was cut has left of files that do not come now: aside, or in force already
    if it was `mixed` and nothing was there before."""
    left = sorted(coming - {item.path for item in items} - set(STAYING))
    there = hashes(device, [each for path in left for each in (path, path + ".new")])
    return [path + ".new" if there[path + ".new"] else path for path in left
            if there[path + ".new"] or mixed and there[path] and path not in recorded]


def carry_out(device, todo, progress):
    """Do what the Plan says; returns what own_files.told() says of somebody's own files that were
    in the place of others. `progress(done, total, path)` is told the bytes as they go."""
    _check_space(device, todo)
    own_files.keep(device, todo.first)
    with without_main(device):
        if todo.remains:  # while it is still known that they are
            device.run(f"import os\n{_REMOVE}\nfor _p in {todo.remains!r}:\n _remove(_p)")
        try:
            _write_aside(device, todo.write, progress)
        except DeviceError as error:
            if f"OSError: {ENOSPC}" not in error.traceback and "ENOSPC" not in error.traceback:
                raise
            _give_up(device, todo)
        own_files.keep(device, _own_now(todo))
        # Nor does boot.py, which runs without main.py, find others than its own files.
        device.run(f"import os\nopen({MIXED!r}, 'w').close()\ntry:\n os.rename({BOOT!r}, "
                   f"{BOOT_OFF!r})\nexcept OSError:\n pass")  # fmt: skip
        if todo.rom:
            # With main.py away nothing starts from a ROMFS that a cut has left half written.
            romfs.write(device, todo.rom, progress)
        _put_in_force(device, todo)
        allow_main(device, *(any(item.path == path for item in todo.rename)
                             for path in (MAIN, BOOT)))  # fmt: skip
    kept = own_files.told(device)
    device.run(f"{_REMOVE}import os\n_remove({KEPT!r})")
    return kept


def _own_now(todo):
    """Where somebody's own files lie by now, and their names: main.py is away."""
    return [(OFF if place == MAIN else place, name) for place, name in todo.own]


def _give_up(device, todo):
    """No room: the old program goes on as if nothing had been tried."""
    device.run(_REMOVE + f"import os\nfor _p in {[i.path for i in todo.write]!r}: "
                         "_remove(_p + '.new')")  # fmt: skip
    allow_main(device, False)
    device.hard_reset(keep_open=True)
    detail = "the new files do not fit beside the old"
    raise BoardError(_FULL.format(port=device.port, detail=detail))


def replace(device, item):
    """Write one file aside, check it, and put it in force in one step."""
    device.doing = f"writing {item.path}"
    aside = item.path + ".new"
    device.write_file(aside, item.data)
    if hashes(device, [aside])[aside] != digest(item.data):
        raise BoardError(f"What the board on {device.port} reads back from {aside} is not what "
                         "was written: run the same command again.")  # fmt: skip
    device.run(f"import os\nos.rename({aside!r}, {item.path!r})")


@contextlib.contextmanager
def without_main(device):
    """Take main.py away; whoever ends with Ctrl-C before it is back is told so."""
    try:
        silence(device)
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(HALF)


def silence(device):
    """Take main.py away and restart without it: nothing runs, no watchdog counts."""
    device.doing = "stopping its program"
    code = (f"import os\ntry:\n os.rename({MAIN!r},{OFF!r})\n _say(True)\n"
            "except OSError:\n _say(False)")  # fmt: skip
    if device.value(code, bool):
        device.hard_reset()


def allow_main(device, new, new_boot=False):
    """Put the `new` main.py in force, or bring the old one back, and boot.py before it; the last
    step of all."""
    device.doing = "putting main.py in place"
    source, boot = (MAIN + ".new" if new else OFF), (BOOT + ".new" if new_boot else BOOT_OFF)
    device.run(f"import os\n{_REMOVE}\ntry:\n os.rename({boot!r}, {BOOT!r})\n"
               f"except OSError:\n pass\nos.rename({source!r}, {MAIN!r})\n"
               f"for _p in ({OFF!r}, {BOOT_OFF!r}, {MIXED!r}): _remove(_p)")  # fmt: skip


def refuse_mixed(device):
    """BoardError if the board has old and new files together, as a flash left it that was cut."""
    if device.value(_EXISTS.format(path=MIXED), bool):
        raise BoardError(f"Nothing was changed: a flash of the board on {device.port} was cut, "
                         "and its files are old and new ones. Run that flash again first.")


def stands_still(device):
    """Whether nothing starts on the board: it has no main.py, or a flash was cut."""
    there = hashes(device, [MAIN, MIXED])
    return bool(there[MIXED] or not there[MAIN])


def _check_space(device, todo):
    device.doing = "looking at its free space"
    free = device.value(_FREE, int)
    need = sum(-(-len(item.data) // BLOCK) * BLOCK for item in todo.write) + SPARE
    if todo.write and need > free:
        # Sets from over the air would not be in force after this anyway. If it ends here, the
        # board starts what an earlier installation has put.
        free = device.value(_CLEAR.format(folder=UPDATES) + _FREE, int)
    if todo.write and need > free:
        detail = f"{need} bytes are needed, {free} are free"
        raise BoardError(_FULL.format(port=device.port, detail=detail))


def _write_aside(device, items, progress):
    device.doing = "writing files"
    folders = set()
    for item in items:
        parts = posixpath.dirname(item.path).split("/")[1:]
        folders |= {"/" + "/".join(parts[: n + 1]) for n in range(len(parts)) if parts[0]}
    if folders:
        code = f"import os\n{_MAKE}\nfor _p in {sorted(folders)!r}:\n _make(_p)"
        device.run(code)
    total, done = sum(len(item.data) for item in items), 0
    # The record first: if this ends here, whoever flashes other files knows what is to go.
    for item in sorted(items, key=lambda item: item.path != RECORD):
        device.doing = f"writing {item.path}"
        device.write_file(
            item.path + ".new", item.data,
            lambda count, done=done, path=item.path: progress(done + count, total, path),
        )  # fmt: skip
        done += len(item.data)


def _put_in_force(device, todo):
    """Check what lies aside, then rename everything but main.py and boot.py, and clear away the
    old."""
    device.doing = "checking what was written"
    aside = {item.path + ".new": digest(item.data) for item in todo.rename}
    found = hashes(device, aside)
    bad = [path for path, wanted in aside.items() if found[path] != wanted]
    if bad:
        raise BoardError(
            f"What the board on {device.port} reads back from {bad[0]} is not what was written: "
            "run the same command again; if it stays so the flash of the board is worn out."
        )
    device.doing = "putting new files in force"
    names = [item.path for item in todo.rename if item.path not in (MAIN, BOOT, RECORD)]
    for start in range(0, len(names), 20):
        part = names[start : start + 20]
        device.run(f"import os\nfor _p in {part!r}:\n os.rename(_p+'.new', _p)")
    if todo.remove:
        device.run(f"import os\n{_REMOVE}\nfor _p in {todo.remove!r}:\n _remove(_p)")
    # The record last: what it does not list would never be removed.
    if any(item.path == RECORD for item in todo.rename):
        device.run(f"import os\nos.rename({RECORD!r} + '.new', {RECORD!r})")
    if todo.hides:
        device.run(_CLEAR.format(folder=OURS))
    if todo.rom or any(path.startswith(UPDATES + "/") for path in todo.remove):
        # The new ROMFS is not mounted yet; the set that was in force is on its search path still.
        device.hard_reset()
