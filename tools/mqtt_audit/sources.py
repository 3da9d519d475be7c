"""Where captures come from beside files: standard input, an interface; and what of them is told at
once.

Knows: streams, dumpcap. Must not know: formats, what is in a capture.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .capture.files import Capture, NotACapture, magic, packed
from .folder import Refused
from .following import Following
from .warming import warm

log = logging.getLogger("umqtt.audit")

INPUT = "-"
NAME = "standard input"
PIECE = 1 << 20  #: bytes read at once
NO_DUMPCAP = (
    "dumpcap is not installed, which does the capturing. It comes with Wireshark: Debian and "
    "Ubuntu: apt install tshark; Fedora: dnf install wireshark-cli; macOS: brew install wireshark"
)


def _pieces(handle):
    """What comes from a file handle, as soon as it is there."""
    while raw := os.read(handle, PIECE):
        yield raw


@contextmanager
def files(captures):
    """(paths, {path: name}) of captures; standard input is written into a file for so long."""
    captures = list(captures)
    if INPUT not in captures:
        yield captures, {}
        return
    with tempfile.TemporaryDirectory(prefix="mqtt-audit-") as folder:
        path = str(Path(folder, "input"))
        with open(path, "wb") as out:
            for raw in _pieces(sys.stdin.fileno()):
                out.write(raw)
        yield [path if c == INPUT else c for c in captures], {path: NAME}


def _begins(path):
    """When the first frame of a capture was, in ns; 0 if that is not known before it is unpacked,
    so that it is read first."""
    if packed(path):
        return 0
    for _, frames in Capture(path):
        if len(frames):
            return int(frames["time"][0])
    return 0


def _in_order(paths):
    """The captures that can be read, by the time of their first frame; - comes last."""
    good = []
    for path in dict.fromkeys(p for p in paths if p != INPUT):
        try:
            magic(path)
            good.append(path)
        except NotACapture as error:
            log.warning("left out: %s", error)
    if good or INPUT in paths:
        warm()
    return sorted(good, key=lambda p: (_begins(p), p)) + [INPUT] * (INPUT in paths)


def lines(captures, sink, ports):
    """Tell what captures hold while they are read. Raises Refused if none can be read."""
    following, paths, read = Following(sink, ports), _in_order(captures), 0
    for path in paths:
        with ExitStack() as stack:
            source = sys.stdin if path == INPUT else stack.enter_context(open(path, "rb"))
            handle = source.fileno()
            try:
                following.capture(NAME if path == INPUT else path, _pieces(handle))
                read += 1
            except NotACapture as error:
                log.warning("%s", error)
    following.finish()
    if not read:
        raise Refused("no capture could be read" if paths else "none of these is a capture")


def live(stop, interface, wanted, sink, ports):
    """Tell what passes an interface, until a signal comes. wanted: a capture filter. Raises
    Refused if nothing can be captured there."""
    if not shutil.which("dumpcap"):
        raise Refused(NO_DUMPCAP)
    warm()
    following = Following(sink, ports)
    argv = ["dumpcap", "-q", "-i", interface, "-f", wanted, "-w", "-"]
    # In a session of its own: Ctrl-C is for this process, which ends it.
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True) as dumpcap:  # fmt: skip
        stop.tell(dumpcap.terminate)
        stop.leave(dumpcap.kill)
        try:
            log.info("following %s; Ctrl-C ends it", interface)
            following.capture(interface, _pieces(dumpcap.stdout.fileno()))
        except NotACapture:  # it ended before its first byte
            pass
        finally:
            with suppress(OSError):
                dumpcap.terminate()
        said = dumpcap.stderr.read().decode(errors="replace")
    if not stop.asked and dumpcap.returncode:
        raise Refused(f"dumpcap ended: {said.strip() or dumpcap.returncode}")
    following.finish()
