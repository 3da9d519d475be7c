"""The logs of the other bridges in an object store: what peers.py does with their folders, by a
thread of its own, for a store may be slow or away.

Knows logs (spool/shipped.py), and the marks that they hold. Must not know sockets. It is no reader
that a log waits for: the log's marks stand for what was removed before it was read here.
"""

import logging
import threading
import time
from collections import deque
from typing import NamedTuple

from ..spool import shipped
from ..spool.files import SpoolError
from ..spool.objects import Unreachable
from . import mark_file
from .marks import Marks

log = logging.getLogger("umqtt.peers")

INTERVAL_S = 1.0
WAITING_BYTES = 8 << 20  #: fetched and not yet taken


class Found(NamedTuple):
    """What a log has up to position `end`. key: its id; received: when that came, unix us; body:
    bytes of PUBLISH packets; marks: Marks that stand for all before `end`, or None"""

    key: str
    end: int
    received: int
    body: bytes
    marks: Marks | None = None


class FarPeers:
    """place: s3://BUCKET/PREFIX, where the bridges ship;   own: id of this bridge's spool; seen:
    {id: position} up to which the logs are known already"""

    def __init__(self, place, own, seen, interval=INTERVAL_S):
        self.place, self.own, self.interval = place, own, interval
        self._positions = dict(seen)
        self.ends = {}  #: {id: position up to which the log has it}
        self.listed = False  #: whether the store was asked for all of them
        self._fetched = deque()  # of Found
        self._in = self._out = 0  # bytes fetched, of the thread; and taken, of the bridge
        self._said = {}  # {place: what was wrong with it the last time}
        self._thread = None  # begun by the first `take`

    def take(self):
        """Yield each Found since the last time, in the order of each log."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
            self._thread.start()
        while self._fetched:
            found = self._fetched.popleft()
            self._out += len(found.body)
            yield found

    def _run(self):
        while True:
            found = {}
            try:
                found = shipped.logs(self.place)
                if self._said.pop(self.place, None):
                    log.info("peers in %s: the object store answers again", self.place)
            except Unreachable as error:
                self._tell(self.place, error)
            for place, (start, parts) in found.items():
                self._try(place, start, parts)
            self.listed = self.listed or self.place not in self._said
            time.sleep(self.interval)

    def _tell(self, place, error):
        # It is looked at each second, and a store that is away has many words for it.
        away = place == self.place and place in self._said
        if not away and self._said.get(place) != str(error):
            log.warning("peers in %s: %s", place, error)
        self._said[place] = str(error)

    def _try(self, place, start, parts):
        try:
            self._follow(place, start, parts)
            self._said.pop(place, None)
        except (Unreachable, SpoolError) as error:
            self._tell(place, error)

    def _follow(self, place, start, parts):
        key = place.rpartition("/")[2]
        if key == self.own:
            return
        self.ends[key] = parts[-1].end if parts else start
        position = self._positions.get(key, -1)
        if position < start:
            position = self._positions[key] = self._marked(place, key, start)
        for part in parts:
            if part.end <= position:
                continue
            while self._in - self._out > WAITING_BYTES:
                time.sleep(0.05)
            with shipped.PartReader(part) as reader:
                for block in reader.headers(max(position, reader.first), part.end):
                    body = reader.body(block)
                    self._in += len(body)
                    self._fetched.append(Found(key, block.end, block.received, body))
            self._positions[key] = position = part.end

    def _marked(self, place, key, start):
        """Take the marks of a log for what it does not have any more; returns the position from
        which on it is to be read."""
        named, _ = shipped.marked(place)
        marks, position = Marks(), 0
        if named:
            try:
                position = mark_file.load(marks, shipped.read_marks(place, named))[0]
            except FileNotFoundError:  # there are newer ones
                return self._marked(place, key, start)
            except (ValueError, KeyError, TypeError):
                marks = Marks()
            if position != named:  # its last records, or all
                log.warning("%s/%s/%020d is damaged", place, shipped.MARKS, named)
        self._fetched.append(Found(key, max(position, start), 0, b"", marks))
        if position < start:
            log.warning("%s has removed its messages before position %d, and its marks do not "
                        "cover them: the marks here know nothing of them", place, start)
        return max(position, start)
