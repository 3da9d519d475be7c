"""A capture that comes in pieces, from a pipe for instance: its frames as soon as they are whole.

Knows: formats of captures, gzip. Must not know: frames' content, where the pieces come from.
"""

import zlib

import numpy as np

from ..compiled.layout import FRAME, PROBLEM
from . import records
from .files import LISTED, MAX_INTERFACES, NotACapture, kind
from .sizes import GZIP

HEAD = 28  #: bytes that tell what kind of capture it is
PIECE = 1 << 14  #: frames handed on at once
WAITING = 32 << 20  #: bytes in which no frame begins that are kept to find one


class Incoming:
    """One capture. `problems`: rows of layout.PROBLEM, the damage found since they were asked."""

    def __init__(self, name):
        self.name = name
        self._state, self._rest, self._at = None, b"", 0
        self._unpacker, self._packed = None, None
        self._problems = np.zeros(LISTED, PROBLEM)

    def take(self, raw):
        """The next bytes: yields (bytes as an array, number of the first frame, frames that lie in
        them). Raises NotACapture."""
        if self._packed is None and len(self._rest) + len(raw) >= 2:
            raw, self._rest = self._rest + raw, b""
            self._packed = raw.startswith(GZIP)
            self._unpacker = zlib.decompressobj(31)
        self._rest += self._unpacked(raw) if self._packed else raw
        if self._state is None and len(self._rest) >= HEAD:
            self._begin()
        if self._state is not None:
            yield from self._whole(self._end())

    def end(self):
        """There are no more bytes: yields as take() does. Raises NotACapture."""
        if self._state is None:
            self._begin()
        yield from self._whole(len(self._rest))

    @property
    def problems(self):
        """See the class; each is told once."""
        rows = self._problems[: self._state[records.PROBLEMS]].copy()
        self._state[records.PROBLEMS] = 0
        return rows

    def _unpacked(self, raw):
        try:
            return self._unpacker.decompress(raw)
        except zlib.error as error:
            raise NotACapture(f"{self.name}: damaged gzip data ({error})")

    def _begin(self):
        found = kind(self.name, self._rest[:HEAD])
        self._ng = found[0] == "pcapng"
        self._state = np.zeros(10, np.int64)
        self._interfaces = np.zeros((MAX_INTERFACES if self._ng else 0, 4), np.int64)
        self._state[records.LAST] = 0 if self._ng else -1
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
                                        state[records.UNITS], state[records.LAST])  # fmt: skip
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
