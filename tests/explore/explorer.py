"""Every order of events of a case, to the end; and a failing one made smaller.

Knows: how to walk over all states. Must not know: what happens in one.

Depth first, with the way to the state at hand as a stack of snapshots. An action is tried once for
each answer to each question that it asks: the answers so far are repeated, the first new question
is answered with its first option, and so on until all combinations were tried.
"""

import os
import signal
import time
from random import Random

import snapshot
from oracle import Broken
from world import World

# What comes first in the script of a schedule.
SCRIPT = (
    "import sys",
    "",
    'sys.path.insert(0, "tests/explore")',
    "import device  # first: it stands in for a board",
    "from cases import CASES",
    "from explorer import verdict",
    "",
)
HANG = 20  # seconds of processor that one action may take


class Chooser:
    """Answers questions as it is told, and notes them; beyond that with the first option."""

    FROZEN = True

    def __init__(self):
        self.answers = ()
        self.asked = []

    def begin(self, answers=()):
        """An action begins."""
        self.answers = answers
        self.asked = []

    def __call__(self, name, options):
        i = len(self.asked)
        answer = self.answers[i] if i < len(self.answers) else 0
        answer = min(answer, len(options) - 1)
        self.asked.append((answer, len(options), name, options[answer]))
        return answer

    def following(self):
        """The answers to try next, None if all were tried."""
        asked = [(a, n) for a, n, _, _ in self.asked]
        while asked:
            answer, n = asked.pop()
            if answer + 1 < n:
                return tuple(a for a, _ in asked) + (answer + 1,)
        return None

    def taken(self):
        """The answers that were given."""
        return tuple(a for a, _, _, _ in self.asked)


class Found(Exception):
    """A schedule that breaks something: `steps` of (action, answers), `why`."""

    def __init__(self, steps, why, explorer):
        super().__init__(why)
        self.steps = steps
        self.why = why
        self.explorer = explorer


class Node:
    """A state on the way to the one at hand."""

    def __init__(self, saved, actions, step):
        self.saved = saved
        self.actions = actions
        self.step = step  # what has led here
        self.answers = ()  # to try next with the first action


def _hangs(signum, frame):
    raise Broken("an action does not end")


class Explorer:
    """One case. sample: of so many states one is tried for a kind end; limit: of states;
    seconds: of processor; seed: of the order in which actions are tried, 0: as they are named."""

    def __init__(self, case, sample=8, limit=0, seconds=0, seed=0):
        self.case = case
        self.sample = sample
        self.limit = limit
        self.seconds = seconds
        self.random = Random(seed) if seed else None
        self.states = self.transitions = self.depth = self.ends = self.drained = 0
        self.stopped = ""  # what stopped it; "": it is complete
        self.chooser = Chooser()
        self.seen = set()
        self.world = None
        self.path = []

    def run(self):
        """Explore; returns itself. Raises Found."""
        signal.signal(signal.SIGVTALRM, _hangs)
        began = time.process_time()
        try:
            self.world = World(self.case, self.chooser)
            self._visit(None)
            while self.path and not self.stopped:
                self._advance()
                if self.limit and self.states >= self.limit:
                    self.stopped = "incomplete: %d states" % self.limit
                if self.seconds and time.process_time() - began > self.seconds:
                    self.stopped = "incomplete: %d states in %d s" % (self.states, self.seconds)
        except Broken as e:
            raise Found([node.step for node in self.path[1:]] + self._last(), str(e), self)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return self

    def _last(self):
        # The step that was being tried.
        if not self.path or not self.path[-1].actions or self.path[-1].answers is None:
            return []
        return [(self.path[-1].actions[-1], self.chooser.taken())]

    def _advance(self):
        node = self.path[-1]
        if not node.actions:
            self.path.pop()
            return
        snapshot.restore(node.saved)
        action = node.actions[-1]
        self.chooser.begin(node.answers)
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
        self.world.do(action)
        self.transitions += 1
        step = (action, self.chooser.taken())
        node.answers = self.chooser.following()
        if node.answers is None:
            node.actions.pop()
            node.answers = ()
        self._visit(step)

    def _visit(self, step):
        key = snapshot.digest(self.world, self.world.clock.now)
        if key in self.seen:
            return
        self.seen.add(key)
        self.states += 1
        actions = self.world.actions()[::-1]
        if self.random:
            self.random.shuffle(actions)
        self.path.append(Node(snapshot.capture(self.world), actions, step))
        self.depth = max(self.depth, len(self.path) - 1)
        end = not actions
        self.ends += end
        if end or self.states % self.sample == 1 % self.sample:
            self._drain()

    def _drain(self):
        node = self.path[-1]
        actions = node.actions
        node.answers = None  # the schedule ends here
        self.chooser.begin()
        self.world.drain()
        self.drained += 1
        node.actions = actions
        node.answers = ()
        snapshot.restore(node.saved)


def play(case, steps, notes=None):
    """Replay a schedule, then a kind world; what is broken, or "". Steps that are not possible
    are passed over. notes: a list to put (action, questions) into."""
    signal.signal(signal.SIGVTALRM, _hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, 3 * HANG)
    chooser = Chooser()
    try:
        world = World(case, chooser)
        for action, answers in steps:
            if action in world.actions():
                chooser.begin(answers)
                try:
                    world.do(action)
                finally:
                    if notes is not None:
                        notes.append((action, list(chooser.asked)))
        chooser.begin()
        world.drain()
    except Broken as e:
        return str(e)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def smaller(case, steps):
    """A schedule that breaks something, too, with no step or answer that is not needed."""
    changed = True
    while changed:
        changed = False
        for size in (8, 4, 2, 1):
            i = len(steps) - size
            while i >= 0:
                shorter = steps[:i] + steps[i + size :]
                if play(case, shorter):
                    steps = shorter
                    changed = True
                i -= 1
        for i, (action, answers) in enumerate(steps):
            for j, answer in enumerate(answers):
                if answer:
                    tried = answers[:j] + (0,) + answers[j + 1 :]
                    shorter = steps[:i] + [(action, tried)] + steps[i + 1 :]
                    if play(case, shorter):
                        steps = shorter
                        changed = True
                        break
    return _bare(case, steps)


def _bare(case, steps):
    # Without the steps that were passed over and the answers that nobody asked for.
    notes = []
    play(case, steps, notes)
    bare = []
    for action, asked in notes:
        answers = [a for a, _, _, _ in asked]
        while answers and not answers[-1]:
            answers.pop()
        bare.append((action, tuple(answers)))
    return bare


def _copy():
    # The copy of the library in which it was found is the one to replay it on.
    lib = os.environ.get("DEVICE_LIB")
    return ["import os", "", 'os.environ.setdefault("DEVICE_LIB", %r)' % lib, ""] if lib else []


def script(case, steps):
    """The schedule as a script that replays it."""
    notes = []
    why = play(case, steps, notes)
    lines = ["# " + why, *_copy(), *SCRIPT, "STEPS = ["]
    for (action, answers), (_, asked) in zip(steps, notes):
        words = ["%s: %s" % (name, option) for a, _, name, option in asked if a]
        note = "  # " + "; ".join(words) if words else ""
        lines.append("    (%r, %r),%s" % (action, answers, note))
    return "\n".join(lines + ["]", "sys.exit(verdict(CASES[%r], STEPS))" % case.name])


def verdict(case, steps):
    """Say whether a schedule breaks something: the exit status of its script."""
    why = play(case, steps)
    print("the fault is there: " + why if why else "the fault is not there any more")
    return 1 if why else 0
