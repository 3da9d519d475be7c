"""A copy on its way back to a board: its settings, its state and its journal.

Who has had the copy in hand may have changed it, and its manifest with it. So whatever it changes
of the board is said, and what could harm the board, its readings or its fleet is asked about: all
of it before the first byte is written. The key of commands is not in a copy: the board gets the
one that is valid now.

Knows: what a copy may do to a board. Must not know: how a copy is made (copies.py).
"""

import base64
import json
from collections import namedtuple
from functools import cached_property

from umqtt_board import plain
from umqtt_board.backup import copies, half, held, journal, known
from umqtt_board.backup.held import PIECE, SECTOR
from umqtt_board.errors import BoardError
from umqtt_board.flash import install, verify
from umqtt_board.flash.build import Item
from umqtt_board.identity import own
from umqtt_board.ota import counters
from umqtt_board.ota.giving import changed, name_of, usual
from umqtt_board.settings import ca_file, settings_file, subject

_NUMBERS = 1 << 29  # a reading each second for seventeen years; JOURNAL.md ends at 2**30


class Refused(BoardError):
    """What a restore would do was not confirmed: nothing was changed.

    runs  whether the board has firmware and settings, and so goes on with its work
    """

    def __init__(self, text, runs):
        super().__init__(text)
        self.runs = runs


#: What a restore does only if it is wanted: what it would do, and what to do about that.
Doubt = namedtuple("Doubt", "text advice")


def restore(device, board, copy, confirm, progress, transfer, giving=None):
    """Put a copy back: settings, state, journal. The board starts with it at its next reset.

    board    the board's description, see boards.load()
    copy     a copies.Copy
    confirm  function(text): True if what the text says may be done
    giving   as in steps.flash(): a board that takes commands gets the key that is valid now,
             not that of the copy, and obeys none of the commands that it had after the copy
    Until all of it is there the board has no main.py; a run that is cut is done again.

    Returns whether the board has firmware, and starts. Raises BoardError, and nothing was changed,
    if the sizes of the journals differ, or a flash of the board was cut; Refused if confirm()
    returned False: its text has all that was not confirmed.
    """
    return Restore(device, board, copy, progress, giving).run(confirm, transfer)


class Restore:
    """One copy on its way back to one board; arguments as in restore()."""

    def __init__(self, device, board, copy, progress, giving):
        self._device, self._board, self._copy = device, board, copy
        self._progress, self._giving = progress, giving
        self._rules = settings_file.firmware_settings()
        install.refuse_mixed(device)
        self._opening = self._same_size()
        self._image_sum = copies.region_hash(device, self._opening) if self._opening else None
        self._half = half.of(device)
        #: Whether nothing that the board holds is to be kept: half of another copy.
        self._void = self._half not in (None, copy.digest)
        device.doing = "reading its settings"
        self._there = settings_file.from_board(device.read_file(settings_file.PATH))
        #: The settings in the copy, None if it has none or they are damaged.
        self._settings = settings_file.from_board(copy.files.get(settings_file.PATH))

    def run(self, confirm, transfer):
        """Ask, write, and say what came of it; see restore()."""
        doubts = [*self._doubts()]
        for at, doubt in enumerate(doubts):
            if not confirm(doubt.text):
                left = "; besides, ".join(f"{text}. {advice}" for text, advice in doubts[at:])
                if self._half is not None:
                    left += f". The board does not run: {half.TEXT}"
                raise Refused(f"Nothing was changed: {left}.", self._runs())
        files = self._files_to_put()
        with install.without_main(self._device):
            if self._void:
                held.give_up(self._device, self._board)
                self._image_sum = None
            half.begin(self._device, self._copy.digest)
            self._put_files(files, transfer)
            if self._brings_journal():
                self._put_region(transfer)
            half.end(self._device)
            self._main_back()
        if self._giving:
            self._giving.arrived(self._device,
                                 settings_file.from_board(files.get(settings_file.PATH)),
                                 counters.count(counters.state(files.get(counters.STATE))) or 0)
        what = "the journal" if self._opening else "no journal region"
        self._progress("restore", f"{plain.counted(len(files), 'file')} and {what} from "
                                  f"{self._copy.folder}")  # fmt: skip
        if starts := self._has_main():
            return starts
        self._progress("restore", "the board has no firmware: `make flash` brings it, and "
                                  "keeps what was restored")  # fmt: skip
        return False

    # ---- what is asked

    def _doubts(self):
        yield from self._of_newer_messages()
        if settings_file.PATH in self._copy.files:
            yield from self._of_settings()
        yield from self._of_messages()
        yield from self._of_left_behind()
        yield from self._of_interval()
        if self._giving and self._settings:
            yield from self._of_key()

    def _of_newer_messages(self):
        if self._void:
            yield Doubt("an earlier restore of another copy was cut, and what the board holds is "
                        "half of that. It will be erased; numbers that the board has given since "
                        "this copy was made will be given again",
                        "Run the restore of that copy again, or YES=1 restores this one")
        if self._half is not None:  # of this one it was confirmed, and nothing there is whole
            return
        region = self._brings_journal() and not self._is_blank()
        files = self._files_replaced
        if region or files:
            since = ""
            if region:
                now = held.region(self._device, self._opening)
                since = self._given_since(self._copy.image, now)
            if files and not since:
                since = self._given_since(held.image_of(self._stored()), held.image_of(files))
            yield Doubt(
                f"the messages that the board on {self._device.port} has now will be replaced"
                f"{since}", "`make backup` keeps them; then YES=1")

    def _of_settings(self):
        """Says what the settings of the copy change on the board. A board that does not start
        with them gets no key: it obeys nobody."""
        folder, new, old = self._copy.folder, self._settings, self._there or {}
        if new is None:
            self._giving = None
            keeps = "the board keeps those it has" if old else "the board has none"
            yield Doubt(f"the settings of {folder} are damaged: without them {keeps}",
                        "YES=1 restores the rest")  # fmt: skip
            return
        given = self._giving.given(self._device, new) if self._giving and not old else None
        if given is not None:
            same = "" if changed(*given) else " the same"
            self._progress("settings", "the board has none. Compared with those that this "
                                       f"computer last gave {self._name(new)}:{same}")  # fmt: skip
        before, after = (old, new) if given is None else given
        found = changed(before, after)
        for key in found:
            was, is_ = (self._shown(key, one.get(key)) for one in (before, after))
            # The same words of another secret, or of another certificate of that name.
            self._progress("settings", f"{key}: {was} becomes {'another' if was == is_ else is_}")
        files = own.on_board(self._device, new)
        if faults := self._rules.validate(new):
            self._giving = None
            yield Doubt(f"the board does not start with the settings of {folder}: "
                        f"{'; '.join(faults)}", "YES=1 writes them all the same; `make flash "
                        "SETTINGS=...` gives it others then")  # fmt: skip
        elif faults := ca_file.faults(new, files):
            yield Doubt(f"with the settings of {folder} the board does not get to its broker: "
                        f"{'; '.join(faults)}", "YES=1 writes them all the same")  # fmt: skip
        elif text := own.missing(self._device, new):
            yield Doubt(text, "YES=1 writes the settings all the same")
        elif doubt := own.doubt(self._device, new, files):
            yield Doubt(*doubt)
        commands = bool(self._copy.commands or new.get("command_key"))
        if not commands:
            self._progress("commands", "the copy is of a board without a command key: with it "
                                       "the board obeys no command and no update until a flash "
                                       "with SETTINGS=")  # fmt: skip
        if old:
            found += ["command_key"] if old.get("command_key") and not commands else []
            if found:
                moved = {"device", "group"} & {*found} and commands
                if_moved = (f"; it will be {self._name(new)}, and another board of that name "
                            "obeys nobody then") if moved else ""  # fmt: skip
                yield Doubt(f"the copy changes {', '.join(found)} of the board. Who has had it in "
                            f"hand may have written that{if_moved}", "YES=1 restores it")
        elif self._giving:
            yield from self._of_first(given, found + ([] if commands else ["command_key"]))

    def _of_first(self, given, found):
        """Of a board without settings: the settings that are not as this computer gave them,
        `given`, to the board of that name; and whether it is that board."""
        new, name = self._settings, self._name(self._settings)
        if given is None:
            yield Doubt(
                f"the board has no settings, and this computer knows none of {name}: it will "
                "trust whom the copy says, see above. Who has had it in hand may have written "
                "that", "YES=1 restores it")  # fmt: skip
            return
        if found:
            yield Doubt(
                f"the board has no settings, and {', '.join(found)} in the copy is not what "
                f"this computer gave {name} last. Who has had it in hand may have written that",
                "YES=1 restores it")  # fmt: skip
        if self._copy.key and not self._giving.knows(self._device, {**new, "device": name_of(
                self._device, new)}, self._there, self._copy.key):  # fmt: skip
            yield Doubt(
                f"the copy is of a board with a key that {name} never had on this computer: it "
                f"may be another board's. This one will be {name}, and gets its key; the one that "
                "has it now obeys nobody then", "YES=1 restores it")  # fmt: skip

    def _shown(self, key, value):
        if value is None:
            return "(default)"
        if value and key in self._rules.SECRETS:
            return "(secret)"
        return subject.words(value) if ca_file.is_pem(value) else json.dumps(value)

    def _of_messages(self):
        """Another journal in the copy: a board cannot deliver what is not its own, and all that
        it takes waits behind that."""
        flat = self._settings or self._there  # it keeps its own
        if not flat:
            return
        name = self._name(flat)
        own_topic = f"fleet/{name}/telemetry".encode(errors="replace")
        for image in (held.image_of(self._stored()), self._copy.image or b""):
            try:
                there = journal.Journal(image)
            except journal.NoJournal:
                if self._brings_journal() and image.strip(b"\xff"):
                    yield Doubt("the journal in the copy is none that a board can read: it will "
                                "begin another one, and the messages in it are lost",
                                "YES=1 restores it all the same")  # fmt: skip
                continue
            foreign = sum(topic != own_topic or not pid or flags >> 1 not in (1, 2)
                          for pid, flags, _, topic, *_ in there.live.values())  # fmt: skip
            if foreign:
                yield Doubt(
                    f"{foreign} of {len(there.live)} messages in the copy are no readings of "
                    f"{name}: the board cannot deliver them, and all that it takes waits behind "
                    "them", "YES=1 restores it all the same")  # fmt: skip
            elif _no_boards_numbers(there, len(image)):
                yield Doubt(
                    "the numbers in the copy's journal are those of no board: with them a board "
                    "may let go of readings that nobody has, or not start",
                    "YES=1 restores it all the same")  # fmt: skip

    def _of_left_behind(self):
        """Messages where a board with the settings of the copy does not look for its own."""
        flat = self._settings or self._there or {}
        copy, stored = self._copy, self._stored()
        files = (len(held.topics_in(held.image_of(stored))) if stored
                 else held.waiting_in_files(self._device))  # fmt: skip
        region = (held.waiting_in_region(self._device, self._board) if copy.image is None
                  else len(held.topics_in(copy.image)))  # fmt: skip
        if text := held.left_behind(flat, files, region, "it and the copy hold"):
            yield Doubt(text, "YES=1 restores it all the same")

    def _of_interval(self):
        """The interval that came by command is in the state, not in the settings."""
        ms = self._interval(counters.state(self._copy.files.get(counters.STATE)))
        there = self._interval(counters.state(self._device.read_file(counters.STATE)))
        if ms and ms != there:
            yield Doubt(f"the copy has the board measure every {ms} ms, as if by command. Who has "
                        "had it in hand may have written that", "YES=1 restores it; "
                        "`umqtt-board command interval` changes it then")  # fmt: skip

    def _interval(self, state):
        """The interval by command in a state, if the board heeds it and its settings have another
        one; else None."""
        ms = (state or {}).get(counters.INTERVAL)
        flat = self._settings or self._there or {}
        own_ms = flat.get(counters.INTERVAL, usual()[counters.INTERVAL])
        holds = (state or {}).get(counters.INTERVAL_WAS) == own_ms
        good = type(ms) is int and not self._rules.validate({"broker.host": "-",
                                                             counters.INTERVAL: ms})  # fmt: skip
        return ms if good and holds and ms != own_ms else None

    def _of_key(self):
        """Readings in the copy may be signed with a key that is neither in it nor on this
        computer."""
        flat = self._settings
        if flat.get("telemetry") != "signed" or not flat.get("device"):
            return
        if not self._giving.knows(self._device, flat, self._there, self._copy.key):
            yield Doubt(
                f"the readings in the copy are signed with a key of {flat['device']} that this "
                "computer does not have, or has given up: no bridge with --telemetry-keys takes "
                "them, and the board publishes them again and again. `umqtt-board keys import` "
                "brings the key from the computer that flashed the board, and `telemetry-keys "
                "--with-former` one that was given up; write telemetry-keys anew then",
                "YES=1 restores without it")  # fmt: skip

    def _stored(self):
        """The FileStore's files in the copy, {path: bytes}."""
        return {path: data for path, data in self._copy.files.items() if path not in known.OWN}

    # ---- what the board has now

    def _has_main(self):
        return bool(install.hashes(self._device, [install.MAIN])[install.MAIN])

    def _runs(self):
        """Whether the board goes on with its work."""
        return bool(self._there) and self._half is None and self._has_main()

    def _same_size(self):
        """The program that opens the board's region, None without one; BoardError if sizes
        differ."""
        if self._board["journal"]["kind"] == "files" or self._copy.image is None:
            return None
        opening = verify.opening(self._board["journal"])
        size = held.region_size(self._device, opening)
        if size != len(self._copy.image):
            raise BoardError(
                f"The journal region of the board on {self._device.port} has {size or 0} bytes, "
                f"that of the copy {len(self._copy.image)}: flash the board first, with the same "
                "board.toml."
            )
        return opening

    def _brings_journal(self):
        """Whether the copy has another journal than the board."""
        return self._opening and self._image_sum != self._copy.image_sum

    def _is_blank(self):
        self._device.doing = "looking at its journal"
        code = "_blank = b'\\xff' * %d\n_yes = True\n" % PIECE
        code += "while _yes:\n _p = _next()\n if not _p:\n  break\n _yes = _p == _blank\n"
        return self._device.value(self._opening + held.READ + code + "_say(_yes)", bool)

    @cached_property
    def _files_replaced(self):
        """The FileStore's files on the board, {path: bytes}, if the copy brings others."""
        if not self._stored():
            return {}
        paths, _ = held.stored_files(self._device)
        there = {path: self._device.read_file(path) or b"" for path in paths}
        return {} if there == self._stored() else there

    def _given_since(self, before, after):
        """What is to be said of a board whose journal, the image `after`, is that of the copy,
        `before`, and has gone on."""
        try:
            then, now = journal.Journal(before), journal.Journal(after)
        except journal.NoJournal:
            return ""
        first, last = then.state["seq"], now.state["seq"] - 1
        if now.epoch != then.epoch or last < first:
            return ""
        return (f". It ran on after this copy, and has given the numbers {first} to {last} since: "
                "the next readings would get them again, and the pipeline would take these for "
                "copies")  # fmt: skip

    def _name(self, flat):
        return f"{flat.get('group', 'default')}/{name_of(self._device, flat)}"

    # ---- what is written

    def _files_to_put(self):
        """{path: content}: the copy's, but for the key and the counter of commands."""
        files = {path: data for path, data in self._copy.files.items()
                 if path != settings_file.PATH}  # fmt: skip
        least, anew = 0, False
        if self._settings is not None:
            settings = dict(self._settings)
            key = settings.pop("command_key", "")
            if key or settings and self._copy.commands:
                least = counters.now()
                if self._giving:
                    settings, count = self._giving.for_board(
                        self._device, settings, self._there,
                        tell=lambda text: self._progress("commands", text))  # fmt: skip
                    least = max(least, count)
                    anew = settings.get("command_key") != (self._there or {}).get("command_key")
            # Written anew: what MicroPython reads in other bytes may be something else.
            files[settings_file.PATH] = settings_file.as_item(settings).data
        if counters.STATE in files:
            kept = self._with_interval(files[counters.STATE])
            if counters.ahead(counters.count(counters.state(kept)) or 0):
                self._progress("commands", "the counter in the copy is a month ahead of this "
                                           "computer's clock: it does not count")  # fmt: skip
            there = self._device.read_file(counters.STATE)
            files[counters.STATE] = counters.forward(there, kept, least, anew)
        elif least:
            files[counters.STATE] = counters.forward(None, b"{}", least)
        return files

    def _with_interval(self, state):
        """The bytes of the state in a copy, without an interval by command that the board would
        not heed."""
        found = counters.state(state)
        if found is None:
            self._progress("restore", "the state in the copy is damaged: what came by command, as "
                                      "the interval, does not come back")  # fmt: skip
            return b"{}"
        if counters.INTERVAL not in found:
            return state
        if ms := self._interval(found):
            self._progress("settings", f"interval_ms, given by command: {ms} from this copy; "
                                       "`umqtt-board command interval` changes it")  # fmt: skip
            return state
        self._progress("settings", "the interval_ms by command in this copy would change nothing, "
                                   "and is left out")  # fmt: skip
        del found[counters.INTERVAL]
        found.pop(counters.INTERVAL_WAS, None)
        return json.dumps(found).encode()

    def _put_files(self, files, transfer):
        # A file of the store that the copy does not have would be read as a part of its journal.
        for path in self._files_replaced.keys() - files.keys():
            self._device.run(f"import os\nos.remove({path!r})")
        for path, data in files.items():
            self._device.doing = f"writing {path}"
            parent = path.rpartition("/")[0]
            if parent:
                self._device.run(
                    f"import os\ntry:\n os.mkdir({parent!r})\nexcept OSError:\n pass")
            install.replace(self._device, Item(path, data))
            transfer(len(data), len(data), path)

    def _put_region(self, transfer):
        device, data = self._device, self._copy.image
        device.doing = "writing its journal"
        device.run(self._opening + "\nfrom binascii import a2b_base64 as _d")
        for at in range(0, len(data), SECTOR):
            device.run(f"region.ioctl(6, {at // SECTOR})")
            for off in range(0, SECTOR, PIECE):
                piece = data[at + off : at + off + PIECE]
                if piece != b"\xff" * PIECE:
                    text = base64.b64encode(piece)
                    device.run(f"region.writeblocks({at // SECTOR}, _d({text!r}), {off})")
            transfer(at + SECTOR, len(data), "journal")
        if copies.region_hash(device, self._opening) != self._copy.image_sum:
            raise BoardError(copies.UNLIKE.format(what="The journal", port=device.port))

    def _main_back(self):
        if install.hashes(self._device, [install.OFF])[install.OFF]:
            install.allow_main(self._device, False)


def _no_boards_numbers(there, size):
    """Whether a journal.Journal of so many bytes has numbers that no board writes."""
    state = there.state
    # Each message takes more than 16 bytes, and the index has a place for each number.
    wide = state["seq"] - min(there.live, default=state["seq"]) > size // 16
    return wide or state["confirmed"] >= state["seq"] or max(state["seq"],
                                                             state["boot"]) > _NUMBERS  # fmt: skip
