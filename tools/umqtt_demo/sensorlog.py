"""The sensor's own count of its readings, kept apart from the way of publishing.

Knows the lines that the simulated sensor of the virtual board writes to a host file:
    take K EPOCHHEX SEQ VALUE UNIXMS    before the reading is given to the client
    void K EPOCHHEX SEQ                 at the next boot, if the reading never became durable
Must not know MQTT, Spark or how the readings travel.
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


@dataclass
class SensorLog:
    """What a sensor says that it has taken.

    taken: {(epoch, sequence): Take} of the readings that count
    takes, voids: number of lines of each kind
    complaints: lines that can't be read or contradict others, as text
    """

    taken: dict = field(default_factory=dict)
    takes: int = 0
    voids: int = 0
    complaints: list = field(default_factory=list)

    @property
    def count(self):
        """Readings taken: takes less voids."""
        return self.takes - self.voids


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
    key = epoch, sequence
    if words[0] == "take" and len(words) == 6:
        log.takes += 1
        if key in log.taken:
            raise ValueError("sequence number %d taken before" % sequence)
        log.taken[key] = Take(ordinal, epoch, sequence, words[4], int(words[5]))
    elif words[0] == "void" and len(words) == 4:
        log.voids += 1
        if log.taken[key].ordinal != ordinal:
            raise ValueError("void of another reading")
        del log.taken[key]
    else:
        raise ValueError("neither take nor void")


def read(path):
    """The SensorLog of a file; an empty one if there is no file yet."""
    try:
        return parse(path.read_text())
    except FileNotFoundError:
        return SensorLog()
