"""Two ways onto a board: mip with package.json, freezing with manifest.py; both whole.

Knows: the files of the library, mip of MicroPython and of mpremote, a local HTTP server.
Must not know: what the files contain.
"""

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import tty
from pathlib import Path

import pytest
from device_plugin import ROOT, command
from test_version import version

LIBRARY = ROOT / "lib" / "umqtt_min"
# makemanifest.py reads the first, CPython the second, people the third
NO_BOARD = ("manifest.py", "host.py", "contract.py")
FILES = sorted(
    p.relative_to(LIBRARY).as_posix() for folder in (LIBRARY, LIBRARY / "aio", LIBRARY / "store")
    for p in folder.glob("*.py") if p.name not in NO_BOARD
)  # fmt: skip
PACKAGE = json.loads((LIBRARY / "package.json").read_text())
IMPORT_ALL = """
import sys
sys.path[:] = [{path!r}] + [p for p in sys.path if p.startswith(".frozen")]
import umqtt_min
for name in {names!r}:
    __import__("umqtt_min." + name)
print(umqtt_min.__file__, umqtt_min.__version__)
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *args):
        """No log."""


@pytest.fixture
def server():
    """A local HTTP server of lib/: its address."""
    handler = functools.partial(Quiet, directory=ROOT / "lib")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield "http://127.0.0.1:%d" % httpd.server_port
        httpd.shutdown()
        thread.join(10)


def run(argv, **kw):
    """The output of a command that must end well within a minute."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, **kw)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed_whole(target):
    """The folder holds exactly the library, and MicroPython imports all of it from there."""
    folder = Path(target) / "umqtt_min"
    found = (p for p in folder.rglob("*") if p.is_file())
    assert sorted(p.relative_to(folder).as_posix() for p in found) == FILES
    for name in FILES:
        assert (folder / name).read_bytes() == (LIBRARY / name).read_bytes(), name
    names = [name[:-3].replace("/", ".") for name in FILES if not name.endswith("__init__.py")]
    script = IMPORT_ALL.format(path=str(target), names=names)
    out = run(command("micropython", "2M") + ["-c", script])
    assert out.split() == [str(folder / "__init__.py"), version()]


def test_package_json_lists_every_file_once_and_no_other():
    assert PACKAGE["urls"] == [["umqtt_min/" + name, name] for name in FILES]
    assert PACKAGE["deps"] == []


def test_the_version_is_the_librarys():
    assert PACKAGE["version"] == version()


def test_mip_on_the_board_installs_it(server, tmp_path):
    install = f"import mip; mip.install({server + '/umqtt_min/'!r}, target={str(tmp_path)!r})"
    out = run(command("micropython", "2M") + ["-c", install])
    assert "Done" in out, out
    installed_whole(tmp_path)


def test_mip_of_mpremote_installs_it(server, tmp_path):
    # The unix port behind a pseudo-terminal is all that mpremote needs.
    host, board = os.openpty()
    tty.setraw(board)  # before there is anybody who keeps its echo as what to go back to
    process = subprocess.Popen(
        command("micropython", "2M"), stdin=board, stdout=board, stderr=board,
        cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    try:
        port = _Pty(host)
        argv = [sys.executable, "-m", "mpremote", "connect", port.name, "resume", "mip"]
        argv += ["install", "--no-mpy", "--target", str(tmp_path), server + "/umqtt_min/"]
        run(argv)
    finally:
        process.kill()
        process.wait()
        port.close()
        os.close(board)
    installed_whole(tmp_path)


class _Pty:
    """A second pseudo-terminal, joined to the first: mpremote opens its name."""

    def __init__(self, board):
        self.board = board
        self.here, self.there = os.openpty()
        tty.setraw(self.here)
        self.name = os.ttyname(self.there)
        for a, b in ((self.here, board), (board, self.here)):
            threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, source, sink):
        try:
            while True:
                os.write(sink, os.read(source, 4096))
        except OSError:
            pass  # closed

    def close(self):
        """Close all ends."""
        for fd in (self.here, self.there, self.board):
            os.close(fd)


def test_manifest_freezes_exactly_the_package(monkeypatch):
    calls = []
    names = {
        "metadata": lambda **kw: calls.append(("metadata", kw)),
        "package": lambda path, files, base_path: calls.append((path, files, base_path)),
    }
    monkeypatch.chdir(LIBRARY)  # as makemanifest.py does
    exec(compile((LIBRARY / "manifest.py").read_text(), "manifest.py", "exec"), names)
    assert calls[0][1]["version"] == version()
    path, files, base = calls[1]
    assert files == FILES
    assert (LIBRARY / base / path).resolve() == LIBRARY


@pytest.mark.parametrize(
    "name", ["MQTTClient", "FileStore", "FlashStore", "RAMStore", "LATEST", "DROP_OLDEST", "RAISE"]
)
def test_each_name_comes_first(name):
    """In an interpreter that has loaded no other: what is imported late needs none before it."""
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'lib')!r})\n"
    script += f"from umqtt_min import {name}\nprint({name})"
    assert run([*command("micropython", "1M"), "-c", script]).strip()
