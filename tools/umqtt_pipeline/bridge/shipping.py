"""Ships what the spool has made durable to an object store, from a thread of its own.

Knows the spool's bytes and the log that they become (spool/shipped.py). Must not know sockets or
marks. A store that is slow or away holds up nothing but the marks: the bridge goes on receiving.

Each object is put only if there is none of its name. If the answer to a put got lost, the object
may be there, have been read and be removed again: the log itself then says where to go on. If an
object has other bytes than the spool, somebody goes on with a copy of it, and the bridge ends.
"""

import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..spool import consumers, objects, shipped
from ..spool.files import SpoolError, segments
from ..spool.reader import begin, covering
from ..spool.segment import SegmentReader
from . import mark_file

log = logging.getLogger("umqtt.ship")

OBJECT_BYTES = 8 << 20  #: of one object, or one block if that is longer
RETRY_S = (0.5, 30.0)  #: between two tries when the store is away, at first and at most
COPY = ("an older copy of this spool was put back, or copied to another machine. Begin a new "
        "spool in another folder; what is shipped is read all the same")  # fmt: skip


class Shipper:
    """spool: the SpoolWriter;   place: s3://BUCKET/PREFIX, below which it gets a log of its own;
    interval: seconds between two objects, unless much is waiting

    shipped  position up to which the store has all; 0 until that is known
    fault    None, or the SpoolError for which nothing more is shipped
    error    what is wrong with the store at present, in words, or None
    """

    def __init__(self, spool, place, interval):
        self.folder = spool.folder
        self.place = f"{place.rstrip('/')}/{spool.id}"
        self.interval = interval
        self.shipped, self.fault, self.error = 0, None, None
        self._durable = spool.position
        self._kept = 0  # position that is registered
        self._unanswered = False  # whether the last put may have come without an answer
        self._marked = 0, 0  # position and bytes of the marks that the store has
        self._news, self._hurry, self._stopping = (threading.Event() for _ in range(3))
        if consumers.SHIP not in consumers.positions(self.folder):
            consumers.register(self.folder, consumers.SHIP, begin(self.folder))
        self._thread = threading.Thread(target=self._run, name="ship", daemon=True)

    def start(self):
        """Begin to ship."""
        self._thread.start()

    def durable(self, position):
        """The spool is durable up to `position`."""
        self._durable = position
        self._news.set()

    def keep(self):
        """Tell the spool how far it may delete segments. Raises SpoolError if shipping is over,
        OSError."""
        if self.fault is not None:
            raise self.fault
        if self.shipped > self._kept:
            consumers.register(self.folder, consumers.SHIP, self.shipped)
            self._kept = self.shipped

    def hurry(self):
        """Ship what there is without waiting for more: the spool is full."""
        self._hurry.set()

    def stop(self, patience=10.0):
        """Ship what is left, for so many seconds at most: the next start ships the rest."""
        self._stopping.set()
        self._news.set()
        self._hurry.set()
        self._thread.join(patience)
        with suppress(SpoolError, OSError):
            self.keep()

    def end(self):
        """Ship the last marks, if the store takes anything now."""
        if self.fault is None and self.error is None and not self._thread.is_alive():
            with suppress(OSError):
                self.ship_marks(1)

    def ship_marks(self, least):
        """Ship the marks, if they are of `least` bytes of the spool or more, and of nothing that
        is not shipped. Raises Unreachable."""
        position, path = self._marked[0], Path(self.folder, "marks")
        if self.shipped - position < max(least, 1):
            return
        try:
            raw = path.read_bytes()  # the bridge may be adding a record: it is left out then
        except OSError:
            return
        told = mark_file.newest(raw)
        if told and told["shipped"] and position < told["position"] <= self.shipped:
            shipped.put_marks(self.place, told["position"], raw)
            self._marked = told["position"], len(raw)

    # -- the thread -------------------------------------------------------------------------------

    def _run(self):
        wait, known = RETRY_S[0], False
        while self.fault is None:
            try:
                if not known:
                    self._find_end()
                    log.info("%s: shipped up to position %d of %d", self.place, self.shipped,
                             self._durable)  # fmt: skip
                    known = True
                if not self._ship_all():
                    return
                wait = RETRY_S[0]
            except objects.Unreachable as error:
                if self._stopping.is_set():
                    return
                if self.error is None:
                    log.warning("%s: %s; marks wait, and it is tried again", self.place,
                                error.strerror)  # fmt: skip
                self.error = error.strerror
                self._stopping.wait(wait)
                wait = min(2 * wait, RETRY_S[1])
            except (SpoolError, OSError) as error:
                self.fault = error if isinstance(error, SpoolError) else SpoolError(str(error))

    def _ship_all(self):
        """Ship until the bridge stops, which is False then; a store that is away raises."""
        while True:
            self._news.wait(1.0)
            self._news.clear()
            last = self._stopping.is_set()  # all that came before is in _durable
            begun = time.monotonic()
            while self._ship():
                if self.error is not None:
                    log.info("%s: the object store takes what is shipped again", self.place)
                    self.error = None
            self.ship_marks(self._marked[1])  # they cost no more than the readings
            if last:
                return False
            if not self._stopping.is_set():
                self._hurry.wait(max(0.0, self.interval - (time.monotonic() - begun)))
                self._hurry.clear()

    def _find_end(self):
        """Find out how far the store has this spool; a new one gets its beginning."""
        start = begin(self.folder)
        try:
            first, parts = shipped.parts(self.place)
        except SpoolError:
            if objects.listed(self.place, None):
                raise
            shipped.begin_at(self.place, start)
            first, parts = start, []
        end = parts[-1].end if parts else first
        if end > self._durable:
            raise SpoolError(f"{self.place} has the spool up to position {end}, but {self.folder} "
                             f"ends at {self._durable}: {COPY}")  # fmt: skip
        if end < start:
            raise SpoolError(f"{self.folder} begins at position {start}, but {self.place} ends at "
                             f"{end}: what is between was deleted before it was shipped. Begin a "
                             "new spool in another folder")  # fmt: skip
        if parts and parts[-1].base >= start:
            self._compare(parts[-1].base, parts[-1].end)
        self._marked = shipped.marked(self.place)
        self.shipped = end

    def _compare(self, base, end):
        """Raises SpoolError unless the store has these bytes of the spool."""
        name = f"{shipped.BLOCKS}/{base:020d}"
        try:
            found = objects.read(self.place, name)
        except FileNotFoundError:
            return  # since it was listed every reader is done with it
        if found != self._bytes(base, end):
            raise SpoolError(f"{self.place}/{name} has other bytes than {self.folder} at that "
                             f"position: {COPY}")  # fmt: skip

    def _bytes(self, base, end):
        with self._segment(base) as reader:
            return reader.raw(base, end)

    def _segment(self, position):
        """A reader of the segment that has `position`; of two, the one that begins there."""
        found = [segment for segment in segments(self.folder) if segment.base <= position]
        if not found:
            covering(self.folder, position, position + 1)  # says what is missing
        return SegmentReader(found[-1])

    def _ship(self):
        """Ship one object; returns whether there was anything."""
        base, end = self.shipped, self._durable
        if base >= end:
            return False
        with self._segment(base) as reader:
            start = stop = max(base, reader.segment.first)
            for block in reader.headers(start, end):
                if block.end - base > OBJECT_BYTES and stop > start:
                    break
                reader.body(block)  # nothing damaged leaves
                stop = block.end
            if stop == start:
                return False  # a segment that has just begun
            data = reader.raw(base, stop)
        again, self._unanswered = self._unanswered, True
        new = objects.create(self.place, f"{shipped.BLOCKS}/{base:020d}", data)
        if new and not again:
            self.shipped = stop
        else:
            self._find_end()
        self._unanswered = False
        return True
