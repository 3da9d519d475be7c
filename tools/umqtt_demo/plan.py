"""Which fault comes when: drawn from a seed, so that a run can be repeated.

Knows the kinds of faults and the random numbers. Must not know how a fault is made, nor clocks:
a moment is a share of the run, 0 its first reading and 1 its last.
"""

import random
from dataclasses import dataclass

BOARD, LINK, ACK, BROKER, BRIDGE, SPARK = "board", "link", "ack", "broker", "bridge", "spark"
ALL = (BOARD, BOARD, BROKER, LINK, ACK, BRIDGE, SPARK)

# The share of a run that faults begin in; what is left at the end lets the last one show.
FIRST, LAST = 0.08, 0.88
# Shortest and longest outage of each kind, in seconds.
OUTAGE = {BOARD: (1.5, 4.0), LINK: (1.5, 4.0), ACK: (1.0, 3.0), BROKER: (1.0, 3.0),
          BRIDGE: (1.5, 4.0), SPARK: (1.0, 3.0)}


@dataclass(frozen=True)
class Fault:
    """One fault.

    kind: "board" (power cut), "link" (cut inside a PUBLISH, then down), "ack" (the same inside
        the broker's acknowledgement), "broker" (killed with messages in its memory), "bridge" or
        "spark" (killed)
    target: index 0.. of the board or its link; -1 for the others
    at: share of the readings taken, 0..1: of the target's, or of all if there is none
    seconds: how long what was cut stays away
    share: 0..1; link, ack: how much of the packet still passes; board: how soon after a reading is
        begun the current goes, 0 at once, 1 an interval later (small shares are favoured)
    number: 1.. in the order of the plan
    """

    kind: str
    target: int
    at: float
    seconds: float
    share: float
    number: int = 1


def draw(seed, boards, kinds=ALL):
    """The faults of a run, in order of time; the same for the same arguments on any Python.

    Arguments:
        seed: any int
        boards: number of boards, 1..
        kinds: the faults wanted; the board cuts all hit the same board; the links of others are
            cut, if there are others

    The run is divided in as many equal slots as there are faults and each fault falls somewhere
    in the first half of a slot, so that they are spread and still may overlap.
    """
    # Only random() is promised to give the same numbers in every version of Python.
    dice = random.Random(seed)
    order = _shuffle(list(kinds), dice)
    board = int(dice.random() * boards)
    linked = (board + 1 + int(dice.random() * max(1, boards - 1))) % boards
    answered = next((n % boards for n in range(linked + 1, linked + boards)
                     if n % boards != board), linked)
    slot = (LAST - FIRST) / max(1, len(order))
    faults = []
    for n, kind in enumerate(order):
        at = FIRST + slot * (n + 0.5 * dice.random())
        shortest, longest = OUTAGE[kind]
        seconds = shortest + (longest - shortest) * dice.random()
        share = dice.random()
        target = {BOARD: board, LINK: linked, ACK: answered}.get(kind, -1)
        faults.append(Fault(kind, target, round(at, 4), round(seconds, 2), round(share, 4),
                            n + 1))
    return faults


def _shuffle(items, dice):
    for n in range(len(items) - 1, 0, -1):
        k = int(dice.random() * (n + 1))
        items[n], items[k] = items[k], items[n]
    return items
