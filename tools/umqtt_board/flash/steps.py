"""From a board and a folder of sources to a sensor that reports: the steps in their order.

Each step is a module of its own (onto_chip with find, fetch, esp, rp2 and interpreter; build,
settings_file, romfs, install, verify, follow) and can be used alone, also from the command line
(steps_cli). This one only puts them in order and says what happens.
"""

import contextlib
from dataclasses import dataclass, field

from umqtt_board import boards
from umqtt_board.backup import half, held
from umqtt_board.errors import BoardError
from umqtt_board.flash import follow, install, onto_chip, own_files, region, romfs, verify
from umqtt_board.flash.build import build
from umqtt_board.identity import own
from umqtt_board.ota import counters
from umqtt_board.ota.giving import name_of
from umqtt_board.settings import settings_file
from umqtt_board.settings.settings_file import firmware_settings


@dataclass
class Report:
    """What flash() did: `written` and `removed` are paths on the board, `same` a count of files,
    `rom_written` whether its ROMFS was, `settings` is "written", "same", "kept" or "none",
    `library` and `folder` the version that an import finds and where, `acknowledged` True when a
    publish was seen.
    """

    port: str = ""
    version: str = ""
    written: list = field(default_factory=list)
    removed: list = field(default_factory=list)
    same: int = 0
    settings: str = "none"
    rom_written: bool = False
    library: str = ""
    folder: str = ""
    heap_before: int = 0
    heap_after: int = 0
    journal: int = 0
    acknowledged: bool = False


def flash(
    board="unix", port=None, settings=None, *, folder=None, follow_log=False, firmware=None,
    progress=lambda step, text: None, transfer=lambda done, total, path: None,
    environment=None, follow_timeout=follow.TIMEOUT_S, ask=None, baud=None, drive=None,
    confirm=lambda text: False, giving=None,
):  # fmt: skip
    """Install library, firmware and settings on a board and start it.

    board       name of a folder of boards/
    port        serial port; None: found, or for "unix" the virtual board in `folder`
    settings    dict, or path of a TOML file; None: the board keeps what it has, but for what
                the environment says
    follow_log  wait until the first publish is acknowledged (needs settings with a broker)
    firmware    None: MicroPython is written where none fits; "skip": never; "fetch", a path or an
                address: that image, as far as it differs; baud, drive: see onto_chip.Ways
    confirm     function(text) that returns True if data on the board may be erased, or a setting
                that protects it be given up
    progress    called with (step, text) as each step begins or ends
    transfer    called with (bytes done, bytes in all, path) while files are written
    environment variables that override settings; None: none (the command line gives its own)
    ask         function(key, help, secret): a text for a setting that must be given and is not;
                None: nobody is there to be asked
    giving      ota.giving, or what has its for_board() and arrived(): gives the board its key
                of commands; None: the settings stay as they are

    Returns a Report. Raises BoardError with a sentence that says what to do. It may be
    called again after any failure and goes on where it stopped.
    """
    description = boards.load(board)
    wifi = description["network"]["wifi"]
    environment = environment or {}
    file = settings_file.gather(settings, environment, wifi=wifi, ask=ask)
    warning = settings_file.exposed(settings)
    if warning:
        progress("settings", warning)
    for name in settings_file.unused(environment):
        progress("settings", f"{name} is no setting of a board: not used")
    ways = onto_chip.Ways(port, folder, firmware, baud, drive, confirm, progress, transfer,
                          new=True)
    report = Report()
    device, found = onto_chip.arrive(description, ways)
    with contextlib.closing(device), device.going_on():
        report.port, report.version = device.port, found.version
        progress("interpreter", f"MicroPython {found.version}, {found.machine}")
        there = settings_there(device)
        flat = settings_for(there, file, environment, wifi, ask)
        renamed, give_up = refuse_harm(device, description, flat, there, confirm, giving)
        if renamed:
            progress("settings", renamed)
        flat, least = with_key(device, giving, flat, there, file, environment, progress)
        set_aside(device, description, progress)
        items = build_items(flat, progress)
        items += counter_items(device, flat, there, least, progress, renamed)
        items, image = romfs.split(device, items, progress)
        if give_up:
            held.give_up(device, description)
        install_items(device, items, flat, report, progress, transfer, image)
        verify_items(device, description, items, report, progress, image)
        if giving:
            giving.arrived(device, flat)
        start(device, flat, report, progress, follow_log, follow_timeout)
    return report


def with_key(device, giving, flat, there, file, environment, progress):
    """(settings, counter) as `giving` makes them of the settings `flat`; see flash()."""
    if not giving:
        return flat, 0
    own = file is None and "command_key" not in settings_file.from_environment(environment)
    return giving.for_board(device, flat, there, own, lambda text: progress("commands", text))


def refuse_harm(device, board, flat, there, confirm, giving=None):
    """BoardError if the settings `flat`, instead of those that are `there`, would do harm to the
    board or its messages, and that was not confirmed. Returns what refuse_new_name() does."""
    refuse_lowered(flat, there, confirm)
    cut = refuse_half(device, confirm)
    renamed, give_up = refuse_new_name(device, board, flat, there, confirm, giving)
    give_up = give_up or cut or refuse_void(device, board, flat, there, confirm, giving)
    if not give_up:
        refuse_left_behind(device, board, flat, there, confirm)
    own.refuse_missing(device, flat, confirm)
    own.refuse_unfit(device, flat, confirm)
    return renamed, give_up


def refuse_void(device, board, flat, there, confirm, giving):
    """Whether the board's store is to be erased, because no table takes what it holds: it would
    wait for a mark that never comes. BoardError if that was not confirmed."""
    if not giving or (flat or {}).get("confirm") != "pipeline":
        return False
    why = giving.void(device, flat, there)
    waiting = len(held.topics(device, board)) if why else 0
    if not waiting:
        return False
    text = (f"the board holds {waiting} readings that are signed with a key that was {why}: no "
            "table takes them, so the board would keep them, and measure no more when its store "
            "is full. They will be erased")  # fmt: skip
    if not confirm(text):
        raise BoardError(f"Nothing was changed: {text}. {_back(why, giving)}`make backup` keeps "
                         "them, and YES=1 (--yes) erases them.")  # fmt: skip
    return True


def _back(why, giving):
    """How a board may deliver what it has signed with a void key after all, in words. why: as
    giving.void() says."""
    if why != giving.GIVEN_UP:
        return ""
    return ("`umqtt-board telemetry-keys --with-former` has the key count again, and the board "
            "can deliver them before the flash. Or ")  # fmt: skip


def refuse_half(device, confirm=lambda text: False):
    """Whether the board holds half of a copy, which is to be erased then: it would give numbers a
    second time. BoardError if that was not confirmed."""
    if half.of(device) is None:
        return False
    if not confirm(f"{half.TEXT}. It will be erased"):
        raise BoardError(f"Nothing was changed: {half.TEXT}. Run that restore again: its copy is "
                         "whole. Or YES=1 (--yes) erases what the board holds.")  # fmt: skip
    return True


def refuse_lowered(flat, there, confirm):
    """BoardError unless the board may lose what protects it now: a file that lacks a line."""
    text = "; ".join(settings_file.lowered(flat, there))
    if text and not confirm(text):
        raise BoardError(f"Nothing was changed. With these settings {text}. YES=1 (--yes) does "
                         "it.")  # fmt: skip


def refuse_new_name(device, board, flat, there, confirm, giving):
    """(what is to be said if the settings `flat` give the board another name or group than those
    that are `there`, else ""; whether its store is to be erased for that).

    BoardError if it holds messages of another name and they may not be erased: nobody lets the
    board publish them any more, no mark lets go of them, and behind them all others wait.
    """
    if not flat or not there or firmware_settings().validate(there):
        return "", False
    old, new = (f"{one.get('group', 'default')}/{name_of(device, one)}" for one in (there, flat))
    if old == new:
        return "", False
    renamed = f"the board was {old}, and is {new} from now on"
    own = f"fleet/{new}/".encode()
    waiting = sum(not topic.startswith(own) for topic in held.topics(device, board))
    if not waiting:
        return renamed, False
    group, name = old.split("/")
    text = (f"the board holds {waiting} readings that it took as {old}. As {new} it cannot "
            "deliver them, and all that it holds will be erased")  # fmt: skip
    why = giving.void(device, there, there) if giving else ""
    first = (f"They are signed with a key that was {why}: no table takes them. "
             f"{_back(why, giving)}" if why else
             f"Let it deliver them first: `umqtt-board command --device {name} --group {group} "
             f"interval 86400` stops new ones; then flash it again. {_without_mark(there)}If it "
             "cannot deliver them, ")  # fmt: skip
    if not confirm(text):
        raise BoardError(f"Nothing was changed: {text}. {first}`make backup` keeps them, and "
                         "YES=1 (--yes) erases them.")  # fmt: skip
    return renamed, True


def refuse_left_behind(device, board, flat, there, confirm):
    """BoardError if the settings `flat` have the board keep its messages elsewhere than those that
    are `there`, it holds some where it does not look then, and that was not confirmed."""
    if flat is None or (flat.get("store") == "files") == ((there or {}).get("store") == "files"):
        return
    text = held.left_behind(flat, held.waiting_in_files(device),
                            held.waiting_in_region(device, board))  # fmt: skip
    if text and not confirm(text):
        raise BoardError(f"Nothing was changed: {text}. Let it deliver them first, then flash it "
                         "again; or YES=1 (--yes) does it.")  # fmt: skip


def _without_mark(there):
    """How a board with those settings delivers what no mark lets go of, in words."""
    if there.get("confirm") != "pipeline":
        return ""
    return ('If it says "mark refused", it waits in vain: `UMQTT_INTERVAL_MS=86400000 '
            "UMQTT_CONFIRM=broker make flash`, with the name that it has in the settings, has it "
            'deliver them without the mark (boards/README.md, "ran on after the copy"). ')


def settings_there(device):
    """The settings that a board has, None for none."""
    device.doing = "reading its settings"
    return settings_file.from_board(device.read_file(settings_file.PATH))


def settings_for(there, file, environment, wifi, ask):
    """What the board's settings shall be; None: those that are `there` stay, be it none."""
    if file is not None:
        return settings_file.keep_secrets(file, there)
    given = settings_file.from_environment(environment)
    if given or (ask and not there):
        return settings_file.changed(there, given, wifi=wifi, ask=ask)
    return None


def counter_items(device, flat, there, least, progress, renamed=False):
    """What makes the board obey no command that it, or this computer, has had before: Items, to be
    put in force no later than its key. flat: its new settings, None if those that are `there`
    stay. renamed: they give it another name; what was commanded under the old one is over."""
    key, shown = ((one or {}).get("command_key") for one in (flat or there, there))
    item, damaged = counters.raised(device, least, bool(key), key != shown, renamed)
    if damaged:
        progress("commands", "the board's counter of commands is damaged: it begins anew")
    return [item] if item else []


def set_aside(device, board, progress):
    """The journal's part of the flash, where the filesystem has to be asked for it."""
    if board["journal"]["kind"] != "reserved" or region.look(device)[0]:
        return
    waiting = held.waiting_in_files(device)
    if waiting:
        progress("journal", f"{waiting} messages wait in files: the region is made when they are "
                            "delivered; flash again then")  # fmt: skip
    elif region.arrange(device, board["journal"]["size"]):
        progress("journal", f"{board['journal']['size']} bytes of flash set aside")


def build_items(flat, progress):
    """Compile everything; the Items for the board, the settings `flat` among them if given."""
    items = build()
    size = sum(len(item.data) for item in items)
    progress("build", f"{len(items)} files, {size} bytes")
    return items if flat is None else [*items, settings_file.as_item(flat)]


def install_items(device, items, flat, report, progress, transfer, image=None):
    """Bring the board's files to what `items` say, its ROMFS to `image`; the Report is told."""
    todo = install.plan(device, items, image)
    report.same = todo.same
    report.written = [item.path for item in todo.rename]
    report.removed = sorted(todo.remains + todo.remove)
    report.rom_written = bool(todo.rom)
    report.settings = _settings_word(device, flat, report.written)
    if todo.nothing_to_do:
        progress("install", f"nothing to do: all {todo.same} files are as they should be")
    else:
        what = f"{len(todo.rename)} files to write, {todo.same} as they should be"
        progress("install", what + (", the ROMFS to write" if todo.rom else ""))
        kept, named = install.carry_out(device, todo, transfer)
        for name, new in kept:
            progress("install", f"your own {name[1:]} is kept as {new[1:]}: "
                                f"{own_files.why(name, items)}")  # fmt: skip
        if named is not None:
            progress("install", "the note of which files of your own were renamed is damaged; the "
                                f"board has: {', '.join(named) or 'no name with .own in it'}")
        progress("install", "done")
    progress("settings", report.settings)
    if flat is not None:
        word = flat.get("confirm", "broker")
        progress("settings", f'confirm = "{word}": {settings_file.PROMISES[word]}')


def _settings_word(device, flat, written):
    if flat is not None:
        return "written" if settings_file.PATH in written else "same"
    return "kept" if _has_settings(device) else "none"


def _has_settings(device):
    return bool(install.hashes(device, [settings_file.PATH])[settings_file.PATH])


def verify_items(device, board, items, report, progress, image=None):
    """Prove that they are there and load; the Report is told."""
    found = verify.verify(device, board, items, image)
    report.library, report.folder, report.journal = found.library, found.folder, found.journal
    report.heap_before, report.heap_after = found.heap_before, found.heap_after
    progress("verify", f"{len(items)} files read back, umqtt_min {found.library} loads "
                       f"from {found.folder}; "
                       f"heap free {found.heap_before} -> {found.heap_after} bytes; "
                       f"journal region {found.journal} bytes")  # fmt: skip
    needed = board["micropython"]["heap_free"]
    if found.heap_after < needed:
        progress("verify", f"that is little heap: the firmware is meant for {needed} bytes and "
                           "more (board.toml), and may run out of it")  # fmt: skip
    if not found.journal and board["journal"]["kind"] != "files":
        progress("verify", "no journal region in this board's flash: messages are kept in files, "
                           "which wears it more (boards/README.md)")  # fmt: skip


def start(device, flat, report, progress, follow_log, timeout):
    """Start the board; with `follow_log` until its first publish is acknowledged."""
    if report.settings == "none":
        device.hard_reset(keep_open=True)
        progress("start", "without settings the firmware waits")
    elif follow_log:
        progress("start", "following the log until the first publish is acknowledged")
        follow.follow(device, lambda line: progress("log", line), timeout)
        report.acknowledged = True
        progress("start", "the broker has acknowledged the first publish")
    else:
        device.hard_reset(keep_open=True)
        progress("start", "running")
