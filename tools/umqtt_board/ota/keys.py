"""The boards' keys as this computer keeps them: one file a board, outside the project.

$XDG_CONFIG_HOME/umqtt_min/boards/GROUP/DEVICE.json (~/.config without the variable), mode 0600 in
folders of mode 0700. A file holds the key of the board's commands, the last counter that was used
with it and where the board's broker is. Where the folder above has a lock (lock/lock.py) the key
is sealed with it. Must not know how a board comes to its key (ota/giving.py), nor what is sent
with one.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path

from umqtt_board import private
from umqtt_board.errors import BoardError, reason
from umqtt_board.lock import lock as locks
from umqtt_board.ota import counters
from umqtt_board.ota.reports import hmac_sha256
from umqtt_board.settings.settings_file import firmware_settings

FORMER = 15  # keys that a board had, and may hold readings of
TELEMETRY = b"umqtt telemetry"
LEAST_BYTES = 16  # firmware/settings.py
_PRINT = re.compile("[0-9a-f]{16}")  # of fingerprint()
SPREAD_MS = 60_000  # so wide is the range of the next counter beyond one that a board has said
NEAR_MS = 1000  # ... and beyond one that is known here, or about the time of this computer
_SUM = b"check "  #: before the check value of a list of names
MOST_COUNT = 1 << 53  #: what JSON carries exactly; as milliseconds 285,000 years


def fingerprint(key, name):
    """What tells a board's key from others, 16 hexadecimal digits, and does not help to find it.

    key   hexadecimal
    name  GROUP/DEVICE of the board: the same key of another one has another fingerprint
    """
    return hmac_sha256(key, f"umqtt fingerprint {name}".encode())[:16]


def secret_code(key, name, value):
    """What tells a secret setting from others without saying it, 64 hexadecimal digits.

    key   the board's command key, hexadecimal
    name, value  the setting
    """
    return hmac_sha256(key, f"umqtt setting {name}={value}".encode())


def readings_key(key):
    """The key with which a board with the command key `key` signs its readings, both hexadecimal
    (firmware/telemetry.py)."""
    return hmac_sha256(key, TELEMETRY)


class NoLock(BoardError):
    """A key is sealed, and the lock that opens it is not there."""


@dataclass
class Record:
    """What is known of one board.

    key      hexadecimal, as in its settings
    count    the highest counter that a command to it has had
    broker   dict: host, port, tls, and user and ca (PEM) where the settings have them; no password
    signs    whether its settings have it sign its readings
    revoked  whether the key that it obeys is void: it gets another one when it is flashed
    former   the keys that it had before, newest first: it may hold readings signed with them
    others   keys that another computer has given it, before this one or since: nobody here knows
    fresh    whether the key was made for a flash that has not ended yet: the board may have it,
             or still the one before. The next flash gives it this one, and not a third
    settings  those that it was given last, without its name, and with codes under its key in
             place of secrets (secret_code()); {}: not known
    given    the counter that the board got with the key: the time in milliseconds, and above the
             board's own counter of before, so that it orders the keys of a board; 0: not known
    spent    fingerprints of the keys of readings (readings_key()) that were given up: a reading
             signed with one of these is nobody's, unless it is that of the board's own key
    """

    group: str
    device: str
    key: str
    count: int = 0
    broker: dict = field(default_factory=dict)
    signs: bool = False
    revoked: bool = False
    former: list = field(default_factory=list)
    fresh: bool = False
    others: list = field(default_factory=list)
    given: int = 0
    settings: dict = field(default_factory=dict)
    spent: list = field(default_factory=list)

    @property
    def name(self):
        """GROUP/DEVICE."""
        return f"{self.group}/{self.device}"

    def change(self, key):
        """Give it another key."""
        if self.key != key:
            before, self.key = self.key, key
            self.fresh = True
            self.regain(key)
            self.had(before)

    def had(self, key):
        """It may hold readings that it has signed with that key; "": there was none."""
        if key and key != self.key:
            rest = (one for one in self.former if one not in (key, self.key))
            self.former = [key, *rest][:FORMER]
        self.others = [one for one in self.others if one not in (key, self.key)]

    def remember(self, *others):
        """It may hold readings that it has signed with those keys, too, as far as there is
        room."""
        known = [self.key, *self.former]
        self.former = [*self.former, *(one for one in others if one not in known)][:FORMER]

    def heard(self, *others):
        """Another computer has given it those keys, as far as there is room."""
        rest = (one for one in others if one not in self.every_key)
        self.others = [*self.others, *rest][:FORMER]

    def spend(self, *some):
        """Give up these keys of readings for good, whichever file or copy they come in."""
        prints = (fingerprint(one, self.name) for one in some)
        self.spent = sorted({*self.spent, *prints})

    def spends(self, one):
        """Whether that key of readings was given up."""
        return fingerprint(one, self.name) in self.spent

    def gave_up(self, key):
        """Whether the key of readings that is made of that one was given up."""
        return self.spends(readings_key(key))

    def regain(self, key):
        """The board's own key is this one: what it signs counts, now and after its next key."""
        mine = fingerprint(readings_key(key), self.name)
        self.spent = [one for one in self.spent if one != mine]

    @property
    def every_key(self):
        """All keys that it has or may have had, its own first."""
        return [self.key, *self.former, *self.others]

    def arrived(self):
        """The board has the key, and no other one."""
        self.fresh = self.revoked = False

    def later(self, given):
        """Whether the board got the key after another one, of which that is the counter `given`;
        not where either is unknown, or the board may not have it yet."""
        return 0 < given < self.given and not self.fresh

    def after(self, other):
        """Whether the board got the key after that of another Record of it; not where nothing
        tells, or the board may not have it yet. The time of a clock that was months ahead tells
        nothing; then a key that was given in the place of another is the later one."""
        if other.given > 0 and not counters.ahead(max(self.given, other.given)):
            return self.later(other.given)
        replaced = other.key in self.former and self.key not in other.former
        return replaced and not self.fresh


def root():
    """The folder with all of them; it need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "umqtt_min" / "boards"


def home():
    """The folder with the boards' keys, the authorities' and the lock of both."""
    return root().parent


def authorities_folder():
    """Where the keys of the authorities of certificates lie; it need not exist."""
    return home() / "identity"


def authorities_word():
    """The passphrase of those keys, "" for none; asks for that of this computer's keys."""
    lock = locks.of(home())
    return lock.word if lock else ""


def first_use(tell):
    """Before the first key of this computer is made: lock all keys, if that is wanted.

    tell  function(text), called when the keys stay unlocked and nobody has said so
    """
    if in_use():
        return
    word = locks.offered(tell)
    with locked():
        if word and not in_use():
            locks.put(home(), locks.Lock.new(), word)


def files(group="*"):
    """The files of boards, sorted. BoardError for a folder that is another user's: its boards
    would be left out of everything without a word."""
    found = []
    for name in sorted(_listed(root())):
        folder = root() / name
        if fnmatchcase(name, group) and folder.is_dir():
            found += [folder / name for name in _listed(folder) if name.endswith(".json")]
    return sorted(path for path in found if not path.name.startswith("."))


def _listed(folder):
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except PermissionError:
        raise BoardError(f"{folder} belongs to another user, as after `sudo make flash`: "
                         f"`sudo chown -R $(id -un) {folder}`.")  # fmt: skip


def in_use():
    """Whether this computer has keys, or a lock for them."""
    return locks.path(home()).exists() or any(files()) or any(
        authorities_folder().glob("*-key.pem"))


def _path(group, device):
    rules = firmware_settings()
    for key, name in (("group", group), ("device", device)):
        if not name:
            raise BoardError(f"The name of a {key} is empty: give one.")
        if rules.validate({"broker.host": "-", key: name}):
            raise BoardError(f"{name!r} is no name of a {key}: expected {rules.expected(key)}.")
    return root() / group / f"{device}.json"


def is_name(text):
    """Whether a text is GROUP/DEVICE as a board may be called."""
    try:
        return _path(*text.split("/")).name is not None
    except (BoardError, TypeError):
        return False


def load(group, device):
    """Return the Record of a board; BoardError when there is none."""
    record = find(group, device)
    if record is None:
        known = ", ".join(sorted(r.device for r in members(group, missing_ok=True))) or "none"
        raise BoardError(
            f"This computer has no key for the board {device} of the group {group} (known there: "
            f"{known}). Keys are made by `make flash`, and lie in {root()}."
        )
    return record


def find(group, device):
    """Return the Record of a board, None when there is none."""
    path = _path(group, device)
    try:
        return _read(path)
    except FileNotFoundError:
        return None


def _read(path):
    if path.stat().st_mode & 0o077:
        raise BoardError(f"{path} holds a key and others may read it: `chmod 600 {path}`.")
    try:
        record = unpacked(json.loads(path.read_text()), lambda: _lock(path))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BoardError(f"{path} is damaged ({reason(error)}). Remove it, and bring the "
                         "board's key from your copy (`umqtt-board keys import`); without one, "
                         "flash the board again.")  # fmt: skip
    said, name = (record.group, record.device), (path.parent.name, path.stem)
    if said != name:
        why = ("two boards cannot have names that differ only in case"
               if "/".join(said).casefold() == "/".join(name).casefold() else
               f"give it back the name {record.name}.json")  # fmt: skip
        raise BoardError(f"{path} is of the board {record.device} of the group {record.group}: "
                         f"{why}.")  # fmt: skip
    return record


def _lock(path):
    lock = locks.of(home())
    if lock is None:
        raise NoLock(f"{path} is locked, and {locks.path(home())} is not there: bring it "
                         "back from a copy, or remove the keys and flash the boards anew.")
    return lock


def packed(record, lock):
    """What a file holds of a Record: a dict. lock: a locks.Lock that seals the key, or None."""
    data = asdict(record)
    if lock:
        data["sealed"] = lock.seal(data.pop("key"), record.name)
        for kind in ("former", "others"):
            data[kind] = [lock.seal(key, record.name) for key in data[kind]]
    return data


def unpacked(data, lock):
    """The Record of such a dict; ValueError, TypeError or KeyError for another thing.

    lock  function() that returns the Lock, called for a key that is sealed
    """
    if "sealed" in data:
        data = dict(data)
        name = "{group}/{device}".format(**data)
        data["key"] = lock().opened(data.pop("sealed"), name)
        for kind in ("former", "others"):
            data[kind] = [lock().opened(key, name) for key in data.get(kind, ())]
    record = Record(**data)
    _check_kinds(record)
    if any(len(bytes.fromhex(key)) < LEAST_BYTES for key in record.every_key):
        raise ValueError(f"its key has less than {LEAST_BYTES} bytes")
    if not all(isinstance(one, str) and _PRINT.fullmatch(one) for one in record.spent):
        raise ValueError("a key in it that was given up is none")
    if not (0 <= record.count < MOST_COUNT and 0 <= record.given < MOST_COUNT):
        raise ValueError("its counter is no number that a command can have")
    return record


_KINDS = {"host": str, "port": int, "tls": bool, "user": str, "ca": str}


def _check_kinds(record):
    for one in fields(Record):
        if type(getattr(record, one.name)) is not one.type:
            raise ValueError(f"its {one.name} is no {one.type.__name__}")
    for name, value in record.broker.items():
        if type(value) is not _KINDS.get(name):
            raise ValueError(f"{name!r} of its broker is {value!r}")
    if record.broker and not ("host" in record.broker and 0 < record.broker["port"] < 65536):
        raise ValueError("its broker has no host and port")


def folder(group):
    """Where the files of a group's boards are."""
    return _path(group, "any").parent


def groups():
    """Names of the groups that this computer has keys for, sorted."""
    return sorted(name for name in _listed(root()) if (root() / name).is_dir())


def members(group, missing_ok=False):
    """Return the Records of all boards of a group, sorted by name; BoardError when it has none."""
    found = [_read(path) for path in files(folder(group).name)]
    if not found and not missing_ok:
        raise BoardError(f"This computer has no key for any board of the group {group}.")
    return found


def save(record):
    """Write a Record; whoever reads it meanwhile gets the old one or the new one."""
    put(record, locks.of(home()))


def put(record, lock):
    """As save(), with the key sealed by that Lock; None seals nothing."""
    path = _path(record.group, record.device)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp makes it with mode 0600
    handle, aside = tempfile.mkstemp(".aside", f".{record.device}-", path.parent)
    with open(handle, "w") as file:
        json.dump(packed(record, lock), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def every():
    """The Records of all boards of all groups, sorted."""
    return [record for group in groups() for record in members(group, missing_ok=True)]


def each():
    """(GROUP/DEVICE, its Record or the BoardError that says why it cannot be read) of all boards,
    sorted. Asks for the passphrase once; a wrong one is raised."""
    locks.of(home())
    found = []
    for path in files():
        try:
            record = _read(path)
        except BoardError as error:
            record = error
        found.append((f"{path.parent.name}/{path.stem}", record))
    return found


def in_clear():
    """How many files of boards hold their key in clear."""
    count = 0
    for path in files():
        with suppress(OSError, ValueError, RecursionError):
            count += "key" in json.loads(path.read_bytes())
    return count


def revoke(records):
    """Void the keys of boards: each gets another one when it is flashed next."""
    with locked():
        for record in records:
            now = load(record.group, record.device)
            now.revoked, now.fresh = True, False
            save(now)


def remove(record):
    """Remove what is known of a board. The keys are to be locked()."""
    _path(record.group, record.device).unlink(missing_ok=True)


def read_names(path, what, then):
    """The lines that write_names() has written into a file, a set; none if it is not there.

    BoardError for a damaged one: what it lacks would count again. what: what it lists; then: what
    to do once a copy has brought back what it knows, both in words.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return set()
    lines, _, told = data.rpartition(_SUM)
    if told != _sum_of(lines):
        raise BoardError(f"{path} is damaged, the list of {what}. Put it back as it was. If you "
                         "cannot, remove it, and import the newest copy of the keys (`umqtt-board "
                         f"keys import`), which says it, too; {then}.")  # fmt: skip
    return {*lines.decode().split("\n")} - {""}


def write_names(path, names):
    """Write a file that has each of these on a line, and a check value on the last one."""
    lines = "".join(f"{one}\n" for one in sorted(names)).encode()
    private.replace(path, lines + _SUM + _sum_of(lines))


def _sum_of(lines):
    return hashlib.sha256(lines).hexdigest()[:16].encode() + b"\n"


@contextmanager
def locked():
    """Keep every other command away from the keys meanwhile."""
    root().mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(root() / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in root().glob("*/.*.aside"):  # of a command that was killed: it holds a key
            left.unlink()
        yield


def next_count(records, above=0):
    """Return a counter above all that these boards were ever sent, kept before it is used.

    It is about the time in milliseconds where that is above: so another computer with the same
    keys gets through as well. above: a counter that a board has said, 0 for none. It is drawn from
    a range, so that two computers that know the same do not give the same one, though they send at
    one instant: a report tells by the counter whose command the board obeyed.
    """
    with locked():
        fresh = [load(record.group, record.device) for record in records]
        last = max([above, *(record.count for record in fresh)])
        now = counters.now()
        # Little while it is hardly ahead, or one command after the other would drive it away.
        spread = SPREAD_MS if above or last > now + SPREAD_MS else NEAR_MS
        count = max(last + 1, now - NEAR_MS) + secrets.randbelow(spread)
        if count >= MOST_COUNT:
            worst = max(fresh, key=lambda record: record.count)
            raise BoardError(f"The counter of {worst.device} is at its end ({worst.count}), no "
                             f"command can follow: `umqtt-board keys revoke --device "
                             f"{worst.device} --group {worst.group}` and a flash begin anew.")
        for record in fresh:
            record.count = count
            save(record)
    return count
