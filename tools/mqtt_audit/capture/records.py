"""The frames of a capture file: pcap (both byte orders, us and ns) and pcapng, compiled.

Knows: record and block headers, what a sound one looks like, how to find the next sound one.
Must not know: what is in a frame.

Every read is checked against `size`: compiled code does not check bounds by itself.
"""


from ..compiled.jit import entry, kernel, wide
from ..compiled.layout import P_CUT, P_DAMAGED, P_INTERFACE, P_TIME

MAX_FRAME = 1 << 20  #: a longer frame is taken for damage (Wireshark's own limit is 256 KiB)
NEAR = 86_400  #: when looking for the next sound record: seconds that it may be away
FAR = 3650 * NEAR  #: seconds between frames that raise doubts
HEADERS = 54  #: bytes of Ethernet, IPv4 and TCP without options
MAX_TIME = (1 << 63) - 1
# Places in the state of a file, and how many there are. LAST: when the last frame came whose time
# may be right, of pcap in seconds; BEFORE: what is the time of the last frame of pcap, in ns.
POS, FRAMES, BIG, UNITS, LINK, INTERFACES, LAST, DONE, PROBLEMS, LOST, BEFORE, STATE = range(12)
# Columns of an interface of pcapng.
I_LINK, I_BINARY, I_EXPONENT, I_OFFSET = range(4)
SHB, IDB, OLD, SPB, EPB = 0x0A0D0D0A, 1, 2, 3, 6


@kernel
def u16(d, p, big):
    """16 bits; np.int64 because sums of unsigned and signed numbers would be floats."""
    a, b = wide(d[p]), wide(d[p + 1])
    return a << 8 | b if big else b << 8 | a


@kernel
def u32(d, p, big):
    """32 bits."""
    a, b, c, e = wide(d[p]), wide(d[p + 1]), wide(d[p + 2]), wide(d[p + 3])
    return a << 24 | b << 16 | c << 8 | e if big else e << 24 | c << 16 | b << 8 | a


@kernel
def report(problems, state, kind, off, count, time):
    """One row in `problems`; what does not fit is counted."""
    k = state[PROBLEMS]
    if k >= len(problems):
        state[LOST] += 1
        return
    row = problems[k]
    row["kind"] = kind
    row["off"] = off
    row["count"] = count
    row["time"] = time
    row["frame"] = state[FRAMES] + 1
    row["conn"] = -1
    row["from_server"] = 0
    state[PROBLEMS] = k + 1


@kernel
def _plausible(d, p, size, big, limit, last):
    """Length of the record that may begin here, or -1."""
    if p + 16 > size:
        return -1
    sec, cap = u32(d, p, big), u32(d, p + 8, big)
    if cap < 14 or cap > MAX_FRAME or cap > u32(d, p + 12, big) or p + 16 + cap > size:
        return -1
    if u32(d, p + 4, big) >= limit or (last >= 0 and abs(sec - last) > NEAR):
        return -1
    return 16 + cap


@kernel
def _garbage(d, p, big, limit, last):
    """Whether no record begins here: two of three signs, as a sound one may have one of them; or
    nothing but zeros, as a power cut leaves them."""
    sec, part = u32(d, p, big), u32(d, p + 4, big)
    cap, wire = u32(d, p + 8, big), u32(d, p + 12, big)
    far = last >= 0 and abs(sec - last) > FAR
    return (part >= limit) + (wire < cap) + far > 1 or not sec + part + cap + wire


@kernel
def _next_record(d, p, size, big, limit, last):
    """The next place where three records (or all up to the end) follow one another; or size."""
    while p + 16 <= size:
        q, good = p, 0
        while good < 3:
            n = _plausible(d, q, size, big, limit, last)
            if n < 0:
                break
            q += n
            good += 1
            if q == size:
                return p
        if good == 3:
            return p
        p += 1
    return size


@kernel
def _damage(d, pos, size, big, limit, last):
    """Where the next record begins if none does at pos, or pos; and whether the file just ends in
    the one at pos."""
    cap = MAX_FRAME + 1
    if pos + 16 <= size and not _garbage(d, pos, big, limit, last):
        cap = u32(d, pos + 8, big)
    if cap <= MAX_FRAME and pos + 16 + cap <= size:
        return pos, False
    found = _next_record(d, pos + 1, size, big, limit, last)
    return found, found == size and cap <= MAX_FRAME or pos + 16 > size


@kernel
def _doubt(frames, n, pos):
    """Of the frame in front of damage at pos, believe the headers alone: it may have swallowed the
    beginning of what is behind it."""
    if n and frames[n - 1]["off"] + frames[n - 1]["cap"] == pos:
        frames[n - 1]["cap"] = min(frames[n - 1]["cap"], HEADERS)


@kernel
def _date(frames, n):
    """Give the frames before which no time is known, which have -1, that of the next one."""
    known = 0
    while known < n and (frames[known]["time"] < 0 or frames[known]["cap"] < 0):
        known += 1
    for k in range(known):
        frames[k]["time"] = frames[known]["time"] if known < n else 0


@entry
def pcap(d, size, state, frames, problems):
    """Fill `frames` with the next ones; returns how many. state[DONE] is 1 at the end."""
    pos, big, units = state[POS], state[BIG], state[UNITS]
    limit = 1_000_000_000 // units
    n = 0
    while n < len(frames) and pos < size:
        found, cut = _damage(d, pos, size, big, limit, state[LAST])
        if found > pos:
            if not cut:
                _doubt(frames, n, pos)
            state[FRAMES] += n
            report(problems, state, P_CUT if cut else P_DAMAGED, pos, found - pos, 0)
            state[FRAMES] -= n
            pos = found
            continue
        sec, cap = u32(d, pos, big), u32(d, pos + 8, big)
        row, part = frames[n], u32(d, pos + 4, big)
        row["time"] = sec * 1_000_000_000 + part * units
        if part >= limit:
            row["time"] = state[BEFORE]
            state[FRAMES] += n
            report(problems, state, P_TIME, pos, 1, max(0, row["time"]))
            state[FRAMES] -= n
        else:
            state[LAST] = sec
        state[BEFORE] = row["time"]
        row["off"] = pos + 16
        row["cap"] = cap
        row["wire"] = u32(d, pos + 12, big)
        row["link"] = state[LINK]
        n += 1
        pos += 16 + cap
    if pos < size:  # `frames` is full: the last one may stand in front of damage, too
        found, cut = _damage(d, pos, size, big, limit, state[LAST])
        if found > pos and not cut:
            _doubt(frames, n, pos)
    _date(frames, n)
    state[POS] = pos
    state[FRAMES] += n
    state[DONE] = pos >= size
    return n


@kernel
def _block(d, p, size, big):
    """Length of the sound block at p, or -1."""
    if p + 12 > size:
        return -1
    kind = u32(d, p, big)
    if kind == SHB:
        if p + 28 > size:
            return -1
        big = d[p + 8] == 0x1A
        if u32(d, p + 8, big) != 0x1A2B3C4D:
            return -1
    n = u32(d, p + 4, big)
    if n < 12 or n % 4 or n > MAX_FRAME * 16 or p + n > size or u32(d, p + n - 4, big) != n:
        return -1
    return n


@kernel
def _next_block(d, p, size, big):
    """The next place where two sound blocks follow one another, or size."""
    while p + 12 <= size:
        n = _block(d, p, size, big)
        if n > 0 and (p + n == size or _block(d, p + n, size, big) > 0):
            return p
        p += 1
    return size


@kernel
def _interface(d, p, n, big, row):
    """Read an Interface Description Block: link type, time resolution and offset."""
    row[I_LINK] = u16(d, p + 8, big)
    row[I_BINARY], row[I_EXPONENT], row[I_OFFSET] = 0, 6, 0
    q, end = p + 16, p + n - 4
    while q + 4 <= end:
        code, length = u16(d, q, big), u16(d, q + 2, big)
        if code == 0 or q + 4 + length > end:
            break
        if code == 9 and length == 1:
            row[I_BINARY] = d[q + 4] >> 7
            row[I_EXPONENT] = d[q + 4] & 127
        elif code == 14 and length == 8:
            low, high = u32(d, q + 4, big), u32(d, q + 8, big)
            if big:
                low, high = high, low
            high -= high >> 31 << 32  # it is signed
            if -2 <= high < 2:  # an offset of more than 272 years is none
                row[I_OFFSET] = high << 32 | low
        q += 4 + (length + 3) // 4 * 4


@kernel
def _nanoseconds(high, low, row):
    """Time of a frame, or -1 if it does not fit."""
    if high >= 1 << 31:
        return -1
    t = high << 32 | low
    e = row[I_EXPONENT]
    if row[I_BINARY]:
        if e > 62:
            return -1
        sec, part = t >> e, t & (1 << e) - 1
        if e > 30:
            part >>= e - 30
            e = 30
        if sec > 9_000_000_000:
            return -1
        t = sec * 1_000_000_000 + (part * 1_000_000_000 >> e)
    elif e <= 9:
        scale = 10 ** (9 - e)
        if t > MAX_TIME // scale:
            return -1
        t *= scale
    else:
        t //= 10 ** min(e - 9, 18)
    if row[I_OFFSET] > (MAX_TIME - t) // 1_000_000_000:
        return -1
    return t + row[I_OFFSET] * 1_000_000_000


@kernel
def _packet_block(d, p, n, kind, big, state, interfaces, problems, row):
    """Read an Enhanced, a Simple or an old Packet Block into a frame; returns success."""
    head = 16 if kind == SPB else 32
    if n < head:
        return False
    which = 0 if kind == SPB else u16(d, p + 8, big) if kind == OLD else u32(d, p + 8, big)
    if which >= state[INTERFACES]:
        report(problems, state, P_INTERFACE, p, 1, 0)
        return False
    if kind == SPB:
        wire = u32(d, p + 8, big)
        cap = min(wire, n - 16)
        time = state[LAST]
    else:
        cap, wire = u32(d, p + 20, big), u32(d, p + 24, big)
        high, low = u32(d, p + 12, big), u32(d, p + 16, big)
        time = _nanoseconds(high, low, interfaces[which])
        if time < 0:
            report(problems, state, P_TIME, p, 1, 0)
            time = state[LAST] if state[LAST] > 0 else -1
    start = 12 if kind == SPB else 28
    if cap > n - start - 4:
        report(problems, state, P_DAMAGED, p, n, time)
        return False
    row["time"], state[LAST] = time, max(0, time)
    row["off"] = p + start
    row["cap"] = cap
    row["wire"] = wire
    row["link"] = interfaces[which, I_LINK]
    return True


@entry
def whole_records(d, size, pos, big, units, last, waits):
    """Where the last whole record before `size` ends, from the record at pos on; pos, if there is
    none. Behind damage it goes on at the next sound record.

    waits: leave out a record until one is whole behind it, as what stands in front of damage is
    read otherwise."""
    limit = 1_000_000_000 // units
    end, after = pos, False
    while pos + 16 <= size:
        cap = u32(d, pos + 8, big)
        if cap <= MAX_FRAME and not _garbage(d, pos, big, limit, last):
            if pos + 16 + cap > size:
                break
            last = u32(d, pos, big)
            if after:
                end = pos
            pos, after = pos + 16 + cap, True
            continue
        found = _next_record(d, pos + 1, size, big, limit, last)
        if found == size:
            break
        pos, after = found, False
    return end if waits else pos


@entry
def whole_blocks(d, size, pos, big):
    """The same of pcapng's blocks."""
    while pos + 12 <= size:
        if u32(d, pos, big) == SHB and pos + 28 <= size:
            big = d[pos + 8] == 0x1A
        n = u32(d, pos + 4, big)
        if 12 <= n <= MAX_FRAME * 16 and n % 4 == 0 and pos + n > size:
            break
        if _block(d, pos, size, big) > 0:
            pos += n
            continue
        found = _next_block(d, pos + 1, size, big)
        if found == size:
            break
        pos = found
    return pos


@entry
def pcapng(d, size, state, interfaces, frames, problems):
    """As pcap(). A frame that cannot be read still has its number."""
    pos = state[POS]
    n = 0
    while n < len(frames) and pos < size:
        length = _block(d, pos, size, state[BIG])
        if length < 0:
            found = _next_block(d, pos + 1, size, state[BIG])
            cut = found == size and pos + 12 <= size and u32(d, pos + 4, state[BIG]) > size - pos
            cut = cut or pos + 12 > size
            report(problems, state, P_CUT if cut else P_DAMAGED, pos, found - pos, 0)
            pos = found
            continue
        kind = u32(d, pos, state[BIG])
        if kind == SHB:
            state[BIG] = d[pos + 8] == 0x1A
            state[INTERFACES] = 0
        elif kind == IDB and length >= 20 and state[INTERFACES] < len(interfaces):
            _interface(d, pos, length, state[BIG], interfaces[state[INTERFACES]])
            state[INTERFACES] += 1
        elif kind == EPB or kind == OLD or kind == SPB:
            row = frames[n]
            if not _packet_block(
                d, pos, length, kind, state[BIG], state, interfaces, problems, row
            ):
                row["cap"] = -1
            n += 1
            state[FRAMES] += 1
        pos += length
    _date(frames, n)
    state[POS] = pos
    state[DONE] = pos >= size
    return n
