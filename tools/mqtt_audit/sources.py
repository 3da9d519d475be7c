"""Where captures come from beside files: standard input, an interface; and what of them is told at
once.

Knows: streams, dumpcap. Must not know: formats, what is in a capture.
"""

import logging
import os
import re
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from . import run, worker
from .capture.files import Capture, NotACapture, magic, shown
from .capture.incoming import Incoming
from .capture.sizes import packed
from .folder import Refused
from .following import Following
from .report import columns
from .report.lines import cut_frames, nothing
from .together.groups import overlap
from .warming import warm

log = logging.getLogger("umqtt.audit")

INPUT = "-"
NAME = "standard input"
DROPPED = "frames that came faster than dumpcap could take them, and are missing: {:,}"
PIECE = 1 << 20  #: bytes read at once
HEAD_PIECE = 1 << 14  #: the same where only the first frame is looked for
LAST_S = 0.5  #: seconds for the last bytes of a pipe, after a signal
#: The capture filter of `live`: TCP, and what may hide it from a filter: VLAN tags that the kernel
#: leaves in the frame, as the second of two, PPPoE, and extension headers of IPv6. The word `vlan`
#: would do for the tags on Ethernet, but there are interfaces for which libpcap refuses it.
TAGGED = ("0x8100", "0x88a8", "0x9100", "0x8864")
#: The first of IPv6's extension headers (RFC 7045): behind them `tcp` finds nothing.
EXTENDED = (0, 43, 44, 51, 60)
FILTER = " or ".join(["tcp", *(f"ether proto {kind}" for kind in TAGGED),
                      *(f"ip6[6] = {kind}" for kind in EXTENDED)])  # fmt: skip
#: How lines begin that dumpcap writes of every capture.
USUAL = ("Capturing on", "File:", "Packets captured:", "Packets received/dropped")
NO_DUMPCAP = (
    "dumpcap is not installed, which does the capturing. It comes with Wireshark: Debian and "
    "Ubuntu: apt install tshark; Fedora: dnf install wireshark-cli; macOS: brew install wireshark"
)


def _pieces(handle):
    """What comes from a file handle, as soon as it is there."""
    while raw := os.read(handle, PIECE):
        yield raw


def _from_first(pieces, then):
    """The same; then() is called once the first is there."""
    for number, raw in enumerate(pieces):
        if not number:
            then()
        yield raw


def _until_told(stop, handle):
    """The same, up to a signal. The program that writes may have got it too: its last bytes may
    take LAST_S seconds."""
    told, tell = os.pipe()
    stop.tell(lambda: os.write(tell, b"."))
    pieces = _pieces(handle)
    try:
        while told not in select.select([handle, told], [], [])[0]:
            if not (raw := next(pieces, b"")):
                return
            yield raw
        until = time.monotonic() + LAST_S
        while (left := until - time.monotonic()) > 0 and select.select([handle], [], [], left)[0]:
            if not (raw := next(pieces, b"")):
                return
            yield raw
    finally:
        stop.tell(lambda: None)
        os.close(told)
        os.close(tell)


@contextmanager
def files(captures, stop):
    """(paths, {path: name}) of captures; standard input is written into a file for so long. A
    signal to `stop` ends standard input; the next one ends the program."""
    captures = list(captures)
    if INPUT not in captures:
        yield captures, {}
        return
    with tempfile.TemporaryDirectory(prefix="mqtt-audit-") as folder:
        path = str(Path(folder, "input"))
        with open(path, "wb") as out:
            for raw in _until_told(stop, sys.stdin.fileno()):
                out.write(raw)
        stop.tell(None)
        yield [path if c == INPUT else c for c in captures], {path: NAME}


def _first(path):
    """The time of the first frame of a packed capture, in ns, or 0: no more of it is unpacked than
    that takes."""
    incoming = Incoming(path)
    with open(path, "rb") as source, suppress(NotACapture):
        pieces = map(incoming.take, iter(partial(source.read, HEAD_PIECE), b""))
        for _, _, frames in chain(chain.from_iterable(pieces), incoming.end()):
            if len(frames):
                return int(frames["time"][0])
    return 0


def _span(path):
    """The times of the first and the last frame of a capture, in ns. When a packed one ends is not
    known before it is unpacked: only its first frame is asked for."""
    if packed(path):
        return _first(path), 0
    first, last = None, 0
    for _, frames in Capture(path):
        if len(frames):
            first = int(frames["time"][0]) if first is None else first
            last = max(last, int(frames["time"].max()))
    return first or 0, last


def _in_order(paths):
    """[(span, path)] of captures that can be read, by the time of their first frame; - is last.
    Raises Refused if there is none."""
    good, bad = [], []
    for path in dict.fromkeys(p for p in paths if p != INPUT):
        try:
            magic(path)
            good.append(path)
        except NotACapture as error:
            bad.append(str(error))
    if not good and INPUT not in paths:
        raise Refused("\n".join(bad))
    for why in bad:
        log.warning("left out: %s", why)
    warm()
    found = sorted((_span(path), path) for path in good)
    return found + [((0, 0), INPUT)] * (INPUT in paths)


def _together(found, ports, scratch):
    """What _in_order() found as lists of (path, result of worker.whole() or None), in order of
    time; those in one list are read as one."""
    files = [(span, path) for span, path in found if path != INPUT and not packed(path)]
    until = None
    for (first, last), _ in files:
        if until is not None and overlap(first, last, until):
            break
        until = last if until is None else max(until, last)
    else:
        return [[(path, None)] for _, path in found]
    paths = [path for _, path in files]
    split = run.in_order(worker.whole([worker.split(k, path, shown(path), 1, scratch, scratch)])
                         for k, path in enumerate(paths))  # fmt: skip
    groups = [(min(s["first"] or 0 for s in members), [(paths[s["number"]], s) for s in members])
              for members in worker.together(split, ports, scratch, 1)]  # fmt: skip
    groups += [(first, [(path, None)]) for (first, _), path in found
               if path != INPUT and path not in paths]  # fmt: skip
    groups.sort(key=lambda group: group[0])
    last = [[(path, None)] for _, path in found if path == INPUT]
    return [members for _, members in groups] + last


def _weave(following, members, sink, scratch):
    """Tell what several captures hold that are read as one."""
    names = [shown(path) for path, _ in members]
    split = [dict(s, number=k) for k, (_, s) in enumerate(members)]
    wrong = list(worker.said_of(split, names))
    for name, _, what in wrong:
        log.warning("%s: %s", name, what)
    sink("problems", columns.files(wrong))
    for name, (_, s) in zip(names, members):
        for rows in (worker.damage_of(s["number"], scratch),
                     columns.problems(s["headers"], {0: name}),
                     columns.stepped(name, s["steps"])):  # fmt: skip
            if rows.num_rows:
                sink("problems", rows)
    woven = worker.woven([(s["number"], path, shown(path), s["parts"], s["ahead"])
                          for path, s in members], 0, scratch)  # fmt: skip
    some = [s for s in split if s["first"] is not None]
    following.weave(woven, np.concatenate([s["steps"] for s in split]),
                    min(s["first"] for s in some), max(s["last"] for s in some))  # fmt: skip


def lines(captures, sink, ports, stop=None):
    """Tell what captures hold while they are read. stop: a signal to it ends standard input, which
    nobody can read again, and what was read of it is told. Raises Refused if none can be read."""
    cut = 0

    def told(table, rows):
        nonlocal cut
        cut += cut_frames(rows) if table == "problems" else 0
        sink(table, rows)

    following, found, read = Following(told, ports), _in_order(captures), 0
    with tempfile.TemporaryDirectory(prefix="mqtt-audit-") as scratch:
        for members in _together(found, ports, scratch):
            if len(members) > 1:
                _weave(following, members, told, scratch)
                read += 1
            else:
                read += _read(following, members[0][0], stop)
    following.finish()
    if not read:
        raise Refused("no capture could be read")
    if not following.packets:
        log.warning("%s", nothing(cut))


def _read(following, path, stop):
    """Tell what one capture holds; whether it could be read."""
    try:
        if path == INPUT:
            handle = sys.stdin.fileno()
            following.capture(NAME, _until_told(stop, handle) if stop else _pieces(handle),
                              not stat.S_ISREG(os.fstat(handle).st_mode))  # fmt: skip
            return True
        with open(path, "rb") as source:
            following.capture(shown(path), _pieces(source.fileno()))
    except NotACapture as error:
        if stop and stop.asked:  # before its beginning had come
            return True
        log.warning("%s", error)
        return False
    return True


def dropped(said):
    """How many frames dumpcap did not get, by what it says at its end."""
    return sum(int(n) for n in re.findall(r"received/dropped on interface .*: \d+/(\d+)", said))


def _said(text):
    """What dumpcap says of a fault, without what it says of every capture."""
    return " ".join(line.strip().removeprefix("dumpcap: ") for line in text.splitlines()
                    if line.strip() and not line.startswith(USUAL))  # fmt: skip


def live(stop, interface, wanted, sink, ports):
    """Tell what passes an interface, until a signal comes; why it ended without one, or None.
    wanted: a capture filter. Raises Refused if nothing can be captured there."""
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
        began = True
        try:
            following.capture(interface, _from_first(
                _pieces(dumpcap.stdout.fileno()),
                lambda: log.info("following %s; Ctrl-C ends it", interface)), True)  # fmt: skip
        except NotACapture:  # it ended before its first byte
            began = False
        finally:
            with suppress(OSError):
                dumpcap.terminate()
        said = dumpcap.stderr.read().decode(errors="replace")
    why = None if stop.asked else f"dumpcap ended: {_said(said) or f'status {dumpcap.returncode}'}"
    if why and not began:
        raise Refused(why)
    if dropped(said):
        what = DROPPED.format(dropped(said))
        log.warning("%s: %s", interface, what)
        sink("problems", columns.files([(interface, "dropped", what)]))
    following.finish()
    return why
