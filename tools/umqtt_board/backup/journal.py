"""Reads a journal image dumped from a board: `python -m umqtt_board.backup.journal IMAGE`.

Knows: lib/umqtt_min/JOURNAL.md, second half; written from it and nothing else, so that the
specification and the device code check each other.
Must not know: the device library; how an image gets off a board.

IMAGE is a file (a region, or a whole flash: segments are searched for) or the folder of a
FileStore. Exit status 0, 1 if there is damage, 2 if there is no journal or no such file.
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

MAGIC = b"uMqJ"
VERSION = 1
SHORT = {1: "PUBREC", 2: "DONE", 3: "HOLD", 4: "SENT", 5: "CONFIRM", 6: "IN+", 7: "IN-", 8: "TAIL"}
SESSION, SETTLE, PUT, MARK = 0x20, 0x21, 0x40, 0x2A
STATES = ("queued", "released", "held")


class NoJournal(Exception):
    """There is nothing to read; the text says what was looked for."""


def number(data):
    """A big-endian number."""
    return int.from_bytes(data, "big")


@dataclass
class Segment:
    """One segment of the log."""

    place: int  # offset in the image
    data: bytes
    start: int = 0  # of the first record
    epoch: bytes = b""
    serial: int = 0
    tail: int = 0
    state: dict = field(default_factory=dict)

    @property
    def page(self):
        """Bytes that no program crosses."""
        return self.data[6] * 16

    @property
    def align(self):
        """Records begin at multiples of this."""
        return 1 << (self.data[7] & 0x7F) if self.data[7] & 0x80 else 1

    @property
    def end(self):
        """Records end here at the latest."""
        return len(self.data) - (16 if self.data[7] & 0x7F == 0 else 0)

    def up(self, off):
        """The next aligned offset."""
        return -(-off // self.align) * self.align


@dataclass
class Record:
    """One record: where it is, what it says."""

    serial: int
    off: int
    size: int
    kind: int
    content: bytes
    note: str = ""

    def text(self):
        """One line about it."""
        name = SHORT.get(self.kind)
        if name:
            return f"{name} {number(self.content)}"
        if self.kind == SESSION:
            return f"SESSION {self.content.hex()}"
        if self.kind == SETTLE:
            carried = self.content[10:]
            what = f", carries {inner(self).text()}" if carried else ""
            return (f"SETTLE boot {number(self.content[6:10])}: nothing counts from segment "
                    f"{number(self.content[:4])}, {number(self.content[4:6])} on{what}")
        return (f"PUT {number(self.content[:4])} qos {self.kind >> 1 & 3}"
                f"{' retain' if self.kind & 1 else ''} {STATES[self.kind >> 3 & 3]}"
                f" {len(self.content) - 4} bytes")


def inner(record):
    """The record that a SETTLE carries, without its check value."""
    data = record.content[10:]
    kind = data[0]
    content = data[1:5] if kind in SHORT else data[3:]
    return Record(record.serial, record.off + 13, len(data), kind, content)


def header(data, place):
    """The segment at the start of data; None if there is no valid header."""
    if data[:4] != MAGIC or data[4] != VERSION or not 8 <= data[5] <= 16:
        return None
    size = 1 << data[5]
    n = 44 + data[42] + 2 * data[43]
    if len(data) < size or n + 4 > size or crc32(data[:n]) != number(data[n:n + 4]):
        return None
    segment = Segment(place, data[:size], epoch=data[8:16], serial=number(data[16:20]),
                      tail=number(data[20:24]))
    segment.start = segment.up(n + 4)
    ids = data[44 + data[42]:n]
    segment.state = {
        "boot": number(data[24:28]), "seq": number(data[28:32]), "sent": number(data[32:36]),
        "confirmed": number(data[36:40]), "last_pid": number(data[40:42]),
        "key": data[44:44 + data[42]],
        "inbound": [number(ids[i:i + 2]) for i in range(0, len(ids), 2)], "seed": data[n:n + 4],
    }
    return segment


def record_at(segment, off):
    """The valid record at an offset, None if there is none."""
    data = segment.data
    if off + 9 > segment.end:
        return None
    kind = data[off]
    if kind in SHORT:
        size, content = 9, data[off + 1:off + 5]
    elif kind in (SESSION, SETTLE) or PUT <= kind < PUT + 24:
        size = 7 + number(data[off + 1:off + 3])
        content = data[off + 3:off + size - 4]
    else:
        return None
    if off + size > segment.end:
        return None
    check = crc32(segment.state["seed"] + off.to_bytes(2, "big") + data[off:off + size - 4])
    if check != number(data[off + size - 4:off + size]):
        return None
    return Record(segment.serial, off, size, kind, content)


def load(path):
    """The bytes of an image: a file, or the files of a FileStore put together."""
    if not path.is_dir():
        return path.read_bytes()
    plain = sorted(path.glob("[0-9][0-9][0-9].log"))
    if plain:
        return b"".join(file.read_bytes() for file in plain)
    return small_files(path)


def small_files(path):
    """Segments that are cut into small files: number.piece, each behind two bytes of
    generation; a piece of another generation than piece 0 is blank."""
    pieces = {}
    for file in path.iterdir():
        match = re.fullmatch(r"(\d+)\.(\d+)", file.name)
        if match:
            pieces[int(match[1]), int(match[2])] = file.read_bytes()
    image = b""
    for segment in sorted(n for n, piece in pieces if piece == 0):
        first = pieces[segment, 0]
        if len(first) < 9 or first[2:6] != MAGIC:
            continue
        size, page = 1 << first[7], first[8] * 16
        data = bytearray(b"\xff" * size)
        for (n, piece), content in pieces.items():
            if n == segment and content[:2] == first[:2]:
                data[piece * page:piece * page + len(content) - 2] = content[2:]
        image += bytes(data[:size])
    return image


class Journal:
    """What an image holds, by the rules of JOURNAL.md."""

    def __init__(self, image):
        self.records = []
        self.damage = []  # (serial, offset, bytes)
        self.live = {}  # number: [pid, flags, state, topic, payload]
        self.segments = self._segments(image)
        self.state = {}
        self._replay()

    def _segments(self, image):
        found = []
        place = image.find(MAGIC)
        while place >= 0:
            segment = header(image[place:place + 65536], place)
            if segment:
                found.append(segment)
            place = image.find(MAGIC, place + (len(segment.data) if segment else 1))
        found = [s for s in found if self._scan(s, s.start, s.end) is not None]
        if not found:
            raise NoJournal(f"no journal in these {len(image)} bytes: no segment begins with "
                            f"{MAGIC.decode()}, version {VERSION}, and a valid check value")
        newest = max(found, key=lambda s: s.serial)
        self.epoch = newest.epoch
        mine = [s for s in found if s.epoch == newest.epoch]
        tail = max(s.tail for s in mine)
        self.strangers = len(found) - len([s for s in mine if s.serial >= tail])
        return sorted((s for s in mine if s.serial >= tail), key=lambda s: s.serial)

    def _scan(self, segment, off, end):
        """The first offset from off on at which a valid record begins."""
        while off < end:
            if segment.data[off] != 255 and record_at(segment, off):
                return off
            off += segment.align
        return None

    def _jumps(self):
        """(from, to) for every SETTLE record at a place where a recovery writes one; places
        are (serial, offset)."""
        jumps = []
        for s in self.segments:
            places = [(s.start, s.start)]
            for off in range((s.start // s.page + 1) * s.page, s.end, s.page):
                if s.data[off] == MARK:
                    places.append((off, off + s.up(1)))
            for to, off in places:
                record = record_at(s, off)
                if record and record.kind == SETTLE:
                    at = (number(record.content[:4]), number(record.content[4:6]))
                    jumps.append((at, (s.serial, to)))
        return [(at, to) for at, to in jumps if at < to]

    def _replay(self):
        self.jumps = self._jumps()
        self.here = (0, 0)  # what lies before this place does not count
        self.landed = None  # where the SETTLE record is that was jumped to last
        for segment in self.segments:
            off = segment.start
            if self.here > (segment.serial, off):
                if self.here[0] > segment.serial:
                    continue
                off = self._landing(segment)
            else:
                self._take_header(segment)
            while off < segment.end:
                off = self._step(segment, off)
        for seq in [n for n, message in self.live.items() if message[5] < self.state["tail"]]:
            del self.live[seq]

    def _landing(self, segment):
        """Offset of the SETTLE record at the place jumped to."""
        off = self.here[1]
        off = off + segment.up(1) if segment.data[off] == MARK else off
        self.landed = (segment.serial, off)
        return off

    def _step(self, segment, off):
        """Go over one record, or over what does not count or is damaged."""
        ahead = [jump for jump in self.jumps if jump[1] > (segment.serial, off)]
        jump = min(ahead, key=lambda j: (j[0], [-x for x in j[1]]), default=None)
        limit = segment.end
        landed = (segment.serial, off) in (self.landed, self.here)
        if jump and jump[0] <= (segment.serial, off) and not landed:
            self.here = jump[1]
            return self._landing(segment) if self.here[0] == segment.serial else limit
        record = record_at(segment, off)
        if record:
            self._accept(record)
            return segment.up(off + record.size)
        if jump and jump[0][0] == segment.serial:
            limit = jump[0][1]
        to = self._scan(segment, segment.up(off + 1), limit) or limit
        bad = sum(byte != 255 for byte in segment.data[off:to])
        if bad:
            self.damage.append((segment.serial, off, bad))
        return to

    def _take_header(self, segment):
        tail = max(segment.tail, self.state.get("tail", 0))
        confirmed = max(segment.state["confirmed"], self.state.get("confirmed", 0))
        seq = max(segment.state["seq"], self.state.get("seq", 0))
        boot = max(segment.state["boot"], self.state.get("boot", 0))
        self.state = dict(segment.state, tail=tail, confirmed=confirmed, seq=seq, boot=boot,
                          inbound=list(segment.state["inbound"]))
        self._forget_held()

    def _accept(self, record):
        self.records.append(record)
        if record.kind == SETTLE:
            self.state["boot"] = max(self.state["boot"], number(record.content[6:10]))
            if len(record.content) > 10:
                self._apply(inner(record))
        else:
            self._apply(record)

    def _apply(self, record):
        state, kind, content = self.state, record.kind, record.content
        value = number(content[:4])
        if kind >= PUT:
            self._put(record)
        elif kind == SESSION:
            state.update(key=content, sent=0, inbound=[])
            for message in self.live.values():
                if message[2] != 2:
                    message[2] = 0
        elif kind == 4:
            state["sent"] = max(state["sent"], value)
        elif kind == 5:
            state["confirmed"] = max(state["confirmed"], value)
            self._forget_held()
        elif kind == 6:
            state["inbound"] += [value] if value not in state["inbound"] else []
        elif kind == 7:
            state["inbound"] = [pid for pid in state["inbound"] if pid != value]
        elif kind == 8:
            state["tail"] = max(state["tail"], value)
        elif value in self.live:
            self._advance(kind, value)

    def _advance(self, kind, seq):
        if kind == 1:
            self.live[seq][2] = 1
        elif kind == 3 and seq > self.state["confirmed"]:
            self.live[seq][2] = 2
        else:
            del self.live[seq]

    def _put(self, record):
        seq, body = number(record.content[:4]), record.content[4:]
        n = number(body[:2])
        state = record.kind >> 3 & 3
        pid = number(body[2 + n:4 + n])
        if seq >= self.state["seq"]:
            self.state.update(seq=seq + 1, last_pid=pid)
        self.live.pop(seq, None)
        if state != 2 or seq > self.state["confirmed"]:
            self.live[seq] = [pid, record.kind & 7, state, body[2:2 + n], body[4 + n:],
                              record.serial]

    def _forget_held(self):
        for seq in [n for n, message in self.live.items()
                    if message[2] == 2 and n <= self.state["confirmed"]]:
            del self.live[seq]


def show(journal, records=False, out=print):
    """Print what a journal holds."""
    state = journal.state
    out(f"epoch {journal.epoch.hex()}  boot {state['boot']}  next number {state['seq']}  "
        f"sent up to {state['sent']}  confirmed up to {state['confirmed']}")
    inbound = ", ".join(map(str, sorted(state["inbound"]))) or "none"
    out(f"session {state['key'].hex() or 'none'}  incoming QoS 2: {inbound}")
    for s in journal.segments:
        count = sum(r.serial == s.serial for r in journal.records)
        out(f"segment {s.serial} at 0x{s.place:x}: {count} records")
        for r in journal.records if records else ():
            if r.serial == s.serial:
                out(f"    {r.off:5}  {r.text()}")
    out(f"{len(journal.live)} live messages")
    for seq, (pid, flags, status, topic, payload, _) in sorted(journal.live.items()):
        out(f"    {seq}  id {pid}  qos {flags >> 1}{' retain' if flags & 1 else ''}  "
            f"{STATES[status]}  {topic.decode('utf-8', 'replace')}  {len(payload)} bytes "
            f"{payload[:24].hex()}{'...' if len(payload) > 24 else ''}")
    for serial, off, n in journal.damage:
        out(f"damage: {n} bytes in segment {serial} from offset {off} on")


def main(argv=None):
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m umqtt_board.backup.journal",
                                     description="Show what a journal image holds.")
    parser.add_argument("image", type=Path, help="a dumped region or the folder of a FileStore")
    parser.add_argument("--records", action="store_true", help="every record, too")
    args = parser.parse_args(argv)
    try:
        journal = Journal(load(args.image))
    except (OSError, NoJournal) as e:
        print(f"{args.image}: {e}", file=sys.stderr)
        return 2
    show(journal, args.records)
    return 1 if journal.damage else 0


if __name__ == "__main__":
    sys.exit(main())
