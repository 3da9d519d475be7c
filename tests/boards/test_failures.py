"""What a user is told when something is wrong: a sentence that says what to do, and status 2.

Each is the transcript of the command itself. Others lie beside what they are about: images and
chips in test_esp.py, drives in test_onto_chip.py, settings in test_settings_file.py, the broker in
test_follow.py; what a full filesystem and a cut leave behind in test_flash.py.
"""

import errno
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import serial
from images import esp_image
from mpremote.transport import TransportError
from serial.tools import list_ports, list_ports_common
from umqtt_board import cli
from umqtt_board.backup import held
from umqtt_board.errors import BoardError
from umqtt_board.flash import install, onto_chip, steps
from umqtt_board.port import device, find
from virtual_esp import VirtualESP


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Function that runs a command; returns its exit status and what it said on standard error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cli, "PROJECT", tmp_path)  # no settings.toml of the developer's

    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        return ended.value.code, capsys.readouterr().err.strip()

    return command


def _ports(monkeypatch, *names):
    found = []
    for name in names:
        port = list_ports_common.ListPortInfo(name)
        port.vid, port.description = 0x10C4, "CP2102N"
        found.append(port)
    monkeypatch.setattr(list_ports, "comports", lambda: found)


def test_a_board_that_there_is_not(run):
    assert run("flash", "--board", "esp23") == (2, (
        "umqtt-board: There is no board 'esp23'. Did you mean esp32? BOARD is one of: esp32, "
        "esp32c3, esp32s3, rp2040, rp2350, unix."))  # fmt: skip


def test_no_port(run, monkeypatch):
    _ports(monkeypatch)
    assert run("flash", "--board", "esp32") == (2, (
        "umqtt-board: No board of the kind esp32 is plugged in (USB serial ports: none). Plug it "
        "in with a data cable, or name its port with PORT=."))  # fmt: skip


def test_no_port_and_no_drive_of_a_pico(run, monkeypatch, tmp_path):
    _ports(monkeypatch)
    monkeypatch.setattr(onto_chip.rp2, "mounts", lambda: [])
    assert run("flash", "--board", "rp2040", "--firmware", "skip") == (2, (
        "umqtt-board: No board of the kind rp2040 is plugged in (USB serial ports: none). Plug it "
        "in with a data cable, or name its port with PORT=. A bare chip: hold BOOTSEL while "
        "plugging it in, and it appears as a drive."))  # fmt: skip


def test_two_ports(run, monkeypatch):
    _ports(monkeypatch, "/dev/ttyUSB0", "/dev/ttyUSB1")
    assert run("flash", "--board", "esp32") == (2, (
        "umqtt-board: Several boards could be meant: /dev/ttyUSB0 (CP2102N); /dev/ttyUSB1 "
        "(CP2102N). Choose one with PORT=."))  # fmt: skip


def test_the_only_port_is_chosen_and_said(run, monkeypatch, capsys):
    _ports(monkeypatch, "/dev/ttyNONE")
    assert run("flash", "--board", "esp32") == (2, (
        "umqtt-board: There is no port /dev/ttyNONE: plug the board in, or give the right one as "
        "PORT=."))  # fmt: skip


def test_a_busy_port(run, board):
    with serial.Serial(board.port, exclusive=True):
        assert run("flash", "--port", board.port) == (2, (
            f"umqtt-board: {board.port} is in use by another program: end it (a terminal, an "
            "IDE), try again."))  # fmt: skip


def test_no_permission(run, monkeypatch):
    def refuse(*_, **__):
        raise serial.SerialException(errno.EACCES, "could not open port: Permission denied")

    monkeypatch.setattr(serial, "serial_for_url", refuse)
    monkeypatch.setattr(serial, "Serial", refuse)
    assert run("flash", "--port", "/dev/ttyUSB0") == (2, (
        "umqtt-board: You may not open /dev/ttyUSB0: add yourself to the group that owns it (on "
        "Debian `sudo adduser $USER dialout`, then log in anew)."))  # fmt: skip


def test_the_wrong_board(run, board, put):
    put(board, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    board.reset()
    board.wait_for("main ran")
    mark = len(board.printed())
    status, said = run("flash", "--board", "rp2040", "--port", board.port)
    assert status == 2 and said.startswith(f"umqtt-board: The board on {board.port} is a linux [")
    assert said.endswith("(linux), not BOARD=rp2040: give BOARD=unix, or another PORT=.")
    board.wait_for("main ran", since=mark)  # somebody's board goes on with what it did
    mark = len(board.printed())
    assert run("erase", "--board", "rp2040", "--port", board.port, "--yes") == (status, said)
    board.wait_for("main ran", since=mark)


def test_a_full_filesystem(run, make_board):
    board = make_board(filesystem=0x18000)
    board.power_on()
    status, said = run("flash", "--port", board.port)
    said = re.sub(r"[0-9]+ (?=bytes|are)", "N ", said)
    assert (status, said) == (2, (
        f"umqtt-board: The filesystem on {board.port} is full: N bytes are needed, N are free. "
        "Remove files of your own (`mpremote fs ls`), or erase the board and flash it anew."))


def test_a_connection_lost_while_files_are_written(run, board, monkeypatch):
    monkeypatch.setattr(device, "ANSWER_S", 2)
    board.cut_after(40)
    board.reset()
    status, said = run("flash", "--port", board.port)
    said = re.sub(r"writing \S+\.", "writing FILE.", said)
    assert (status, said) == (2, (
        f"umqtt-board: The board on {board.port} was lost while writing FILE. See to its power "
        "and cable and run the same command again: it goes on where it stopped."))


@pytest.fixture
def chip():
    """A virtual ESP32 in its loader."""
    chip = VirtualESP()
    yield chip
    chip.close()


def test_the_wrong_chip_and_the_wrong_image(run, chip, tmp_path):
    image = tmp_path / "S3.bin"
    image.write_bytes(esp_image("esp32s3", start=0))
    common = ("flash", "--port", chip.port, "--firmware", image)
    assert run(*common, "--board", "esp32s3") == (2, (
        f"umqtt-board: The chip on {chip.port} is an ESP32, not BOARD=esp32s3: nothing was erased "
        "or written. Use BOARD=esp32, or another PORT=."))  # fmt: skip
    image.write_bytes(esp_image("esp32s3"))
    assert run(*common, "--board", "esp32") == (2, (
        "umqtt-board: S3.bin is for esp32s3, not for esp32: nothing was written. Give the image "
        "ESP32_GENERIC, or its own BOARD=."))  # fmt: skip
    assert chip.erased == [] and chip.programmed == 0


def test_a_lost_connection_while_a_chip_is_written(run, chip, tmp_path):
    image = tmp_path / "image.bin"
    image.write_bytes(esp_image())
    chip.faults = {1: "reset"}
    status, said = run("flash", "--port", chip.port, "--firmware", image, "--board", "esp32")
    assert status == 2
    assert said.startswith(f"umqtt-board: The chip on {chip.port} was lost while writing its prog")
    assert "run the same command again: what is right in its flash is not written twice" in said


def test_no_micropython_and_none_wanted(run, chip, monkeypatch):
    monkeypatch.setattr(device, "ANSWER_S", 1)
    assert run("flash", "--board", "esp32", "--port", chip.port, "--firmware", "skip") == (2, (
        f"umqtt-board: The board on {chip.port} does not answer at the Python prompt. It may be "
        "just starting: try again in a moment. If it stays so, see that it has power and runs "
        "MicroPython (boards/README.md), and press its reset button. A program of its own that "
        "Ctrl-C does not stop goes with `make erase` only."))  # fmt: skip


def test_an_image_that_is_not_there(run):
    assert run("flash", "--board", "esp32", "--firmware", "nowhere.bin") == (2, (
        "umqtt-board: FIRMWARE=nowhere.bin is not a file. Give the path of a MicroPython image, "
        'an address (https://...), "fetch" for the published image, or "skip" to leave the '
        "interpreter on the board as it is."))  # fmt: skip


def test_a_network_that_is_not_there(run, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    address = "http://127.0.0.1:1/ESP32.bin"
    status, said = run("flash", "--board", "esp32", "--firmware", f"{address}#sha256={'0' * 64}")
    assert status == 2 and said.startswith(f"umqtt-board: {address} could not be fetched: ")
    assert said.endswith("or give an image that you have as FIRMWARE=FILE.")


def test_erase_and_restore_ask(run, board):
    status, said = run("erase", "--folder", board.folder)
    assert status == 2 and said == (
        f"umqtt-board: Nothing was erased. Everything on {board.folder} will be lost: settings, "
        "and the messages that are not yet delivered (`make backup` keeps both): YES=1 does it.")
    status, said = run("restore", "--from", board.folder)
    assert status == 2 and f"BACKUP={board.folder} is no copy of a board" in said


def test_the_advice_to_erase_a_board_works_with_its_port(run, board):
    """Also for a virtual board, which has no port of its own kind."""
    one = device.Device(board.port)
    assert f"`make erase PORT={board.port}` with its BOARD removes" in str(one._without_end("x"))
    assert cli.cli(["erase", "--port", board.port, "--yes"], standalone_mode=False) is None
    assert not board.running and set(board.flash_image.read_bytes()) == {0xFF}
    assert run("erase", "--port", "/dev/pts/none", "--yes") == (2, (
        "umqtt-board: PORT=/dev/pts/none is no port of a virtual board of this computer: erase it "
        "on the computer that has its folder (--folder), or give its own BOARD=."))  # fmt: skip


def test_a_folder_for_a_copy_that_cannot_be_made_is_told_before_the_board_is_stopped(
    run, board, put, tmp_path
):
    put(board, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    board.reset()
    board.wait_for("main ran\r?\n")  # the end of the line may come a moment later
    mark = len(board.printed())
    (tmp_path / "file").touch()
    for folder, why in ((tmp_path, "is there already: give the name of a new folder."),
                        (tmp_path / "file" / "x" / "y", "cannot be made: Not a directory. Give "
                                                  "another folder.")):  # fmt: skip
        assert run("backup", "--port", board.port, "--to", folder) == (2, (
            f"umqtt-board: BACKUP={folder} {why}"))  # fmt: skip
    assert board.printed()[mark:] == ""


def test_a_fault_of_this_computer_is_a_sentence_too(run, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/image.part")

    monkeypatch.setattr(cli, "run_flash", full)
    assert run("flash") == (2, (
        "umqtt-board: /cache/image.part: No space left on device: make room on this computer's "
        "disk, then run the command again."))  # fmt: skip


def test_ctrl_c_stops_the_tool_at_once_and_the_board_goes_on(run, board, monkeypatch, put):
    put(board, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")

    def interrupted(device, *_):
        if device:
            device._transport.exec_raw_no_follow("import time\nwhile True: time.sleep(1)")
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "settings_there", interrupted)
    mark = len(board.printed())
    assert run("flash", "--port", board.port) == (130, (
        "umqtt-board: stopped; the same command goes on from there"))  # fmt: skip
    board.wait_for("main ran", since=mark)
    monkeypatch.setattr(find, "virtual_board", interrupted)
    assert run("logs", "--board", "unix") == (130, "umqtt-board: stopped")


@pytest.mark.parametrize("answer", range(1, 5))
def test_ctrl_c_while_the_board_is_being_stopped_leaves_it_at_work(
    run, board, monkeypatch, put, answer
):
    """Pressed while so many an answer is waited for, which comes in between then."""
    put(board, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    read, times = device._Transport.read_until, []

    def interrupted(transport, *args, **more):
        times.append(more)
        if len(times) == answer:
            raise KeyboardInterrupt
        return read(transport, *args, **more)

    board.reset()
    board.wait_for("main ran")
    mark = len(board.printed())
    monkeypatch.setattr(device._Transport, "read_until", interrupted)
    assert run("backup", "--port", board.port) == (130, "umqtt-board: stopped")
    board.wait_for("main ran", since=mark)


def test_ctrl_c_half_way_says_that_the_board_stands_still(run, board, monkeypatch, project):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "_write_aside", interrupted)
    assert run("flash", "--port", board.port) == (130, (
        "umqtt-board: stopped; the same command goes on from there; the board is half written "
        "and stands still until then"))  # fmt: skip


def test_ctrl_c_while_the_tool_starts_is_one_line():
    code = ("import sys\nfrom umqtt_board.__main__ import main\nclass Pressed:\n"
            " def find_spec(self, name, *_):\n  raise KeyboardInterrupt\n"
            "sys.meta_path.insert(0, Pressed())\nmain()")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "umqtt-board: stopped\n")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_terminal_that_is_closed_leaves_no_board_at_its_prompt(
    run, board, monkeypatch, put, number
):
    put(board, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    before = signal.signal(number, signal.SIG_DFL)  # whoever starts the tests may ignore it
    monkeypatch.setattr(steps, "settings_there", lambda device: signal.raise_signal(number))
    mark = len(board.printed())
    try:
        assert run("flash", "--port", board.port)[0] == 130
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    board.wait_for("main ran", since=mark)


def test_arguments_that_are_none(run):
    status, said = run("flash", "--baud", "fast")
    assert status == 2 and said.endswith("'fast' is not a valid integer.")
    assert run("command", "--device", "b", "--broker", "h:99999", "report")[0] == 2


def test_restore_without_a_copy_says_which_there_are(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    copies = tmp_path / "umqtt_min" / "backups"
    what = "umqtt-board: Which copy? Give its folder as BACKUP= (--from). "
    assert run("restore") == (2, (
        f"{what}There is none of this kind of board in {copies}: `make backup` makes one."))
    for name in ("unix-20260101-000000", "unix-20260102-000000", "esp32-20260103-000000"):
        (copies / name).mkdir(parents=True)
    assert run("restore") == (2, (
        f"{what}The last of this kind of board in {copies}: unix-20260101-000000, "
        "unix-20260102-000000."))  # fmt: skip


def _in_the_place_of_binascii(board, put, text):
    """A module, put there on purpose: one by accident would hide nothing from our questions."""
    put(board, "binascii.py", f"__file__ = '/on/purpose.py'\n{text}")
    put(board, "boot.py", "import binascii\n")


@pytest.mark.parametrize("gives, says", [
    ("return b'!!!!'", r"answered '!!!!' while .*that is no part of a file.* rm :boot.py"),
    ("return b'A' * 4999", r"answered 'A{200}' \.\.\. while "),
    ("return b'A' * 4000", "gives a file without end while .*its reset button.*`make erase PORT="),
    ("import time\n    while True: time.sleep_ms(30), print('A')",
     "prints without end while .*its reset button.*`make erase PORT="),
    ("while True: print('A' * 99)",
     "prints without end while .*its reset button.*`make erase PORT="),
])  # fmt: skip
def test_a_board_that_gives_no_file_when_it_is_asked_for_one(
    board, put, monkeypatch, gives, says
):
    """Somebody else's program on it, or a hostile one: no traceback, no waiting for its end."""
    monkeypatch.setattr(device, "MOST_FILE", 10000)
    monkeypatch.setattr(device, "MOST_SAID", 20000)
    _in_the_place_of_binascii(board, put, f"def b2a_base64(data):\n    {gives}\n")
    monkeypatch.setattr(device, "PAUSES", 0.5)
    with device.Device(board.port) as there, pytest.raises(BoardError, match=says):
        there.read_file("/binascii.py")


@pytest.mark.parametrize("code, damaged", [
    ("x = = 1", True), ("unheard", True), ("import binascii\nbinascii.a2b_base64('abc')", True),
    ("import sys\nsys.stderr.write('qYH.m')\n1/0", False), ("open('/none')", False),
    ("raise MemoryError", False),
])  # fmt: skip
def test_an_error_that_only_noise_on_the_line_can_make_is_told_as_that(board, code, damaged):
    with device.Device(board.port) as one, pytest.raises(device.DeviceError) as error:
        one.doing = "reading its settings"
        one.run(code)
    assert str(error.value).startswith(f"The board on {board.port} failed while reading its set")
    assert ("see to its cable" in str(error.value)) == damaged, error.value


@pytest.mark.parametrize("sleeps, says", [
    (0.2, r"answers too slowly while .*: \d bytes in [1-9] s\. .*run the same command again"),
    (0.5, r"answers too slowly while .*: [1-9] s of waiting in all"),
])  # fmt: skip
def test_a_board_that_gives_a_file_byte_by_byte(board, put, monkeypatch, sleeps, says):
    """Each answer comes in time; all of them would take hours."""
    monkeypatch.setattr(device, "PAUSES", 0.5)
    monkeypatch.setattr(device, "SLOW_S", 0.4)
    monkeypatch.setattr(device, "MOST_SLOW_S", 0.8)
    _in_the_place_of_binascii(board, put, "import time\ndef b2a_base64(data):\n"
                              f"    time.sleep({sleeps})\n    return b'QQ==\\n'\n")
    with device.Device(board.port, 2) as there, pytest.raises(BoardError, match=says):
        there.read_file("/binascii.py")


def test_a_board_that_prints_without_end_before_its_prompt():
    """No flush of the port ends there."""
    line = SimpleNamespace(read=lambda size: b"A" * size, write=lambda data: len(data),
                           inWaiting=lambda: 65536)  # fmt: skip
    heard = device._Line(line, 600)
    for _ in range(2):
        heard.write(b"\r")
        with pytest.raises(TransportError):
            while heard.inWaiting():
                heard.read(heard.inWaiting())


@pytest.mark.parametrize("size, gives, says", [
    (65536, b"", "gave 0 of the 65536 bytes of its journal"),
    (8192, b"j" * 4096, "gave 4096 of the 8192 bytes of its journal"),
    (-4096, b"", "says that its journal has -4096 bytes"),
    (0, b"", "says that its journal has 0 bytes"),
    (4096 * 10**9, b"", "says that its journal has 4096000000000 bytes"),
])  # fmt: skip
def test_a_board_that_does_not_give_its_whole_journal(size, gives, says):
    """A copy without it would be called one of a board that holds nothing."""
    there = SimpleNamespace(port="/dev/x", value=lambda code, shape: size, run=lambda code: None,
                            read_pieces=lambda *_: gives)  # fmt: skip
    with pytest.raises(BoardError, match=says):
        held.region(there, "")
