"""A command is told to end, or its Java is killed, at a moment between exec and exit; `ended` says
what came of it. tests/pipeline/chaos.py --starts N does it at random moments.

Knows processes and what a command may say. Must not know tables.
"""

import os
import re
import signal
import tempfile
import time
from pathlib import Path

from pipeline_kit import family, fill, flat, publish, run, senml, spawn, wait_for

LINE = re.compile(r"[0-9:]{8} umqtt\.\w+: ")  #: a line of the log
SERVICES = ("ingest", "bridge")  #: for which an end is no failure
STRIKES = ("TERM", "INT", "group TERM", "group INT", "all TERM", "all INT", "java")
PATIENCE = 180  # a machine may be very busy


def listens(process):
    """Whether our first line has run: SIGTERM has a handler."""
    told = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", told, re.MULTILINE)[1], 16)
    return caught >> (signal.SIGTERM - 1) & 1


def _java(process):
    """But not one that is only asked for its version: another is taken for one that is killed."""
    return [pid for pid, line in family(process.pid) if b"java\0" in line
            and b"-version" not in line]  # fmt: skip


def begins(process):
    """Whether a Java is there: at first one that makes the command line of the other."""
    return _java(process)


def connects(process):
    """Whether the Java that makes the session is there."""
    return [pid for pid, line in family(process.pid) if b"java\0" in line
            and b"SparkSubmit\0" in line and b"launcher.Main\0" not in line]  # fmt: skip


MOMENTS = (listens, begins, connects)


class Start:
    """One command, in a process group of its own; `folder` takes its log and temporary files."""

    def __init__(self, folder, *command):
        self.command, self.log = command[0], Path(folder, "log")
        self.temporary = Path(folder, "tmp")
        self.temporary.mkdir()
        self.process = spawn(*command, log=self.log, preexec_fn=os.setsid,
                             TMPDIR=str(self.temporary))  # fmt: skip

    def wait(self, moment):
        """Wait until `moment(process)`, or the end."""
        wait_for(lambda: self.process.poll() is not None or moment(self.process), PATIENCE,
                 moment.__name__)  # fmt: skip

    def strike(self, how):
        """One of STRIKES; of a process that has ended, nothing."""
        pid = self.process.pid
        try:
            if how == "java":
                self.wait(_java)
                for java in _java(self.process):
                    os.kill(java, signal.SIGKILL)
            elif how.startswith("all"):  # systemd's KillMode=control-group
                for each in [pid, *(child for child, _ in family(pid))]:
                    os.kill(each, signal.Signals["SIG" + how.split()[1]])
            elif how.startswith("group"):
                os.killpg(pid, signal.Signals["SIG" + how.split()[1]])
            else:
                self.process.send_signal(signal.Signals["SIG" + how])
        except ProcessLookupError:
            pass  # it was just ending by itself

    def ended(self, how):
        """Wait for the end; AssertionError if status and words are not what `how` allows."""
        status, said = self.process.wait(PATIENCE), self.log.read_text()
        words = "".join(line for line in said.splitlines(True) if not LINE.match(line))
        where = f"{self.command}, {how}: status {status}: {said}"
        assert list(self.temporary.glob("umqtt-java-*")) == [], where
        if status == 0:
            assert words == "", where
        elif how == "java":
            assert status == 1 and words.startswith("Error: Spark's Java was ended by SIGKILL "), (
                where)  # fmt: skip
        else:
            name = "SIG" + how.split()[-1]
            assert self.command not in SERVICES, where
            assert status == 128 + signal.Signals[name], where
            assert words.startswith(f"Error: ended by {name} before it was done; "), where
        assert words.count("\n") <= 1, where
        return status


def campaign(folder, choose, count, say):
    """`count` commands are struck at random moments; AssertionError if one of them does not end as
    it should, or if at the end something is not in the tables. choose: random.Random."""
    import audit_kit

    folder = Path(folder)
    spool, tables = folder / "spool", folder / "tables"
    fill(spool, [publish(senml(n)) for n in range(1, 200)] + [publish(flat(200))])
    talk = audit_kit.pcap(folder / "talk.pcap", audit_kit.Talk().open().wrapped())
    own = ("--tables", tables)
    commands = {"ingest": ("--spool", spool, *own, "--interval", 0.2, "--max-rows", 50),
                "compact": own, "replay": own, "gold": own,
                "report": (*own, "--out", folder / "r.html"),
                "audit": (talk, "--out", folder / "audit")}  # fmt: skip
    for name in ("ingest", "gold"):
        done = run(name, *commands[name], *(["--once"] if name == "ingest" else []), timeout=600)
        assert done.returncode == 0, done.stderr
    for number in range(count):
        name = list(commands)[number % len(commands)]
        how, moment = choose.choice(STRIKES), choose.choice(MOMENTS)
        pause = choose.uniform(0, 8)
        begun = Start(tempfile.mkdtemp(dir=folder), name, *commands[name])
        begun.wait(moment)
        time.sleep(pause)
        begun.strike(how)
        status = begun.ended(how)
        say(f"{number + 1} of {count}: {name}, {how} {pause:.1f} s after it "
            f"{moment.__name__}: status {status}")  # fmt: skip
