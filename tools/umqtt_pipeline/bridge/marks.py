"""How far each device's readings have arrived without a gap: the state behind `.../ack`.

Knows identities of readings and ranges of numbers. Must not know sockets or files (mark_file.py
saves and restores it); it is fed only with what the spool has made durable.
"""

import json
import logging
import re
from bisect import bisect_right
from contextlib import contextmanager

import numpy as np

from .. import wire
from ..decode import firmware
from ..decode.own import NO_DECODERS
from ..decode.payloads import identity, reading
from ..decode.reading import Malformed
from ..decode.signed import NO_KEYS, NONE

log = logging.getLogger("umqtt.bridge")

#: Numbers that a reading may be ahead of the highest of its epoch, at once and for each second
#: since that one came: a sensor takes a reading each millisecond at most (firmware/settings.py).
AHEAD, AHEAD_PER_S = 4096, 1000
CLOCK_US = 86_400_000_000  #: a time further ahead than that came from a clock that was wrong
MISSING_LIMIT = 16  #: ranges listed in one ack
RANGE_LIMIT = 4096  #: ranges kept per epoch; beyond it the highest are asked for again
TELEMETRY = b"/telemetry"
OWNER = re.compile(rb"fleet/[^/]+/([^/]+)/telemetry", re.DOTALL)
#: What to do about readings without a code, if they are the device's own.
OLDER = (
    ". If the device took them before it signed, and holds them, its mark stands until a bridge "
    'has had them without --telemetry-keys (firmware/SECURITY.md, "Signed readings")'
)


def _owned(name, payload):
    """Whether a payload is a reading of the device whose telemetry topic `name` is. Anybody who
    may publish can write any `low`; one that is no reading ends in quarantine, and settles
    nothing."""
    owner = OWNER.fullmatch(name)
    try:
        return owner is not None and reading(payload).device.encode() == owner[1]
    except Malformed:
        return False


def _is_power_of_two(count):
    """Whether to tell of the count-th: whoever forges one forges many."""
    return count & (count - 1) == 0


def _each(frames, body, judge):
    """What `judge` says of each message, as a bool array."""
    places = zip(frames.topic, frames.topic_end, frames.payload, frames.end)
    return np.array([judge(body, *each) for each in places], bool)


class Mark:
    """Sequence numbers seen of one epoch: all up to `upto`, and separate ranges above. `at`: when
    the last of them came, unix us; 0 for an epoch that nothing is known of yet, or not when.
    `number`: how many marks were made before it."""

    __slots__ = ("upto", "starts", "ends", "at", "number")

    def __init__(self, upto=0, ranges=(), at=0, number=0):
        self.upto = upto
        self.at = at
        self.number = number
        # Most devices have no gap: two shared empty tuples instead of two lists each.
        self.starts = [a for a, _ in ranges] if ranges else ()
        self.ends = [b for _, b in ranges] if ranges else ()

    def too_far(self, sequence, now):
        """By how many numbers more than its device can have taken by `now`, unix us, a reading is
        ahead of all that came; 0: it is not. It grows with the time, so that a device whose time
        this computer's clock has lost is heeded again. If the clock has gone back by more than a
        day, nobody knows how much time has passed."""
        if not self.at or self.at - now > CLOCK_US:
            return 0
        highest = self.ends[-1] if self.ends else self.upto
        more = sequence - highest - AHEAD
        return max(0, more - max(0, now - self.at) * AHEAD_PER_S // 1_000_000) if more > 0 else 0

    def add(self, sequence, low):
        """Sequence number `sequence` arrived; all below `low` (None: not known) is settled on the
        device."""
        if low is not None and low > self.upto + 1:
            self.upto = low - 1
            self._absorb()
        if sequence == self.upto + 1:
            self.upto = sequence
            if self.starts:
                self._absorb()
        elif sequence > self.upto:
            self._insert(sequence)

    def _absorb(self):
        starts, ends = self.starts, self.ends
        while starts and starts[0] <= self.upto + 1:
            starts.pop(0)
            self.upto = max(self.upto, ends.pop(0))

    def _insert(self, sequence):
        if not self.starts:
            self.starts, self.ends = [sequence], [sequence]
            return
        starts, ends = self.starts, self.ends
        at = bisect_right(starts, sequence)  # the range before `at` is the only one to hold it
        if at and sequence <= ends[at - 1] + 1:
            if sequence <= ends[at - 1]:
                return
            ends[at - 1] = sequence
            at -= 1
        else:
            starts.insert(at, sequence)
            ends.insert(at, sequence)
        if at + 1 < len(starts) and starts[at + 1] == ends[at] + 1:
            ends[at] = ends.pop(at + 1)
            starts.pop(at + 1)
        if len(starts) > RANGE_LIMIT:
            starts.pop()
            ends.pop()

    def join(self, other):
        """All that `other` has seen has arrived."""
        upto, starts, ends = max(self.upto, other.upto), [], []
        for start, end in sorted((*zip(self.starts, self.ends), *zip(other.starts, other.ends))):
            if starts and start <= ends[-1] + 1:
                ends[-1] = max(ends[-1], end)
            elif start <= upto + 1:
                upto = max(upto, end)
            else:
                starts.append(start)
                ends.append(end)
        self.upto, self.at = upto, max(self.at, other.at)
        self.starts, self.ends = starts[:RANGE_LIMIT] or (), ends[:RANGE_LIMIT] or ()

    def missing(self, limit=MISSING_LIMIT):
        """The first gaps as [[first, last], ...]."""
        out, after = [], self.upto
        for start, end in zip(self.starts[:limit], self.ends):
            out.append([after + 1, start - 1])
            after = end
        return out


class Marks:
    """The marks of all devices, and which of them have to be told.

    decoders: of one's own, which are asked first, as ingest does. keys: of the devices that sign
    their readings: what is not signed moves no mark of theirs.

    `due` holds (telemetry topic, epoch) of every epoch heard of since it was last told: also a
    duplicate puts it there, since a device that repeats itself has not got the mark. `changed`
    holds each Mark that is not as it was when all were `saved`, `named` how many there were then.
    """

    def __init__(self, decoders=NO_DECODERS, keys=NO_KEYS):
        self.decoders, self.keys = decoders, keys
        self.marks = {}  # never loses one: their order is that of Mark.number
        self.due = {}
        self.changed, self.named = set(), 0
        self.unreadable = 0
        self.held_back = 0  #: readings that no device can have made when they came
        self.unsigned = 0  #: readings without their device's code
        self._now = 0

    def join(self, others):
        """Take over what `others`, the Marks of another bridge, say as well."""
        for key, theirs in others.marks.items():
            mark = self._mark(key)
            mark.join(theirs)
            self.changed.add(mark)

    @contextmanager
    def uncounted(self):
        """What is fed meanwhile is in none of the counters: an earlier run or another bridge has
        counted it."""
        before = self.unreadable, self.held_back, self.unsigned
        try:
            yield
        finally:
            self.unreadable, self.held_back, self.unsigned = before

    def feed(self, body, heard=True, now=0):
        """Take in durable messages: the bytes of PUBLISH packets, the more at once the better:
        what the firmware packs is looked into by column, and one dict look-up for each message
        is what remains in Python. heard: false if another bridge received them and will tell.
        now: when they came, unix us; 0: not known, and every number is heeded."""
        due, self.due = self.due, self.due if heard else {}
        self._now = now
        try:
            self._feed(body, wire.frames(body))
        finally:
            self.due = due

    def _feed(self, body, frames):
        if self.keys:
            frames = frames.part(_each(frames, body, self._genuine))
        if self.decoders:
            frames = frames.part(~_each(frames, body, self._feed_own))
        raw = np.frombuffer(body + bytes(firmware.SPARE), np.uint8)
        readable, epochs, sequences, lows = firmware.identities(raw, frames.payload, frames.end)
        self._feed_known(body, frames.part(readable), epochs[readable], sequences[readable],
                         lows[readable])  # fmt: skip
        others = frames.part(~readable)
        for topic, topic_end, payload, end in zip(
            others.topic, others.topic_end, others.payload, others.end
        ):
            name, found = body[topic:topic_end], identity(body[payload:end])
            if found is None or not name.endswith(TELEMETRY):
                self.unreadable += 1
            else:
                epoch, sequence, low = found
                mark = self._mark((name, epoch))
                if low is not None and low > mark.upto + 1 and not _owned(
                        name, body[payload:end]):  # fmt: skip
                    low = None
                self._add((name, epoch), mark, sequence, low)

    def _genuine(self, body, topic, topic_end, payload, end):
        """Whether a message may move a mark: it is signed, or its device does not sign."""
        name = body[topic:topic_end]
        fault = name.endswith(TELEMETRY) and self.keys.fault(name, body[payload:end])
        if fault:
            self.unsigned += 1
            if _is_power_of_two(self.unsigned):
                advice = OLDER if fault == NONE else ""
                log.warning("a reading on %s moves no mark: %s (%d such in all)%s",
                            name.decode(errors="backslashreplace"), fault, self.unsigned, advice)
        return not fault

    def _feed_own(self, body, topic, topic_end, payload, end):
        """Whether a message is one for a decoder of one's own; if so it is taken in."""
        name = body[topic:topic_end]
        owner = OWNER.fullmatch(name)
        if owner is None:
            return False
        try:
            found = self.decoders.reading(name.decode(errors="replace"), body[payload:end])
        except Malformed as error:
            if error.identity is None:
                self.unreadable += 1
            else:  # ingest has it in quarantine; its `low` is not believed
                key = name, error.identity[0]
                self._add(key, self._mark(key), error.identity[1], None)
            return True
        if found is not None:
            low = found.low if found.device.encode() == owner[1] else None
            key = name, found.epoch
            self._add(key, self._mark(key), found.sequence, low)
        return found is not None

    def _feed_known(self, body, frames, epochs, sequences, lows):
        """Messages whose identity is known, as arrays; epochs: where the 8 bytes begin."""
        names = [body[a:b] for a, b in zip(frames.topic.tolist(), frames.topic_end.tolist())]
        keys = zip(names, [body[a : a + 8] for a in epochs.tolist()])
        marks, due, now, changed = self.marks, self.due, self._now, self.changed
        known = zip(keys, sequences.tolist(), lows.tolist())
        for row, (key, sequence, low) in enumerate(known):
            mark = marks.get(key)
            if mark is None:
                if not key[0].endswith(TELEMETRY):
                    self.unreadable += 1
                    continue
                mark = self._made(key)
            due[key] = None
            if sequence == mark.upto + 1 and not mark.starts and low <= sequence:
                mark.upto, mark.at = sequence, now
                changed.add(mark)
            else:
                if low > mark.upto + 1:  # seldom: so only here a packet is decoded as a whole
                    payload = body[frames.payload[row] : frames.end[row]]
                    low = low if _owned(key[0], payload) else None
                self._add(key, mark, sequence, low)

    def _add(self, key, mark, sequence, low):
        """Take a number in, unless no device can have come so far."""
        if self._now:
            far = mark.too_far(sequence, self._now)
            if far:
                self.held_back += 1
                self._tell_held_back(key, sequence, far)
                return
            mark.at = self._now
        mark.add(sequence, low)
        self.changed.add(mark)

    def _tell_held_back(self, key, sequence, far):
        if _is_power_of_two(self.held_back):
            log.warning("%s: number %d of epoch %s is %d ahead of what its device can have taken "
                        "by now: it moves no mark (%d such in all). Somebody publishes in its "
                        "name?", key[0].decode(errors="backslashreplace"), sequence, key[1].hex(),
                        far, self.held_back)  # fmt: skip

    def _mark(self, key):
        """The mark of (topic, epoch), made if need be, and due to be told."""
        self.due[key] = None
        mark = self.marks.get(key)
        return self._made(key) if mark is None else mark

    def _made(self, key):
        mark = self.marks[key] = Mark(number=len(self.marks))
        self.changed.add(mark)
        return mark

    def saved(self):
        """All is written down as it is."""
        self.changed.clear()
        self.named = len(self.marks)

    def ack(self, key):
        """Topic and JSON payload (bytes) that tell a device its mark."""
        topic, epoch = key
        mark = self.marks[key]
        missing = json.dumps(mark.missing(), separators=(",", ":")) if mark.starts else "[]"
        payload = f'{{"epoch":"{epoch.hex()}","upto":{mark.upto},"missing":{missing}}}'
        return topic[: -len(TELEMETRY)] + b"/ack", payload.encode()

    def tell_all(self):
        """Everything is to be told again: the broker has lost what it retained."""
        self.due = dict.fromkeys(self.marks)
