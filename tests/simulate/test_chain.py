"""The simulated chain: some seeds, that it finds what is wrong, and that it says how far it is.

Knows: campaign.py, the lines that decide. Must not know: what a seed does. Each runs in a process
of its own: the explorer changes it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXPLORE = HERE.parent / "explore"
DEADLINE = 900
# Faults of the explorer's planted.txt that must be found here, too.
PLANTED = ("a segment is given up before its messages are moved",
           "a confirmation covers one too many", "a torn record counts")  # fmt: skip
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


def campaign(*words, lib=None, status=0):
    """Run it, with that copy of the library; its lines."""
    env = dict(os.environ, **({"DEVICE_LIB": str(lib)} if lib else {}))
    done = subprocess.run([sys.executable, str(HERE / "campaign.py"), *words], text=True,
                          capture_output=True, timeout=DEADLINE, env=env)  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def python(code):
    """Run code beside the simulation; its lines."""
    code = "import sys; sys.path.insert(0, %r)\n" % str(HERE) + code
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                          timeout=DEADLINE)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_each_reading_is_in_silver_once_and_it_says_how_far_it_is():
    rows = campaign("--seeds", "40", "--jobs", "1")
    assert rows[0] == "0 of 40 seeds, 0 red"
    line = re.compile(r"(\d+) of 40 seeds, \d+\.\d a second, \d+:\d\d minutes left, 0 red")
    done = [line.fullmatch(row) for row in rows[1:-1] if not row.startswith("0 ")]
    numbers = [int(match[1]) for match in done]
    assert numbers and numbers == sorted(numbers), rows
    assert re.fullmatch(r"seeds 1 to 40: \d+ readings in silver once, .*; 0 red", rows[-1]), rows


@pytest.mark.parametrize("done, seconds, says", [
    (0, 5, "0 of 10000 seeds, 2 red"),
    (10, 5, "10 of 10000 seeds, 2.0 a second, 83:15 minutes left, 2 red"),
    (10000, 900, "10000 of 10000 seeds, 11.1 a second, 0:00 minutes left, 2 red"),
])  # fmt: skip
def test_a_line_says_seeds_rate_and_time_left(done, seconds, says):
    rows = python("import campaign; print(campaign.how_far(%d, 10000, %d, 2))" % (done, seconds))
    assert rows == [says]


def test_a_red_seed_replays_to_the_step(tmp_path):
    code = "sys.path.insert(0, %r); import planted; print(planted.plant(%r, %r))"
    name = "an acknowledged message is not held"
    lib = python(code % (str(EXPLORE), name, str(tmp_path)))[0]
    rows = campaign("--seeds", "3", lib=lib, status=1)
    red = [row for row in rows if re.match(r"seed \d+, step \d+: ", row)]
    assert red and rows[-1].endswith("; %d red" % len(red)), rows
    seed, step = re.match(r"seed (\d+), step (\d+): ", red[0]).groups()
    steps = campaign("--seed", seed, lib=lib, status=1)
    assert steps[-1] == red[0]
    assert steps[-2].lstrip().startswith(step + "  "), steps[-2]


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_of_the_client_is_found(name, tmp_path):
    code = "sys.path.insert(0, %r); import planted; print(planted.plant(%r, %r))"
    lib = python(code % (str(EXPLORE), name, str(tmp_path)))[0]
    rows = campaign("--seeds", "12", "--jobs", "1", lib=lib, status=1)
    assert not rows[-1].endswith("; 0 red"), rows


def test_each_segment_of_the_journal_is_filled_again_and_again():
    code = """
import chain
ran = [chain.Chain(seed).run().board.store._serial for seed in range(1, 9)]
print(sorted(ran)[1] >= 3 * chain.CASE.blocks)
"""
    assert python(code) == ["True"]


@pytest.mark.parametrize("words", [["--first", "1"], ["--seeds", "10"]])
def test_one_seed_is_not_asked_for_beside_many(words):
    done = subprocess.run([sys.executable, str(HERE / "campaign.py"), "--seed", "5", *words],
                          text=True, capture_output=True, timeout=DEADLINE)  # fmt: skip
    assert done.returncode == 2 and "--first and --seeds are for many" in done.stderr


@pytest.mark.parametrize("words", [["--seed", "-5"], ["--first", "-1"]])
def test_a_negative_seed_is_refused(words):
    done = subprocess.run([sys.executable, str(HERE / "campaign.py"), *words], text=True,
                          capture_output=True, timeout=DEADLINE)  # fmt: skip
    assert done.returncode == 2 and "a seed must be at least 0" in done.stderr


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
