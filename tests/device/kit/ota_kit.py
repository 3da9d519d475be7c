"""A set as an update sends it, made from the descriptions in firmware/setfs.py and ota.py.

Knows the form of index and pieces. Must not know the code of either side: both are tested by it.
"""

import hashlib
import os
from binascii import hexlify, unhexlify

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
        self._piece = piece
        self.body = {
            "sha": hexsha(self.run), "version": "9.9", "index": len(index), "piece": piece,
            "need": 0, "mpy": 6, "loader": 2, "boots": 3, "seconds": 600,
        }  # fmt: skip
        self.seal(b"")
        self.body.update(more)
        self.id = self.body["sha"][:8]

    def seal(self, envelope):
        """Have these bytes go ahead of it; see firmware/release.py."""
        self.envelope = envelope
        self.pieces = self._cut(self._piece - 8 - CHAIN)
        self.body["chain"] = hexlify(self._first).decode()
        self.body["size"] = len(envelope) + len(self.run)
        self.body["signed"] = len(envelope)

    def _cut(self, size):
        # From the end: each carries the hash of the next, and none has bytes of both parts.
        run, first = self.envelope + self.run, len(self.envelope)
        starts = list(range(0, first, size))
        self.head = len(starts)  # so many pieces are the envelope
        starts += list(range(first, len(run), size))
        self._first = bytes(CHAIN)
        head = unhexlify(self.body["sha"][:8])
        pieces, end = [], len(run)
        for at in reversed(starts):
            piece = head + at.to_bytes(4, "big") + run[at:end] + self._first
            self._first = hashlib.sha256(piece).digest()[:CHAIN]
            pieces.insert(0, piece)
            end = at
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
