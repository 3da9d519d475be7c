"""The counting: what the sensors took against what is in the table, exactly.

Knows identities (device, epoch, sequence), ordinals and values. Must not know how either side was
read: both come as plain values, so that a test can be off by one on purpose.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One row of silver: a record that a device sent.

    ordinal: the value of its "reading" measurement, None if the record is not a reading
    value: {measurement name: number}; taken_ms, bridge_ms, table_ms: Unix milliseconds at which
    it was taken (as silver reckons), came to the bridge, was committed to silver; None: unknown
    """

    device: str
    epoch: str
    sequence: int
    ordinal: int | None = None
    copies: int = 1
    taken_ms: float | None = None
    bridge_ms: float | None = None
    table_ms: float | None = None
    value: dict = field(default_factory=dict, hash=False)


@dataclass
class Verdict:
    """What became of the readings of one device; every list must be empty.

    taken: readings that publish() accepted; cut_off: readings that were cut off while being taken,
    which may be in silver or not; arrived: how many of those are; cuts: how often the power went,
    and so how many may have been cut off; rows: readings in silver
    """

    device: str
    wanted: int
    taken: int = 0
    cut_off: int = 0
    arrived: int = 0
    cuts: int = 0
    rows: int = 0
    duplicates: int = 0
    missing: list = field(default_factory=list)
    extra: list = field(default_factory=list)
    twice: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    gaps: list = field(default_factory=list)
    complaints: list = field(default_factory=list)

    @property
    def ok(self):
        return not self.faults()

    def faults(self):
        """What is wrong, one line each; nothing if every count is exact."""
        found = []
        if self.taken + self.cut_off != self.wanted:
            found.append("%d readings taken and %d cut off, %d wanted"
                         % (self.taken, self.cut_off, self.wanted))
        if self.cut_off > self.cuts:
            found.append("%d readings cut off while being taken; the power was cut %d times"
                         % (self.cut_off, self.cuts))
        if self.rows != self.taken + self.arrived:
            found.append("%d readings taken, %d rows in silver" % (self.taken, self.rows))
        for name, text in (("missing", "not in silver"), ("extra", "in silver and never taken"),
                           ("twice", "more than once in silver"),
                           ("wrong", "another reading in silver than was taken"),
                           ("gaps", "gaps in the sequence numbers"),
                           ("complaints", "contradictions")):
            items = getattr(self, name)
            if items:
                found.append("%d %s: %s" % (len(items), text, _some(items)))
        return found


def _named(item):
    """A text, an ordinal, (epoch, sequence) or (epoch, first, last), in few characters."""
    if isinstance(item, tuple):
        return "%s:%s" % (item[0][:8], "-".join(str(n) for n in item[1:]))
    return str(item)


def _some(items, most=5):
    shown = ", ".join(_named(item) for item in items[:most])
    return shown + (", ..." if len(items) > most else "")


def judge(device, wanted, log, rows, bronze=None, cuts=0):
    """Compare one device's SensorLog with its rows in silver.

    Arguments:
        device: its name
        wanted: number of readings that it was told to take
        log: sensorlog.SensorLog
        rows: all Rows of the device in silver, records that are no readings included
        bronze: number of messages of the device in bronze; None: believe the rows' `copies`
        cuts: how often the device lost its power and got it back, 0.., counted by who cut it. One
            reading may have been cut off each time. More are a fault: without this bound, a
            firmware that never says that publish() has returned would owe the table nothing.

    Returns a Verdict.
    """
    rows = [row for row in rows if row.device == device]
    readings = [row for row in rows if row.ordinal is not None]
    result = Verdict(device, wanted, len(log.taken), len(log.cut_off), cuts=cuts,
                     rows=len(readings))
    result.complaints = list(log.complaints)
    seen = Counter((row.epoch, row.sequence) for row in rows)
    result.twice = sorted(key for key, n in seen.items() if n > 1)
    there = {(row.epoch, row.sequence): row for row in readings}
    result.missing = sorted(key for key in log.taken if key not in there)
    arrived = {take.key: take for take in log.cut_off.values()
               if take.key in there and there[take.key].ordinal == take.ordinal}
    result.arrived = len(arrived)
    result.extra = sorted(key for key in there if key not in log.taken and key not in arrived)
    _compare(result, {**arrived, **log.taken}, there)
    _ordinals(result, wanted, log, readings)
    result.gaps = gaps(rows)
    copies = bronze if bronze is not None else sum(row.copies for row in rows)
    result.duplicates = copies - len(rows)
    return result


def _compare(result, takes, there):
    for key, take in sorted(takes.items()):
        row = there.get(key)
        if row is None:
            continue
        if row.ordinal != take.ordinal:
            result.wrong.append("%s: reading %d taken, %s in silver"
                                % (_named(key), take.ordinal, row.ordinal))
        elif round(row.value.get("temperature", 0) * 100) != int(take.value):
            result.wrong.append("%s: %s hundredths of a degree taken, %s degrees in silver"
                                % (_named(key), take.value, row.value.get("temperature")))


def _ordinals(result, wanted, log, readings):
    # By the sensor's own count, which knows nothing of the numbers that the store gives.
    every, begun = Counter(range(1, wanted + 1)), Counter(log.ordinals())
    accepted = Counter(take.ordinal for take in log.taken.values())
    in_silver = Counter(row.ordinal for row in readings)
    for text, numbers in (
            ("readings not taken", every - begun),
            ("readings once too often taken", begun - every),
            ("readings not in silver", accepted - in_silver),
            ("readings once too often in silver", in_silver - every)):
        if numbers:
            result.complaints.append("%s: %s" % (text, _some(sorted(numbers))))


def gaps(rows):
    """[(epoch, first missing, last missing)] below the highest sequence number of each epoch."""
    found = []
    by_epoch = {}
    for row in rows:
        by_epoch.setdefault(row.epoch, set()).add(row.sequence)
    for epoch, numbers in sorted(by_epoch.items()):
        expected = 1
        for number in sorted(numbers):
            if number > expected:
                found.append((epoch, expected, number - 1))
            expected = number + 1
    return found


def compare_spark(verdicts, spark):
    """Complaints where Spark's own per-device result differs from ours; [] if it agrees.

    Arguments:
        verdicts: list of Verdict, from rows that pyarrow read
        spark: {device: {"rows": int, "gaps": int, "duplicates": int}}, any key may be absent
    """
    found = []
    for verdict in verdicts:
        theirs = spark.get(verdict.device)
        if theirs is None:
            found.append("%s: not in Spark's result" % verdict.device)
            continue
        missing = sum(last - first + 1 for _, first, last in verdict.gaps)
        for name, ours in (("rows", verdict.rows), ("gaps", missing),
                           ("duplicates", verdict.duplicates)):
            if name in theirs and theirs[name] != ours:
                found.append("%s: %s %d by pyarrow, %d by Spark"
                             % (verdict.device, name, ours, theirs[name]))
    return found
