"""A set as an update sends it, made from the descriptions in firmware/setfs.py and ota.py.

Knows the form of index and pieces. Must not know the code of either side: both are tested by it.
"""

import hashlib
import os
from binascii import hexlify

CHAIN = 16


def hexsha(data):
    return hexlify(hashlib.sha256(data).digest()).decode()


class Set:
    """files: dict path -> bytes as they lie in it, see stored(); piece: bytes of one piece; more:
    changes to the command."""

    def __init__(self, files, piece=120, **more):
        names = sorted(files)
        index, at = "", 0
        for name in names:
            index += "%s %d\n" % (name, at)
            at += len(files[name])
        index = index.encode()
        self.files = files
        self.run = index + b"".join([files[name] for name in names])
        self.pieces = self._cut(piece - 8 - CHAIN)
        self.body = {
            "sha": hexsha(self.run), "chain": hexlify(self._first).decode(), "version": "9.9",
            "size": len(self.run), "index": len(index), "piece": piece, "need": 0, "mpy": 6,
            "loader": 2, "boots": 3, "seconds": 600,
        }  # fmt: skip
        self.body.update(more)
        self.id = self.body["sha"][:8]

    def _cut(self, size):
        # From the end: each carries the hash of the next.
        self._first = bytes(CHAIN)
        head = hashlib.sha256(self.run).digest()[:4]
        pieces = []
        for at in reversed(range(0, len(self.run), size)):
            piece = head + at.to_bytes(4, "big") + self.run[at : at + size] + self._first
            self._first = hashlib.sha256(piece).digest()[:CHAIN]
            pieces.insert(0, piece)
        return pieces

    def lies_in(self, path):
        """Whether that file is this set, and nothing but it."""
        try:
            with open(path, "rb") as file:
                return file.read() == self.run
        except OSError:
            return False


def stored(data):
    """A file of at most 65535 bytes as it lies in a set: RFC 1951, not compressed."""
    size = len(data)
    return b"\x01" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + data


def plain(data):
    """What stored() was given."""
    return data[5:]


def remove_all(folder):
    """Remove a folder with the files in it; nothing when it is not there."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        os.remove(folder + "/" + name)
    os.rmdir(folder)


def files(seed, sizes):
    """Made-up files of the given sizes, some of them in folders; the first is app.mpy."""
    out = {}
    for i in range(len(sizes)):
        letter = chr(97 + i) if i else "app"
        name = ("%s.mpy", "sensors/%s.mpy", "umqtt_min/%s.mpy")[i % 3] % letter
        content = bytearray(sizes[i])
        for k in range(sizes[i]):
            content[k] = (seed * 31 + i * 7 + k * k) & 255
        out[name] = stored(bytes(content))
    return out
