"""The small cases to their end, a few planted faults, and that a schedule repeats what it shows.

Knows: campaign.py, planted.py. Must not know: what is explored: the explorer changes its process,
so that it runs in one of its own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import page  # noqa: E402
import planted  # noqa: E402
from device_plugin import find_micropython  # noqa: E402

DEADLINE = 900
# Cases of which schedules are replayed on MicroPython: those whose store takes nothing from the
# heap, on a flash without a file system.
REPLAYED = ("ram-window", "ram-out", "ram-timer", "ram-hold", "ram-oldest", "ram-latest",
            "flash-out", "flash-in", "flash-hold", "flash-window", "twice", "flash-timer",
            "timer-discard", "flash-asked")  # fmt: skip
SCHEDULES = 6  # of each case
STATES = 1500  # of a case that `make test` explores; `make explore` has them all
# Quickly found; one of each room of the library. `make explore` plants all.
SAMPLE = ("DUP is missing", "PUBREC is not answered", "PUBREL before PUBREC",
          "PUBACK and PUBREC before", "each session is taken for", "PUBREC is not programmed")


def campaign(*words, status=0):
    """Run it; its lines."""
    done = subprocess.run([sys.executable, str(HERE / "campaign.py"), "--jobs", "1", *words],
                          text=True, capture_output=True, timeout=DEADLINE)  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def python(code, lib=ROOT / "lib"):
    """Run code beside the explorer, with that copy of the library; what it prints."""
    code = "import sys; sys.path.insert(0, %r); import device\n" % str(HERE) + code
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                          timeout=DEADLINE, env={**os.environ, "DEVICE_LIB": str(lib)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_order_of_events_of_the_small_cases():
    """Of the quick ones those with few states: the others take five times as long."""
    told = {row[0]: row for row in page.table(page.PAGE.read_text(), page.CASES)}
    quick = python("from cases import QUICK; print(*[case.name for case in QUICK])").split()
    names = [name for name in quick if int(told[name][1]) < STATES]
    rows = campaign("--cases", ",".join(names), "--faults", "none")
    assert len(rows) > 40
    assert all(row.endswith("complete") for row in rows[:-1]), rows
    found = page.found_cases(rows)
    assert list(found) == names
    assert found == {name: told.get(name) for name in found}, "see page.py"


def test_the_page_names_each_case_and_each_fault():
    text = page.PAGE.read_text()
    names = python("from cases import CASES; print(*CASES)").split()
    assert [row[0] for row in page.table(text, page.CASES)] == names
    assert [row[0] for row in page.table(text, page.FAULTS)] == list(planted.FAULTS)
    assert page.table(text, page.SUBJECTS) == page.subjects(text)


@pytest.mark.parametrize("words, told", [
    (["--cases", "ram-out,rain"], "no case rain. There are: ram-replies,"),
    (["--cases", "torn,,twice"], "no case . There are: ram-replies,"),
    (["--faults", ""], "--faults needs all, none, or a part of a name"),
    (["--faults", "PUBLIC"], "no planted fault has 'PUBLIC' in its name"),
    (["--jobs", "0"], "--jobs must be at least 1"),
    (["--limit", "-5"], "--limit and --seconds must be at least 0"),
    (["--seconds", "-1"], "--limit and --seconds must be at least 0"),
])
def test_what_there_is_not_is_refused(words, told):
    done = subprocess.run([sys.executable, str(HERE / "campaign.py"), *words], text=True,
                          capture_output=True, timeout=DEADLINE)  # fmt: skip
    assert done.returncode == 2 and told in done.stderr and not done.stdout


def test_a_folder_without_the_library_is_refused(tmp_path):
    env = {**os.environ, "DEVICE_LIB": str(tmp_path)}
    told = "DEVICE_LIB=%s: there is no umqtt_min in that folder" % tmp_path
    for program, status in ((HERE / "campaign.py", 2), (HERE / "worker.py", 1),
                            (ROOT / "tests/simulate/campaign.py", 2),
                            (ROOT / "tests/device/_run.py", 1)):
        done = subprocess.run([sys.executable, str(program), "x", "y"][: 2 if status == 2 else 4],
                              text=True, capture_output=True, timeout=DEADLINE, env=env)
        assert done.returncode == status and told in done.stderr, (program, done)


def test_what_was_cut_short_is_not_complete():
    words = ["--cases", "ram-out", "--faults", "none", "--limit", "100"]
    rows = campaign(*words, status=3)
    assert rows[0].endswith("incomplete: 100 states")
    assert rows[1].startswith("1 cases, of which 1 INCOMPLETE, 0 planted faults, 0 bad")


def test_a_blank_behind_a_comma_is_no_part_of_a_name():
    rows = campaign("--cases", "torn, twice", "--faults", "none")
    assert rows[-1].startswith("2 cases, 0 planted faults, 0 bad")


def test_a_worker_that_fails_is_told_and_ends_nothing(tmp_path):
    words = ["--jobs", "1", "--cases", "ram-out,torn", "--faults", "none"]
    (tmp_path / "umqtt_min").mkdir()
    (tmp_path / "umqtt_min" / "__init__.py").write_text("raise ImportError('no library')\n")
    done = subprocess.run([sys.executable, str(HERE / "campaign.py"), *words], text=True,
                          capture_output=True, timeout=DEADLINE,
                          env={**os.environ, "DEVICE_LIB": str(tmp_path)})
    assert done.returncode == 1 and "2 cases, 0 planted faults, 2 bad" in done.stdout
    assert done.stdout.count("FAILED\nthe worker ended with status 1") == 2, done.stdout


def test_it_says_what_it_is_at():
    code = """
import io, threading
from campaign import each
said = threading.Event()

class Terminal(io.StringIO):
    def write(self, text):
        if "1 of 2 cases; now slow (" in text:
            said.set()

sys.stderr = Terminal()
work = lambda name: name == "quick" or said.wait(60)
print(list(each("case", work, ["slow", "quick"], 2, every=0.05)))
"""
    assert python(code) == "[True, True]\n"


@pytest.mark.parametrize("part", SAMPLE)
def test_planted_faults_are_found(part):
    rows = campaign("--cases", "none", "--faults", part)
    assert len(rows) > 1


@pytest.mark.parametrize("name", planted.FAULTS)
def test_a_fault_can_be_planted(name, tmp_path):
    planted.plant(name, tmp_path)


def test_a_case_is_the_same_each_time_and_in_any_order():
    code = """
from cases import CASES
from explorer import Explorer
runs = [Explorer(CASES["ram-out"], seed=seed).run() for seed in (0, 0, 1, 2)]
print(len({(run.states, run.transitions, run.ends) for run in runs}))
"""
    assert python(code) == "1\n"


# ends(): the states of a case, and to what a kind world comes from all of them.
ENDS = """
import explorer
from cases import CASES
from world import World

def ends(case, kind):
    class Noted(kind):
        ends = set()

        def drain(self):
            super().drain()
            sent = [(m.accepted, m.count, m.ended, m.gone) for m in self.oracle.sent]
            self.ends.add(repr(sent + [(m.qos, m.count) for m in self.oracle.received]))

    explorer.World = Noted
    try:
        return explorer.Explorer(CASES[case], sample=1).run().states, Noted.ends
    except explorer.Found:
        return 0, {"found"}
"""


@pytest.mark.parametrize("case", ["torn", "inbox-lost", "files-inbox"])
def test_what_is_not_looked_at_changes_no_end(case):
    # The same case with all attributes in its states: more of them, and the same ends.
    code = ENDS + """
import snapshot
few = ends(%r, World)
snapshot.SKIP = {}
more = ends(%r, World)
print(few[0] < more[0], few[1] == more[1])
""" % (case, case)
    assert python(code) == "True True\n"


def test_what_the_first_two_rules_leave_out_changes_no_end(tmp_path):
    # The same case without them: more states, from which a kind world comes to the same ends; and
    # a fault is found either way.
    code = ENDS + """
class Seen(World):
    def _connected(self):
        found = super()._connected()
        if self.network.is_open() and self.network.link.packets():
            found.append("handle")
        if self.network.offers():
            found.append("arrive")
        return found

    def _handle(self):
        self.network.handle(1)  # the broker, and nothing comes back yet

    def _arrive(self):
        self.network.next_packet()  # and nobody reads it yet

few, more = ends("ram-out", World), ends("ram-out", Seen)
print(few[0] < more[0], few[1] == more[1], len(few[1]))
"""
    assert python(code) == "True True 4\n"
    lib = planted.plant("a lost session is not noticed", tmp_path)
    assert python(code, lib) == "False True 1\n"


def test_a_schedule_repeats_what_was_found_and_is_as_short_as_can_be(tmp_path):
    lib = planted.plant("PUBREL before PUBREC is durable", tmp_path)
    code = """
from cases import CASES
from explorer import Explorer, Found, play, script, smaller
case = CASES["flash-out"]
try:
    Explorer(case).run()
except Found as e:
    steps = smaller(case, e.steps)
    print(all(not play(case, steps[:i] + steps[i + 1 :]) for i in range(len(steps))))
    print(script(case, steps))
"""
    short, text = python(code, lib).split("\n", 1)
    assert short == "True"
    (tmp_path / "found.py").write_text(text)
    plain = {name: value for name, value in os.environ.items() if name != "DEVICE_LIB"}
    for env, status, says in (
        (plain, 1, "the fault is there: PUBREL before"),  # in the copy in which it was found
        ({**plain, "DEVICE_LIB": str(ROOT / "lib")}, 0, "the fault is not there any more"),
    ):
        done = subprocess.run([sys.executable, str(tmp_path / "found.py")], text=True, cwd=ROOT,
                              capture_output=True, timeout=DEADLINE, env=env)  # fmt: skip
        assert done.returncode == status and done.stdout.startswith(says), done


# Schedules on MicroPython


def replay(folder, names=REPLAYED, lib=ROOT / "lib"):
    """Draw schedules of these cases, replay them on MicroPython with that copy of the library;
    what it says."""
    tape = folder / "tape"
    subprocess.run([sys.executable, str(HERE / "record.py"), str(tape), str(SCHEDULES), *names],
                   check=True, timeout=DEADLINE)  # fmt: skip
    done = subprocess.run([find_micropython(), "-X", "heapsize=3M", str(HERE / "replay/replay.py"),
                           str(lib), str(ROOT / "tests/device/kit"), str(tape)],
                          text=True, capture_output=True, timeout=DEADLINE)  # fmt: skip
    return done.stdout + done.stderr


def test_micropython_does_the_same_and_takes_nothing_from_its_heap(tmp_path):
    said = replay(tmp_path)
    words = said.split()
    assert words[1:2] == ["schedules,"] and words[3:] == ["calls"], said
    assert int(words[0]) == SCHEDULES * len(REPLAYED) and int(words[2]) > int(words[0]), said
    tape = (tmp_path / "tape").read_text()
    for where in ("write", "read", "flash", "flash is read"):
        assert "('tick', %r)" % where in tape  # the timer has fired there


def test_a_replay_tells_what_is_done_otherwise(tmp_path):
    lib = planted.plant("PUBREC is not answered", tmp_path)
    assert "Differs: twice, seed " in replay(tmp_path, ["twice"], lib)


@pytest.mark.parametrize("line", ["bytearray(9)", "c.junk = bytearray(9)"])
def test_a_replay_tells_what_is_taken_from_the_heap(line, tmp_path):
    shutil.copytree(ROOT / "lib", tmp_path / "lib")
    path = tmp_path / "lib/umqtt_min/session.py"
    before = "        if c.sock and not c._tx.count:\n"  # in _put()
    source = path.read_text()
    assert source.count(before) == 1
    path.write_text(source.replace(before, "        %s\n%s" % (line, before)))
    assert "publish() takes " in replay(tmp_path, ["ram-window"], tmp_path / "lib")
