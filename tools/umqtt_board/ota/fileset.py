"""A set of files as an update sends it; the form is described in firmware/ota.py.

Knows index, pieces and the numbers of the signed command. It must not know boards, keys or MQTT.
"""

import ast
import hashlib
import posixpath

from umqtt_board.errors import BoardError
from umqtt_board.flash.build import build, mpy_version
from umqtt_board.ota.needed import Sources, modules
from umqtt_board.paths import FIRMWARE, LIBRARY

CHAIN = 16  # bytes of the next piece's hash in each piece
HEAD = 8  # id and offset before the bytes of the set
PIECE = 384  # bytes of one piece, as firmware/ota.py takes them
BLOCK = 4096


def constant(path, name):
    """Return the literal that a module assigns to a name, without running it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise BoardError(f"{path} has no {name}: the project is incomplete.")


class Set:
    """One set: `files` (path in the set -> bytes), `id`, `run` (all its bytes), `pieces`.

    files    dict
    version  text shown in the status of a board
    """

    def __init__(self, files, version):
        if not files or not all(files.values()):
            raise BoardError("A set of files to send has none, or an empty one in it.")
        self.files = dict(sorted(files.items()))
        self.version = version
        rows = [f"{len(data)} {hashlib.sha256(data).hexdigest()} {path}\n"
                for path, data in self.files.items()]  # fmt: skip
        index = "".join(rows).encode()
        self.index = len(index)
        self.run = index + b"".join(self.files.values())
        self.sha = hashlib.sha256(self.run).hexdigest()
        self.id = self.sha[:8]
        self.step = PIECE - HEAD - CHAIN
        self.pieces = self._cut()

    def _cut(self):
        following = bytes(CHAIN)
        pieces = {}
        for at in reversed(range(0, len(self.run), self.step)):
            piece = bytes.fromhex(self.id) + at.to_bytes(4, "big")
            piece += self.run[at : at + self.step] + following
            following = hashlib.sha256(piece).digest()[:CHAIN]
            pieces[at] = piece
        self.chain = following.hex()
        return pieces

    @property
    def need(self):
        """Bytes of flash that it takes: whole blocks, and two for each folder."""
        blocks = sum(-(-len(data) // BLOCK) for data in self.files.values())
        folders = {posixpath.dirname(path) for path in self.files} | {""}
        parents = {posixpath.dirname(folder) for folder in folders}
        return BLOCK * (blocks + -(-self.index // BLOCK) + 2 * len(folders | parents))

    def command(self, boots, seconds):
        """The body of the signed command, but for its counter.

        boots    starts within which the set must show that it is healthy, 1..100
        seconds  time that each of them has, 1..86400
        """
        return {
            "sha": self.sha, "chain": self.chain, "version": self.version, "size": len(self.run),
            "index": self.index, "piece": PIECE, "need": self.need, "mpy": mpy_version()[0],
            "loader": constant(FIRMWARE / "loader.py", "VERSION"), "boots": boots,
            "seconds": seconds,
        }  # fmt: skip


def of_project(library=LIBRARY, firmware=FIRMWARE):
    """The set of the project's firmware and what it imports of the library.

    Without what decides over sets, and without what only other programs use, such as
    umqtt_min.aio: flash has room for two sets, not for what nobody imports.
    """
    fixed = set(constant(firmware / "loader.py", "FIXED")) | {"boot", "main"}
    library_files = modules(library, "umqtt_min.")
    sources = Sources(modules(firmware) | library_files)
    roots = [name for name in sources.files if name not in library_files]
    kept = {_on_board(name, sources.files[name], library_files)
            for name in sources.needed(roots) - fixed}  # fmt: skip
    files = {item.path[1:]: item.data for item in build(library, firmware)
             if item.path[1:] in kept}  # fmt: skip
    return Set(files, constant(library / "__init__.py", "__version__"))


def _on_board(name, source, library_files):
    # The path in a set of the module with that dotted name.
    folder = "lib/" if name in library_files else ""
    face = "/__init__" if source.name == "__init__.py" else ""
    return f"{folder}{name.replace('.', '/')}{face}.mpy"
