"""The fields of a journal and of its flash: sizes checked, buffers and index taken from the heap,
once.

Knows: what flash.py keeps of a device, log.py and journal.py of a medium.
Must not know: records.
Loaded for the making and the mount of a journal, and given back after it.
"""

import sys
from array import array

from ..port import const

_WINDOW = const(256)  # as in log.py
_SEED = const(16)
_NOWHERE = const(0x3FFFFFFF)
_GUARD = const(16)  # programs are padded to this: never written at the end of a segment
_VERSION = const(1)
_FULL_HEADER = const(80)  # with the longest key, check value included, without identifiers
_SETTLED = const(13)  # as in recovery.py
_SHORT = const(9)
_LONG = const(7)
_LEAST = const(33)  # a PUT of one byte in a SETTLE


def region(m, device, segment, blocks, page):
    """The fields of m, a FlashMedium, whose others are set."""
    first = m._first
    try:  # a bit is left where one is negative
        odd = (segment | first | blocks | page) < 0 or not hasattr(device, "writeblocks")
    except TypeError:
        odd = True
    if odd:
        from .validate import refuse_device

        refuse_device(device, segment, first, blocks, page)
    block = device.ioctl(5, 0)
    total = device.ioctl(4, 0)
    blocks = blocks or total - first
    m.size = segment or block
    if blocks < 1 or first + blocks > total or m.size % block:
        from .validate import refuse_region

        refuse_region(total, first, blocks, block)
    m._each = m.size // block  # blocks of a segment
    m.count = blocks * block // m.size
    m.others = total > blocks or m._each > 1  # blocks where a segment may begin, but none of these
    m.page = page or getattr(device, "page", 1 if sys.platform == "esp32" else 256)
    if m.noisy:
        m.page = max(16, m.page)
    # Segments kept back for recovery. Where nothing is programmed twice every mount takes
    # one; the second allows for a cut in it.
    m.spare = 2 if m.once else 1


def prepare(j, medium, hold=False, policy=0, window=0, inbound=32, page=256, max_age=0,
            clock=None):
    """The fields of j; see Journal."""
    try:  # a bit is left where one is negative or too large
        odd = window | 65535 - window | inbound - 1 | 64 - inbound | policy | 2 - policy | page
        odd = odd < 0 or max_age < 0 or (max_age or clock is not None) and clock() | 0 < 0
    except TypeError:
        odd = True
    if odd or window is True:
        from .validate import refuse_options

        refuse_options(policy, window, inbound, page, max_age, clock)
    j.medium = medium
    j.hold = hold
    j.policy = policy
    if max_age:
        j.max_age = max_age
        j._clock = clock
    size = medium.size
    count = medium.count
    j._page = page = max(page, medium.page)
    kind = 0
    while 1 << kind < medium.page:
        kind += 1
    j._shift = 8
    while 1 << j._shift < size:
        j._shift += 1
    if (1 << j._shift != size or size > 65536 or 1 << kind != medium.page
            or count < 3 + medium.spare or page not in range(64, _WINDOW + 1, _GUARD)):
        from .validate import refuse

        refuse(j)
    j._end = size - (_GUARD if medium.page == 1 else 0)
    j._grain = max(medium.page, _GUARD)
    j._align = medium.page if medium.once else 1
    if medium.once:
        kind |= 0x80
    j._magic = b"uMqJ" + bytes((_VERSION, j._shift, page // _GUARD, kind))
    j._ids = inbound
    _limits(j, inbound)
    if j._area < j._up(_LEAST):
        from .validate import refuse_segment

        refuse_segment(j, j._up(_LEAST))
    _buffers(j)
    j._made = count  # segments there are: files_room.py
    j._asked = 0  # serial of the head when another one was last asked for
    _index(j, window or min(1024, max(32, size * count // 96)), max_age)
    j._serials = array("I", bytes(4 * count))  # 0: not in the log
    j._loads = array("I", bytes(4 * count))  # bytes of live messages in each segment
    j.epoch = j.key = b""
    j.programs = j.programmed = j.erases = 0  # operations, bytes, segments
    j.boot = j.dropped = j.skipped = 0
    clear(j)


def _limits(j, inbound):
    """How much messages may fill, where a header may have so many identifiers."""
    medium = j.medium
    # Bytes of messages in a segment, at most: so that all of them fit into any other one,
    # beside the largest header, a SETTLE and a TAIL record.
    j._area = j._end - j._up(_FULL_HEADER + 2 * inbound) - j._up(_SHORT) - j._up(_SETTLED + 4)
    # Acknowledgements must find room also when messages fill the rest; where each takes a
    # page of its own, a segment is set aside for them.
    j._most = (medium.count - 1 - medium.spare - (j._align > _GUARD)) * j._area * 7 // 8
    if j._most < j._area:  # of one segment: then it takes what fits a segment
        j._most = j._area


def reserve(m):
    """After a replay, before anything is written: with another inbound= than the journal was
    written with, as many identifiers are kept in flash as leave each segment's messages room in
    any other one, and at least those that are there, if they do; the rest in RAM."""
    j = m.j
    loads = list(j._loads)
    for _, place in m._copies:  # if they do not count their originals do
        loads[place >> j._shift] += j._up(j._word(place + 1) + _LONG)
    n = len(j._inbound) // 2
    _limits(j, n)
    while n > 1 and j._area < max(loads):
        n -= 1
        _limits(j, n)
    while j._count > n:
        m.anew = True  # the flash forgets it before PUBREL can come
        j._count -= 1
        pid = j._inbound[2 * j._count] << 8 | j._inbound[2 * j._count + 1]
        if not j.in_has(pid):
            j._keep(pid)
    j._inbound = j._inbound[: 2 * n]
    # What each message is charged depends on the limit.
    j._capacity = j._most
    j._used = 0
    for seg in range(j.medium.count):
        j._loads[seg] = 0
    for seq in range(j.low, j.seq):
        if j._state(seq):
            place = j._places[seq % j._span]
            j._count_in(place, j._word(place + 1) + _LONG)


def look(m, seg):
    """After a replay, before anything is written: raise ValueError where the log goes on in blocks
    outside of the region, or, if none was found, where there is one between its segments."""
    from .scan import get4

    j = m.j
    medium = j.medium
    home = medium._first
    found = []
    for block in range(medium._device.ioctl(4, 0)):
        inside = 0 <= block - home < medium.count * medium._each
        if inside == (seg < 0) and ((block - home) % medium._each or not inside):
            medium._first = block
            try:
                if m.load(0) and (inside or bytes(j._back[8:16]) == j.epoch
                                  and get4(j._back, 16) >= j._tail):
                    found.append(block)
            except OSError:
                pass  # it cannot be read
            finally:
                medium._first = home
                j._seen = _NOWHERE
    if found:
        from .validate import refuse_blocks

        refuse_blocks(medium, found)
    if seg >= 0:
        m.load(j._head)


def _index(j, span, aged):
    # Of each record: two bytes are enough for a region of 64 KiB.
    large = j.medium.size * j.medium.count > 65536
    places = array("I" if large else "H", range(span))  # from no list
    states = bytearray(span)
    j._born = array("I", bytes(4 * span)) if aged else None
    # At once: where there is no memory for all, open() may be called again.
    j._places = places
    j._states = states
    j._span = span


def widen(j):
    """A replay has missed messages: make room for the numbers from the oldest of them on, and
    know nothing again."""
    _index(j, j.seq - j._missed, j._born)
    clear(j)


def narrow(j, span):
    """After a mount that made more room: keep as much as what is live needs, span at least."""
    places = j._places
    states = j._states
    old = j._span
    _index(j, max(span, j.seq - j.low), j._born)
    for seq in range(j.low, j.seq):
        j._places[seq % j._span] = places[seq % old]
        j._states[seq % j._span] = states[seq % old]


def _buffers(j):
    j._buf = bytearray(b"\xff" * _WINDOW)  # what is being staged
    j._back = bytearray(_WINDOW)  # what was read last
    grains = range(0, _WINDOW + 1, j._grain)
    buf = memoryview(j._buf)
    j._views = [buf[:i] for i in grains]
    buf = memoryview(j._back)
    j._backs = [buf[:i] for i in grains]
    j._tmp = bytearray(_SEED + 4)
    j._crc = bytearray(4)


def clear(j):
    """Nothing is known of what is on the medium."""
    _limits(j, j._ids)
    j._inbound = bytearray(2 * j._ids)
    j.seq = j.low = j._first = 1
    j.last_pid = j.sent = j.live = j.held = j.confirmed = 0
    j.pid = j.flags = j.state = 0
    j._missed = 0  # the oldest message that a replay found no room for in the index
    j._count = 0  # incoming identifiers
    j._used = 0  # bytes of live records, as they fill segments
    j._capacity = j._most
    j._serial = j._tail = j._off = 0
    j._head = -1
    j._seen = _NOWHERE  # the place of the first byte of _back
    j._body = 0  # place of the body of the message last found
    j._filled = 0  # bytes of messages in the head, live or not
    j._short = 0  # 1: fewer segments are free than should be, -1: that is being changed
    j._failed = False
    for i in range(j._span):
        j._states[i] = 0
    for i in range(j.medium.count):
        j._loads[i] = 0
