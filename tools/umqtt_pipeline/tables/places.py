"""Which commits of a log stand in the place of another one: somebody has copied or moved files.

Knows that numbers rise along a log. Must not know what a commit does, nor what has been decided.
"""

from bisect import bisect_left
from collections import Counter
from functools import cached_property


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

    def between(self, version):
        """The numbers of the last commit before a version, and of the first one after it, that
        stand in their own place; None for none."""
        before = [number for at, number in self._in_place.items() if at < version]
        after = [number for at, number in self._in_place.items() if at > version]
        return before[-1] if before else None, after[0] if after else None


def rising(ranks):
    """Versions of the most commits whose ranks rise: the others stand in the place of another one.
    Of as many it takes those that lie as far from their rank as others do: one that was copied or
    exchanged is alone with that.

    ranks: (version, rank) of commits, in the order of versions. The first one of a log, 0, comes
    behind a version 0 that has none
    """
    far = Counter(version - rank for version, rank in ranks)
    far[1] += 1  # of that version 0
    ends = _Ends(1 + max((rank for _, rank in ranks), default=0))
    for version, rank in ranks:
        ends.take(version, rank, far[version - rank] > 1)
    return ends.longest()


class _Ends:
    """Chains of commits whose ranks rise, by the rank of their last one: of each the best, which
    has the most commits, and of those the most that are not alone. A Fenwick tree of maxima."""

    def __init__(self, size):
        self._size, self._best = size, {}  # {node: (commits, not alone, (version, its chain))}

    def take(self, version, rank, not_alone):
        count, known, chain = self._before(rank)
        made, node = (count + 1, known + not_alone, (version, chain)), rank + 1
        while node <= self._size:
            self._keep(node, made)
            node += node & -node

    def _keep(self, node, made):
        if node not in self._best or made[:2] > self._best[node][:2]:
            self._best[node] = made

    def _before(self, rank):
        """The best chain whose last rank is below this one."""
        best = (0, 0, None)
        while rank > 0:
            best = max(best, self._best.get(rank, best), key=lambda each: each[:2])
            rank &= rank - 1
        return best

    def longest(self):
        """The versions of the best of all."""
        found, chain = [], self._before(self._size)[2]
        while chain:
            version, chain = chain
            found.append(version)
        return found[::-1]
