"""The simulated chain: some seeds, and that it finds what is wrong.

Knows: simulate.py, the lines that decide. Must not know: what a seed does. Each runs in a process
of its own: the explorer changes it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DEADLINE = 900
# What is broken, before the first seed, by a line of Python: {name: line}.
FAULTS = {
    "the marks hear of packets before they are durable":
        "server.Bridge.take = lambda self, p, now: (self.spool.append((now, p)),"
        " self.marks.feed(p, True, now))",
    "a killed bridge forgets what it has not saved":
        "load = server.mark_file.load; server.mark_file.load = lambda marks, raw: ("
        "load(marks, raw), marks.marks.clear())[0]",
    "a killed bridge reads its spool from the end on":
        "server.Bridge.kill = lambda self: (self.spool.__delitem__(slice(self.durable, None)),"
        " setattr(self, 'fed', self.durable), setattr(self, 'marks', server.Marks()), [])[-1]",
    "a mark closes gaps":
        "server.Marks._add = lambda self, key, mark, n, low: setattr(mark, 'upto',"
        " max(n, mark.upto))",
    "numbers seen are forgotten with each batch":
        "told = server.told_apart; server.told_apart = lambda rows, seen: told(rows, seen[:0])",
    "a copy is taken for the reading":
        "told = server.told_apart; server.told_apart = lambda rows, seen: (rows, rows[:0], seen)",
    "the board lets go at PUBACK and never publishes again":
        "chain.CASE.hold = False",
    "the board does not look for a stall":
        "chain.Confirm._look_for_stall = lambda self: None",
    "the board does not subscribe again":
        "chain.Chain._connect = lambda self: (self.board.client.connect(), self.subscribed or"
        " self.board.client.subscribe(b'fleet/g/d/ack', 1), setattr(self, 'subscribed', True))",
}  # fmt: skip


def python(code):
    """Run code beside the explorer; its lines."""
    code = "import sys; sys.path.insert(0, %r)\n" % str(HERE) + code
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                          timeout=DEADLINE)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_each_reading_is_in_silver_once():
    rows = python("import simulate; simulate.main(['--seeds', '100', '--jobs', '1'])")
    assert rows[-1].endswith("; 0 red"), rows


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name):
    code = """
import chain, server
%s
for seed in range(1, 200):
    try:
        chain.Chain(seed).run()
    except chain.Broken as e:
        print(e)
        break
""" % FAULTS[name]
    rows = python(code)
    assert rows and rows[-1].startswith("seed "), rows


def test_a_seed_takes_the_same_steps_each_time():
    code = """
import chain
print(chain.Chain(11).run().notes == chain.Chain(11).run().notes)
"""
    assert python(code) == ["True"]
