"""What is in the spool and not yet in the marks.

Knows which durable bytes the marks may count: all of the spool or, with a Shipper, what the object
store has, too. Must not know sockets, or whom a mark is told.
"""

import logging

from ..spool import reader as spooling
from ..spool.files import tell_once
from ..spool.writer import now_us
from .marks import Marks

log = logging.getLogger("umqtt.bridge")

OWED_BYTES = 4 << 20  #: at most so much is acknowledged and not yet in the marks
SHARE = 4 << 20  #: bytes of the spool that are looked at in one go


class Accounts:
    """Marks of all that is durable.

    position: up to which `marks` know the spool (SpoolWriter)
    """

    may_tell = True  #: all that is in the marks is as safe as it has to be

    def __init__(self, spool, marks, position):
        self.spool, self.marks, self.position = spool, marks, position
        self._owed, self._bytes = [], 0

    @property
    def waiting(self):
        """Whether something is not in the marks yet."""
        return bool(self._owed)

    def taken(self, body):
        """The spool has just taken `body`; whose it is is looked at later, many reads at once."""
        self._owed.append(body)
        self._bytes += len(body)
        if self._bytes > OWED_BYTES:
            self.settle()

    def settle(self):
        """Take into the marks what may be in them; returns whether there was anything."""
        found = bool(self._owed)
        if found:
            self.marks.feed(b"".join(self._owed), now=now_us())
            self._owed, self._bytes = [], 0
        self.position = self.spool.position
        return found


class ShippedAccounts(Accounts):
    """Marks of what the object store has. They are made from the spool, not from memory: a store
    may be away for long. file: the MarkFile of which the marks were restored; unshipped: what that
    counts of peers, {spool id: position}, and the object store may not have."""

    def __init__(self, spool, marks, position, shipper, peers, file, unshipped):
        super().__init__(spool, marks, position)
        self.shipper, self.peers, self._file = shipper, peers, file
        self._unshipped = {} if file.shipped else unshipped

    @property
    def may_tell(self):
        """False for a snapshot of marks that says more than is shipped, as after a run without."""
        return self.position <= self.shipper.shipped and not self._unshipped

    def _look(self):
        """Look what of the peers is shipped by now of that which the marks count."""
        gone = self.peers.gone() & self._unshipped.keys()
        if gone:  # their marks were told, or are like those: nobody knows which
            log.warning("no peer has the spools %s any more. What they did not ship is lost, and "
                        "the marks count it, as they did without --ship",
                        ", ".join(sorted(gone)))  # fmt: skip
        left = self.peers.unshipped(self._unshipped)
        self._unshipped = {key: at for key, at in left.items() if key not in gone}
        self._file.shipped = not self._unshipped
        for key, position in self._unshipped.items():
            tell_once(f"without --ship the marks have counted the spool {key} of a peer up to "
                      f"position {position}: none is told until it is shipped so far. To give "
                      f"that up, end the bridge and remove {self._file.path}")  # fmt: skip

    @property
    def waiting(self):
        return self.position < self.spool.position

    def taken(self, body):
        self.shipper.durable(self.spool.position)

    def settle(self):
        if self._unshipped:
            self._look()
        end = min(self.shipper.shipped, self.position + SHARE)
        if end <= self.position:
            return False
        for block, body in spooling.walk(self.spool.folder, self.position, end):
            self.marks.feed(body, now=block.received)
            self.position = block.end
        return True


def restore(spool, marks, file, with_rest):
    """`marks`, which are empty, as of the snapshot in `file`, the MarkFile of `spool`, whose
    position is known and of which nothing is changed yet; with_rest: and on from there through all
    that the spool still holds. Returns (marks, position of the snapshot, {id of a peer:
    position})."""
    path, seen = file.path, {}
    start, begun = 0, spooling.begin(spool.folder)
    try:
        start, seen = file.load(marks)
        if start < begun:  # nothing is deleted before a snapshot covers it
            log.warning("%s is an old one, of position %d: made again from position %d on",
                        path, start, begun)  # fmt: skip
    except FileNotFoundError:
        if begun:  # nothing is deleted before there are marks
            log.warning("%s is missing: marks are made again from position %d on", path, begun)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s is damaged (%s): marks are made again from the spool", path, error)
        marks = Marks(marks.decoders, marks.keys)
    start, count = max(start, begun), 0
    with marks.uncounted():
        for block, body in spooling.walk(
                spool.folder, start, spool.position if with_rest else start):  # fmt: skip
            marks.feed(body, now=block.received)
            count += block.count
    marks.tell_all()
    log.info("spool %s at position %d; %d marks (messages read again: %d)",
             spool.folder, spool.position, len(marks.marks), count)  # fmt: skip
    return marks, start, seen
