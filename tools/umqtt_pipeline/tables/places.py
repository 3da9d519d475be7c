"""Which commits of a log stand in the place of another one: somebody has copied or moved files.

Knows that numbers rise along a log. Must not know what a commit does, nor what has been decided.
"""

from bisect import bisect_left
from functools import cached_property
from typing import NamedTuple


class Places:
    """The places of the commits of one log. All of them are read for it, at the first question.

    log      a commits.Log
    of       function of the actions of a commit: its number, None if it has none
    known    numbers that the log should have; None: each commit has the number after the one
             before it
    """

    def __init__(self, log, of, known=None):
        self._log, self._of, self._known = log, of, known

    @cached_property
    def _numbers(self):
        """{version: number} of the commits that are whole and have one."""
        found = ((version, self._of(actions)) for version, actions in self._log.reread())
        return {version: number for version, number in found if number is not None}

    @cached_property
    def _in_place(self):
        """{version: number} of the commits that stand in their own place."""
        order = None
        if self._known is not None:
            order = sorted({*self._known, *self._numbers.values()})
        held = [(version, number if order is None else bisect_left(order, number))
                for version, number in self._numbers.items()]  # fmt: skip
        return {version: self._numbers[version] for version in rising(held)}

    def has_numbers(self):
        """Whether a commit has a number at all."""
        return bool(self._numbers)

    def is_strange(self, version):
        """Whether a commit that has a number stands in the place of another one."""
        return version in self._numbers and version not in self._in_place

    def before(self, version):
        """Numbers of the commits before a version that stand in their own place."""
        return {number for at, number in self._in_place.items() if at < version}

    def after(self, version):
        """The number of the first commit after a version that stands in its own place; None if
        there is none."""
        return next((number for at, number in self._in_place.items() if at > version), None)


class _End(NamedTuple):
    """The end of a chain of commits whose ranks rise. before: the _End without that commit."""

    rank: int
    version: int
    before: "_End"

    def jump(self):
        """How far it is from where the commit before it would have it."""
        return abs(self.rank - self.before.rank - (self.version - self.before.version))


def rising(ranks):
    """Versions of the most commits whose ranks rise: the others stand in the place of another one.
    Of two with the same rank it takes the one that is where the commit before it would have it.

    ranks: (version, rank) of commits, in the order of versions. The first one of a log, 0, comes
    behind a version 0 that has none
    """
    ends = []  # by length: of all chains of it the one whose last rank is lowest
    for version, rank in ranks:
        at = bisect_left(ends, rank, key=lambda end: end.rank)
        end = _End(rank, version, ends[at - 1] if at else _End(-1, 0, None))
        if at < len(ends) and ends[at].rank == rank and ends[at].jump() <= end.jump():
            continue
        ends[at : at + 1] = [end]
    chain, end = [], ends[-1] if ends else None
    while end is not None and end.before is not None:
        chain.append(end.version)
        end = end.before
    return chain[::-1]
