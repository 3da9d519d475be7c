"""The virtual board's own process: its power switch, reset line, watchdog and serial line.

`python -m umqtt_board.virtual.supervisor FOLDER [--tied]` keeps one interpreter running behind a
pseudo-terminal and does for it what silicon does for a chip: starts it again after a soft
or hard reset, a crash or a bite of the watchdog, passes bytes between it and the
serial port, and turns Ctrl-C into an interrupt. It is told what to do through a socket in
the folder (`control`); `virtual.VirtualBoard` is the way to do so.

Its life: it ends on the request "power_off", on SIGTERM, and with `--tied` when its
standard input is closed (so it cannot outlive the program that made it). If it is
killed the interpreter dies with it, as on a loss of power.

It knows power, resets and terminals. It must not know how the interpreter is started (chip.py),
firmware, flashing or mpremote.
"""

import errno
import fcntl
import json
import os
import pty
import select
import selectors
import signal
import socket
import sys
import time
import tty
from pathlib import Path

from umqtt_board import private
from umqtt_board.virtual.chip import Interpreter

PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5
CAUSES = {1: "power on", 2: "hard reset", 3: "watchdog", 4: "deep sleep", 5: "soft reset"}

QUEUE = 64 * 1024  # bytes kept for a slow reader before the interpreter is made to wait
STALL_S = 0.5  # how long a reader may not read at all before output is thrown away
CLIENT_POLL_S = 0.05  # how often an unused serial port is looked at
# The unix port raises KeyboardInterrupt in the signal's handler, where a chip waits for the next
# instruction of the program: inside a garbage collection the heap would stay locked for good. So
# the signal waits until the interpreter sleeps in the kernel, or has taken so much of the
# processor's time without.
BUSY_S = 1.0
BUSY_POLL_S = 0.002
STARVED_POLL_S = 0.05  # between two looks at a program that gets no time
INTERRUPT_GAP_S = 0.2  # two Ctrl-C within this are one: the unix port dies of the second
LOG_LIMIT = 8 * 1024 * 1024  # bytes of console.log before it becomes console.log.1
BAD_STARTS = 3  # interpreters that never came up before the board is switched off
AGAIN_S = 1.0  # until the next try when the machine had no process or no open file for one


class Supervisor:
    """The event loop. One thread; everything that can wait is in the selector or a deadline."""

    def __init__(self, folder, tied=False):
        self.folder = Path(folder)
        self.selector = selectors.DefaultSelector()
        self.board = None  # Interpreter
        self.next = None  # what to do when it has ended: a callable
        self.bad_starts = 0
        self.deadlines = {}  # name -> (time, callable)
        self.from_client = bytearray()
        self.to_client = bytearray()
        self.to_board = bytearray()
        self.client = False
        self.stopping = False
        self.log = self._open_log()
        self._open_port()
        self._open_control()
        if tied:
            self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._tie_broken)
        self._look_for_client()

    # ---- life

    def run(self):
        """Serve until told to stop."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: setattr(self, "stopping", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            while not self.stopping:
                for key, mask in self.selector.select(self._until_deadline()):
                    key.data(mask)
                self._run_deadlines()
        finally:
            self._close()

    def _until_deadline(self):
        # Bounded: a signal handler cannot wake select() in Python, it only sets `stopping`.
        times = [at for at, _ in self.deadlines.values()] + [time.monotonic() + 1]
        return max(0, min(times) - time.monotonic())

    def _run_deadlines(self):
        now = time.monotonic()
        for name, (at, action) in list(self.deadlines.items()):
            if at <= now and self.deadlines.get(name, (None,))[0] == at:
                del self.deadlines[name]
                action()

    def _after(self, name, seconds, action):
        self.deadlines[name] = (time.monotonic() + seconds, action)

    def _tie_broken(self, _mask):
        if not os.read(sys.stdin.fileno(), 4096):
            self.stopping = True

    def _close(self):
        self._end_power()
        for name in ("port", "control"):
            (self.folder / name).unlink(missing_ok=True)

    # ---- power and resets

    def power_on(self):
        if self.board is None:
            self.bad_starts = 0
            self._start(PWRON_RESET)

    def _start(self, cause, raw=False, main=True):
        self.next = None
        self.deadlines.pop("start", None)
        try:
            config = json.loads((self.folder / "board.json").read_text())
            self.board = Interpreter(self.folder, config, cause, raw, main)
        except OSError as error:
            self._note(f"no interpreter could be started ({error}), next try in {AGAIN_S:g} s")
            self._after("start", AGAIN_S, lambda: self._start(cause, raw, main))
            return
        self._note(f"{CAUSES[cause]}, process {self.board.process.pid}")
        self.selector.register(self.board.line, selectors.EVENT_READ, self._line_ready)
        self.selector.register(self.board.requests, selectors.EVENT_READ, self._requests_ready)

    def _end_power(self):
        """Pull the plug: SIGKILL, nothing is tidied up on the board."""
        self.deadlines.pop("watchdog", None)
        self.deadlines.pop("start", None)
        self.from_client.clear()
        self.next = None
        if self.board is not None:
            self.board.kill()
            self._forget_board()
            self._note("power off")

    def reset(self, cause=HARD_RESET):
        """As the reset button does. A board without power stays off."""
        if self.board is not None:
            self.deadlines.pop("watchdog", None)
            self.next = lambda: self._start(cause)
            self.board.kill()

    def _forget_board(self):
        board, self.board = self.board, None
        self.to_board.clear()
        if self.deadlines.pop("interrupt", None):
            self.from_client[:0] = b"\x03"  # for the next one
        for channel in (board.line, board.requests):
            try:
                self.selector.unregister(channel)
            except KeyError:
                pass  # its output was being held back
        return board, board.close()

    def _ended(self):
        """The interpreter is gone, and everything it printed has been read."""
        board, status = self._forget_board()
        self._show(board.console.close())
        self.bad_starts = 0 if board.up else self.bad_starts + 1
        if self.bad_starts >= BAD_STARTS:
            self._note(f"the interpreter did not start (status {status}); board switched off")
        elif self.next is not None:
            self.next()
        elif status == -signal.SIGINT:
            # Ctrl-C came in the instant between program and prompt: the prompt is what was wanted.
            self._start(SOFT_RESET, raw=board.console.raw, main=False)
        elif status < 0:
            self._note(f"the interpreter crashed with signal {-status}")
            self._start(HARD_RESET)
        else:
            self._soft_reset(board.console.raw)

    def _soft_reset(self, raw):
        if self._watchdog_kind() != "chip":
            self.deadlines.pop("watchdog", None)
        self._show(b"MPY: soft reboot\r\n")
        self._start(SOFT_RESET, raw=raw, main=not raw)

    def _sleep(self, ms):
        def off():
            self._note(f"deep sleep for {ms} ms" if ms else "deep sleep")
            if ms:
                self._after("start", ms / 1000, lambda: self._start(DEEPSLEEP_RESET))

        self.deadlines.pop("watchdog", None)
        self.next = off
        self.board.kill()

    # ---- what the board asks for

    def _requests_ready(self, _mask):
        board = self.board
        try:
            data = os.read(board.requests, 65536)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(board.requests)
            return
        *lines, board.partial = (board.partial + data).split(b"\n")
        for line in lines:
            if self.board is board:
                self._request(line.decode().split())

    def _request(self, words):
        if words[0] == "up":
            self.board.up = True
            self._deliver_input()
        elif words[0] == "reset":
            self.reset()
        elif words[0] == "cut":
            self._end_power()
        elif words[0] == "soft":
            raw = self.board.console.raw
            self.next = lambda: self._soft_reset(raw)
            self.board.kill()
        elif words[0] == "sleep":
            self._sleep(int(words[1]))
        elif words[0] == "watchdog":
            self.watchdog_s = int(words[1]) / 1000
            self._feed()
        elif words[0] == "feed" and "watchdog" in self.deadlines:
            self._feed()

    def _feed(self):
        self.taken_when_fed = self.board.state()[1]
        self._after("watchdog", self.watchdog_s, self._bite)

    def _watchdog_kind(self):
        return json.loads((self.folder / "board.json").read_text())["watchdog"]

    def _bite(self):
        """The watchdog's time is over.

        On a chip timers go on at the prompt and while the program computes, and can feed it; here
        they stand still. So the "kind" watchdog bites only while boot.py and main.py run, and not
        a program that computes or writes to the disk on a machine that has little time for it. A
        "chip" one is as strict as silicon.
        """
        if self.board is None:
            return
        if self._watchdog_kind() != "chip":
            sleeps, taken = self.board.state()
            if self.board.console.at_prompt:
                self._after("watchdog", self.watchdog_s, self._bite)
                return
            if not sleeps and taken - self.taken_when_fed < self.watchdog_s:
                self._after("watchdog", STARVED_POLL_S, self._bite)
                return
        self._note("watchdog: not fed in time")
        self.reset(WDT_RESET)

    # ---- board -> client

    def _line_ready(self, mask):
        if mask & selectors.EVENT_WRITE:
            self._flush_to_board()
        if mask & selectors.EVENT_READ and self.board is not None:
            self._read_board()

    def _read_board(self):
        board = self.board
        try:
            data = board.line.recv(16384)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._ended()
            return
        swallowing = board.console.raw and not board.console.at_prompt
        self._show(board.console.feed(data))
        if swallowing and board.console.at_prompt:
            self.to_board[:0] = b"\x01"  # a chip comes back from a soft reset in the raw REPL
            self._flush_to_board()

    def _show(self, data):
        if not data:
            return
        self._write_log(data)
        if self.client:
            self.to_client += data
            self._flush_to_client()

    def _flush_to_client(self):
        try:
            while self.to_client:
                del self.to_client[: os.write(self.master, self.to_client)]
            self.deadlines.pop("stall", None)
        except BlockingIOError:
            if "stall" not in self.deadlines:
                self._after("stall", STALL_S, self._reader_stalled)
        except OSError:
            self._client_left()
        self._update_interest()

    def _reader_stalled(self):
        # As a UART: what nobody reads is lost, the program on the board goes on.
        self.to_client.clear()
        self._update_interest()

    def _update_interest(self):
        if self.client:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.to_client else 0)
            self.selector.modify(self.master, wanted, self._client_ready)
        if self.board is None:
            return
        wanted = 0 if len(self.to_client) > QUEUE else selectors.EVENT_READ
        wanted |= selectors.EVENT_WRITE if self.to_board else 0
        registered = self.board.line in self.selector.get_map()
        if registered and wanted:
            self.selector.modify(self.board.line, wanted, self._line_ready)
        elif registered:
            self.selector.unregister(self.board.line)
        elif wanted:
            self.selector.register(self.board.line, wanted, self._line_ready)

    # ---- client -> board

    def _open_port(self):
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        os.set_blocking(self.master, False)
        self.port = os.ttyname(slave)
        os.close(slave)  # so that an unused port can be told from a used one
        link = self.folder / "port"
        link.unlink(missing_ok=True)
        link.symlink_to(self.port)

    def _look_for_client(self):
        """An unused pseudo-terminal is always 'ready' (hung up), so it is polled, not selected."""
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        events = dict(poll.poll(0)).get(self.master, 0)
        if events & select.POLLHUP:
            self._after("client", CLIENT_POLL_S, self._look_for_client)
            return
        self.client = True
        self.selector.register(self.master, selectors.EVENT_READ, self._client_ready)

    def _client_left(self):
        if self.client:
            self.client = False
            self.selector.unregister(self.master)
            self.to_client.clear()
            self.deadlines.pop("stall", None)
            self._after("client", CLIENT_POLL_S, self._look_for_client)

    def _client_ready(self, mask):
        if mask & selectors.EVENT_WRITE:
            self._flush_to_client()
        if mask & selectors.EVENT_READ and self.client:
            self._read_client()

    def _read_client(self):
        try:
            data = os.read(self.master, 16384)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            self._client_left()
        elif self.board is not None or self.next is not None:
            self.from_client += data[: QUEUE - len(self.from_client)]
            self._deliver_input()

    def _deliver_input(self):
        """Pass on what the client sent; until the board is up it waits, as in a UART's buffer."""
        if self.board is None or not self.board.up:
            return
        while self.from_client and "interrupt" not in self.deadlines:
            part, interrupt, rest = bytes(self.from_client).partition(b"\x03")
            self.to_board += part
            self.from_client[:] = rest
            if interrupt:
                self._interrupt(self.board.state()[1] + BUSY_S)
        self._flush_to_board()

    def _interrupt(self, latest):
        """Interrupt the program, when it sleeps or has taken `latest` seconds of the processor;
        what the client sends meanwhile waits."""
        board = self.board
        if not board.takes_interrupts():
            self.to_board += b"\x03"
        elif time.monotonic() - board.last_interrupt <= INTERRUPT_GAP_S:
            return
        elif board.interrupt_in_sleep():
            board.last_interrupt = time.monotonic()
        elif board.state()[1] >= latest:
            board.last_interrupt = time.monotonic()
            board.process.send_signal(signal.SIGINT)
        else:
            self._after("interrupt", BUSY_POLL_S, lambda: self._interrupt_late(latest))

    def _interrupt_late(self, latest):
        self._interrupt(latest)
        self._deliver_input()

    def _flush_to_board(self):
        try:
            while self.to_board:
                del self.to_board[: self.board.line.send(self.to_board)]
        except BlockingIOError:
            del self.to_board[QUEUE:]  # a receive buffer that overflows
        except OSError:
            self.to_board.clear()  # it is ending; the end of its output says so
        self._update_interest()

    # ---- requests of the host

    def _open_control(self):
        path = self.folder / "control"
        path.unlink(missing_ok=True)
        self.control = socket.socket(socket.AF_UNIX)
        bind_in(self.control, path)
        self.control.listen(8)
        self.selector.register(self.control, selectors.EVENT_READ, self._control_ready)

    def _control_ready(self, _mask):
        connection, _ = self.control.accept()
        with connection:
            connection.settimeout(2)
            try:
                request = json.loads(connection.makefile().readline() or "{}")
                connection.sendall(json.dumps(self._control(request)).encode() + b"\n")
            except (OSError, ValueError):
                pass  # the asker has gone or was no client of ours

    def _control(self, request):
        action = request.get("do")
        if action == "power_on":
            self.power_on()
        elif action == "cut":
            self._end_power()
        elif action == "reset":
            self.reset()
        elif action == "power_off":
            self.stopping = True
            self._end_power()
        board = self.board
        return {
            "running": board is not None,
            "up": board is not None and board.up,
            "at_prompt": board is not None and board.console.at_prompt,
            "pid": board.process.pid if board else None,
            "supervisor": os.getpid(),
            "port": self.port,
        }

    # ---- log

    def _note(self, text):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        self._write_log(f"\r\n[board {stamp}] {text}\r\n".encode())

    def _write_log(self, data):
        if self.log.tell() > LOG_LIMIT:
            self.log.close()
            os.replace(self.folder / "console.log", self.folder / "console.log.1")
            self.log = self._open_log()
        self.log.write(data)

    def _open_log(self):
        # It has all that host tools read from the board, its settings too.
        log = open(self.folder / "console.log", "ab", buffering=0)
        private.seal(self.folder / "console.log")
        return log


def bind_in(sock, path):
    """Bind a Unix socket by its name inside its folder: the whole path may exceed 107 bytes."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        sock.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def main():
    os.umask(0o077)  # its files and its switch are its owner's alone, the interpreter's too
    folder = Path(sys.argv[1]).resolve()
    lock = open(folder / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{folder} already has a supervisor")
    Supervisor(folder, tied="--tied" in sys.argv[2:]).run()


if __name__ == "__main__":
    main()
