"""Error messages for wrong arguments of a store. Loaded only when one is wrong.

Knows: the limits that stores and media keep to.  Must not know: records.
"""

from ..arguments import whole

_ENOSPC = 28
_FULL_HEADER = 80  # as in index.py
_LONG = 7
_SETTLED = 13
_MOST = 0x3FFFFFFF  # what small ints hold on every port


def refuse_ram(size, policy, messages, inbound, max_age, clock):
    """Raise ValueError for the first argument of a RAMStore that is wrong."""
    whole("size", size, 64, _MOST)
    whole("inbound", inbound, 1, 65535)
    _common(policy, messages, max_age, clock)


def refuse_options(policy, messages, inbound, chunk, max_age, clock):
    """Raise ValueError for the first option of a journal that is wrong."""
    whole("inbound", inbound, 1, 64)
    whole("chunk", chunk, 0, 256)
    _common(policy, messages, max_age, clock)


def _common(policy, messages, max_age, clock):
    whole("messages", messages, 0, 65535)
    if policy not in (0, 1, 2):
        raise ValueError("policy=%r: RAISE, DROP_OLDEST or LATEST" % (policy,))
    if not isinstance(max_age, (int, float)) or max_age < 0:
        raise ValueError("max_age=%r: seconds, 0 for never" % (max_age,))
    if max_age or clock is not None:
        _clock(clock)


def _clock(clock):
    if not callable(clock):
        raise ValueError("clock=%r: a function that gives seconds; max_age= needs it" % (clock,))
    now = clock()
    if not isinstance(now, int) or now < 0:
        raise ValueError("clock=%r gives %r: whole seconds are wanted, as of int(time.time())"
                         % (clock, now))


def refuse_folder(folder, size, segment, chunk):
    """Raise ValueError for the first argument of a FileStore that is wrong."""
    if not isinstance(folder, str) or not folder:
        raise ValueError("folder=%r: its path" % (folder,))
    whole("size", size, 0, _MOST)
    whole("segment", segment, 0, 65536)
    whole("chunk", chunk, 0, 240)
    raise ValueError("chunk=%d: a multiple of 16, 64 to 240, or 0" % chunk)


def refuse_unusable(folder, errno):
    """Raise OSError for a folder that cannot be made or read."""
    raise OSError(errno, "folder=%r cannot be made or read" % folder)


def refuse_journal(medium, count):
    """Raise ValueError for a folder that holds a journal of `count` segments, which are more than
    are asked for, or of the other layout."""
    if count == medium.count:
        small = medium.file_size < medium.size
        raise ValueError("small=%s: the journal in %s was made with small=%s; open it with that,"
                         " or give another folder" % (small, medium.folder, not small))
    raise ValueError("size: the journal in %s has %d segments, here are %d of %d bytes; open it"
                     " with size=%d or more and the segment= it was made with, or remove its files"
                     % (medium.folder, count, medium.count, medium.size, count * medium.size))


def refuse_room(medium, segments):
    """Raise OSError ENOSPC for a file system without room for that many segments."""
    free, needed, block = medium.room(segments)
    needed = max(needed, free + 1)  # small blocks: files took more than was reckoned
    raise OSError(_ENOSPC, "%s: %d bytes are free, the journal needs %d to begin: remove other"
                  " files, or give a smaller segment= (now %d)"
                  % (medium.folder, free * block, needed * block, medium.size))


def refuse_medium(medium, chunk):
    """Raise ValueError for what is wrong with the medium of a journal, or with its chunk=."""
    _power(medium.size, "segment", 256)
    _power(medium.page, "page", 1)
    if medium.count < 3 + medium.spare:
        n = 3 + medium.spare
        raise ValueError("size: a journal needs %d segments of %d, %d bytes; here are %d segments"
                         % (n, medium.size, n * medium.size, medium.count))
    raise ValueError("chunk=%d: a multiple of 16, 64 to 256" % chunk)


def refuse_segment(j, least):
    """Raise ValueError for segments without room for the `least` bytes that a message takes."""
    size = n = j.medium.size
    while n - size + j._area < least:
        n *= 2
    text = ""
    for fewer in range(1, j._ids):
        if j._up(_FULL_HEADER + 2 * j._ids) - j._up(_FULL_HEADER + 2 * fewer) + j._area >= least:
            text = ", or inbound=%d or less (now %d)" % (fewer, j._ids)
    raise ValueError("segment=%d: no message has room behind its header, %d or more is needed%s"
                     % (size, n, text))


def refuse_message(j, n):
    """Raise ValueError for a message that makes a record of n bytes, too long for a segment."""
    n -= _LONG + 8
    most = j._area // j._align * j._align - _SETTLED - 4 - _LONG - 8
    raise ValueError(
        "topic and payload have %d bytes, at most %d fit a segment of %d: send less at "
        "once, or give the store a larger segment=" % (n, most, j.medium.size))


def _power(n, name, least):
    if n & n - 1 or n < least or n > 65536:
        raise ValueError("%s=%d: bytes, a power of two from %d to 65536" % (name, n, least))


def refuse_region(total, first, blocks, block):
    """Raise ValueError for blocks that the device does not have, or segments not of whole ones."""
    if blocks < 1 or first + blocks > total:
        raise ValueError("the device has %d blocks; %d from first=%d on were asked for"
                         % (total, blocks, first))
    raise ValueError("segment: a multiple of the block size, %d" % block)


def refuse_blocks(medium, found):
    """Raise ValueError for a journal that goes on in the blocks `found`, which are not where the
    segments of this one are."""
    first = min(found[0], medium.first)
    end = max(found[-1], medium.first + (medium.count - 1) * medium.each) + medium.each
    raise ValueError("first=%d, blocks=%d: there is a segment of a journal in block %d of the"
                     " device; open it with the first= and blocks= it was made with, as"
                     " first=%d, blocks=%d, or erase what is left of it"
                     % (medium.first, medium.count * medium.each, found[0], first, end - first))


def refuse_full(medium):
    """Raise ValueError for a journal that fills all segments there are, with none to go on in."""
    raise ValueError("first=%d, blocks=%d: what is stored fills all of them; open it with as many"
                     " blocks= as it was made with, or one segment of %d bytes more"
                     % (medium.first, medium.count * medium.each, medium.size))


def refuse_device(device, segment, first, blocks, page):
    """Raise ValueError for what is no block device, and for the first number that is wrong."""
    if not hasattr(device, "writeblocks"):
        raise ValueError("device=%r: a block device, as esp32.Partition is" % (device,))
    whole("segment", segment, 0, 65536)
    whole("first", first, 0, _MOST)
    whole("blocks", blocks, 0, _MOST)
    whole("page", page, 0, 256)
