"""The logs of the other bridges in an object store: what peers.py does with their folders, by a
thread of its own, for a store may be slow or away.

Knows logs (spool/shipped.py). Must not know marks or sockets. It is no reader that a log waits
for: if something was removed before it was read, marks stand still for it, and its devices send it
again.
"""

import logging
import threading
import time
from collections import deque

from ..spool import shipped
from ..spool.files import SpoolError
from ..spool.objects import Unreachable

log = logging.getLogger("umqtt.peers")

INTERVAL_S = 1.0
WAITING_BYTES = 8 << 20  #: fetched and not yet taken


class FarPeers:
    """place: s3://BUCKET/PREFIX, where the bridges ship;   own: id of this bridge's spool; seen:
    {id: position} up to which the logs are known already"""

    def __init__(self, place, own, seen, interval=INTERVAL_S):
        self.place, self.own, self.interval = place, own, interval
        self._positions = dict(seen)
        self.ends = {}  #: {id: position up to which the log has it}
        self.listed = False  #: whether the store was asked for all of them
        self._fetched = deque()  # (id, Block, body)
        self._in = self._out = 0  # bytes fetched, of the thread; and taken, of the bridge
        self._said = {}  # {place: what was wrong with it the last time}
        self._thread = None  # begun by the first `take`

    def take(self):
        """Yield (id, Block, body) of what came since the last time, in the order of each log."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
            self._thread.start()
        while self._fetched:
            found = self._fetched.popleft()
            self._out += len(found[2])
            yield found

    def _run(self):
        while True:
            found = {}
            try:
                found = shipped.logs(self.place)
                self._said.pop(self.place, None)
            except Unreachable as error:
                self._tell(self.place, error)
            for place, (start, parts) in found.items():
                self._try(place, start, parts)
            self.listed = self.listed or self.place not in self._said
            time.sleep(self.interval)

    def _tell(self, place, error):
        if self._said.get(place) != str(error):  # it is looked at each second
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
        position = max(start, self._positions.get(key, start))
        for part in parts:
            if part.end <= position:
                continue
            while self._in - self._out > WAITING_BYTES:
                time.sleep(0.05)
            with shipped.PartReader(part) as reader:
                for block in reader.headers(max(position, reader.first), part.end):
                    body = reader.body(block)
                    self._in += len(body)
                    self._fetched.append((key, block, body))
            self._positions[key] = position = part.end
