"""A board at the other end of a serial port, spoken to through mpremote's own code.

Knows the raw REPL and how a port fails. Every failure becomes one sentence that says what
to do. It must not know what is installed on the board or why, but for the one module that is told
of resets.
"""

import base64
import builtins
import contextlib
import difflib
import re
import secrets
import shlex
import struct
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import serial
from mpremote import transport_serial
from mpremote.commands import CommandError, do_romfs
from mpremote.transport import TransportError, TransportExecError

from umqtt_board import plain
from umqtt_board.errors import BoardError
from umqtt_board.paths import VIRTUAL
from umqtt_board.port import answers

CHUNK = 2048  # bytes of a file sent at once; about six times that in heap while it is decoded
ANSWER_S = 10  # a board that says nothing for so long is lost
PAUSES = 6  # times that its answer may take as long as its silence
SLOW_S = 5  # an answer that takes longer is a slow one
MOST_SLOW_S = 120  # of slow answers in all, before the board counts as too slow
LEAST_RATE = 1024  # bytes a second that a board gives of a file, but for the time of an answer
MOST_FILE = 1 << 17  # bytes of a file on a board that is read
MOST_REGION = 1 << 25  # ... of a region of its flash: no chip has more
SHOWN = 200  # characters of an answer that is none
MOST_SAID = 1 << 18  # bytes that a board prints to one question, or to none; more is no answer
TRIES = 3  # to send a program undamaged, and to get its answer so
ENOENT = 2  # what MicroPython says of a file that is not there, on every port
STOP_S = 3  # for a board that is sent back to its work after something failed
REOPEN_S = 15  # for a port that disappears during a reset (USB of the chip itself)

# The firmware, if it is there, shall not take our resets for crashes (firmware/resets.py).
_WANTED = "try:\n import resets\n resets.by_cable()\nexcept Exception:\n pass"

_STANDS = "the board may stand still at its prompt, until its reset button is pressed"

#: How a board's error begins when bytes have changed on the way.
_OF_NOISE = (
    "SyntaxError", "IndentationError", "NameError", "ValueError: incorrect padding",
    answers.UNLIKE, "KeyboardInterrupt",
)  # fmt: skip
_NAMES = [name for name, each in vars(builtins).items()
          if isinstance(each, type) and issubclass(each, BaseException)]  # fmt: skip
_LIKE = 0.85  # so alike are two words of eight letters that differ in one
_DAMAGED = (
    ". What was sent to it, or what it answered, came damaged: see to its cable, and run the same "
    "command again."
)
_REPLACED = (
    ". A program on it, boot.py perhaps, has replaced a part of MicroPython: copy it to this "
    "computer (`mpremote cp :boot.py .`) and remove it (`mpremote rm :boot.py`). Then run `make "
    "flash`, which brings the firmware's own"
)
_NO_ANSWER = f"that is no answer to what it was asked{_REPLACED}"
_FAILURES = (TransportError, CommandError, serial.SerialException, OSError, struct.error, EOFError)


_REBOOT = b"soft reboot\r\n"
SETTLE_S = 0.3  # in which a board says what it has to say at an interrupt
# mpremote prints what a board said when it did not understand it; our errors say it better.
transport_serial.print = lambda *_: None


class _Endless(TransportError):
    """A board prints more than MOST_SAID bytes to one question, or for too long."""


class _Line:
    """A serial port on which a board that prints without end is heard no more: mpremote waits for
    it to be silent. most_s: seconds that an answer may take, with pauses."""

    def __init__(self, port, most_s):
        vars(self).update(_port=port, _most_s=most_s)
        self.ask()

    def ask(self):
        """What the board says from now on is one answer."""
        vars(self).update(_said=0, _since=time.monotonic())

    def __getattr__(self, name):
        return getattr(self._port, name)

    def __setattr__(self, name, value):
        setattr(self._port, name, value)

    def write(self, data):
        """As pyserial's."""
        self.ask()
        return self._port.write(data)

    def read(self, size=1):
        """As pyserial's. Raises _Endless."""
        data = self._port.read(size)
        vars(self)["_said"] += len(data)
        if self._said > MOST_SAID or data and time.monotonic() - self._since > self._most_s:
            raise _Endless
        return data


class _Transport(transport_serial.SerialTransport):
    """mpremote's transport with our patience instead of its fixed ten seconds."""

    def __init__(self, port, patience):
        super().__init__(port, timeout=patience)
        self.patience = patience
        self.rebooted = False  # whether the board has said that it begins anew
        self.serial = _Line(self.serial, PAUSES * patience)

    def read_until(self, min_num_bytes, ending, timeout=10, data_consumer=None,
                   timeout_overall=None):  # fmt: skip
        data = super().read_until(
            min_num_bytes, ending, timeout and min(timeout, self.patience), data_consumer,
            timeout_overall and min(timeout_overall, self.patience),
        )  # fmt: skip
        self.rebooted |= data.endswith(_REBOOT)
        return data

    def enter(self, patience):
        """The raw REPL behind a soft reset, in so many seconds. A boot.py that takes longer is
        interrupted when that is asked for again: a further reset would only run it once more."""
        if not self.rebooted:
            self.enter_raw_repl(timeout_overall=patience)
            return
        self.enter_raw_repl(soft_reset=False, timeout_overall=patience)
        time.sleep(SETTLE_S)  # the end of boot.py says the same as the answer to Ctrl-A
        self.enter_raw_repl(soft_reset=False, timeout_overall=patience)


class CannotOpen(BoardError):
    """The port is not there, or may not be opened."""


class NoPrompt(BoardError):
    """The port can be opened, but no MicroPython answers there."""


def _last(traceback):
    return "".join(traceback.strip().splitlines()[-1:])


class DeviceError(BoardError):
    """A program run on the board raised an exception. `traceback` is the board's own text."""

    def __init__(self, text, traceback, of_noise=False):
        super().__init__(text)
        self.traceback = traceback
        #: Whether it can only come of bytes that changed on the way: it says nothing of the board.
        self.of_noise = of_noise

    @staticmethod
    def is_of_noise(last):
        """Whether the last line of a board's error is one of_noise: our programs are whole, so is
        what they decode, and an error has the name of an exception."""
        name = re.match(r"[A-Z]\w+(?=:?( |$))", last)
        if last.startswith(_OF_NOISE) or not name:
            return True
        like = difflib.SequenceMatcher(None, last, answers.UNLIKE).ratio() > _LIKE
        return like or name[0] not in _NAMES and bool(
            difflib.get_close_matches(name[0], _NAMES, cutoff=_LIKE))  # fmt: skip


class _Checked:
    """A transport for mpremote's own code: what that sends and hears has a sum, as all else."""

    def __init__(self, device):
        self.device = device

    def exec(self, code):
        """As mpremote's, but what comes damaged is sent again. Raises DeviceError of noise."""
        try:
            self.device.run(code)
        except DeviceError as error:
            if error.of_noise:
                raise
            raise TransportExecError("", error.traceback)

    def eval(self, expression):
        """As mpremote's. Raises as Device.value() does."""
        return self.device.value(f"_say({expression})", object)


class Device:
    """An open serial port with the board's raw REPL. Use as a context manager.

    port      anything that pyserial takes: a path, COM3, socket://host:port, rfc2217://...
    answer_s  seconds of silence after which the board counts as lost (default ANSWER_S)
    """

    def __init__(self, port, answer_s=None):
        self.port = port
        self.answer_s = answer_s or ANSWER_S
        self.doing = "connecting to it"
        self._transport = None
        self._lost = False
        self._begun = False  # whether it has had answers.BEGIN since it was reset
        self._number = secrets.randbits(30)  # of its last question, unlike another session's
        self._slow = 0.0  # seconds of slow answers

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, *_):
        self.close()

    # ---- the port

    def open(self):
        """Open the port and stop what runs: a soft reset into the raw REPL, without main.py."""
        self._open_port()
        self._lost = self._begun = False
        for attempts_left in (2, 1, 0):
            try:
                self._transport.enter(self.answer_s / 2)
                return
            except _Endless:
                self.close()
                raise self._without_end("prints")
            except _FAILURES:
                if not attempts_left:
                    self.close()
                    raise NoPrompt(
                        f"The board on {self.port} does not answer at the Python prompt. It may "
                        "be just starting: try again in a moment. If it stays so, see that it has "
                        "power and runs MicroPython (boards/README.md), and press its reset "
                        "button. A program of its own that Ctrl-C does not stop goes with `make "
                        "erase` only."
                    )
            except KeyboardInterrupt:  # the board may have been stopped already
                try:
                    self._interrupted()
                finally:
                    self.close()

    def _open_port(self):
        try:
            self._transport = _Transport(self.port, self.answer_s)
            with contextlib.suppress(NotImplementedError):  # RFC 2217 has none
                self._transport.serial.write_timeout = self.answer_s
        except (TransportError, serial.SerialException, OSError, ValueError):
            raise CannotOpen(why_not_open(self.port))

    def close(self):
        """Leave the raw REPL and close the port. Never raises."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        with contextlib.suppress(*_FAILURES):
            if transport.in_raw_repl:
                transport.exit_raw_repl()
        with contextlib.suppress(*_FAILURES):
            transport.close()

    # ---- programs

    def run(self, code):
        """Run a program on the board, which does nothing if it comes damaged; return what it
        printed. DeviceError if it raised."""
        return self.ask(self.question(code))

    def question(self, code):
        """The answers.Question to run this program."""
        self._number += 1
        return answers.Question(code, self._number)

    def ask(self, question):
        """Send an answers.Question, as run() does; the board runs it if it has not done so."""
        first = None
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                if not self._begun:
                    self._print_of(answers.BEGIN)
                    self._begun = True
                return self._print_of(question.program)
            except DeviceError as error:
                first = first or error
                self._begun = False  # that may be what was damaged
                if not error.of_noise:
                    raise
                if not tries_left:
                    raise first

    def _print_of(self, code):
        begins = code == answers.BEGIN
        return self._guarded(lambda: self._exec(code), begins).decode(errors="replace")

    def _exec(self, code):
        # As mpremote's own, but with our patience where that has ten seconds.
        since = time.monotonic()
        said, error = self._transport.exec_raw(code, timeout=self.answer_s)
        took = time.monotonic() - since
        self._slow += took if took > SLOW_S else 0
        if self._slow > MOST_SLOW_S:
            self._lost = True
            raise self._too_slow(f"{self._slow:.0f} s of waiting in all")
        if error:
            raise TransportExecError(said.decode(errors="replace"), error.decode(errors="replace"))
        return said

    def value(self, code, shape, any_python=False):
        """Run a program that ends by calling `_say(value)`, and return that value, which has this
        `shape`, see answers.value(). An answer that comes damaged is sent again. BoardError for
        one that stays so, or is none.

        any_python  whether a Python without SHA-256 may answer, whose answers come twice
        """
        question = self.question(code)
        said = question.answer(self.ask(question))
        for _ in range(TRIES - 1):
            if not said.agrees or said.copied and not any_python:
                self._begun = self._begun and not said.copied  # did it come as it was sent?
                said = question.answer(self.ask(question))
        if said.agrees and (any_python or not said.copied):
            try:
                return answers.value(said.text, shape)
            except ValueError:
                raise self._no_answer(said.text, _NO_ANSWER)
        if said.copied:
            raise self._no_answer(said.text, _NO_ANSWER)
        if said.summed:
            raise BoardError(self._failed("") + _DAMAGED)
        raise self._no_answer(said.text, "a program on it prints in between")

    def _failed(self, why):
        return f"The board on {self.port} failed while {self.doing}{why}"

    def _no_answer(self, text, why):
        more = " ..." if len(text) > SHOWN else ""
        return BoardError(
            f"The board on {self.port} answered {text[:SHOWN]!r}{more} while {self.doing}: {why}. "
            "Reset the board and try again."
        )

    def _without_end(self, what):
        return BoardError(
            f"The board on {self.port} {what} without end while {self.doing}. Press its reset "
            "button and run the same command again. If it does so again, `make erase "
            f"PORT={self.port}` with its BOARD removes what runs on it, and the readings that it "
            "holds."
        )

    def _too_slow(self, what):
        return BoardError(
            f"The board on {self.port} answers too slowly while {self.doing}: {what}. See to its "
            "cable, press its reset button, and run the same command again."
        )

    def _guarded(self, action, begins=False):
        try:
            return action()
        except TransportExecError as error:
            last = _last(error.error_output)
            text = self._failed(f": {plain.line(last)}")
            # Nothing fails in BEGIN, but for want of memory.
            noise = DeviceError.is_of_noise(last) or begins and not last.startswith("MemoryError")
            raise DeviceError(text + _DAMAGED * noise, error.error_output, noise)
        except _Endless:
            self._lost = True
            raise self._without_end("prints")
        except _FAILURES:
            self._lost = True
            raise BoardError(
                f"The board on {self.port} was lost while {self.doing}. See to its power and "
                "cable and run the same command again: it goes on where it stopped."
            )

    # ---- files

    def write_file(self, path, data, progress=lambda count: None):
        """Write a file; `progress` is told the bytes written so far."""
        opening = f"from binascii import a2b_base64 as _d\n_f=open({path!r},'wb')\n_w=_f.write\n"
        closing = "\n_f.close()"
        offsets = range(0, len(data), CHUNK) or [0]
        for offset in offsets:
            part = data[offset : offset + CHUNK]
            code = f"_w(_d({base64.b64encode(part)!r}))"
            first, last = offset == offsets[0], offset == offsets[-1]
            self.run((opening if first else "") + code + (closing if last else ""))
            progress(offset + len(part))

    def read_file(self, path, progress=lambda count: None):
        """Return the content of a file on the board, None if there is none; DeviceError when the
        board cannot say so."""
        code = (f"try:\n _f=open({path!r},'rb')\n _say(True)\n"
                f"except OSError as _x:\n if _x.args[0] != {ENOENT}:\n  raise\n _say(False)")
        if not self.value(code, bool):
            return None
        data = self.read_pieces(f"_f.read({CHUNK})", progress, MOST_FILE)
        self.run("_f.close()")
        return data

    def read_pieces(self, source, progress=lambda count: None, most=MOST_REGION):
        """Return all the bytes that the expression `source` gives, time after time, until b"".
        BoardError for more than `most`, and for a board that gives them too slowly."""
        self.run("from binascii import b2a_base64 as _e")
        data, since = b"", time.monotonic()
        while piece := self.value(f"_say(_e({source}).decode())", str).strip():
            try:
                data += base64.b64decode(piece, validate=True)
            except ValueError:
                raise self._no_answer(piece, f"that is no part of a file{_REPLACED}")
            if len(data) > most:
                self._lost = True
                raise self._without_end("gives a file")
            took = time.monotonic() - since
            if took - PAUSES * self.answer_s > len(data) / LEAST_RATE:
                self._lost = True
                raise self._too_slow(f"{len(data)} bytes in {took:.0f} s")
            progress(len(data))
        return data

    def deploy_romfs(self, data):
        """Write a ROMFS image as `mpremote romfs deploy` does, which knows each port's way.
        A piece that comes damaged is sent again.

        It prints how far it is. The ROMFS that was mounted is so no longer.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "image.romfs"
            path.write_bytes(data)
            wanted = SimpleNamespace(command=["deploy"], path=str(path), partition=0, mpy=False)
            session = SimpleNamespace(
                transport=_Checked(self), ensure_raw_repl=lambda: None, did_action=lambda: None
            )
            self._guarded(lambda: do_romfs(session, wanted))

    # ---- resets

    def hard_reset(self, keep_open=False):
        """Reset the board as its button does.

        With `keep_open` the port stays open for reading what the board prints as it starts;
        otherwise the board is back in the raw REPL when this returns, but main.py has
        had a moment to run.
        """
        self._guarded(self._ask_for_reset)
        if not keep_open:
            self.close()
            time.sleep(0.3)  # a reset that has not begun yet would end the next session
            self._reopen()

    @contextlib.contextmanager
    def going_on(self, but=()):
        """Something is tried: if it fails, the board goes back to work, as far as it still can.

        but  exceptions after which it is still wanted at its prompt
        """
        try:
            yield
        except but:
            raise
        except BaseException as error:
            if self._transport and self._transport.in_raw_repl and not self._lost:
                if isinstance(error, KeyboardInterrupt) and not error.args:
                    self._interrupted()
                self._back_to_work()
            raise

    def _interrupted(self):
        try:
            back = self._back_to_work()
        except KeyboardInterrupt:  # once more: at once
            back = False
        raise KeyboardInterrupt(*([] if back else [_STANDS]))

    def _back_to_work(self):
        """Returns whether it is."""
        # Whatever it was in the middle of: somebody who pressed Ctrl-C does not want to wait.
        transport = self._transport
        transport.patience = STOP_S
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            # The first try may read what the board has answered to what was broken off.
            with contextlib.suppress(BoardError, *_FAILURES):
                transport.enter_raw_repl(soft_reset=False, timeout_overall=STOP_S)
                self.hard_reset(keep_open=True)
                return True
        return False

    def start_loader(self):
        """Ask the chip to go into its loader; the port is closed."""
        self.doing = "going into its loader"
        self._guarded(
            lambda: self._transport.exec_raw_no_follow("import machine\nmachine.bootloader()")
        )
        self._transport.in_raw_repl = False
        self.close()

    def _ask_for_reset(self):
        self._exec(_WANTED)
        self._transport.exec_raw_no_follow("import machine\nmachine.reset()")
        self._transport.in_raw_repl = False

    def _reopen(self):
        deadline = time.monotonic() + REOPEN_S
        while True:
            try:
                return self.open()
            except BoardError:
                if time.monotonic() > deadline:
                    raise

    def read(self):
        """What the board has printed since the last call, b"" after a short while without."""
        port = self._transport.serial
        port.ask()  # a log has no end
        port.timeout = 0.2
        return self._guarded(lambda: port.read(max(1, port.in_waiting)))


def folder_of(port):
    """The folder of the virtual board that has this port, None for a port of another kind."""
    folder = Path(str(port)).parent
    return folder if (folder / "board.json").is_file() else None


def why_not_open(port):
    """Return the sentence that says why a port cannot be opened and what to do."""
    try:
        serial.serial_for_url(port, exclusive=True).close()
    except ValueError as error:
        return f"PORT={port} is not an address of a serial port: {error}."
    except (serial.SerialException, OSError) as error:
        number = getattr(error, "errno", None)
        text = str(error)
        if number == 2 or "No such file" in text:
            if folder := folder_of(port):
                start = "make start" if folder == VIRTUAL else (
                    f"umqtt-board start --folder {shlex.quote(str(folder))}")  # fmt: skip
                return f"The virtual board {folder.name} is off: {start} gives it power."
            return f"There is no port {port}: plug the board in, or give the right one as PORT=."
        if number == 13 or "Permission" in text:
            return (
                f"You may not open {port}: add yourself to the group that owns it "
                "(on Debian `sudo adduser $USER dialout`, then log in anew)."
            )
        if number in (11, 16) or "lock" in text or "busy" in text:
            return f"{port} is in use by another program: end it (a terminal, an IDE), try again."
        return f"{port} cannot be opened: {text}."
    return f"{port} could not be opened at first but can be now: run the same command again."
