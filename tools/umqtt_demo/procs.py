"""Child processes that can be killed like a machine loses power, and never outlive the demo.

Knows processes, their descendants and their logs. Must not know what they do.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# How a command of the pipeline says what it is at: the time, that, and for how long already.
_PROGRESS = re.compile(r"[0-9:]{8} umqtt\.progress: (.*?)(, [0-9]+ s)?")


def descendants(pid):
    """Process ids of `pid` and everything below it (Linux; elsewhere only `pid`)."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may itself hold spaces and parentheses.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(children.get(one, ()))
    return found


def kill_tree(pid, number=signal.SIGKILL):
    """Send a signal to a process, its process group if it leads one, and all below it."""
    for one in descendants(pid):
        for send in (os.kill, os.killpg):
            try:
                send(one, number)
            except (ProcessLookupError, PermissionError):
                pass


class Guard:
    """A process that kills our children if we end without having done so (SIGKILL, a crash)."""

    def __init__(self):
        self._process = subprocess.Popen([sys.executable, "-m", "umqtt_demo.procs"],
                                         stdin=subprocess.PIPE, start_new_session=True)

    def _tell(self, sign, pid):
        try:
            self._process.stdin.write(b"%s%d\n" % (sign, pid))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def watch(self, pid):
        self._tell(b"+", pid)

    def forget(self, pid):
        self._tell(b"-", pid)

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)


def _guard():
    """Body of the guard: learn process ids until the pipe closes, then kill what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    left = set()
    for line in sys.stdin.buffer:
        (left.add if line[:1] == b"+" else left.discard)(int(line[1:]))
    for pid in left:
        kill_tree(pid)


class Child:
    """A program that is started, killed and started again; its output is appended to a log.

    Arguments:
        command: list of arguments
        log: path of the log
        env: environment variables to add
        guard: a Guard, or None
    """

    def __init__(self, command, log, env=None, guard=None):
        self.command = [str(word) for word in command]
        self.log = Path(log)
        self.starts = 0
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._guard = guard
        self._process = None

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    @property
    def status(self):
        """Exit status of the last run; None while it runs or before the first."""
        return self._process.poll() if self._process else None

    def start(self):
        """Start it, unless it runs."""
        if self.running:
            return self
        with open(self.log, "ab") as log:
            self.starts += 1
            log.write(b"--- start %d: %s\n" % (self.starts, " ".join(self.command).encode()))
            log.flush()
            # Its own session: Ctrl-C reaches only us, and we end it in our order.
            self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log, env=self._env, start_new_session=True)
        if self._guard:
            self._guard.watch(self._process.pid)
        return self

    def kill(self):
        """SIGKILL to it and everything it has started, at once."""
        if self._process is None:
            return
        kill_tree(self._process.pid)
        self._reap(10)

    def stop(self, timeout=20.0):
        """Ask it to end (SIGTERM), kill what is left after `timeout` seconds; its status."""
        if self._process is None:
            return None
        # Asked for now: once their parent has ended its children are nobody's.
        family = descendants(self._process.pid)
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
        for pid in family:
            kill_tree(pid)
        return self._reap(10)

    def wait(self, timeout):
        """Wait for its end; its status, None if it still runs after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def _reap(self, timeout):
        status = self._process.wait(timeout)
        if self._guard:
            self._guard.forget(self._process.pid)
        return status

    def tail(self, lines=5):
        """The last lines of its log, as text."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def progress(self):
        """What it is at, by the last line of progress in its log; "" if there is none."""
        found = list(filter(None, map(_PROGRESS.fullmatch, self.tail(20).splitlines())))
        return found[-1][1] if found else ""


def wait_until(condition, timeout, step=0.05):
    """Call `condition` every `step` seconds until it is true; whether it was in `timeout` s."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True


if __name__ == "__main__":
    _guard()
