"""The spools of the other bridges on a shared subscription: what they have made durable counts for
the marks of this one, too, since the readings of a device come to all of them by turns.

Knows spools and marks. Must not know sockets. Every bridge reads what the others spooled before
it tells a device how far all is durable; whichever received the last missing reading therefore
tells the whole truth. The others keep their segments until the snapshot of the marks covers them,
or they are full: what is deleted before it was read, its devices send again.
"""

import logging

from ..spool import consumers
from ..spool import reader as spooling
from ..spool.files import tell_once
from ..spool.objects import is_place
from ..spool.reader import SpoolError
from .far_peers import FarPeers

log = logging.getLogger("umqtt.peers")

SHARE = 4 << 20  #: bytes of one peer that are looked at in one go


class Peers:
    """places: the other bridges' spools, and s3://BUCKET/PREFIX for all that ship there; own: id
    of this bridge's spool; seen: {spool id: position up to which the marks know it}; ships: this
    bridge tells marks of what is in an object store only. So does one whose spool says so."""

    def __init__(self, places, own, seen=(), ships=False):
        self.folders = tuple(place for place in places if not is_place(place))
        self.own = own
        self.name = consumers.bridge_name(own)  #: under which this bridge registers there
        self.positions = dict(seen)  #: as `seen`
        self.far = [FarPeers(place.rstrip("/"), own, seen) for place in places if is_place(place)]
        self._ships = ships
        self.unsaved = 0  #: bytes read since the last `release`
        self._missing = set()
        self._said = {}  #: {folder: what was wrong with it the last time}

    def _open(self):
        """(folder, id, position) of each peer that has been started once."""
        for folder in self.folders:
            try:
                key = spooling.spool_id(folder)
                begun = spooling.begin(folder)
            except (SpoolError, OSError) as error:
                if folder not in self._missing:
                    log.warning("peer %s: %s. Until it is there, marks do not know what it "
                                "receives", folder, error)  # fmt: skip
                self._missing.add(folder)
                continue  # not started yet, or no peer at all
            if key == self.own:
                raise SpoolError(f"{folder} is a copy of this bridge's own spool (both have the "
                                 f"id {key}). Give one of the two bridges a new folder; `salvage` "
                                 "brings what is only in the copy into a new spool")  # fmt: skip
            if folder in self._missing:
                log.info("peer %s is there", folder)
                self._missing.discard(folder)
            position = self.positions.get(key, begun)
            if position < begun:
                log.warning("peer %s has deleted its messages before position %d, and those from "
                            "%d on were not read here. Their marks stand still until the devices "
                            "send them again", folder, begun, position)  # fmt: skip
                position = self.positions[key] = begun
            yield folder, key, position

    def gone(self):
        """Ids of spools that peers have had and have no more: they were begun anew, or are no
        peers now. Empty as long as a folder is not there, or a store has not answered."""
        found = [key for _, key, _ in self._open()]
        known = len(found) == len(self.folders) and all(far.listed for far in self.far)
        if not known:
            return set()
        return set(self.positions).difference(found, *(far.ends for far in self.far))

    def _end(self, folder):
        """(how far a peer's spool counts, whether that is known here late): what ships, or should,
        counts when it has arrived."""
        shipped, end = consumers.positions(folder).get(consumers.SHIP), spooling.durable(folder)
        if shipped is None and self._ships:
            tell_once(f"peer {folder} does not ship, and this bridge does: its marks do not cover "
                      "what that one receives. Start it with --ship, too")  # fmt: skip
            return 0, True
        return (end, False) if shipped is None else (min(end, shipped), True)

    def unshipped(self, wanted):
        """What of `wanted`, {spool id: position}, an object store does not have yet, as far as is
        known here."""
        ends = {}
        for far in self.far:
            ends |= far.ends
        for folder, key, _ in self._open():
            shipped = consumers.positions(folder).get(consumers.SHIP, 0)
            ends[key] = max(ends.get(key, 0), shipped)
        return {key: at for key, at in wanted.items() if ends.get(key, 0) < at}

    def register(self):
        """Keep the peers from deleting what is not yet in a snapshot of the marks."""
        for folder, _, position in self._open():
            consumers.register(folder, self.name, position)

    def release(self):
        """The marks are saved as far as `positions`: the peers may delete that."""
        self.register()
        self.unsaved = 0

    def feed(self, marks):
        """Take in what the peers have made durable since the last time. What counts as soon as an
        object store has it is known here later than there, so each bridge tells the marks of all.
        """
        for far in self.far:
            for found in far.take():
                if found.marks is None:
                    marks.feed(found.body, now=found.received)
                else:
                    marks.join(found.marks)
                self.unsaved += len(found.body)
                self.positions[found.key] = found.end
        for folder, key, position in self._open():
            if key not in self.positions:
                consumers.register(folder, self.name, position)
            try:
                end, late = self._end(folder)
                for block, body in spooling.walk(folder, position, min(end, position + SHARE)):
                    marks.feed(body, heard=late, now=block.received)
                    self.unsaved += block.length
                    position = block.end
                self._said.pop(folder, None)
            except SpoolError as error:
                if self._said.get(folder) != str(error):  # it is looked at each second
                    log.warning("peer %s: %s", folder, error)
                self._said[folder] = str(error)
            self.positions[key] = position
