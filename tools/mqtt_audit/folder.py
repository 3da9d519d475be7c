"""The folder OUT of an audit: what may be in it, who works in it, how a new audit gets into it.

Knows: names in OUT, flock, renames. Must not know: captures, Spark, what a table says.

Everything is made below OUT/_staging, tables and report, and only then changes places with what
OUT has. Each audit has a folder of its own there: of one that was killed, a worker of Spark may
write on for a moment.
"""

import fcntl
import os
import shutil
import signal
import socket
import threading
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

from umqtt_runtime.files import exchange
from umqtt_runtime.stop import SIGNALS

from .capture.files import shown
from .report import summaries
from .report.columns import MARK, TABLES

LOCK, STAGING, REPORT = "_lock", "_staging", "report.html"
FOLDERS = (*TABLES, *summaries.GROUPS)
#: What OUT has, in the order in which it is put there: a folder with MARK may be replaced.
CONTENT = (MARK, *FOLDERS, REPORT)


class Refused(Exception):
    """The audit cannot be made; the text says why and what to do."""

    def __init__(self, text):
        super().__init__(shown(text))


def _others(out):
    """Names of what is in OUT and of no audit."""
    with suppress(FileNotFoundError):
        found = set(os.listdir(out)) - {LOCK, STAGING}
        return found - set(CONTENT) if MARK in found else found
    return set()


def _guests(out):
    """The same of the folders of its tables, which are removed with all that is in them."""
    for name in FOLDERS:
        with suppress(FileNotFoundError):
            yield from (f"{name}/{n}" for n in os.listdir(Path(out, name))
                        if not (n.startswith("part-") and n.endswith(".parquet")))  # fmt: skip


def check(out, captures=()):
    """Make the folder `out`, if it is missing. Raises Refused if it holds other things than an
    audit, if a capture lies in it, or if it is not to be written."""
    path = os.path.abspath(out)
    if shown(path) != path:
        raise Refused(f"{out}: the name of this folder, or of one above it, is no UTF-8, as the "
                      "tables need it; name another folder")  # fmt: skip
    try:
        real = os.path.join(os.path.realpath(out), "")
        for path in captures:
            if os.path.realpath(path).startswith(real):
                raise Refused(f"{path}: lies in {out}, which is replaced; move it elsewhere")
        others = _others(out) or set(_guests(out))
        if others:
            raise Refused(f"{out}: holds other things than an audit ({min(others)}); "
                          "name an empty or a new folder")  # fmt: skip
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{out}: {error.strerror}")
    if not os.access(out, os.W_OK):
        raise Refused(f"{out}: Permission denied")


@contextmanager
def alone(out):
    """Keep other audits off the folder `out`, which exists, as long as this lasts. Raises Refused
    if one is made there, or if this disk gives no locks.

    The lock ends with the process, however that ends. Its file is removed at the end; one that
    was left is no lock, but for the one who has locked it."""
    path = Path(out, LOCK)
    try:
        handle = _taken(path, out)
    except OSError as error:
        raise Refused(f"{path}: cannot be locked ({error.strerror}); name another folder")
    try:
        os.truncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.close(handle)


def _taken(path, out):
    """The handle of a lock file that is locked now, and in its place."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(handle, path):
                return handle
        except BlockingIOError:
            who = os.pread(handle, 300, 0).decode(errors="replace")
            os.close(handle)
            raise Refused(f"{out}: another audit is being made here{who and f' ({who})'}; wait "
                          "for its end, or name another folder")  # fmt: skip
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # of an audit that has just ended, and has removed it


def _same(handle, path):
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def staged(out):
    """A new folder for what is made, below OUT/_staging; what killed audits left there is
    removed."""
    discard(out)
    folder = Path(out, STAGING, uuid.uuid4().hex)
    folder.mkdir(parents=True)
    return folder


def discard(out):
    """Remove OUT/_staging with all that is in it, as far as that can be done."""
    shutil.rmtree(Path(out, STAGING), ignore_errors=True)


def place(made, out):
    """Have all of CONTENT, which lies in the folder `made`, change places with what OUT has of it.
    These are a few renames on one disk; if one fails the others are undone, and a signal waits.
    Raises OSError."""
    done = []
    with _undisturbed():
        try:
            for name in CONTENT:
                _swap(Path(made, name), Path(out, name))
                done.append(name)
        except BaseException:
            for name in reversed(done):
                _swap(Path(made, name), Path(out, name))
            raise


def _swap(one, other):
    """Let two paths change places; there may be nothing at one of them."""
    if not os.path.lexists(one):
        os.rename(other, one)
    elif not os.path.lexists(other):
        os.rename(one, other)
    else:
        exchange(one, other)


@contextmanager
def _undisturbed():
    """Signals that would end the process do so when this is over. Python hands them to the main
    thread: another one is not disturbed, and may not set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came, before = [], {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            signal.raise_signal(number)
