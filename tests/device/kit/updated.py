"""A board that takes updates, without a network: what it reports, and files in a folder.

Knows the firmware's ota.py and loader.py. Must not know what a test is about.
"""

import os

import loader
import ota
from ota_kit import remove_all
from signed import Signed

ROOT = "fw_ota_test"
HERE = os.getcwd()


class Board:
    """A board as far as an update sees it; start() is a new start of the program.

    more  arguments of signed.Signed behind the first two: a board with keys
    """

    def __init__(self, *more):
        loader.ROOT = HERE + "/" + ROOT
        self._clear()
        self._more = more
        self.reports = []
        self.lines = []
        self.start()

    def start(self):
        kind = Signed if self._more else ota.Update
        self.update = kind(self.reports.append, self.lines.append, *self._more)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self._clear()

    def _clear(self):
        remove_all(loader.ROOT)
        for number in (1, 2):
            ota.remove(loader.ROOT + ".floor%d" % number)

    @property
    def last(self):
        return self.reports[-1]

    def have(self):
        self.update.tell()
        return self.last["have"]

    def give(self, made, first=0, last=None):
        for piece in made.pieces[first:last]:
            self.update.piece(piece)

    def finish(self):
        for _ in range(100):
            if self.update.step():
                return True
        return False

    def prove(self, made):
        """The command and the envelope: what comes before flash is touched."""
        self.update.begin(made.body)
        self.give(made, 0, made.head)
        self.update.step()

    def install(self, made):
        self.prove(made)
        self.give(made, made.head)
        assert self.finish(), self.lines
        self.start()
