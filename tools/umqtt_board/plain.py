"""Words for a terminal. Text that came from a board or a broker is made fit for one: it says what
it says, and does nothing. No escape sequence, no control character (C0, C1), nothing that turns
the direction of what stands beside it.

Pure: text, or a number, in; text out.
"""

import codecs


def line(text):
    """One line: what is not printable, a line feed too, stands there escaped."""
    return "".join(_shown(letter) for letter in str(text))


def block(text):
    """Text of several lines, each as line() makes it."""
    return "\n".join(line(part) for part in str(text).split("\n"))


def counted(count, word):
    """How many things of a word, that an "s" makes several: "1 board", "2 boards"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _shown(letter):
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


class Stream:
    """Bytes as a serial line brings them, in pieces of any size."""

    def __init__(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data):
        """Return the text of these bytes; a carriage return is left out."""
        return block(self._decoder.decode(data).replace("\r", ""))
