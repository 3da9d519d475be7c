"""Stores: where this board keeps the messages that are not acknowledged yet.

Knows where each kind of board has its journal region. Must not know what is stored. A region of
its own (raw flash) costs a tenth of the wear that files cost, so it is taken where there is one:
    virtual board   vboard.journal
    esp32           the data partition labelled "mqtt"
    rp2             the part of the flash that /board.json names: {"journal": {"start", "size",
                    "files"}}, bytes from the start of what rp2.Flash() covers; the flashing step
                    writes it after the filesystem holds these blocks for taken, by files that
                    nobody may remove
"""

import json
import os
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
    if sys.platform == "esp32":
        import esp32

        found = esp32.Partition.find(esp32.Partition.TYPE_DATA, label="mqtt")
        return found[0] if found else None
    if sys.platform == "rp2":
        import rp2

        return _rp2(rp2.Flash)
    return None


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
    if start % 4096 or size % 4096 or start < 0 or size < 16384 or start + size > limit:
        raise ValueError("%s: journal start %d size %d: expected multiples of 4096, at least "
                         "16384 bytes, inside the flash of %d" % (BOARD, start, size, limit))
    _still_free(journal.get("files"), size)
    return flash(start=start, len=size)


def _still_free(folder, size):
    # Without these files the filesystem would take the region's blocks for others.
    if folder:
        try:
            files = len(os.listdir(folder))
        except OSError:
            files = 0
        if files != size // 4096:
            raise ValueError("%s: files that keep the journal's flash free are gone (%d left); "
                             "flash the board again" % (folder, files))


def _is_encrypted(device):
    # esp32.Partition.info(): (type, subtype, address, size, label, encrypted)
    return bool(hasattr(device, "info") and device.info()[5])


def make(kind, hold, log, retention=0):
    """Return the store of this board, not opened yet.

    kind        "auto", "flash" or "files", as in the settings
    hold        keep acknowledged messages until they are confirmed
    log         function(text)
    retention   messages that it must be able to hold, as far as there is room: above 1000 its
                index gets 5 bytes of RAM for each
    Raises ValueError when "flash" is asked for and the board has no region of the size needed.
    """
    messages = retention + 64 if retention > 1000 else 0
    device = None if kind == "files" else region()
    if device is not None:
        from umqtt_min.store.flash import FlashStore

        try:
            return FlashStore(device, encrypted=_is_encrypted(device), hold=hold,
                              messages=messages)
        except ValueError as error:  # too small
            why = str(error)
    else:
        why = "this board has none"
    if kind == "flash":
        raise ValueError('store: "flash" needs a journal region, but %s; flash the board with its '
                         'own partition table, or set store = "files"' % why)
    if kind == "auto":
        log("no journal region (%s): messages are kept in files, which wears the flash more" % why)
    from umqtt_min.store.files import FileStore

    return FileStore(FOLDER, hold=hold, messages=messages)
