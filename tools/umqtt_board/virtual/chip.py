"""The chip of the virtual board: one run of the interpreter after the other.

Knows how the interpreter is started, what it finds in its environment and which of its channels
is which. Must not know power, resets nor the serial line: supervisor.py.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from umqtt_board.paths import BOARDS
from umqtt_board.virtual.console import Console

DEVICE_SIDE = BOARDS / "unix"


def interpreter():
    """Path of the micropython that belongs to this Python's environment."""
    beside = Path(sys.executable).with_name("micropython")
    return str(beside) if beside.exists() else "micropython"


_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def _die_with_parent():
    if _prctl is not None:
        _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Interpreter:
    """One run of the interpreter: its process, its two channels, what is known of its state.

    Raises OSError, and leaves nothing open, if the machine has no process or file left for it.
    """

    def __init__(self, folder, config, cause, raw, main):
        self.console = Console(raw)
        self.up = False
        self.last_interrupt = -1.0
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(ours.close)
            read_end, write_end = os.pipe()
            unless_started.callback(os.close, read_end)
            try:
                self.process = subprocess.Popen(
                    [interpreter(), "-X", f"heapsize={_heap(config)}", "-i",
                     str(DEVICE_SIDE / "start.py")],
                    stdin=theirs, stdout=theirs, stderr=theirs, pass_fds=(write_end,),
                    cwd=folder, start_new_session=True, preexec_fn=_die_with_parent,
                    env=_environment(folder, config, cause, main, write_end),
                )  # fmt: skip
            finally:
                os.close(write_end)
            unless_started.pop_all()
        ours.setblocking(False)
        os.set_blocking(read_end, False)
        self.line = ours
        self.requests = read_end
        self.partial = b""

    def takes_interrupts(self):
        """Whether a program runs: it catches SIGINT, while the prompt would die of it."""
        try:
            with open(f"/proc/{self.process.pid}/status") as status:
                caught = next(line for line in status if line.startswith("SigCgt:"))
        except (OSError, StopIteration):
            return False
        return bool(int(caught.split()[1], 16) & (1 << (signal.SIGINT - 1)))

    def state(self):
        """(whether it sleeps in the kernel, seconds of processor time that it has taken)."""
        try:
            with open(f"/proc/{self.process.pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            return True, 0.0
        return fields[0] == "S", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def interrupt_in_sleep(self):
        """Send SIGINT if it sleeps in the kernel; returns whether it was sent.

        It stands still from the look to the signal: else it could wake up in between and begin a
        garbage collection, which the unix port leaves with its heap locked.
        """
        if not self.state()[0]:
            return False
        pid = self.process.pid
        self.process.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            asleep = _in_system_call(pid) and self.takes_interrupts()
            if asleep:
                self.process.send_signal(signal.SIGINT)
            return asleep
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)

    def close(self):
        """Reap the process; returns its exit status as subprocess gives it."""
        self.line.close()
        os.close(self.requests)
        return self.process.wait()


def _heap(config):
    """Bytes of heap. The interpreter holds the ROMFS there, which a chip has in its flash."""
    text = config["heap"].lower()
    heap = int(text.rstrip("km")) << {"k": 10, "m": 20}.get(text[-1], 0)
    return heap + config["romfs"]


def _in_system_call(pid):
    """Whether a process that stands still was stopped in a system call. Where the kernel does not
    tell, what its state was before has to do."""
    try:
        with open(f"/proc/{pid}/syscall") as file:
            return file.read().split()[0] not in ("running", "-1")
    except (OSError, IndexError):
        return True


def _environment(folder, config, cause, main, control):
    from_config = {
        "VBOARD_NAME": config["name"],
        "VBOARD_SEED": str(config["seed"]),
        "VBOARD_UID": config["uid"],
        "VBOARD_FS_SECTORS": str(config["filesystem"] // 4096),
        "VBOARD_PROGRAM_SIZE": str(config["program_size"]),
        "VBOARD_JOURNAL_SECTORS": str(config["journal"] // 4096),
        "VBOARD_ROMFS_SECTORS": str(config["romfs"] // 4096),
    }  # fmt: skip
    # No HOME: the unix port would keep a history file there.
    return from_config | {
        "PATH": os.environ.get("PATH", ""),
        "VBOARD_FLASH": str(folder / "flash.img"),
        "VBOARD_ROMFS": str(folder / "romfs.img"),
        "VBOARD_SENSOR_LOG": str(folder / "sensor.log"),
        "VBOARD_SHIM": str(DEVICE_SIDE / "shim"),
        "VBOARD_CONTROL": str(control),
        "VBOARD_CUT_AFTER": str(folder / "cut_after"),
        "VBOARD_CAUSE": str(cause),
        "VBOARD_MAIN": "1" if main else "0",
    }
