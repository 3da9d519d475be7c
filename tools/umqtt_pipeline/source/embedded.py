"""The bridge inside the source, for a laptop: `.option("broker", "HOST:PORT")`.

Knows how the bridge is started as a process of its own beside the planner of the query, and that
it ends with it. Must not know packets or spools. A process, not a thread: what it does when
messages come must not wait for Spark, and it is killed and started again like any other bridge.
"""

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..spool.files import SpoolError, make_folder

PATIENCE = 30.0
_SET_PDEATHSIG = 1


class Embedded:
    """The bridge of one stream; `ensure` starts it, and again when it was killed.

    broker   HOST:PORT        folder   its spool
    topics   topic filters, separated by commas; None: those of the bridge
    """

    def __init__(self, broker, folder, topics=None):
        self.broker, self.folder, self.topics = broker, folder, topics
        self._process = None

    def ensure(self):
        """Start the bridge if it does not run; wait until there is a spool.

        Raises SpoolError with what the bridge says when it ends by itself.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None and self._process.returncode == 2:
            raise SpoolError(f"the bridge in the source has ended: {self._said()}")
        self._start()
        until = time.monotonic() + PATIENCE
        while not Path(self.folder, "spool.json").exists():
            if self._process.poll() is not None:
                raise SpoolError(f"the bridge in the source does not start: {self._said()}")
            if time.monotonic() > until:
                raise SpoolError(f"the bridge in the source made no spool in {PATIENCE:g} s")
            time.sleep(0.05)

    def _start(self):
        make_folder(self.folder)
        command = [sys.executable, "-c", "from umqtt_pipeline.cli import main; main()", "bridge",
                   "--broker", self.broker, "--spool", str(self.folder)]  # fmt: skip
        for topic in filter(None, (self.topics or "").split(",")):
            command += ["--topic", topic.strip()]
        self._log = Path(self.folder, "bridge.log")
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_end_with_me
            )

    def _said(self):
        return self._log.read_text(errors="replace").strip().rpartition("\n")[2][:500]

    def stop(self):
        """End the bridge in good order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE)


def _end_with_me():
    """The planner may be killed: have the system end the bridge then (Linux)."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM)


def check(folders):
    """A stream with a broker has one spool. Raises ValueError."""
    if len(folders) != 1:
        raise ValueError("option broker: with it, path names one spool")


