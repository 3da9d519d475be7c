"""A capture that comes in pieces, from a pipe for instance: its frames as soon as they are whole.

Knows: formats of captures, gzip. Must not know: frames' content, where the pieces come from.
"""

import numpy as np

from ..compiled.layout import FRAME, PROBLEM
from . import records
from .files import HEAD, LISTED, MAX_INTERFACES, kind, torn
from .sizes import GZIP
from .unpacking import Unpacking

PIECE = 1 << 14  #: frames handed on at once
WAITING = 32 << 20  #: bytes in which no frame begins that are kept to find one
UNPACKED = 1 << 20  #: bytes of what is packed that are looked through at once


class Incoming:
    """One capture. `problems`: rows of layout.PROBLEM, the damage found since they were asked.

    at_once: hand on a frame before it is known whether the next one is sound, for who follows what
    happens now; else the frames are those of files.Capture."""

    def __init__(self, name, at_once=False):
        self.name, self._waits = name, not at_once
        self._state, self._rest, self._at = None, b"", 0
        self._unpacking, self._known = None, False
        self._problems = np.zeros(LISTED, PROBLEM)

    def take(self, raw):
        """The next bytes: yields (bytes as an array, number of the first frame, frames that lie in
        them). Raises NotACapture."""
        if not self._known and len(self._rest) + len(raw) >= len(GZIP):
            raw, self._rest, self._known = self._rest + raw, b"", True
            self._unpacking = Unpacking() if raw.startswith(GZIP) else None
        if not self._unpacking:
            yield from self._plain(raw)
            return
        yield from self._joined(self._unpacking.take(raw))

    def _joined(self, pieces):
        found, size = [], 0
        for made in pieces:
            found.append(made)
            size += len(made)
            if size >= UNPACKED:
                yield from self._plain(b"".join(found))
                found, size = [], 0
        yield from self._plain(b"".join(found))

    def _plain(self, raw):
        self._rest += raw
        if self._state is None and len(self._rest) >= HEAD:
            self._begin()
        if self._state is not None:
            yield from self._whole(self._end())

    def end(self):
        """There are no more bytes: yields as take() does. Raises NotACapture."""
        if self._unpacking:
            yield from self._joined(self._unpacking.end())
        if self._state is None:
            if self.wrong:
                raise torn(self.name, self._unpacking)
            self._begin()
        yield from self._whole(len(self._rest))

    @property
    def at(self):
        """Where in the capture, unpacked, the bytes begin that are handed on now."""
        return self._at

    @property
    def wrong(self):
        """What is wrong with the packing, in words, or None."""
        return self._unpacking.wrong if self._unpacking else None

    @property
    def problems(self):
        """See the class; each is told once."""
        rows = self._problems[: self._state[records.PROBLEMS]].copy()
        self._state[records.PROBLEMS] = 0
        return rows

    def _begin(self):
        found = kind(self.name, self._rest)
        self._ng = found[0] == "pcapng"
        self._state = np.zeros(records.STATE, np.int64)
        self._interfaces = np.zeros((MAX_INTERFACES if self._ng else 0, 4), np.int64)
        self._state[[records.LAST, records.BEFORE]] = 0 if self._ng else -1
        if self._ng:
            self._state[records.BIG] = self._rest[8] == 0x1A
        else:
            self._state[[records.BIG, records.UNITS, records.LINK]] = found[1:]
            self._rest, self._at = self._rest[24:], 24

    def _end(self):
        """Up to where the bytes that are there can be read."""
        data, state = np.frombuffer(bytearray(self._rest), np.uint8), self._state
        if self._ng:
            end = records.whole_blocks(data, len(data), 0, state[records.BIG])
        else:
            end = records.whole_records(data, len(data), 0, state[records.BIG],
                                        state[records.UNITS], state[records.LAST],
                                        self._waits)  # fmt: skip
        return end if end or len(data) < WAITING else len(data)

    def _whole(self, end):
        if not end:
            return
        data = np.frombuffer(bytearray(self._rest[:end]), np.uint8)
        self._rest = self._rest[end:]
        state, known = self._state, int(self._state[records.PROBLEMS])
        state[[records.POS, records.DONE]] = 0
        while not state[records.DONE]:
            frames = np.zeros(PIECE, FRAME)
            first = int(state[records.FRAMES]) + 1
            if self._ng:
                n = records.pcapng(data, end, state, self._interfaces, frames, self._problems)
            else:
                n = records.pcap(data, end, state, frames, self._problems)
            yield data, first, frames[:n]
        self._problems["off"][known : state[records.PROBLEMS]] += self._at
        self._at += end
