"""What the bridge writes beside the spool's segments: the marks, the session, the metrics; and
what it deletes.

Knows files of the spool's folder, and what a full disk leaves undone. Must not know sockets, or
what a message says.
"""

import json
import logging
import time
from pathlib import Path

from ..spool import consumers
from ..spool import reader as spooling
from ..spool.writer import SpoolFull
from .disk_reserve import Reserve

log = logging.getLogger("umqtt.bridge")

SNAPSHOT_BYTES = 16 << 20  #: spooled between two snapshots of the marks
#: Between them if a peer's folder was read, as its bridge keeps that, and may be full; or if the
#: marks are shipped, as the log in the store keeps what they do not cover.
AWAITED_S = 5.0


class Upkeep:
    """Of the SpoolWriter `spool`.

    file        MarkFile, of which the marks were restored, true up to `snapshot_at`
    peers       the bridge's Peers
    metrics     path of the metrics file, or None
    ships       whether the file of the marks is shipped
    """

    def __init__(self, spool, file, snapshot_at, peers, metrics, ships):
        self.spool, self.peers, self.metrics, self.ships = spool, peers, metrics, ships
        self.snapshot_at = snapshot_at
        self.deleted = 0  #: segments
        self.reserve = Reserve(spool.folder)
        self._file = file
        self._snapshot_due = 0.0  # if somebody waits for it
        self._failing = {}  # what cannot be written, and why

    def house(self, marks, position, full):
        """Save the marks, which are of `position`, when it is time; delete what is done with.
        full: whether the spool takes nothing more. Then it waits for no other bridge: that would
        miss readings for its marks, and their devices send them again."""
        done = self.spool.done_with(full)
        behind = position - self.snapshot_at + self.peers.unsaved
        awaited = behind if self.ships else self.peers.folders and self.peers.unsaved
        waits = awaited and time.monotonic() >= self._snapshot_due
        if done > self.snapshot_at or behind > SNAPSHOT_BYTES or waits:
            self._snapshot_due = time.monotonic() + AWAITED_S
            self.snapshot(marks, position)
        if done:
            self.deleted += self.spool.trim(self.snapshot_at, full)

    def snapshot(self, marks, position):
        """Save the marks: what is below `position` may then be deleted from the spool."""
        try:
            self._file.save(marks, position, self.peers.positions)
            self.reserve.size = max(self.reserve.size, 2 * self._file.whole)
            self.snapshot_at = position
            self.peers.release()
            self._give_up()
            self._works("the file of the marks")
        except OSError as error:  # nothing is deleted that they are made of
            self._fails("the file of the marks", error)

    def _give_up(self):
        """A peer that was begun anew reads under another name: nobody moves the old one on."""
        gone = self.peers.gone() if self.peers.folders else ()
        for name in consumers.give_up_bridges(self.spool.folder, gone):
            log.info("the reader %s is given up: no peer has that id now", name)

    def keep_session(self, session, topics):
        """Have `session`, a SessionFile, say that the broker has a session of the bridge with
        these topic filters."""
        try:
            session.keep(topics)
            self._works("the file of the session")
        except OSError as error:  # a lost session may go untold after a restart
            self._fails("the file of the session", error)

    def make_room(self):
        """The disk itself is full: give readers and marks room to be written in, and close the
        segment, so that it can be deleted when they are done with it."""
        self.reserve.give()
        try:
            self.spool.roll()
            self._works("a new segment")
        except SpoolFull as error:
            self._fails("a new segment", error)

    def lag(self):
        """{reader: bytes of the spool that it has not stored yet}."""
        return consumers.lag(self.spool.folder, self.spool.id, self.spool.position)

    def write_metrics(self, state):
        """Write what `state()` gives to the metrics file, if there is to be one."""
        if self.metrics is None:
            return
        try:
            data = json.dumps(state(), indent=1).encode()
            spooling.replace_file(Path(self.metrics), data, sync=False)
            self._works("the metrics file")
        except OSError as error:
            self._fails("the metrics file", error)

    def _fails(self, what, error):
        """Say that something cannot be written: once, though it is tried each second."""
        if self._failing.get(what) != str(error):
            log.warning("%s cannot be written: %s", what, error)
        self._failing[what] = str(error)

    def _works(self, what):
        self._failing.pop(what, None)
