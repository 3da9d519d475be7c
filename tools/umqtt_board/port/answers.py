"""What goes to a board and comes back, with a sum of each: a serial line has no check of its own,
and one letter changed in an answer is another password, or no file where there is one.

A program is sent as a text with its sum, and the board does nothing before that agrees. It answers
by calling `_say(value)`: the value as Python writes it, a tabulator, the sum of that and of the
question's own sum. Each question has a number, so no answer is taken for that of another question,
and a board that gets a question again says again what it said, and does nothing twice.

Pure. Knows: how a sum is reckoned on either side, shapes of values.
Must not know: ports, what is asked.
"""

import ast
import hashlib
from dataclasses import dataclass

from umqtt_board.port.built_in import OWN

_BYTES = 6  # of a SHA-256 in a sum: no line changes an answer into one that has its sum, too
UNLIKE = "ValueError: not what was sent"  # how the error of a board ends that got another program

_WHAT = f"""
def _sum_of(text):
    return int.from_bytes(_sha(text).digest()[:{_BYTES}], "big") if _sha else repr(text)
def _do(code, total):
    global _asked, _said, _done
    if _sum_of(code) != total and _sha:
        raise {UNLIKE.replace(": ", "('")}')
    if total != _asked:
        _asked, _said, _done = total, None, False
        exec(code, globals())
        _done = True
    elif not _done:
        raise {UNLIKE.replace(": ", "('")}')
    elif _said is not None:
        _say_again()
def _say(value):
    global _said
    _said = repr(value)
    _say_again()
def _say_again():
    print(_said, _sum_of(_said + str(_asked)), sep="\\t")
if "_asked" not in globals():
    _asked = None
{OWN}
"""


def _sum(text):
    data = text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:_BYTES], "big")


#: Sent first, with a sum, too. A Python without SHA-256 is none that we can use: it repeats what
#: it says, so that we can say which it is.
BEGIN = f"""
_sha = None
for _name in ("uhashlib", "hashlib"):  # MicroPython's own, whatever lies in its filesystem
    try:
        _sha = _sha or __import__(_name).sha256
    except (ImportError, AttributeError):
        pass
_what = {_WHAT!r}
if _sha and int.from_bytes(_sha(_what).digest()[:{_BYTES}], "big") != {_sum(_WHAT)}:
    raise {UNLIKE.replace(": ", "('")}')
exec(_what, globals())
"""


@dataclass(frozen=True)
class Answer:
    """What a board has said: the text of the value, whether its sum agrees, whether it had one,
    and whether that was none but a copy, for want of SHA-256."""

    text: str
    agrees: bool
    summed: bool
    copied: bool = False


class Question:
    """A program that a board is asked to run once.

    code    the program
    number  one that no other question to this board has
    """

    def __init__(self, code, number):
        code = f"#{number}\n{code}"
        self._total = _sum(code)
        self.program = f"_do({code!r},{self._total})"  # as it is sent to one that has had BEGIN

    def answer(self, said):
        """The Answer in what a board has printed, a text: its last line."""
        lines = said.strip().splitlines() or [""]
        text, tab, total = lines[-1].rpartition("\t")
        if not tab:
            return Answer("\n".join(lines), False, False)
        bound = f"{text}{self._total}"
        copied = total == repr(bound)
        return Answer(text, copied or total == str(_sum(bound)), True, copied)


def value(text, shape):
    """The value that a text is, a Python literal of this shape. Raises ValueError.

    shape  a type: just that one, so that True is no int; None: None; a tuple: a tuple of as many,
           each of its shape; a list of one: a list of any length, each of that; a set of types and
           None: one of them; object: whatever it is
    """
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(str(error))
    if not _fits(found, shape):
        raise ValueError("it has another shape")
    return found


def _fits(found, shape):
    if isinstance(shape, set):
        return any(_fits(found, each) for each in shape)
    if isinstance(shape, tuple):
        return (type(found) is tuple and len(found) == len(shape)
                and all(map(_fits, found, shape)))  # fmt: skip
    if isinstance(shape, list):
        return type(found) is list and all(_fits(each, shape[0]) for each in found)
    return shape is object or found is shape or type(found) is shape
