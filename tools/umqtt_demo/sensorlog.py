"""The sensor's own count of its readings, kept apart from the way of publishing.

Knows the lines that the simulated sensor of the virtual board writes to a host file:
    take K EPOCHHEX SEQ VALUE UNIXMS    before publish() is called with the reading
    done K EPOCHHEX SEQ                 when publish() has returned
Must not know MQTT, Spark or how the readings travel.

A reading with both lines has been accepted: it must be in the table. One with the first line alone
was cut off while it was being taken: it may be in the table or not. Nothing that the store says
about itself decides which is which.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Take:
    """One reading taken: its ordinal 1.., identity, the value as the sensor gave it, and when."""

    ordinal: int
    epoch: str
    sequence: int
    value: str
    unix_ms: int

    @property
    def key(self):
        """(epoch, sequence), the identity that the pipeline knows it by."""
        return self.epoch, self.sequence


@dataclass
class SensorLog:
    """What a sensor says that it has taken.

    taken: {(epoch, sequence): Take} of the readings that publish() has accepted
    cut_off: {(epoch, sequence, ordinal): Take} of those that were cut off while being taken; the
        last one may still be on its way into the store
    complaints: lines that can't be read or contradict others, as text
    """

    taken: dict = field(default_factory=dict)
    cut_off: dict = field(default_factory=dict)
    complaints: list = field(default_factory=list)

    @property
    def begun(self):
        """Readings that were begun, whether or not publish() has accepted them."""
        return len(self.taken) + len(self.cut_off)

    def ordinals(self):
        """The ordinals of all that were begun, in order."""
        return sorted(t.ordinal for t in (*self.taken.values(), *self.cut_off.values()))


def parse(text):
    """The SensorLog of the text of a sensor.log; a last line without its end is still open."""
    log = SensorLog()
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            _line(log, line.split())
        except (ValueError, KeyError, IndexError) as error:
            log.complaints.append("line %d: %r (%s)" % (number, line, error))
    return log


def _line(log, words):
    ordinal, epoch, sequence = int(words[1]), words[2], int(words[3])
    name = epoch, sequence, ordinal
    if words[0] == "take" and len(words) == 6:
        if name in log.cut_off:
            raise ValueError("reading %d taken before" % ordinal)
        log.cut_off[name] = Take(ordinal, epoch, sequence, words[4], int(words[5]))
    elif words[0] == "done" and len(words) == 4:
        if (epoch, sequence) in log.taken:
            raise ValueError("sequence number %d given before: the store forgot a reading that "
                             "it had accepted" % sequence)
        if name not in log.cut_off:
            raise ValueError("end of a reading that was not begun")
        log.taken[epoch, sequence] = log.cut_off.pop(name)
    else:
        raise ValueError("neither take nor done")


def read(path):
    """The SensorLog of a file; an empty one if there is no file yet."""
    try:
        return parse(path.read_text())
    except FileNotFoundError:
        return SensorLog()
