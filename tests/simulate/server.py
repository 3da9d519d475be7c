"""The other half of the chain: bridge, spool and ingest, without sockets, files and Spark.

Knows: which functions of umqtt_pipeline decide: Marks (what a device may let go of), decode(),
told_apart() (what is new). Must not know: the device, what goes wrong when.

A spool is a list of packets, of which the first `durable` are on disk. A batch is decided at one
instant, as ledger.py does it: the rows, the numbers seen and the place in the spool change
together or not at all.
"""

from itertools import groupby

import pyarrow as pa
from umqtt_pipeline.bridge import mark_file
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.decode.rows import decode
from umqtt_pipeline.ingest.dedup import joined_seen, told_apart
from umqtt_pipeline.tables.schema import BRONZE, READINGS, SEEN, arrow_schema

TOPIC = b"fleet/g/d/telemetry"
ROWS = arrow_schema(BRONZE)
NOTHING_SEEN = arrow_schema(SEEN).empty_table()


class Bridge:
    """Takes packets from the broker, makes them durable, acknowledges, tells marks."""

    def __init__(self):
        self.spool = []  # (received_at, packet)
        self.durable = 0
        self.fed = 0  # so far the marks know the spool
        self.saved = (0, None)  # what is on disk of the marks
        self.marks = Marks()

    def take(self, packet, now):
        """A packet is in the spool, and not durable."""
        self.spool.append((now, packet))

    def sync(self):
        """fsync; what may be acknowledged now, and the marks that are due: [(topic, payload)]."""
        self.durable = len(self.spool)
        return self._feed()

    def _feed(self, heard=True):
        # As accounts.py: what came at one time is one look into its bytes.
        for now, group in groupby(self.spool[self.fed : self.durable], lambda row: row[0]):
            self.marks.feed(b"".join(packet for _, packet in group), heard, now)
        self.fed = self.durable
        due = [self.marks.ack(key) for key in self.marks.due]
        self.marks.due.clear()
        return due

    def save(self):
        """The marks are written down, true for what is durable."""
        self.saved = self.fed, mark_file.record(self.marks, self.fed, {}, whole=True)

    def kill(self):
        """It is killed, and started again: the spool's end is gone that was not durable."""
        del self.spool[self.durable :]
        self.marks = Marks()
        self.fed, raw = self.saved
        if raw:
            self.fed = mark_file.load(self.marks, raw)[0]
        self.marks.tell_all()
        return self._feed()


class Ingest:
    """Spool to silver, batch by batch."""

    def __init__(self, bridge):
        self.bridge = bridge
        self.place = 0
        self.seen = NOTHING_SEEN
        self.silver = []  # (sequence, value)
        self.last = None  # (place, end) of the batch decided last
        self.duplicates = self.quarantined = 0

    def batch(self, most, killed=False):
        """The next packets that are durable; killed: before the batch was decided."""
        end = min(self.place + most, self.bridge.durable)
        self._batch(self.place, end, killed)

    def again(self):
        """The batch decided last is given once more, as after a restart without a checkpoint."""
        if self.last:
            self._batch(*self.last, False)

    def _batch(self, begin, end, killed):
        if begin == end:
            return  # Spark starts no batch without rows
        rows = decode(self._bronze(begin, end))
        bad = [reason for reason in rows["reason"].to_pylist() if reason is not None]
        good = rows.filter(pa.compute.is_valid(rows["sequence"])).select(list(READINGS))
        new, copies, added = told_apart(good, self.seen)
        if killed:
            return
        if len(added):
            self.seen = joined_seen(pa.concat_tables([self.seen, added]))
        self.duplicates += len(copies)
        self.quarantined += len(bad)
        for row in new.select(["sequence", "measurements"]).to_pylist():
            self.silver.append((row["sequence"], round(row["measurements"][0]["value"])))
        self.last = begin, end
        self.place = max(self.place, end)

    def _bronze(self, begin, end):
        times, packets = zip(*self.bridge.spool[begin:end])
        behind = 4 + len(TOPIC)  # a PUBLISH of QoS 0, shorter than 128 bytes
        same = {"topic": TOPIC.decode(), "qos": 0, "retain": False, "dup": False, "packet_id": 0,
                "spool": "s", "date": 0}  # fmt: skip
        columns = {name: [value] * len(times) for name, value in same.items()}
        columns |= {"payload": [packet[behind:] for packet in packets], "received_at": times,
                    "offset": range(begin, end)}  # fmt: skip
        return pa.table(columns, schema=ROWS)
