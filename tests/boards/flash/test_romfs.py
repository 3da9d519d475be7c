"""Flashing a board whose MicroPython has a ROMFS: the library goes there, whatever is cut."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.port import device, find
from umqtt_board.virtual.board import VirtualBoard

SETTINGS = {"broker.host": "127.0.0.1", "broker.port": 1, "device": "one"}
ROM = "/rom/lib/umqtt_min"
FILES = "/lib/umqtt_min"
ROOM = 0x20000


def _flash(board, **options):
    said = []
    report = steps.flash("unix", board.port, SETTINGS,
                         progress=lambda step, text: said.append((step, text)),
                         **options)  # fmt: skip
    return report, [text for step, text in said if step == "romfs"]


@pytest.fixture
def rom_board(make_board):
    """A virtual board with power, a ROMFS, and nothing on it."""
    board = make_board(romfs=ROOM)
    board.power_on()
    return board


def test_the_library_goes_there_and_is_not_in_the_filesystem(rom_board, project, files_on):
    report, said = _flash(rom_board)
    assert report.library == "9.9" and report.folder == ROM and report.rom_written
    assert [text for text in said if "runs where it lies" in text] == said != []
    rom_board.wait_for("boot ran\napp ran")
    assert [path for path in files_on(rom_board) if "umqtt_min" in path] == [
        ROM + "/__init__.mpy", ROM + "/part.mpy",
    ]  # fmt: skip


@pytest.mark.parametrize("times", [1, 99])
def test_a_piece_of_it_that_comes_damaged_is_sent_again(rom_board, project, monkeypatch, times):
    """With a letter changed in it; if it comes so each time, a sentence says what to do."""
    there, left = device.Device._exec, [times]

    def damaged(self, code):
        if left[0] and (at := code.find("a2b_base64(b")) >= 0:
            left[0] -= 1
            code = code[: at + 20] + chr(ord(code[at + 20]) ^ 1) + code[at + 21 :]
        return there(self, code)

    with monkeypatch.context() as patch:
        patch.setattr(device.Device, "_exec", damaged)
        # mpremote's own way to send a program, if it is used.
        patch.setattr(device._Transport, "exec", lambda self, code: damaged(
            SimpleNamespace(_transport=self, answer_s=10, _slow=0), code), raising=False)
        if times == 1:
            assert _flash(rom_board)[0].rom_written and not left[0]
        else:
            with pytest.raises(BoardError, match="writing its ROMFS.*see to its cable"):
                _flash(rom_board)


def test_the_second_time_nothing_is_written_and_then_only_what_differs(rom_board, project):
    _flash(rom_board)
    images = rom_board.flash_image.read_bytes(), rom_board.romfs_image.read_bytes()
    report, _ = _flash(rom_board)
    assert not report.written and not report.rom_written
    assert images == (rom_board.flash_image.read_bytes(), rom_board.romfs_image.read_bytes())
    project("firmware/sensors/one.py", "X = 2\n")
    report, _ = _flash(rom_board)
    assert report.written == ["/sensors/one.mpy"] and not report.rom_written
    project("lib/part.py", "def f():\n    return 2\n")
    report, _ = _flash(rom_board)
    assert report.rom_written and not report.written
    steps.flash("unix", rom_board.port, SETTINGS)


def test_a_board_without_gets_it_into_the_filesystem_and_says_so(board, project):
    report, said = _flash(board)
    assert report.folder == FILES and not report.rom_written
    assert said == ["this MicroPython has none: the library goes into the filesystem"]


def test_a_board_that_gets_one_gives_the_filesystem_its_room_back(make_board, project, files_on):
    board = make_board()
    board.power_on()
    _flash(board)
    board.power_off()
    board = make_board(romfs=ROOM)
    board.power_on()
    report, _ = _flash(board)
    assert report.removed == [FILES + "/__init__.mpy", FILES + "/part.mpy"]
    assert report.folder == ROM
    board.power_off()
    board = make_board(romfs=0)
    board.power_on()
    assert _flash(board)[0].folder == FILES


def test_one_that_is_too_small_or_somebody_elses_is_left_alone(
    make_board, project, mpremote, tmp_path
):
    small = make_board("small", romfs=0x2000)
    small.power_on()
    project("lib/much.py", "".join(f"V{n} = 'value {n}'\n" for n in range(600)))
    report, said = _flash(small)
    assert report.folder == FILES and "its 8192 bytes are too few for" in said[0]
    assert small.romfs_image.read_bytes() == b"\xff" * 0x2000

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "font.bin").write_bytes(bytes(500))
    theirs = make_board("theirs", romfs=ROOM)
    theirs.power_on()
    mpremote(theirs, "romfs", "deploy", str(tmp_path / "mine"))
    image = theirs.romfs_image.read_bytes()
    report, said = _flash(theirs)
    assert report.folder == FILES and "/rom/font.bin in it is not this project's" in said[0]
    assert theirs.romfs_image.read_bytes() == image


def test_the_board_of_make_flash_has_one_unless_it_was_told_otherwise(tmp_path):
    assert find.virtual_board(tmp_path / "new", new=True).config["romfs"] == ROOM
    VirtualBoard(tmp_path / "without", romfs=0)
    assert find.virtual_board(tmp_path / "without").config["romfs"] == 0


def test_mpremote_finds_the_image(rom_board, project, mpremote):
    said = mpremote(rom_board, "romfs", "query")
    assert f"size {ROOM} bytes" in said and "Not a valid ROMFS" in said
    _flash(rom_board)
    said = mpremote(rom_board, "romfs", "query")
    assert "ROMFS image size" in said and "Not a valid" not in said


def _update(project, number):
    """A library and a firmware that only work together."""
    project("lib/part.py", "".join(f"W{n} = '{n}'\n" for n in range(400)) + f"NEW = {number}\n")
    project("firmware/app.py", "import time\nfrom umqtt_min import part\n"
                               f"print('new app', {number}, part.NEW)\n"
                               "while True:\n    time.sleep(1)\n")  # fmt: skip


@pytest.mark.parametrize("part", [0.2, 0.55, 0.9, *(
    pytest.param(part, marks=pytest.mark.campaign) for part in (0.4, 0.7))])  # fmt: skip
def test_a_cut_never_mixes_an_old_library_and_a_new_firmware(make_board, project, part):
    board, measured = make_board("one", romfs=ROOM), make_board("measured", romfs=ROOM)
    _update(project, 1)
    for one in (board, measured):
        one.power_on()
        _flash(one)
    _update(project, 2)
    measured.cut_after(100_000)
    assert _flash(measured)[0].rom_written
    board.cut_after(round(part * (100_000 - measured.cut_left())))
    with pytest.raises(BoardError, match="was lost while .* run the same command again"):
        _flash(board)
    board.cut_after(None)
    mark = len(board.printed())
    board.power_on()
    board.wait_for(r">>> |new app 1 1|new app 2 2", since=mark)
    assert "Traceback" not in board.printed()[mark:]
    mark = len(board.printed())
    assert _flash(board)[0].folder == ROM
    board.wait_for("new app 2 2", since=mark)


def test_a_damaged_image_is_found_and_mended(rom_board, project):
    _flash(rom_board)
    rom_board.cut()
    with open(rom_board.romfs_image, "r+b") as image:
        image.seek(100)
        image.write(bytes(20))
    rom_board.power_on()
    report, _ = _flash(rom_board)
    assert report.rom_written and report.folder == ROM


def test_erasing_the_board_erases_it_too(rom_board, project):
    _flash(rom_board)
    rom_board.power_off()
    rom_board.erase()
    assert rom_board.romfs_image.read_bytes() == b"\xff" * ROOM


TAKEN = """
import gc
gc.collect()
before = gc.mem_alloc()
from umqtt_min import MQTTClient, FlashStore
import umqtt_min.receiver, umqtt_min.session, umqtt_min.connect, umqtt_min.subscribe
gc.collect()
print(gc.mem_alloc() - before)
"""


def test_it_saves_heap_with_the_real_library(make_board, mpremote):
    taken = {}
    for name, room in (("files", 0), ("rom", ROOM)):
        board = make_board(name, romfs=room)
        board.power_on()
        said = subprocess.run(
            [sys.executable, "-m", "umqtt_board", "step", "install", "--board", "unix", "--port",
             board.port], capture_output=True, text=True, timeout=240)  # fmt: skip
        assert said.returncode == 0, said.stderr
        taken[name] = int(mpremote(board, "exec", TAKEN))
    print(taken)
    assert taken["rom"] < 0.7 * taken["files"]
