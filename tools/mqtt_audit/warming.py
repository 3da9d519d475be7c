"""The inner loops compiled before they are needed, and what is said meanwhile.

Knows: which loops there are, the log. Must not know: what is audited.
"""

import logging
import os
import threading
import time
from contextlib import nullcontext

import numpy as np

from .capture.files import content
from .capture.records import STATE, pcap, pcapng
from .compiled import jit, kept
from .compiled.layout import FRAME, PROBLEM
from .decoder import Decoder
from .tcp.headers import Endpoints

log = logging.getLogger("umqtt.audit")

LOOK_S = 0.25  #: between looks at whether anything is compiled: loops that are kept are loaded
EVERY_S = 10.0


class _Said:
    """Says, as long as it lasts, that the loops are being compiled and how many of them are."""

    def __enter__(self):
        self._over, self._told = threading.Event(), 0.0
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def _tell(self):
        while not self._over.wait(LOOK_S):
            made, now = jit.compiled(), time.monotonic()
            if made and not self._told:
                log.info("compiling the inner loops, once for this installation: "
                         "a minute or two on an idle computer")
            elif made and now - self._told > EVERY_S:
                log.info("compiling: %d of %d loops", max(made, kept.loops()), len(jit.LOOPS))
            else:
                continue
            self._told = now

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        if self._told:
            log.info("compiled in %.0f s", time.monotonic() - self._started)


def _wait():
    log.info("waiting: another process compiles the inner loops")


def warm():
    """Have the inner loops compiled here, once, before several workers would do it; returns how
    long it took, in seconds. A process that begins meanwhile waits, and takes what this one made;
    where all are kept nobody waits. Nothing is done if Python runs them (kept.py)."""
    started = time.monotonic()
    if kept.plain():
        return 0.0
    with _Said(), nullcontext() if kept.compiled() else kept.alone(_wait):
        data, frames = content(os.devnull), np.zeros(0, FRAME)
        problems = np.zeros(0, PROBLEM)
        pcap(data, 0, np.zeros(STATE, np.int64), frames, problems)
        pcapng(data, 0, np.zeros(STATE, np.int64), np.zeros((1, 4), np.int64), frames, problems)
        rows = Endpoints().segments(data, 1, frames)
        decoder = Decoder(lambda *_: None, (), set(), [(0, 0)])
        decoder.warm(rows)
        kept.keep()
    return time.monotonic() - started
