"""Where a passphrase comes from: the environment, a file that it names, or the terminal.

Knows the terminal. Must not know what the passphrase locks.
"""

import os
import sys
from pathlib import Path

import click

from umqtt_board.errors import BoardError

LEAST = 12  # characters
MOST = 1023  # bytes that a PEM file's lock takes


class Passphrase:
    """One passphrase.

    variable  that may hold it; the variable VARIABLE_FILE may name a file with it instead
    what      it locks, in words
    """

    def __init__(self, variable, what):
        self.variable, self.what = variable, what

    @property
    def source(self):
        """The variable that says it, for what is told of it."""
        return self.variable if self.variable in os.environ else f"{self.variable}_FILE"

    def given(self):
        """What the environment says, None for nothing. BoardError for a file that is not there,
        and for what can be no passphrase."""
        if self.variable in os.environ:
            return self._fit(os.environ[self.variable])
        path = os.environ.get(f"{self.variable}_FILE")
        if path is None:
            return None
        try:
            return self._fit(Path(path).read_text().rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise BoardError(f"{self.variable}_FILE={path} cannot be read: "
                             f"{getattr(error, 'strerror', error)}.")  # fmt: skip

    def _fit(self, word):
        try:
            size = len(word.encode())
        except UnicodeEncodeError:
            raise BoardError(f"The passphrase of {self.what} is no UTF-8 ({self.variable}).")
        if size > MOST:
            raise BoardError(f"The passphrase of {self.what} has {size} bytes: {MOST} at most.")
        return word

    def __call__(self):
        """The passphrase of what is locked; BoardError when nobody can be asked."""
        found = self.given()
        return self._asked() if found is None else found

    def new(self, optional=False):
        """A new passphrase, of LEAST characters or more; "" only if it is optional."""
        found = self.given()
        if found is None:
            found = self._asked(**({"default": "", "show_default": False} if optional else {}))
            # click's own confirmation would ask twice for the Enter that means none.
            if found and click.prompt("  the same once more", hide_input=True) != found:
                raise BoardError("These were two different passphrases: run the command again.")
        if len(found) < LEAST and not (optional and not found):
            raise BoardError(f"A passphrase of {LEAST} characters or more, please: it is all that "
                             "stands between a copy of this file and the fleet.")  # fmt: skip
        return found

    @staticmethod
    def can_ask():
        """Whether somebody sits at a terminal."""
        return sys.stdin.isatty()

    def _asked(self, **how):
        if not self.can_ask():
            raise BoardError(f"The passphrase of {self.what} is needed, and there is no terminal "
                             f"to ask at: set {self.variable}, or {self.variable}_FILE to the "
                             "name of a file that holds it.")  # fmt: skip
        return self._fit(click.prompt(f"  passphrase of {self.what}", hide_input=True, **how))
