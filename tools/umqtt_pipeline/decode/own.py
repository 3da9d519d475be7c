"""The user's decoders: functions from a packet to a Reading.

    def decoder(topic, payload):    # text, bytes
        return Reading(...)         # None: the packet is not for this decoder

A decoder raises Malformed with the reason for the quarantine. Any other exception becomes a
reason, too. Every Reading that it returns is checked.

Knows what a decoder may do wrong. Must not know topics, tables or Spark.
"""

import signal
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from numbers import Integral, Real
from operator import index

from umqtt_runtime import failures

from . import reasons
from .reading import Malformed, Reading, check_clock, epoch
from .reasons import LIMIT

NEEDED = ("device", "epoch", "sequence", "boot", "uptime_ms", "measurements")


def load(name):
    """The decoder that MODULE:NAME names. Raises ImportError, AttributeError, ValueError,
    TypeError."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError("expected MODULE:NAME")
    found = getattr(import_module(module), attribute)
    if not callable(found):
        raise TypeError(f"{found!r:.100} is no function of topic and payload")
    return found


@dataclass(frozen=True)
class Decoders:
    """The user's decoders, in the order in which they are asked."""

    functions: tuple = ()

    def __bool__(self):
        return bool(self.functions)

    def reading(self, topic, payload):
        """The Reading of the first decoder that takes the packet, or None. Raises Malformed for
        any fault of a decoder: none ends the program. It has the identity of what the decoder
        gave, if only other fields of that are wrong."""
        for function in self.functions:
            name, given = getattr(function, "__name__", type(function).__name__), None
            try:
                given = function(topic, payload)
                if given is not None:
                    return _checked(name, given)
            except Malformed as error:
                reason = _words(str, error).strip() or _raised(name, error)
                raise Malformed(_plain(reason), identity=_identity(given) or _named(error))
            except BaseException as error:  # the user's own code may raise SystemExit, too
                if _of_a_signal(error):
                    raise
                raise Malformed(_plain(_raised(name, error)), identity=_identity(given))
        return None


NO_DECODERS = Decoders()


def _of_a_signal(error):
    """Whether an exception may be the user's Ctrl-C. In the bridge and in Spark's workers none is:
    there SIGINT is handled without an exception, or ignored. pyspark's daemon has the same word
    for Python's own handler as for none."""
    handler = signal.getsignal(signal.SIGINT)
    pythons = handler is signal.default_int_handler and handler is not signal.SIG_IGN
    return pythons and isinstance(error, KeyboardInterrupt)


def _tried(ask, of, instead):
    """What `ask` gives of something of the user's own making, or `instead` if that raises: it may
    raise anything, as the decoder itself."""
    try:
        return ask(of)
    except BaseException as error:
        if _of_a_signal(error):
            raise
        return instead


def _words(say, error):
    """What a function says of an exception, or only its name."""
    return _tried(say, error, type(error).__name__)


def _raised(name, error):
    return f"the decoder {name}: {_words(failures.raised_at, error)}"


def _plain(text):
    """Text that a table can hold: half of a surrogate pair is no UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def _identity(given):
    """(epoch, sequence) of what a decoder gave, or None."""
    return _tried(lambda of: _right(of.epoch, of.sequence), given, None)


def _named(error):
    """(epoch, sequence) that a decoder names in its Malformed, or None."""
    return _tried(lambda of: _right(*of.identity), error, None)


def _right(epoch_, sequence):
    return _epoch(epoch_), _sequence(sequence)


def _epoch(value):
    return epoch({"ep": value}, reasons.OWN)


def _sequence(value):
    return _within(value, 1, LIMIT - 1, "sq")


def _checked(name, given):
    """A valid Reading from the result of a decoder. Raises Malformed, TypeError, ValueError."""
    if not isinstance(given, Reading):
        raise Malformed(f"the decoder {name} gave {given!r:.100}, which is no Reading")
    if any(getattr(given, field) is None for field in NEEDED):
        raise Malformed(f"the decoder {name} gave not all of {', '.join(NEEDED)}")
    measurements = [_measurement(*_triple(name, each)) for each in given.measurements]
    if not measurements:
        raise Malformed(reasons.NO_MEASUREMENT)
    sequence = _sequence(given.sequence)
    check_clock(measurements)
    lowest = None if given.low is None else index(given.low)
    return Reading(
        _text(given.device), _epoch(given.epoch), sequence,
        _within(given.boot, 0, reasons.BITS_31, "bo"),
        _within(given.uptime_ms, 0, reasons.UPTIME_MS, "up"),
        lowest if lowest is not None and 1 <= lowest <= sequence else None, measurements,
    )  # fmt: skip


def _within(value, least, most, field):
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= value <= most:
        raise Malformed(reasons.OWN[field])
    return int(value)


def _triple(name, given):
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise Malformed(f"the decoder {name} gave the measurement {given!r:.100}: one has a name, "
                        "a unit or None, and a number")  # fmt: skip
    return given


def _measurement(name, unit, value):
    if not isinstance(name, str) or not name:
        raise Malformed(reasons.NO_NAME)
    number = not isinstance(value, bool) and isinstance(value, Real | Decimal)
    try:
        found = float(value) if number else float("nan")
    except OverflowError:
        found = float("inf")
    if not abs(found) < float("inf"):
        raise Malformed(reasons.of(name, reasons.NUMBER) + reasons.kind(value))
    return _text(name), None if unit is None else _text(unit), found


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is no text")
    value.encode()  # half of a surrogate pair is no UTF-8
    return str(value)
