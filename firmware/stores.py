"""Stores: where this board keeps the messages that are not acknowledged yet.

Knows where each kind of board has its journal region. Must not know what is stored. A region of
its own (raw flash) costs a tenth of the wear that files cost, so it is taken where there is one:
    virtual board   vboard.journal
    esp32           the data partition labelled "mqtt"
    rp2             the part of the flash that /board.json names: {"journal": {"start", "size"}},
                    bytes from the start of what rp2.Flash() covers; the flashing step writes it
                    after it has made the filesystem smaller
"""

import json
import sys

FOLDER = "/mqtt"
BOARD = "/board.json"


def region():
    """Return the block device of this board's journal region, None if it has none.

    Raises ValueError when /board.json names a region that is not in the flash.
    """
    vboard = sys.modules.get("vboard")
    if vboard:
        return vboard.journal
    try:
        import esp32

        found = esp32.Partition.find(esp32.Partition.TYPE_DATA, label="mqtt")
        return found[0] if found else None
    except ImportError:
        pass
    try:
        import rp2
    except ImportError:
        return None
    return _rp2(rp2.Flash)


def _rp2(flash):
    try:
        with open(BOARD) as file:
            journal = json.load(file).get("journal")
    except OSError:
        return None
    if not journal:
        return None
    start, size = journal["start"], journal["size"]
    whole = flash()
    limit = whole.ioctl(4, 0) * whole.ioctl(5, 0)
    # rp2.Flash checks no bounds: a wrong number here would erase the filesystem.
    if start % 4096 or size % 4096 or start < 0 or size < 8192 or start + size > limit:
        raise ValueError("%s: journal start %d size %d is not in the flash (%d bytes) in steps of "
                         "4096" % (BOARD, start, size, limit))
    return flash(start=start, len=size)


def make(kind, hold, log):
    """Return the store of this board, not opened yet.

    kind   "auto", "flash" or "files", as in the settings
    hold   keep acknowledged messages until they are confirmed
    log    function(text)
    Raises ValueError when "flash" is asked for and the board has no region.
    """
    device = None if kind == "files" else region()
    if device is not None:
        from umqtt_min.store import FlashStore

        return FlashStore(device, hold=hold)
    if kind == "flash":
        raise ValueError('store: "flash" needs a journal region, and this board has none; flash '
                         'the board with its own partition table, or set store = "files"')
    if kind == "auto":
        log("no journal region: messages are kept in files, which wears the flash more")
    from umqtt_min.store import FileStore

    return FileStore(FOLDER, hold=hold)
