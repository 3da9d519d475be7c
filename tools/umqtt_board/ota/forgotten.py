"""Boards that were forgotten: which ones, and which keys are void with them for ever.

The file `forgotten` beside the boards' keys has a line for each board that was forgotten and not
flashed since, GROUP/DEVICE, and one for each key that such a board had, and for the key of its
readings that is made of that: GROUP/DEVICE FINGERPRINT, with "-" where this computer had none. The
second kind stays when the board is flashed again: then it has another key, and whoever has stolen
the first does not come back with an old copy.
Must not know how a copy is made.
"""

import re

from umqtt_board.ota import keys

_FILE = "forgotten"
_NONE = "-"
_PRINT = re.compile("[0-9a-f]{16}|-")


def names():
    """GROUP/DEVICE of boards that were forgotten and not flashed since, a set."""
    return {line for line in _lines() if " " not in line}


def void():
    """The lines GROUP/DEVICE FINGERPRINT of keys that are void for ever, a set."""
    return {line for line in _lines() if " " in line}


def line(name, key):
    """What void() has of a key, hexadecimal, of the board GROUP/DEVICE."""
    return f"{name} {keys.fingerprint(key, name)}"


def is_void(name, key):
    """Whether that key of the board GROUP/DEVICE, or of its readings, was forgotten with it."""
    return line(name, key) in void()


def is_known(name):
    """Whether the board GROUP/DEVICE was ever forgotten here, or in a copy that came here."""
    return any(one.split()[0] == name for one in _lines())


def is_line(text):
    """Whether a text is one that void() may have."""
    name, _, rest = text.partition(" ")
    return bool(_PRINT.fullmatch(rest)) and keys.is_name(name)


def forget(group, device):
    """Remove the key of a board that is gone for good, if there is one; its name stays among the
    forgotten ones. BoardError for what is no name, and for a key that cannot be read."""
    record = keys.find(group, device)
    name = f"{group}/{device}"
    with keys.locked():
        known = record.every_key if record else []
        add({name}, {each for key in known for each in _made_of(name, key)})
        if record:
            keys.remove(record)


def _made_of(name, key):
    """The lines of void() of a key, and of that of readings which is made of it."""
    return line(name, key), line(name, keys.readings_key(key))


def add(more, lines=()):
    """Boards GROUP/DEVICE are forgotten, and keys void as void() has them; sets. The keys are to
    be locked()."""
    there = _lines()
    found = there | set(more) | set(lines)
    found |= {f"{name} {_NONE}" for name in more
              if not any(one.startswith(f"{name} ") for one in found)}  # fmt: skip
    _write(there, found)


def flashed(name):
    """The board GROUP/DEVICE has a key again. The keys are to be locked()."""
    _write(_lines(), _lines() - {name})


def revived(name, key):
    """As flashed(), with a key that is not void any more."""
    _write(_lines(), _lines() - {name, *_made_of(name, key)})


def _lines():
    return keys.read_names(keys.root() / _FILE, "boards that were forgotten",
                           "then forget again what was forgotten since")  # fmt: skip


def _write(there, found):
    if there != found:
        keys.write_names(keys.root() / _FILE, found)
