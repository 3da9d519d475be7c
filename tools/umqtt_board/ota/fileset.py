"""A set as an update sends it; its form is in firmware/setfs.py, that of the pieces in ota.py.

Knows index, pieces and the numbers of the signed command. It must not know boards, keys or MQTT.
"""

import ast
import hashlib
import zlib

from umqtt_board.errors import BoardError
from umqtt_board.flash.build import build, mpy_version
from umqtt_board.ota.needed import Sources, modules
from umqtt_board.paths import FIRMWARE, LIBRARY

CHAIN = 16  # bytes of the next piece's hash in each piece
HEAD = 8  # id and offset before the bytes of the set
PIECE = 384  # bytes of one piece, as firmware/ota.py takes them
BLOCK = 4096
MOST = 1 << 22  # bytes of all files that are taken from a run


def constant(path, name):
    """Return the literal that a module assigns to a name, without running it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise BoardError(f"{path} has no {name}: the project is incomplete.")


def deflated(data):
    """Return a file as it lies in a set: compressed, with the window that the board takes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -constant(FIRMWARE / "setfs.py", "WBITS"))
    return packer.compress(data) + packer.flush()


def _packed(files):
    """(index, run) of a set with these files."""
    index = data = b""
    for path, content in files.items():
        index += f"{path} {len(data)}\n".encode()
        data += deflated(content)
    return len(index), index + data


class Set:
    """One set: `files` (path in the set -> bytes), `id`, `run` (all its bytes), `pieces`.

    files    dict, not yet compressed
    version  text shown in the status of a board
    packed   (length of the index, run, .mpy version, version of the loader) of a set that was
             packed elsewhere; None: as this computer does it
    """

    def __init__(self, files, version, packed=None):
        if not files or not all(files.values()):
            raise BoardError("A set of files to send has none, or an empty one in it.")
        self.files = dict(sorted(files.items()))
        self.version = version
        self.index, self.run, self.mpy, self.loader = packed or (
            *_packed(self.files), mpy_version()[0], constant(FIRMWARE / "loader.py", "VERSION")
        )  # fmt: skip
        self.sha = hashlib.sha256(self.run).hexdigest()
        self.id = self.sha[:8]
        self.seal(b"")

    @classmethod
    def of_run(cls, version, index, run, mpy, loader):
        """The set in a run of bytes; see the class. Raises ValueError, TypeError and zlib.error
        for what is none."""
        files = {}
        wbits = -constant(FIRMWARE / "setfs.py", "WBITS")
        for line in run[:index].decode().splitlines():
            path, _, offset = line.rpartition(" ")
            start = index + int(offset)
            files[path] = zlib.decompressobj(wbits).decompress(run[start:], MOST)
            if sum(map(len, files.values())) > MOST:
                raise ValueError(f"more than {MOST} bytes of files")
        if not files or not all(files.values()):
            raise ValueError("it has no files, or an empty one")
        return cls(files, version, (index, run, mpy, loader))

    def seal(self, envelope):
        """Have these bytes go ahead of it (firmware/release.py); b"" for a set without."""
        self.envelope = envelope
        self.pieces = self._cut()

    @property
    def size(self):
        """Bytes that a board has to receive."""
        return len(self.envelope) + len(self.run)

    def _cut(self):
        # No piece has bytes of both: a board looks at the envelope before it takes more.
        step, first = PIECE - HEAD - CHAIN, len(self.envelope)
        run = self.envelope + self.run
        starts = [*range(0, first, step), *range(first, len(run), step)]
        following = bytes(CHAIN)
        pieces = {}
        for at, end in reversed([*zip(starts, [*starts[1:], len(run)])]):
            piece = bytes.fromhex(self.id) + at.to_bytes(4, "big") + run[at:end] + following
            following = hashlib.sha256(piece).digest()[:CHAIN]
            pieces[at] = piece
        self.chain = following.hex()
        return pieces

    def window(self, have, count):
        """Where the pieces end that may be on their way to a board which has `have` bytes: `count`
        pieces further, and not beyond the envelope before it has that."""
        end = min(self.size, have + count * (PIECE - HEAD - CHAIN))
        return min(end, len(self.envelope)) if have < len(self.envelope) else end

    @property
    def need(self):
        """Bytes of flash that it takes: whole blocks of littlefs."""
        blocks, room = 0, 0
        while room < len(self.run):
            # SPEC.md of littlefs: block n of a file begins with one pointer more than the times
            # that 2 divides n; the first has none.
            room += BLOCK - 4 * ((blocks & -blocks).bit_length())
            blocks += 1
        return BLOCK * blocks

    def command(self, boots, seconds):
        """The body of the signed command, but for its counter.

        boots    starts within which the set must show that it is healthy, 1..100
        seconds  time that each of them has, 1..86400
        """
        return {
            "sha": self.sha, "chain": self.chain, "version": self.version, "size": self.size,
            "index": self.index, "piece": PIECE, "need": self.need, "mpy": self.mpy,
            "loader": self.loader, "boots": boots,
            "seconds": seconds, "signed": len(self.envelope),
        }  # fmt: skip


def of_project(library=LIBRARY, firmware=FIRMWARE):
    """The set of the project's firmware and what it imports of the library.

    The library's modules lie beside the firmware's in it: `import` looks into one folder less.
    Left out are what decides over sets, and what only other programs use, such as umqtt_min.aio.
    """
    fixed = set(constant(firmware / "loader.py", "FIXED")) | {"boot", "main"}
    library_files = modules(library, "umqtt_min.")
    sources = Sources(modules(firmware) | library_files)
    roots = [name for name in sources.files if name not in library_files]
    kept = {_path(name, sources.files[name]) for name in sources.needed(roots) - fixed}
    files = {item.path[1:].removeprefix("lib/"): item.data for item in build(library, firmware)}
    return Set({path: data for path, data in files.items() if path in kept},
               constant(library / "__init__.py", "__version__"))  # fmt: skip


def _path(name, source):
    # The path in a set of the module with that dotted name.
    return name.replace(".", "/") + ("/__init__" if source.name == "__init__.py" else "") + ".mpy"
