"""esptool writes MicroPython onto a virtual ESP32; the flash that it ends with is compared."""

import littlefs
import pytest
from images import STOCK, code, esp_image
from umqtt_board import boards
from umqtt_board.errors import BoardError
from umqtt_board.flash import esp, partitions
from umqtt_board.flash import esp_image as images_of
from virtual_esp import VirtualESP

IMAGE = esp_image()
NVS = code(0x6000, 5)
FILES = code(0x3000, 6)


@pytest.fixture
def make_chip():
    """Function that makes virtual chips, switched off at the end of the test."""
    made = []

    def make(*arguments, **options):
        made.append(VirtualESP(*arguments, **options))
        return made[-1]

    yield make
    for chip in made:
        chip.close()


def _write(chip, image=IMAGE, board="esp32", yes=False, said=None, **options):
    def progress(step, text):
        if said is not None:
            said.append(text)

    description = boards.load(board)
    with esp.Chip(chip.port, description, progress, lambda *_: None, **options) as one:
        done = esp.write(one, image, "image.bin", lambda text: yes)
        one.restart()
    return done


def _wanted(image=IMAGE, board="esp32", nvs=b"", files=b"", mqtt=b""):
    """The flash as it has to be."""
    description = boards.load(board)
    flash = bytearray(b"\xff" * (4 << 20))
    for part in images_of.parts(image, description, "x"):
        flash[part.offset : part.end] = part.data
    for at, data in ((0x9000, nvs), (0x200000, files), (0x3C0000, mqtt)):
        flash[at : at + len(data)] = data
    return flash


def _put(chip, table=STOCK, nvs=b"", files=b"", mqtt=b""):
    """A chip in use: its table and what lies in its regions."""
    data = partitions.to_binary(partitions.parse_csv(table))
    for at, part in ((0x8000, data), (0x9000, nvs), (0x200000, files), (0x3C0000, mqtt)):
        chip.flash[at : at + len(part)] = part


def _ours(board="esp32"):
    return (boards.load(board).folder / "partitions.csv").read_text()


@pytest.mark.parametrize("name, line, stub", [
    ("esp32", "socket", "run"), ("esp32", "pty", "refuse"), ("esp32s3", "socket", "run"),
    ("esp32c3", "socket", "refuse"),
])  # fmt: skip
def test_a_bare_chip_byte_for_byte(make_chip, name, line, stub):
    chip = make_chip(name, line, stub=stub)
    start = boards.load(name)["micropython"]["image_offset"]
    image = esp_image(name, start=start)
    assert _write(chip, image, name) == ["boot loader", "program", "partition table"]
    assert chip.flash == _wanted(image, name)
    assert line == "pty" or chip.wait_for_boot()  # (a pseudo-terminal has no reset line)


def test_nvs_survives_and_the_second_time_nothing_is_written(make_chip):
    chip = make_chip()
    _put(chip, _ours(), nvs=NVS, files=FILES, mqtt=FILES)
    assert "program" in _write(chip)
    assert chip.flash == _wanted(nvs=NVS, files=FILES, mqtt=FILES)
    chip.to_loader()
    before, chip.erased = chip.programmed, []
    assert _write(chip) == []
    assert chip.programmed == before and chip.erased == []


def test_only_the_program_is_written_when_only_it_differs(make_chip):
    chip = make_chip()
    _write(chip)
    chip.to_loader()
    new = esp_image(seed=9)
    new = IMAGE[: 0x10000 - 0x1000] + new[0x10000 - 0x1000 :]
    assert _write(chip, new) == ["program"]
    assert chip.flash == _wanted(new)


def test_another_table_needs_consent_before_files_are_erased(make_chip):
    chip = make_chip()
    _put(chip, nvs=NVS, files=FILES)
    before = bytes(chip.flash)
    with pytest.raises(BoardError, match="what its vfs holds is lost. `make backup` first"):
        _write(chip)
    assert chip.flash == before
    chip.to_loader()
    assert _write(chip, yes=True)[0] == "vfs"
    assert chip.flash == _wanted(nvs=NVS)


def test_another_table_without_files_needs_no_consent(make_chip):
    chip = make_chip()
    _put(chip, nvs=NVS)
    _write(chip)
    assert chip.flash == _wanted(nvs=NVS)


def _filesystem(size):
    """A littlefs as MicroPython makes it, with a file in it."""
    host = littlefs.LittleFS(block_size=4096, block_count=size // 4096, prog_size=32,
                             read_size=32, cache_size=128, lookahead_size=32)  # fmt: skip
    with host.open("settings.json", "w") as file:
        file.write("{}")
    return bytes(host.context.buffer)


def test_a_table_that_was_cut_while_it_was_written_costs_no_files_and_no_messages(make_chip):
    chip = make_chip()
    files = _filesystem(0x1C0000)
    _put(chip, _ours(), files=files, mqtt=FILES)
    chip.flash[0x8000:0x9000] = b"\xff" * 0x1000
    _write(chip)
    assert chip.flash == _wanted(files=files, mqtt=FILES)


def test_without_a_table_a_filesystem_of_another_size_does_not_stay(make_chip):
    chip = make_chip()
    _put(chip, files=_filesystem(0x200000)[:0x10000])
    chip.flash[0x8000:0x9000] = b"\xff" * 0x1000
    assert _write(chip)[0] == "vfs"
    assert chip.flash == _wanted()


@pytest.mark.parametrize("fault, stub", [
    ("lose", "run"), ("corrupt", "refuse"),
])  # fmt: skip
def test_a_frame_that_is_lost_or_damaged_is_sent_again(make_chip, fault, stub):
    chip = make_chip(stub=stub)
    chip.faults = {1: fault}
    _write(chip)
    assert chip.flash == _wanted() and not chip.faults


@pytest.mark.parametrize("fault, stub, at", [("reset", "run", 1), ("hang up", "refuse", 40)])
def test_a_chip_that_is_lost_in_the_middle_is_gone_on_with(make_chip, fault, stub, at):
    chip = make_chip(stub=stub)
    _put(chip, files=FILES)
    chip.faults = {at: fault}
    with pytest.raises(BoardError, match="was lost while writing its program: .*same command aga"):
        _write(chip, yes=True)
    assert chip.flash != _wanted()
    chip.to_loader()
    said = []
    assert _write(chip, said=said, yes=False) == ["program", "partition table"]
    assert "boot loader is as it should be" in said
    assert chip.flash == _wanted()


def test_the_wrong_chip_is_not_touched(make_chip):
    chip = make_chip("esp32c3")
    with pytest.raises(BoardError, match="is an ESP32-C3, not BOARD=esp32: nothing was erased or "
                                         "written. Use BOARD=esp32c3"):  # fmt: skip
        _write(chip)
    assert chip.erased == [] and chip.programmed == 0


def test_too_little_flash(make_chip):
    chip = make_chip(mib=2)
    with pytest.raises(BoardError, match="has 2MB flash; BOARD=esp32 needs 4MB: nothing was writ"):
        _write(chip)
    assert chip.erased == []


def test_a_chip_that_is_not_in_its_loader_says_how_to_get_it_there(make_chip, monkeypatch):
    monkeypatch.setattr(esp, "ATTEMPTS", 1)
    chip = make_chip()
    chip.hold()
    with pytest.raises(BoardError, match="does not come into its loader. Hold its BOOT button"):
        _write(chip)


def test_a_stub_that_never_answers_is_done_without(make_chip):
    chip = make_chip(line="rfc2217", stub="silent")
    said = []
    assert "program" in _write(chip, said=said)
    assert any("without it" in text for text in said) and chip.flash == _wanted()


def _damaged(at, byte):
    data = bytearray(IMAGE)
    data[at] ^= byte
    return bytes(data)


@pytest.mark.parametrize("image, said", [
    (esp_image("esp32c3"), "is for esp32c3, not for esp32: nothing was written"),
    (IMAGE[:-100], "The program in image.bin is not whole"),
    (_damaged(0x10000 - 0x1000 + 500, 1), "The program in image.bin is not whole"),
    (_damaged(500, 1), "The boot loader in image.bin is not whole"),
    (_damaged(0x7000, 1), "not a whole MicroPython image"),
    (IMAGE[0x10000 - 0x1000 :], "not the one of the program alone"),
    (b"UF2\n" + bytes(508), "is a UF2 file"),
    (b"", "not a whole MicroPython image"),
    (esp_image(size=0x1F0000), "The program in image.bin has .* bytes for 0x10000"),
])  # fmt: skip
def test_a_wrong_image_is_recognised(image, said):
    with pytest.raises(BoardError, match=said):
        images_of.parts(image, boards.load("esp32"), "image.bin")


def test_a_wrong_image_is_refused_before_anything_is_erased(make_chip):
    chip = make_chip()
    _put(chip, files=FILES)
    with pytest.raises(BoardError, match="is for esp32s3, not for esp32"):
        _write(chip, esp_image("esp32s3"), yes=True)
    assert chip.erased == [] and chip.programmed == 0


def test_erasing_everything(make_chip):
    for stub in ("run", "refuse"):
        chip = make_chip(stub=stub)
        _put(chip, files=FILES)
        with esp.Chip(chip.port, boards.load("esp32"), print, print) as one:
            one.erase_all()
        assert chip.flash == b"\xff" * len(chip.flash)
