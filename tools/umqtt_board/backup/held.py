"""The messages that a board's store holds: how many there are and for which topics, and how they
are given up.

Knows where a board keeps them: in a region of flash, in the FileStore's files, or in both.
Must not know: what a message says.
"""

import tempfile
from pathlib import Path

from umqtt_board.backup import half, journal, known
from umqtt_board.errors import BoardError
from umqtt_board.flash import verify
from umqtt_board.port.device import MOST_REGION

SECTOR = 4096
PIECE = 1024
READ = f"""
_n = 0
_b = bytearray({PIECE})
def _next():
    global _n
    if _n >= region.ioctl(4, 0) * region.ioctl(5, 0):
        return b""
    region.readblocks(_n // {SECTOR}, _b, _n % {SECTOR})
    _n += {PIECE}
    return _b
"""
_LIST = """
import os
try:
    _say([{folder!r} + "/" + e[0] for e in os.ilistdir({folder!r}) if e[1] == 0x8000])
except OSError:
    _say([])
"""


def stored_files(device):
    """(paths of the FileStore's files on the board, what else the board names there)."""
    device.doing = "looking for messages in its files"
    said = device.value(_LIST.format(folder=known.STORE), [str])
    paths = [path for path in said if known.is_known(path)]
    return list(dict.fromkeys(paths)), [path for path in said if not known.is_known(path)]


def waiting_in_files(device):
    """How many messages the board's FileStore holds."""
    return len(_in_files(device))


def waiting_in_region(device, board):
    """How many messages the board's journal region holds, None without a region.

    board  its description, see boards.load()
    """
    if board["journal"]["kind"] == "files":
        return None
    image = region(device, verify.opening(board["journal"]))
    return None if image is None else len(topics_in(image))


def left_behind(flat, files, region, hold="it holds"):
    """What a board with the settings `flat` would not deliver of the messages that it holds, in
    words; "" if there is nothing.

    files, region  how many it holds in the FileStore's files and in its journal region; region:
                   None if it has none
    hold           what holds them, in words
    """
    store = flat.get("store", "auto")
    in_files = store == "files" or region is None
    count = region if in_files else files
    if not count:
        return ""
    there, new, back = (("its journal region", "files", "auto") if in_files
                        else ("files", "its journal region", "files"))  # fmt: skip
    return (f'with store = "{store}" the board keeps its readings in {new}: {count} that {hold} '
            f'in {there} stay there, undelivered, until store is "{back}" again')  # fmt: skip


def topics(device, board):
    """The topic of each message that the board's store holds, bytes, as a list.

    board  its description, see boards.load(): it says where the store is
    """
    found = _in_files(device)
    if board["journal"]["kind"] != "files":
        found += topics_in(region(device, verify.opening(board["journal"])) or b"")
    return found


def give_up(device, board):
    """Erase the board's store with all messages in it: its next one has another epoch."""
    device.doing = "erasing its messages"
    for path in stored_files(device)[0]:
        device.run(f"import os\nos.remove({path!r})")
    if board["journal"]["kind"] != "files":
        opening = verify.opening(board["journal"])
        for sector in range((region_size(device, opening) or 0) // SECTOR):
            device.run(f"region.ioctl(6, {sector})")
    half.end(device)


def region(device, opening, transfer=lambda done, total, path: None):
    """The bytes of the board's journal region; None without one.

    opening   program that sets `region` on the board, see verify.opening()
    transfer  function(bytes done, bytes in all, what), called meanwhile
    """
    device.doing = "reading its journal"
    size = region_size(device, opening)
    if size is None:
        return None
    device.run(READ)
    data = device.read_pieces("_next()", lambda done: transfer(done, size, "journal"), size)
    if len(data) != size:
        raise BoardError(f"The board on {device.port} gave {len(data)} of the {size} bytes of its "
                         "journal. Reset the board and try again.")  # fmt: skip
    return data


def region_size(device, opening):
    """Bytes of the board's journal region, None without one; sets `region` on the board.
    BoardError for what can be none."""
    size = device.value(opening + "\n_say(region and region.ioctl(4, 0) * region.ioctl(5, 0))",
                        {int, None})  # fmt: skip
    if size is None or 0 < size <= MOST_REGION and size % SECTOR == 0:
        return size
    raise BoardError(f"The board on {device.port} says that its journal has {repr(size)[:80]} "
                     "bytes. Reset the board and try again; if it says so again, `make flash` "
                     "writes its program anew.")  # fmt: skip


def _in_files(device):
    return topics_in(image_of({path: device.read_file(path) for path in stored_files(device)[0]}))


def image_of(files):
    """The journal in a FileStore's files, {path: bytes}, as one image; empty without any."""
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            (Path(folder) / Path(path).name).write_bytes(data)
        return journal.load(Path(folder))


def topics_in(image):
    """The topic of each message in the image of a journal, a list; empty if it is none."""
    try:
        return [message[3] for message in journal.Journal(image).live.values()]
    except journal.NoJournal:
        return []
