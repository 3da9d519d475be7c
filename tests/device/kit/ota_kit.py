"""A set of files as an update sends it, made from the description in firmware/ota.py.

Knows the form of index and pieces. Must not know the code of either side: both are tested by it.
"""

import hashlib
from binascii import hexlify

CHAIN = 16


def hexsha(data):
    return hexlify(hashlib.sha256(data).digest()).decode()


class Set:
    """files: dict path -> bytes; piece: bytes of one piece; more: changes to the command."""

    def __init__(self, files, piece=120, **more):
        names = sorted(files)
        rows = ["%d %s %s\n" % (len(files[name]), hexsha(files[name]), name) for name in names]
        index = "".join(rows).encode()
        self.files = files
        self.run = index + b"".join([files[name] for name in names])
        self.pieces = self._cut(piece - 8 - CHAIN)
        self.body = {
            "sha": hexsha(self.run), "chain": hexlify(self._first).decode(), "version": "9.9",
            "size": len(self.run), "index": len(index), "piece": piece, "need": 0, "mpy": 6,
            "loader": 1, "boots": 3, "seconds": 600,
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

    def lies_in(self, folder):
        """Whether all files are in the folder as they should be."""
        for name in self.files:
            try:
                with open(folder + "/" + name, "rb") as file:
                    if file.read() != self.files[name]:
                        return False
            except OSError:
                return False
        return True


def files(seed, sizes):
    """Made-up files of the given sizes, some of them in folders."""
    out = {}
    for i in range(len(sizes)):
        name = ("%s.mpy", "lib/%s.mpy", "lib/umqtt_min/%s.mpy")[i % 3] % chr(97 + i)
        content = bytearray(sizes[i])
        for k in range(sizes[i]):
            content[k] = (seed * 31 + i * 7 + k * k) & 255
        out[name] = bytes(content)
    return out
