"""What lies on a board: the names that a flash has for it, the content and kind of each path.

Knows how to ask. It must not change anything on the board.
"""

MAIN = "/main.py"
OFF = "/main.py.off"
BOOT = "/boot.py"
BOOT_OFF = "/boot.py.off"
#: Is there while new files are put in force, and after a cut then: old and new ones are together.
MIXED = "/flash.half"
#: The names that a flash has given to somebody's own files, until it has said so.
KEPT = "/flash.kept"
RECORD = "/installed.json"  # what we put on the board, so that an update can take it away again
SHORT = 16  # letters of a digest in it
OURS = "/lib/umqtt_min"  # a folder in which nobody else keeps files
UPDATES = "/sets"  # which set from over the air is in force: none is after a flash
FOLDER = 0x4000  # what kinds() says of one

_HASH = """
import os, hashlib, binascii
def _hash(path):
    s = hashlib.sha256()
    b = bytearray(512)
    try:
        with open(path, "rb") as f:
            n = f.readinto(b)
            while n:
                s.update(memoryview(b)[:n])
                n = f.readinto(b)
    except OSError:
        return None
    return binascii.hexlify(s.digest()).decode()
"""
_KINDS = """
import os
def _kind(path):
    try:
        return os.stat(path)[0] & 0xf000
    except OSError:
        return 0
"""


def hashes(device, paths):
    """Return {path: hexadecimal SHA-256 or None} for files on the board."""
    return _of_each(device, _HASH, "_hash", {str, None}, paths)


def kinds(device, paths):
    """{path: 0 if nothing is there, FOLDER, or another number}"""
    return _of_each(device, _KINDS, "_kind", int, paths)


def _of_each(device, program, function, shape, paths):
    """{path: what a function of a program says of it on the board}. shape: of each answer, as
    Device.value() has it."""
    result, paths = {}, list(paths)
    device.run(program)
    for start in range(0, len(paths), 20):  # a program of bounded size
        part = paths[start : start + 20]
        found = device.value(f"_say(tuple({function}(p) for p in {part!r}))",
                             (shape,) * len(part))  # fmt: skip
        result.update(zip(part, found))
    return result
