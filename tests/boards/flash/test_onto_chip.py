"""The whole command on chips: interpreter, files, settings, start; each from where it stands.

Behind the loader of the virtual ESP32, and behind the drive of the made-up Pico, runs the virtual
board: its MicroPython is what "the chip" starts. So these boards say that they are linux.
"""

import shutil
import threading

import pytest
from images import code, esp_image, uf2
from patience import PATIENCE
from umqtt_board import boards, cli
from umqtt_board.errors import BoardError
from umqtt_board.flash import onto_chip, rp2, steps
from umqtt_board.port import device
from virtual_esp import VirtualESP

SETTINGS = {"device": "one", "broker.host": "127.0.0.1", "broker.port": 1, "wifi.ssid": "home"}


@pytest.fixture(autouse=True)
def their_boards(tmp_path, monkeypatch):
    """The boards esp32 and rp2040 with the virtual board's interpreter."""
    folder = tmp_path / "boards"
    for name in ("esp32", "rp2040"):
        shutil.copytree(boards.BOARDS / name, folder / name)
        path = folder / name / "board.toml"
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            if line.startswith("platform"):
                lines[at] = 'platform = "linux"'
            elif line.startswith("machine"):
                lines[at] = 'machine = "linux"'
            elif line.startswith('kind = "partition"'):
                lines[at] = 'kind = "vboard"'
        path.write_text("\n".join(lines))
    monkeypatch.setattr(boards, "BOARDS", folder)
    # A machine with much else to do must not look like a chip without MicroPython.
    monkeypatch.setattr(onto_chip, "LOOK_S", 15 * PATIENCE)
    monkeypatch.setattr(device, "ANSWER_S", 15 * PATIENCE)


def _file(tmp_path, data, name):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def _flash(name, port, said=None, **options):
    def progress(step, text):
        if said is not None:
            said.append(f"{step}: {text}")

    return steps.flash(name, port, SETTINGS, progress=progress, **options)


@pytest.fixture
def make_chip():
    """Function that makes virtual ESP32s, switched off at the end of the test."""
    made = []

    def make(**options):
        made.append(VirtualESP(**options))
        return made[-1]

    yield make
    for chip in made:
        chip.close()


def test_a_bare_esp32_gets_everything_and_then_keeps_it(board, make_chip, tmp_path):
    chip = make_chip(runs=board.port)
    image = _file(tmp_path, esp_image(), "ESP32.bin")
    said = []
    report = _flash("esp32", chip.port, said, firmware=str(image))
    assert "firmware: boot loader, program, partition table written, verified by MD5" in said
    assert report.settings == "written" and report.journal == 65536
    board.wait_for("umqtt: one boot 1")
    programmed = chip.programmed
    again = _flash("esp32", chip.port)
    assert again.written == [] and again.settings == "same" and chip.programmed == programmed


def test_a_board_behind_rfc2217(board, make_chip):
    chip = make_chip(line="rfc2217", runs=board.port)
    chip.start()
    with device.Device(chip.port) as one:
        assert one.value("_say(6 * 7)", int) == 42


def test_an_esp32_that_does_not_answer_gets_the_published_image(make_chip, monkeypatch):
    asked = []

    def published(board, firmware, *_):
        asked.append(firmware)
        raise BoardError("off-line")

    monkeypatch.setattr(onto_chip.fetch, "image", published)
    monkeypatch.setattr(onto_chip, "LOOK_S", 1)
    monkeypatch.setattr(device, "ANSWER_S", 1)
    chip = make_chip()
    with pytest.raises(BoardError, match="off-line"):
        _flash("esp32", chip.port)
    with pytest.raises(BoardError, match="does not answer at the Python prompt"):
        _flash("esp32", chip.port, firmware="skip")
    assert asked == ["fetch"] and chip.erased == []


class Pico:
    """The drive of a Pico in its loader; when a whole file has come it starts what is in it."""

    def __init__(self, folder, boot, told="RPI-RP2"):
        self.folder, self._boot = folder, boot
        self.image = None
        folder.mkdir()
        info = f"UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: {told}\n"
        (folder / rp2.INFO).write_text(info)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self):
        """Begin to look at what is copied to the drive."""
        self._thread.start()

    def _watch(self):
        path = self.folder / "firmware.uf2"
        while not self._over.wait(0.02):
            data = path.read_bytes() if path.exists() else b""
            if data and len(data) == 512 * int.from_bytes(data[24:28], "little"):
                self.image = data
                (self.folder / rp2.INFO).unlink()
                self._boot()
                return

    def close(self):
        """Stop looking."""
        self._over.set()
        self._thread.join(10)


def test_a_pico_in_its_loader_gets_everything(pico, tmp_path):
    pico.power_off()
    drive = Pico(tmp_path / "RPI-RP2", pico.power_on)
    drive.start()
    image = uf2(code(40_000, 3))
    said = []
    try:
        report = _flash("rp2040", pico.port, said, drive=drive.folder,
                        firmware=str(_file(tmp_path, image, "PICO.uf2")))  # fmt: skip
    finally:
        drive.close()
    assert drive.image == image and report.settings == "written"
    assert any(line.startswith("firmware: writing PICO.uf2 (157 blocks)") for line in said)
    assert "journal: 65536 bytes of flash set aside" in said and report.journal == 65536


def test_a_pico_with_micropython_keeps_it_and_its_journal(pico, monkeypatch):
    monkeypatch.setattr(rp2, "mounts", lambda: [])
    assert _flash("rp2040", pico.port).journal == 65536
    said = []
    report = _flash("rp2040", pico.port, said)
    assert report.written == [] and report.journal == 65536
    assert not [line for line in said if line.startswith("journal")]


def test_messages_that_wait_in_files_are_delivered_before_the_region_is_made(pico, monkeypatch):
    monkeypatch.setattr(rp2, "mounts", lambda: [])
    monkeypatch.setattr(steps.held, "waiting_in_files", lambda device: 2)
    said = []
    assert _flash("rp2040", pico.port, said).journal == 0
    assert any(line.startswith("journal: 2 messages wait in files") for line in said)


def test_a_pico_that_is_asked_into_its_loader(pico, tmp_path, monkeypatch):
    """`machine.bootloader()` over the serial port; then the drive is there."""
    drives = tmp_path / "media"
    drives.mkdir()
    monkeypatch.setattr(rp2, "mounts", lambda: list(drives.iterdir()))
    asked, drive = [], None

    def start_loader(one):
        nonlocal drive
        asked.append(one.port)
        one.close()
        drive = Pico(drives / "RPI-RP2", lambda: None)
        drive.start()

    monkeypatch.setattr(device.Device, "start_loader", start_loader)
    _flash("rp2040", pico.port, firmware=str(_file(tmp_path, uf2(code(5_000, 3)), "P.uf2")))
    drive.close()
    assert asked == [pico.port] and drive.image


def test_a_pico_whose_micropython_is_too_old_goes_into_its_loader_too(pico, monkeypatch):
    board = boards.load("rp2040")
    board["micropython"]["minimum"] = "9.0"
    asked = []
    monkeypatch.setattr(device.Device, "start_loader", lambda one: asked.append(one.port))
    monkeypatch.setattr(rp2, "find", lambda *_: "the drive")
    assert onto_chip._into_loader(board, onto_chip.Ways(pico.port)) == "the drive"
    assert asked == [pico.port]


def test_erasing_a_pico_takes_its_files_and_region_and_leaves_micropython(pico, put, mpremote):
    put(pico, "main.py", "print('main ran')\n")
    place = ["erase", "--board", "rp2040", "--port", pico.port]
    with pytest.raises(BoardError, match=f"Nothing was erased. Everything on {pico.port} will"):
        cli.cli(place, standalone_mode=False)
    mark = len(pico.printed())
    pico.reset()
    pico.wait_for("main ran", since=mark)
    mark = len(pico.printed())
    cli.cli([*place, "--yes"], standalone_mode=False)
    pico.wait_for(">>> ", since=mark)
    assert "main ran" not in pico.printed()[mark:]
    assert mpremote(pico, "exec", "import os\nprint(os.listdir('/'))").strip() == "[]"


def test_a_drive_that_goes_away_too_early(tmp_path, monkeypatch):
    drive = tmp_path / "drive"
    Pico(drive, lambda: None)
    target = drive / "firmware.uf2"
    target.symlink_to("/dev/full")
    image = _file(tmp_path, uf2(code(5_000, 3)), "P.uf2")
    with pytest.raises(BoardError, match="was lost while writing .*0 of .*Hold its BOOTSEL"):
        rp2.write(image, boards.load("rp2040"), drive, lambda *_: None, lambda *_: None)


def test_a_chip_that_does_not_start_after_the_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(rp2, "GONE_S", 0.3)
    Pico(tmp_path / "drive", lambda: None)
    image = _file(tmp_path, uf2(code(5_000, 3)), "P.uf2")
    with pytest.raises(BoardError, match="did not start after all of P.uf2 was copied"):
        rp2.write(image, boards.load("rp2040"), tmp_path / "drive", print, lambda *_: None)


def test_drives_of_other_chips_and_of_none(tmp_path, monkeypatch):
    board = boards.load("rp2040")
    Pico(tmp_path / "a", print, "RP2350")
    with pytest.raises(BoardError, match=r"not that of BOARD=rp2040 \(RPI-RP2\): .*a \(RP2350\)"):
        rp2.find(board, tmp_path / "a")
    with pytest.raises(BoardError, match="not the drive of a chip in its loader"):
        rp2.find(board, tmp_path)
    Pico(tmp_path / "b", print)
    Pico(tmp_path / "c", print)
    monkeypatch.setattr(rp2, "mounts", lambda: sorted(tmp_path.iterdir()))
    with pytest.raises(BoardError, match="Several boards show a drive: .*b, .*c. Choose one with"):
        rp2.find(board)


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """Function that puts a program called picotool on the search path."""

    def put(script):
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "picotool").write_text("#!/bin/sh\n" + script)
        (tools / "picotool").chmod(0o755)
        monkeypatch.setenv("PATH", str(tools), prepend=":")

    return put


def test_picotool_where_no_drive_is_mounted(tmp_path, on_path, monkeypatch):
    board = boards.load("rp2040")
    image = _file(tmp_path, uf2(code(5_000, 3)), "P.uf2")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BoardError, match="No drive .* or install picotool, and run the same comm"):
        rp2.write(image, board, None, print, print)
    on_path(f'echo "$@" > {tmp_path}/said\n')
    rp2.write(image, board, None, lambda *_: None, print)
    assert (tmp_path / "said").read_text().split() == ["load", "-v", "-x", str(image)]
    on_path("echo 'No accessible RP-series devices'; exit 249\n")
    with pytest.raises(BoardError, match="picotool failed: No accessible RP-series devices"):
        rp2.write(image, board, None, lambda *_: None, print)


def test_the_wrong_image_for_a_pico_is_refused_before_the_chip_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(onto_chip.find, "find", lambda *_: pytest.fail("the port was looked for"))
    monkeypatch.setattr(rp2, "mounts", lambda: [])
    wrong = _file(tmp_path, uf2(code(5_000, 3), 0xE48BFF59), "PICO2.uf2")
    with pytest.raises(BoardError, match="it is for RP2350 .Arm., not for RP2040. Nothing was"):
        _flash("rp2040", None, firmware=str(wrong))
