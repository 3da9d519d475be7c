"""The log under the journal: records with a check value, in segments of a medium.

Knows: staging records into programs, reading back, the headers of segments, which is next.
Must not know: what a record means (journal.py), how a cut is recovered from (recovery.py).

The bytes are specified in STORE.md. The functions are small because MicroPython takes the
frame of a function with more than eleven words of state from the heap. A place is a number:
segment * segment size + offset. setup.py makes the fields.
"""

import sys
from struct import pack_into

from ..port import const
from . import StoreFull
from .crc32 import copy, crc32, same

if sys.implementation.name == "micropython":  # a host has the room
    sys.modules.pop("umqtt_min.store.crc32")
    delattr(sys.modules["umqtt_min.store"], "crc32")

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any

_WINDOW = const(256)  # bytes of the two buffers: staging, reading
_GUARD = const(16)  # this far into the window, and no further, a record's head is in it, too
_HEADER = const(44)  # bytes of a header before key and identifiers
_SETTLE = const(0x21)
_LONG = const(7)  # bytes of a long record besides its content
_NOWHERE = const(0x3FFFFFFF)
_SEED = const(16)  # in _tmp: a CRC that has begun with the check value of the head's header
_BAD = const(0x3FFFFFFF)  # in place of a serial: could not be erased or programmed
_EIO = const(5)
_FULL = const(2)  # failed for want of room in a file system


class Log:
    """Appends records to the head segment, reads them anywhere."""

    if _TYPING:
        _failed: Any
        _asked: int
        seq = low = sent = live = held = dropped = programs = programmed = erases = 0
        _head = _off = _serial = _first = _used = _short = 0

        def __getattr__(self, name) -> Any: ...

    # Writing: a record is staged piece by piece; each page it touches is one program.

    def _begin(self, off):
        """Begin a record at that offset of the head. A check value covers the header's, the
        offset, then the record: bytes from an earlier life of the segment, or inside a payload,
        never pass for a record."""
        copy(self._crc, 0, self._tmp, _SEED, 4)
        pack_into(">H", self._tmp, 0, off)
        crc32(self._crc, self._tmp, 0, 2)
        self._base = off - off % self.medium.page
        self._index = self._from = off - self._base
        self._limit = self._page - self._base % self._page
        self._failed = False

    def _emit(self, src, off, n):
        crc32(self._crc, src, off, n)
        while n > 0:
            k = self._limit - self._index
            if k > n:
                k = n
            copy(self._buf, self._index, src, off, k)
            self._index += k
            off += k
            n -= k
            if self._index == self._limit:
                self._flush()

    def _flush(self):
        n = self._index
        if n == self._from:
            return
        if not self._failed:
            self._program((n + self._grain - 1) // self._grain)
        self._buf[0] = 255
        copy(self._buf, 1, self._buf, 0, _WINDOW - 1)
        self._base += self._limit
        self._index = self._from = 0
        self._limit = self._page

    def _program(self, k):
        """Program k grains, and read them back: what the flash did not take is known now. A
        segment is erased just before its header is programmed."""
        self._seen = _NOWHERE
        self.programs += 1
        self.programmed += k * self._grain
        try:
            if self._off + self._base == 0:  # a header's first page
                self.erases += 1
                self.medium.erase(self._head)
            self.medium.program(self._head, self._base, self._views[k])
            self.medium.read(self._head, self._base, self._backs[k])
        except StoreFull:
            self._failed = _FULL
            return
        except OSError:
            self._failed = True
        k = self._index - self._from
        if not same(self._buf, self._from, self._back, self._from, k):
            self._failed = True

    def _finish(self, n):
        """End a record of n bytes, check value included; False if the flash did not take it."""
        copy(self._tmp, 0, self._crc, 0, 4)
        self._emit(self._tmp, 0, 4)
        self._flush()
        if self._failed:
            if self._off:  # behind a header: nothing is changed yet
                self._no_room()
            return False
        self._off = self._up(self._off + n)
        return True

    def _no_room(self):
        # The file system had no room: that is no fault of the segment.
        if self._failed == _FULL:
            raise StoreFull("the file system is full: remove other files")

    def _up(self, off):
        return (off + self._align - 1) // self._align * self._align

    def _carry(self, place, n):
        """Emit n bytes that are on the medium."""
        while n > 0:
            i = self._window(place)
            k = min(n, _WINDOW - i, self._limit - self._index)  # a flush reads into the window
            self._emit(self._back, i, k)
            place += k
            n -= k

    # Reading: through one window of 256 bytes.

    def _window(self, place):
        """Index in _back of the byte at a place; 16 bytes from there on are in it, too, unless
        the segment ends before."""
        i = place - self._seen
        if i < 0 or i > _WINDOW - _GUARD:
            i = min(place & self.medium.size - 1, self.medium.size - _WINDOW)
            self._seen = _NOWHERE  # stays so if the read fails
            self.medium.read(place >> self._shift, i, self._backs[-1])
            self._seen = (place >> self._shift << self._shift) + i
            i = place - self._seen
        return i

    def _word(self, place):
        """The two bytes at a place."""
        place = self._window(place)
        return self._back[place] << 8 | self._back[place + 1]

    # Segments: opened in turn.

    def _free(self):
        n = 0
        for serial in self._serials:
            n += not serial
        return n

    def _oldest(self, serial):
        """The segment with the smallest serial above that one."""
        best = _BAD
        seg = self._head
        for i in range(self.medium.count):
            if serial < self._serials[i] < best:
                best = self._serials[i]
                seg = i
        return seg

    def _open_next(self):
        """Write the header of the next free segment. False if there is none; a segment
        that does not take it is not tried again before the next mount."""
        head = self._head
        off = self._off
        seg = -1 if self.medium.self_levelling else head
        for _ in range(self.medium.count):
            seg = (seg + 1) % self.medium.count
            if not self._serials[seg]:
                self._serial += 1
                self._head = seg
                self._off = 0
                if self._header(self._tmp):
                    return True
                self._head = head
                self._off = off
                self._no_room()
                self._serials[seg] = _BAD
        return False

    def _header(self, tmp):
        """The header proves that the erase was complete, and repeats all state that is not
        in messages."""
        self._begin(0)
        pack_into(">I", self._crc, 0, 0)
        self._emit(self._magic, 0, 8)
        self._emit(self.epoch, 0, 8)
        pack_into(">III", tmp, 0, self._serial, self._tail or self._serial, self.boot)
        self._emit(tmp, 0, 12)
        pack_into(">III", tmp, 0, self.seq, self.sent, self.confirmed)
        self._emit(tmp, 0, 12)
        n = len(self.key)
        pack_into(">HBB", tmp, 0, self.last_pid, n, self._count)
        self._emit(tmp, 0, 4)
        self._emit(self.key, 0, n)
        self._emit(self._inbound, 0, 2 * self._count)
        if not self._finish(_HEADER + n + 2 * self._count + 4):
            return False
        self._seed(tmp, 0)
        self._serials[self._head] = self._serial
        self._filled = 0
        self._short |= self.medium.self_levelling or self._free() <= self.medium.spare
        return True

    def _seed(self, buf, off):
        # The check value of the header of the segment at hand is there.
        pack_into(">I", self._crc, 0, 0)
        crc32(self._crc, buf, off, 4)
        copy(self._tmp, _SEED, self._crc, 0, 4)

    def _abandon(self):
        """The flash did not take a record: nothing more goes into this segment."""
        serial = self._serial
        off = self._off
        while True:
            if not self._open_next():
                raise OSError(_EIO, "no segment takes what is programmed")
            self._void(serial, off, 0)
            if self._finish(_LONG + 10):
                return

    def _void(self, serial, off, n):
        """Begin a SETTLE record: what lies between that place and here does not count, except
        n bytes of a record that the caller carries over."""
        self._begin(self._off)
        pack_into(">BHI", self._tmp, 0, _SETTLE, 10 + n, serial)
        pack_into(">HI", self._tmp, 7, off, self.boot)
        self._emit(self._tmp, 0, 13)
