"""All keys of this computer at a time: locked, unlocked, copied into one file and back.

Knows where the keys of boards and of authorities lie. Must not know the terminal.
"""

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, field

from umqtt_board import private
from umqtt_board.errors import BoardError, reason
from umqtt_board.lock import lock as locks
from umqtt_board.ota import counters, forgotten, keys

_FORM = 2
_REVOKED = "revoked"  # beside the authorities: sums of those that are gone
_AUTHORITY = re.compile(r"(fleet-[0-9]{1,6}|broker-ca)(-key)?\.pem")


def lock(word):
    """Lock what is not locked; returns how many keys of boards and of authorities are locked now.
    word: the passphrase of a lock that is not there yet."""
    with keys.locked():
        found = locks.of(keys.home())
        if not found:
            keys.every()  # NoLock for those that a lost lock has sealed: a second one opens none
            found = locks.put(keys.home(), locks.Lock.new(), word)
        return _rewrite(found, "", found.word)


def unlock():
    """Take the lock away: the keys are in clear, in files that their owner alone can read.
    Returns how many there are of boards and of authorities."""
    with keys.locked():
        found = locks.of(keys.home())
        counts = _rewrite(None, found.word if found else "", "")
        locks.path(keys.home()).unlink(missing_ok=True)  # last: what is left sealed needs it
    return counts


def _rewrite(lock, before, after):
    records, files = keys.every(), _authority_files("-key")
    # All are read before the first is written: one that is damaged stops nothing half way.
    relocked = [(path, _relocked(path, path.read_bytes(), before, after)) for path in files]
    for record in records:
        keys.put(record, lock)
    for path, data in relocked:
        private.replace(path, data)
    return len(records), len(files)


def _authority_files(end=""):
    return sorted(path for path in keys.authorities_folder().glob(f"*{end}.pem")
                  if _AUTHORITY.fullmatch(path.name))  # fmt: skip


def _relocked(path, data, before, after):
    from umqtt_board.identity.authority import relocked

    try:
        return relocked(data, before, after)
    except (ValueError, TypeError):
        raise BoardError(f"{path} is damaged, or locked with a passphrase that is not that of the "
                         "keys here. Nothing was changed. Bring it back from your copy "
                         "(`umqtt-board keys import`). Without a copy remove it and "
                         f"{path.name.replace('-key', '')}, and let `umqtt-board identity` write "
                         "into a new folder: then all certificates are made "
                         "anew.")  # fmt: skip


def export(path, word):
    """Write all keys into one file, which a passphrase opens; returns how many boards it holds,
    and whether it holds authorities.

    word  function() that returns the passphrase for a computer whose keys have no lock; "" leaves
          the file open. Where they have one, it opens the file, too.
    """
    older = _older_copy(path)
    with keys.locked():
        there = locks.of(keys.home())
        records = keys.every()
        files = {file: file.read_bytes() for file in _authority_files()}
    if not records and not files:
        raise BoardError("This computer has no keys to export.")
    lost = sorted(older - {record.name for record in records} - forgotten.names())
    if lost:
        raise BoardError(f"{path} is a copy with boards that this computer has no key of: "
                         f"{', '.join(lost[:5])}. It stays as it is: give another name, or import "
                         "it first.")  # fmt: skip
    lock, data = there, b""
    if there:
        data = locks.path(keys.home()).read_bytes()
    elif chosen := word():
        lock = locks.Lock.new()
        data = lock.pem(chosen)
    before, after = there.word if there else "", lock.word if lock else ""
    said = {
        "umqtt_keys": _FORM, "lock": data.decode(),
        "boards": [keys.packed(record, lock) for record in records],
        "authorities": {
            path.name: (_relocked(path, held, before, after) if "-key" in path.name else held)
            .decode() for path, held in files.items()},
        "revoked": sorted(_revoked()), "forgotten": sorted(forgotten.names()),
        "void": sorted(forgotten.void()),
    }  # fmt: skip
    if lock:
        said["code"] = _code(lock, said)
    with keys.locked():  # two at once have one name for what lies aside
        private.replace(path, json.dumps(said, indent=1).encode() + b"\n")
    return len(records), bool(files)


def _older_copy(path):
    """GROUP/DEVICE of the boards in a copy that is there, a set. BoardError for another file: only
    a copy is written over."""
    if not path.is_file() or not path.stat().st_size:
        return set()
    try:
        said = json.loads(path.read_bytes())
        if "umqtt_keys" in said:
            return {"{group}/{device}".format(**board) for board in said.get("boards", ())}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise private.other_than(path, "copy of keys")


def _code(lock, said):
    """Covers what is not sealed: where a board's broker is, its counter, certificates."""
    rest = {key: value for key, value in said.items() if key != "code"}
    return lock.code(json.dumps(rest, sort_keys=True).encode())


@dataclass
class Came:
    """What an import has done: names of what is new here, was here, and is here another one; of
    boards whose key is the file's now, and those that this computer has flashed later than the
    other one; of authorities that were revoked here, boards that were forgotten here; of
    authorities that were here and the other computer has revoked; of boards that it has forgotten:
    lost are those whose key it had, kept those that have another key here; of boards whose
    counter in the file is months ahead of this computer's clock, and was not taken; of boards of
    which the other computer has given up keys of readings that counted here. opens: what
    opens the keys here from now on, in words, where they got their lock; "" elsewhere."""

    new: list = field(default_factory=list)
    same: list = field(default_factory=list)
    newer: list = field(default_factory=list)
    older: list = field(default_factory=list)
    other: list = field(default_factory=list)
    revoked: list = field(default_factory=list)
    forgotten: list = field(default_factory=list)
    gone: list = field(default_factory=list)
    lost: list = field(default_factory=list)
    kept: list = field(default_factory=list)
    ahead: list = field(default_factory=list)
    spent: list = field(default_factory=list)
    opens: str = ""


def bring(path, passphrase, confirm, replace=False):
    """Take the keys of an exported file; returns Came. A key that is here another one stays,
    unless the other computer has flashed the board later and the file has a passphrase.

    passphrase  function() that returns that of the file
    confirm     function(text): whether to take an open file where the keys have a lock, and to
                put the file's lock in the place of one that does not open
    replace     take the file's key, too, where it is not known to be the later one, or where this
                computer has forgotten the board
    A computer without a key locks the keys as the environment says; where it says nothing, the
    file's lock comes along.
    """
    if not path.is_file():
        raise BoardError(f"{path} is not there, or is no file.")
    try:
        said = json.loads(path.read_bytes())
        lock = _lock_of(path, said, passphrase)
        records, files = _content(said, lock)
    except OSError as error:
        raise BoardError(f"{path} cannot be read: {error.strerror}.")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BoardError(f"{path} is no file of `umqtt-board keys export` ({reason(error)}).")
    if not lock and locks.path(keys.home()).exists():
        text = f"{path} has no passphrase, as the keys here have: anybody may have changed it"
        if not confirm(text):
            raise BoardError(f"Nothing was taken. {text}. --yes takes it.")
    with keys.locked():
        came = Came()
        here = _lock_here(path, lock, said["lock"].encode(), confirm, came)
        came.gone = _bring_revoked(said)
        _bring_forgotten(said, here, came)
        for record in records:
            if counters.ahead(max(record.count, record.given)):
                # One counter must not keep all other keys from a new computer, nor be believed.
                came.ahead.append(record.name)
                if counters.ahead(record.given):
                    record.given = 0
                # The time of its flash still says which of two keys the board has.
                record.count = max(counters.now(), record.given)
            # Anybody may have written an open one.
            _bring_board(record, here, came, replace, bool(lock))
        _bring_authorities(path, files, lock, here, came)
    return came


def _lock_here(copy, lock, data, confirm, came):
    """The Lock of the keys here, None for none. lock: that of the copy, in the bytes `data`, which
    takes the place of one that is lost or does not open, if it has sealed the keys here."""
    path = locks.path(keys.home())
    if not path.exists():
        if not keys.in_use() and (word := locks.PASSPHRASE.given()) is not None:
            if not word:
                return None
            came.opens = f"the passphrase in {locks.PASSPHRASE.source}"
            return locks.put(keys.home(), lock or locks.Lock.new(), locks.PASSPHRASE.new())
        if lock and (not keys.in_use() or _sealed_with(lock)):
            came.opens = f"the passphrase of {copy}"
            private.replace(path, data)
        return locks.of(keys.home())
    try:
        return locks.of(keys.home())
    except locks.Closed as error:
        if not lock or not _sealed_with(lock):
            raise
        text = (f"{path} does not open. The copy's takes its place, and the copy's passphrase "
                "opens the keys from then on")  # fmt: skip
        if not confirm(text):
            raise BoardError(f"Nothing was taken. {error} --yes puts the copy's in its place.")
    private.replace(path, data)
    return lock


def _sealed_with(lock):
    """Whether the keys here, whose lock is not there, are sealed with that one."""
    from umqtt_board.lock import pem

    for path in keys.files():
        try:
            data = json.loads(path.read_bytes())
            if "sealed" in data:
                return bool(keys.unpacked(data, lambda: lock))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    for path in _authority_files("-key"):
        data = path.read_bytes()
        try:
            if b"ENCRYPTED" in data:
                return bool(pem.read(data, lambda: lock.word))
        except (ValueError, TypeError):
            continue
    return False


def _lock_of(path, said, passphrase):
    """The Lock of an exported file, None for an open one; ValueError for what was changed."""
    if said["umqtt_keys"] != _FORM:
        raise ValueError("it is of another version")
    data = said["lock"].encode()
    lock = locks.opened(data, passphrase, path) if data else None
    if lock and not hmac.compare_digest(_code(lock, said), said["code"]):
        raise ValueError("it was changed after it was written")
    return lock


def _content(said, lock):
    """(Records of boards, {name: bytes} of authorities) in an exported file; ValueError."""
    records = [keys.unpacked(each, lambda: lock) for each in said["boards"]]
    files = {name: text.encode() for name, text in said["authorities"].items()}
    for name, right in (("revoked", str.isalnum), ("forgotten", keys.is_name),
                        ("void", forgotten.is_line)):  # fmt: skip
        gone = said.get(name, [])
        if not isinstance(gone, list) or not all(isinstance(one, str) and right(one)
                                                 for one in gone):  # fmt: skip
            raise ValueError("its list of what is gone is none")
    if any(not _AUTHORITY.fullmatch(name) for name in files):
        raise ValueError("it has a file that is no authority's")
    _check_authorities(files, lock)
    return records, files


def _check_authorities(files, lock):
    if not files:
        return  # a computer without the package cryptography can have the rest
    from umqtt_board.identity.authority import sound

    for name, data in files.items():
        key = files.get(name.replace(".pem", "-key.pem"))
        if "-key" not in name and not sound(data, key, lock.word if lock else ""):
            raise ValueError(f"{name} in it, or the key of that, is damaged")


def _bring_forgotten(said, here, came):
    """Take over what the other computer has forgotten: the keys that it had of such a board are
    void here, too."""
    names = set(said.get("forgotten", ()))
    forgotten.add(set(), said.get("void", ()))
    for record in keys.every():
        if forgotten.is_void(record.name, record.key):
            keys.remove(record)
            came.lost.append(record.name)
            continue
        if record.name in names:
            came.kept.append(record.name)
        if _without_void(record):
            keys.put(record, here)
    forgotten.add(names - set(came.kept))


def _without_void(record):
    """Take void keys out of what a Record remembers; returns whether there were any."""
    before = record.former, record.others
    record.former, record.others = (
        [key for key in held if not forgotten.is_void(record.name, key)] for held in before)
    return (record.former, record.others) != before


def _bring_revoked(said):
    """Take over what the other computer has revoked. Returns names of authorities that were here
    and are revoked now: whoever has stolen one could use it as long as it signs."""
    revoked = _revoked() | set(said.get("revoked", ()))
    if revoked != _revoked():
        keys.authorities_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_revoked(revoked)
    gone = []
    for path in _authority_files():
        if "-key" not in path.name and _sum(path.read_bytes()) in revoked:
            path.unlink()
            path.with_name(f"{path.stem}-key.pem").unlink(missing_ok=True)
            gone.append(path.name)
    return gone


def _bring_board(record, here, came, replace, believed):
    """believed: whether what the file says of its keys and their times proves anything."""
    name = record.name
    found = keys.find(record.group, record.device)
    gone = forgotten.is_void(name, record.key)
    _without_void(record)
    if not replace and (gone or found is None and name in forgotten.names()):
        came.forgotten.append(name)
        return
    if found and {*record.spent} - {*found.spent}:
        came.spent.append(name)
    if found is None or found.key != record.key and (
            replace or believed and record.after(found) and not found.fresh):  # fmt: skip
        if found:
            record.remember(found.key, *found.former)
            record.heard(*found.others)
            if not counters.ahead(found.count):  # that of another key, which goes with it
                record.count = max(found.count, record.count)
            record.spent = sorted({*record.spent, *found.spent})
        record.regain(record.key)
        forgotten.revived(name, record.key)
        (came.newer if found else came.new).append(name)
        keys.put(record, here)
    elif found.key != record.key:
        (came.older if found.after(record) else came.other).append(name)
        # The board may hold readings that it has signed with them, or have them now.
        found.heard(*record.every_key)
        found.spent = sorted({*found.spent, *record.spent})
        keys.put(found, here)
    else:
        came.same.append(name)
        found.count = max(found.count, record.count)
        found.given = max(found.given, record.given)
        found.revoked = found.revoked or record.revoked
        found.former = found.former or record.former
        found.heard(*record.others)
        found.spent = sorted({*found.spent, *record.spent})
        keys.put(found, here)


def _bring_authorities(path, files, lock, here, came):
    from umqtt_board.identity.authority import relocked, sound

    folder = keys.authorities_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    before, after = lock.word if lock else "", here.word if here else ""
    for name in sorted(name for name in files if "-key" not in name):
        key = name.replace(".pem", "-key.pem")
        if _sum(files[name]) in _revoked():
            came.revoked.append(name)
            continue
        there, its_key = _bytes(folder / name), _bytes(folder / key)
        if there == files[name]:
            if sound(there, its_key or b"", after):
                came.same.append(name)
                continue
        elif sound(there, None, after):  # with its key or without, clients may trust it
            came.other.append(name)
            continue
        if key not in files:
            raise BoardError(f"{path} has no key of {name}.")
        private.replace(folder / key, relocked(files[key], before, after))
        private.replace(folder / name, files[name])  # last: it says that all is there
        came.new.append(name)


def _bytes(path):
    return path.read_bytes() if path.exists() else b""


def _sum(certificate):
    return hashlib.sha256(certificate).hexdigest()


def is_revoked(certificate):
    """Whether the authority of that certificate, PEM, was revoked here."""
    return _sum(certificate) in _revoked()


def _revoked():
    """SHA-256 of the certificates of authorities that were revoked here, hexadecimal."""
    then = ("if any were revoked since, `umqtt-board keys revoke --authorities` ends all that are "
            "here")  # fmt: skip
    return keys.read_names(_revoked_path(), "authorities that were revoked", then)


def _write_revoked(sums):
    keys.write_names(_revoked_path(), sums)


def _revoked_path():
    return keys.authorities_folder() / _REVOKED


def revoke_authorities():
    """Remove the authorities, so that others are made; returns their names. A copy brings none of
    them back."""
    files = _authority_files()
    gone = {_sum(path.read_bytes()) for path in files if "-key" not in path.name}
    if gone:
        _write_revoked(gone | _revoked())
    for path in sorted(files, key=lambda path: "-key" in path.name):
        path.unlink()  # certificates first: a key without one is no authority
    return [path.stem for path in files if "-key" not in path.name]
