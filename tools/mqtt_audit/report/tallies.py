"""Sums that are taken while rows go by, so that nothing has to read millions of them again: how
many messages took how long, and how many packets there were when.

Knows: rows of compiled/layout.py. Must not know: Spark, files.

Latencies are counted on a scale of steps of 2 %: a median or a percentile from it is right to 1 %.
"""

import numpy as np
import pyarrow as pa

from ..compiled.layout import F_DONE, TYPES
from . import columns

STEP = 1.02
BINS = 200  #: of the timeline
_NO_LATENCY = 4095


def _grouped(key, *values):
    """(the different keys, sums of each of `values`); the last one is not summed: the greatest."""
    found, place = np.unique(key, return_inverse=True)
    *summed, biggest = values
    most = np.zeros(len(found), np.int64)
    np.maximum.at(most, place, biggest)
    return found, *[np.bincount(place, v, len(found)).astype(np.int64) for v in summed], most


class Tallies:
    """spans: [(first, last)] in ns of the times that the captures cover, in order. The time
    between two of them has no part of the timeline."""

    def __init__(self, spans):
        spans = np.array(spans, np.int64)
        lengths = spans[:, 1] - spans[:, 0] + 1
        self._starts, self._before = spans[:, 0], np.cumsum(lengths) - lengths
        self.width = max(1, -(-int(lengths.sum()) // BINS))
        self._packets = np.zeros(2 * len(TYPES) * BINS, np.int64)
        self._flows = [(np.zeros(0, np.int64),) * 4]

    def packets(self, rows):
        """Count rows of layout.PACKET."""
        span = np.maximum(np.searchsorted(self._starts, rows["time"], "right") - 1, 0)
        at = rows["time"] - self._starts[span] + self._before[span]
        at = np.clip(at // self.width, 0, BINS - 1)
        kind = rows["from_server"].astype(np.int64) * len(TYPES) + columns.types(rows)
        self._packets += np.bincount(kind * BINS + at, minlength=len(self._packets))

    def flows(self, rows, known):
        """Count rows of layout.FLOW that are over. known: of which it is known how long they
        took, if they are acknowledged: none ended before it began."""
        done = (rows["outcome"] == F_DONE) & known
        took = np.where(done, rows["done"] - rows["first"], 0)
        step = np.rint(np.log(np.maximum(took / 1000, 1)) / np.log(STEP)).astype(np.int64)
        key = rows["conn"] << 6 | rows["sender"] << 5 | rows["qos"] << 3 | rows["outcome"]
        key = key << 12 | np.where(done, np.minimum(step, _NO_LATENCY - 1), _NO_LATENCY)
        again = rows["dup"] + rows["nodup"]
        self._flows.append(_grouped(key, np.ones(len(rows), np.int64), again, took))

    def latencies(self, clients, brokers):
        """The table of latencies. clients, brokers: names of each connection."""
        key, messages, again, longest = _grouped(*map(np.concatenate, zip(*self._flows)))
        step, conn = key & 4095, key >> 18
        none = step == _NO_LATENCY
        qos = (key >> 15 & 3).astype(np.int16)
        return columns.build(columns.LATENCIES, {
            "client_id": pa.array([clients[k] for k in conn], pa.string()),
            "broker": pa.array([brokers[k] for k in conn], pa.string()),
            "sender": columns.words(key >> 17 & 1, columns.WAYS),
            "qos": columns.numbers(qos, pa.int16(), qos == 0),
            "outcome": columns.words(key >> 12 & 7, columns.OUTCOMES),
            "latency_ms": columns.numbers(STEP**step / 1000, pa.float64(), none),
            "messages": columns.numbers(messages, pa.int64()),
            "retransmissions": columns.numbers(again, pa.int64()),
            "longest_ms": columns.numbers(longest / 1e6, pa.float64(), none),
        })  # fmt: skip

    def timeline(self):
        """The table of the packets over time."""
        counts = self._packets.reshape(2, len(TYPES), BINS)
        side, kind = np.nonzero(counts.any(axis=2))
        at = np.arange(BINS) * self.width
        span = np.searchsorted(self._before, at, "right") - 1
        start = self._starts[span] + at - self._before[span]
        return columns.build(columns.TIMELINE, {
            "time": columns.times(np.tile(start, len(side))),
            "sender": columns.words(np.repeat(side, BINS), columns.WAYS),
            "type": columns.words(np.repeat(kind, BINS), TYPES),
            "packets": columns.numbers(counts[side, kind].ravel(), pa.int64()),
        })  # fmt: skip
