"""Children end when they are told to, with all they started, and with us."""

import os
import signal
import subprocess
import sys

import pytest
from processes import alive
from umqtt_demo.procs import Child, Guard, descendants, wait_until

# A child with a grandchild in a session of its own; both print their ids and sleep.
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print("ids", os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def ids(log):
    def lines():
        text = log.read_text() if log.exists() else ""
        return [line for line in text.splitlines() if line.startswith("ids ")]

    assert wait_until(lines, 20)
    return [int(word) for word in lines()[-1].split()[1:]]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_child_goes_with_all_it_started(tmp_path, how):
    child = Child([sys.executable, "-c", FAMILY], tmp_path / "log").start()
    pids = ids(tmp_path / "log")
    assert set(pids) <= set(descendants(child._process.pid))
    getattr(child, how)()
    assert not child.running
    assert wait_until(lambda: not any(map(alive, pids)), 10)
    if how == "kill":
        assert child.status == -signal.SIGKILL


def test_a_child_can_be_started_again(tmp_path):
    child = Child([sys.executable, "-c", "print('x')"], tmp_path / "log")
    for n in (1, 2):
        child.start()
        assert child.wait(60) == 0 and child.starts == n
    assert (tmp_path / "log").read_text().count("\nx\n") == 2


def test_what_a_child_is_at_is_its_last_line_of_progress(tmp_path):
    child = Child([sys.executable], tmp_path / "log")
    assert child.progress() == ""
    child.log.write_text("18:53:42 umqtt.gold: from the tables in x\n"
                         "18:53:44 umqtt.progress: Spark: starting, 1 s\n"
                         "18:54:19 umqtt.progress: gold: restarts, 3 of 7 tables, 28 s\n"
                         "18:54:20 umqtt.gold: restarts: 2 rows\n")  # fmt: skip
    assert child.progress() == "gold: restarts, 3 of 7 tables"


def test_stop_asks_first(tmp_path):
    code = ("import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
            "print('ids 0', flush=True)\ntime.sleep(600)")
    child = Child([sys.executable, "-c", code], tmp_path / "log").start()
    ids(tmp_path / "log")
    assert child.stop() == 7


def test_the_guard_kills_what_a_killed_parent_left(tmp_path):
    parent = """
import sys, time
from umqtt_demo.procs import Child, Guard
Child([sys.executable, "-c", %r], %r, guard=Guard()).start()
print("watched", flush=True)
time.sleep(600)
""" % (FAMILY, str(tmp_path / "log"))
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    pids = ids(tmp_path / "log")
    # Until then the guard may not know of the child, which has begun before.
    assert process.stdout.readline() == b"watched\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert wait_until(lambda: not any(map(alive, pids)), 60)


def test_the_guard_lets_go_of_what_has_ended(tmp_path):
    guard = Guard()
    child = Child([sys.executable, "-c", "print('x')"], tmp_path / "log", guard=guard).start()
    child.wait(60)
    child.stop()
    guard.close()
