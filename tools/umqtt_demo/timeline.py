"""What happened when: the events of a run and the outages they began and ended.

Knows wall-clock time (Unix seconds, as the sensors' log has it). Must not know how a fault is
made nor how it is shown.
"""

import json
import time
from dataclasses import asdict, dataclass


@dataclass
class Outage:
    """Something was away from `start` to `end` (Unix seconds; None: still away).

    fault: number of the plan.Fault that it belongs to (one fault may take two parts away)
    kind: what is away: "board", "link", "broker", "bridge" or "spark"
    target: device name, "" if it concerns all; text: one line
    """

    fault: int
    kind: str
    target: str
    start: float
    end: float | None = None
    text: str = ""


class Timeline:
    """Events are told to `listener(seconds since start, text, kind)` and kept in a file."""

    def __init__(self, path, listener=None):
        self.started = time.time()
        self.events = []
        self.outages = []
        self._file = open(path, "w")
        self._listener = listener

    def tell(self, text, kind="info"):
        """Something happened now. kind: info, fault, back, good or bad."""
        now = time.time()
        event = {"time": round(now, 3), "kind": kind, "text": text}
        self.events.append(event)
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
        if self._listener:
            self._listener(now - self.started, text, kind)

    def away(self, fault, kind, target, text):
        """An outage of that plan.Fault begins; returns it, for back()."""
        outage = Outage(fault.number, kind, target, time.time(), text=text)
        self.outages.append(outage)
        self.tell("fault %d: %s" % (fault.number, text), "fault")
        return outage

    def back(self, outage, text):
        """The outage is over."""
        outage.end = time.time()
        self.tell("%s after %.1f s" % (text, outage.end - outage.start), "back")

    def data(self):
        """Everything as plain values, for the report."""
        return {"started": self.started, "events": self.events,
                "outages": [asdict(outage) for outage in self.outages]}

    def close(self):
        self._file.close()
