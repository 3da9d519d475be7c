"""Files of somebody's own on a board that is flashed: kept, and told by name, whatever is cut."""

import ast
import re

import pytest
from flash_kit import cut_flash, flash, operations_of_an_update
from umqtt_board.errors import BoardError
from umqtt_board.flash import build, install, steps, verify
from umqtt_board.ota.needed import modules
from umqtt_board.paths import FIRMWARE, LIBRARY, PROJECT
from umqtt_board.port import built_in, device


@pytest.mark.parametrize("of", [None, 0.4])
def test_a_main_py_and_boot_py_of_ones_own_are_kept(
    make_board, project, put, files_on, mpremote, of
):
    boards_, said = [make_board("one"), make_board("measured")], []
    for one in boards_:
        one.power_on()
        put(one, "main.py", "print('mine')\n")
        put(one, "boot.py", "import os  # mine\n")
    board, measured = boards_
    if of:
        total, force = operations_of_an_update(measured)
        board.cut_after(force + round((total - 1 - force) * of))
        with pytest.raises(BoardError, match="was lost while"):
            flash(board)
        board.cut_after(None)
        board.power_on()
    mark = len(board.printed())
    flash(board, progress=lambda step, text: said.append(text))
    board.wait_for(r"boot ran\napp ran", since=mark)
    assert mpremote(board, "cat", ":main.py.own") == "print('mine')\n"
    assert mpremote(board, "cat", ":boot.py.own") == "import os  # mine\n"
    assert "your own main.py is kept as main.py.own: the firmware has one" in said
    project("firmware/main.py", "import app  # new\n")
    flash(board)
    assert [path for path in files_on(board) if ".own" in path] == [
        "/boot.py.own", "/main.py.own"]  # fmt: skip


@pytest.mark.parametrize("waits", ["import time\ntime.sleep(60)\n",
                                   "import time\nwhile True:\n    time.sleep(0.1)\n"])
def test_a_boot_py_that_waits_is_interrupted_and_kept(board, put, mpremote, waits):
    """For a network, for instance, as boot.py often does."""
    put(board, "boot.py", waits)
    flash(board)
    assert mpremote(board, "cat", ":boot.py.own") == waits
    with device.Device(board.port) as opened:
        assert opened.value("_say(1 + 1)", int) == 2


def test_what_somebody_has_put_in_the_place_of_the_firmwares_is_kept(
    board, project, put, mpremote
):
    flash(board)
    for name in ("main.py", "boot.py"):
        put(board, name, "x = 'mine'\n")
    assert flash(board).written == ["/boot.py", "/main.py"]
    for name in ("main.py", "boot.py"):
        assert mpremote(board, "cat", f":{name}.own") == "x = 'mine'\n"
    project("firmware/main.py", "import app  # new\n")
    assert flash(board).written == ["/main.py", "/installed.json"]


def test_modules_of_ones_own_with_a_name_of_the_firmwares_are_kept_and_told(
    board, project, put, files_on, mpremote
):
    """Before the first flash and after it; but for the firmware's own source, and what an earlier
    installation has put there."""
    def again():
        said = []
        report = flash(board, progress=lambda step, text: said.append(text))
        return report.removed, [text for text in said if " is kept as " in text]

    mpremote(board, "mkdir", ":sensors")
    put(board, "sensors/one.py", "X = 'mine'\n")
    put(board, "app.mpy", "my own")
    put(board, "big.py", (project.folder / "firmware" / "big.py").read_text())
    assert again() == (["/big.py"], [
        "your own app.mpy is kept as app.mpy.own: the firmware has one",
        "your own sensors/one.py is kept as sensors/one.py.own: it would hide the firmware's",
    ])  # fmt: skip
    assert mpremote(board, "cat", ":app.mpy.own") == "my own"
    assert mpremote(board, "cat", ":sensors/one.py.own") == "X = 'mine'\n"
    board.wait_for("app ran")
    put(board, "app.py", "print('mine')\n")
    put(board, "app.mpy", "damaged, or changed: the name is the firmware's by now")
    assert again() == ([], [
        "your own app.py is kept as app.py.own: it would hide the firmware's"])  # fmt: skip
    assert mpremote(board, "cat", ":app.py.own") == "print('mine')\n"
    assert again() == ([], [])
    assert [path for path in files_on(board) if ".own" in path] == [
        "/app.mpy.own", "/app.py.own", "/sensors/one.py.own"]  # fmt: skip


@pytest.mark.parametrize("part, of", [("force", 0.1), *(
    pytest.param(*each, marks=pytest.mark.campaign) for each in (("aside", 0.5), ("force", 0.7)))])
def test_after_a_cut_the_copies_are_named_as_they_are(
    make_board, project, put, mpremote, part, of
):
    """Beside older ones, whatever of them the flash that was cut has made."""
    names = ("app.mpy", "big.py", "boot.py", "main.py")
    board, measured, said = make_board("one"), make_board("measured"), []
    for one in (board, measured):
        one.power_on()
        mpremote(one, "mkdir", ":app.py.own")  # a name that nothing was ever given
        for name in names:
            put(one, name, f"x = 'mine, {name}'\n")
            put(one, f"{name}.own", "older\n")
    cut_flash(board, measured, part, of)
    board.power_on()
    flash(board, progress=lambda step, text: said.append(text))
    assert sorted(text.split(":")[0] for text in said if " is kept as " in text) == [
        f"your own {name} is kept as {name}.own1" for name in names]  # fmt: skip
    for name in names:
        assert mpremote(board, "cat", f":{name}.own") == "older\n"
        assert mpremote(board, "cat", f":{name}.own1") == f"x = 'mine, {name}'\n"


# Of the work of writing aside, and of putting in force.
@pytest.mark.parametrize("part, of", [("force", 0.3), *(
    pytest.param(*each, marks=pytest.mark.campaign) for each in (("aside", 0.5), ("force", 0.7)))])
def test_a_cut_loses_no_module_of_ones_own(
    make_board, project, put, files_on, mpremote, part, of
):
    board, measured, said = make_board("one"), make_board("measured"), []
    for one in (board, measured):
        one.power_on()
        put(one, "app.mpy", "my own")
        put(one, "big.py", "mine, too\n")
    cut_flash(board, measured, part, of)
    mark = len(board.printed())
    board.power_on()
    project("firmware/app.py", "import time\nprint('app ran')\nwhile 1:\n    time.sleep(1)\n")
    flash(board, progress=lambda step, text: said.append(text))
    board.wait_for("app ran", since=mark)
    assert [path for path in files_on(board) if ".own" in path] == [
        "/app.mpy.own", "/big.py.own"]  # fmt: skip
    assert mpremote(board, "cat", ":app.mpy.own") == "my own"
    assert mpremote(board, "cat", ":big.py.own") == "mine, too\n"
    assert len([text for text in said if " is kept as " in text]) == 2


@pytest.mark.parametrize("of", ["aside", 0.5])
def test_files_of_ones_own_that_are_put_there_after_a_cut_are_kept(
    make_board, project, put, files_on, mpremote, of
):
    """The first of them, too."""
    board, measured = make_board("one"), make_board("measured")
    for one in (board, measured):
        one.power_on()
        put(one, "main.py", "print('first')\n")
    total, force = operations_of_an_update(measured)
    board.cut_after(force // 2 if of == "aside" else force + round((total - 1 - force) * of))
    with pytest.raises(BoardError, match="was lost while"):
        flash(board)
    board.cut_after(None)
    board.power_on()
    put(board, "main.py", "print('second')\n")
    mark = len(board.printed())
    flash(board)
    board.wait_for("app ran", since=mark)
    own = [path for path in files_on(board) if ".own" in path]
    assert sorted(mpremote(board, "cat", f":{path[1:]}") for path in own) == [
        "print('first')\n", "print('second')\n"]  # fmt: skip


STOCK = """\
# This file is executed on every boot (including wake-boot from deepsleep)
#import esp
#esp.osdebug(None)
#import webrepl
#webrepl.start()
"""  # as MicroPython's esp32 port writes it


@pytest.mark.parametrize("text", [STOCK, STOCK.replace("\n", "\r\n"), ""])
def test_a_boot_py_that_micropython_has_written_is_not_kept(board, project, put, files_on, text):
    put(board, "boot.py", text)
    put(board, "main.py.own", "of another time\n")
    put(board, "main.py", "print('mine')\n")
    flash(board)
    assert [path for path in files_on(board) if ".own" in path] == [
        "/main.py.own", "/main.py.own1"]  # fmt: skip


def test_a_program_that_somebody_has_switched_off_is_kept_and_told(
    board, project, put, mpremote
):
    """Each of its lines is a comment: it may be the only copy."""
    off, said = "# The greenhouse.\n#import machine\n\n", []
    put(board, "main.py", off)
    put(board, "boot.py", STOCK + "#import machine\n")
    flash(board, progress=lambda step, text: said.append(text))
    assert mpremote(board, "cat", ":main.py.own") == off
    assert mpremote(board, "cat", ":boot.py.own") == STOCK + "#import machine\n"
    assert sum(" is kept as " in text for text in said) == 2


def _cut(*_):
    raise BoardError("cut here")


def told_by_flash(board, monkeypatch, cut):
    """Flash a board, if `cut` after a flash that ended before its files came into force, and once
    more, when there is nothing to do; what is said of files that are kept, sorted."""
    said = []
    if cut:
        with monkeypatch.context() as patch, pytest.raises(BoardError, match="cut here"):
            patch.setattr(install, "_put_in_force", _cut)
            flash(board)
    flash(board, progress=lambda step, text: said.append(text))
    board.wait_for("app ran")
    told = sorted(text for text in said if " is kept as " in text)
    said.clear()
    assert flash(board, progress=lambda step, text: said.append(text)).written == []
    assert not [text for text in said if " is kept as " in text]
    return told


@pytest.mark.parametrize("cut", [False, True])
def test_what_hides_a_module_or_the_library_is_kept_and_told(
    board, project, put, files_on, mpremote, monkeypatch, cut
):
    """A folder comes before a module of that name, and the root before /lib."""
    for folder in (":app", ":sensors", ":sensors/one", ":umqtt_min"):
        mpremote(board, "mkdir", folder)
    for path in ("app/mine.json", "sensors/one/__init__.py", "umqtt_min/x.py", "umqtt_min.py"):
        put(board, path, "'mine'\n")
    assert told_by_flash(board, monkeypatch, cut) == [
        "your own app is kept as app.own: it would hide the firmware's",
        "your own sensors/one is kept as sensors/one.own: it would hide the firmware's",
        "your own umqtt_min is kept as umqtt_min.own: it would hide the firmware's",
        "your own umqtt_min.py is kept as umqtt_min.py.own: it would hide the firmware's",
    ]  # fmt: skip
    for path in ("app.own/mine.json", "sensors/one.own/__init__.py", "umqtt_min.own/x.py",
                 "umqtt_min.py.own"):  # fmt: skip
        assert mpremote(board, "cat", f":{path}") == "'mine'\n"


@pytest.mark.parametrize("cut", [False, True])
def test_a_file_in_the_place_of_a_folder_and_the_other_way_round_is_kept_and_told(
    board, project, put, mpremote, monkeypatch, cut
):
    folders = ("app.mpy", "big.mpy.new", "boot.py", "flash.half", "flash.kept", "main.py",
               "main.py.off")  # fmt: skip
    for folder in folders:
        mpremote(board, "mkdir", f":{folder}")
        put(board, f"{folder}/mine.txt", "mine\n")
    for file in ("sensors", "sets"):
        put(board, file, "mine\n")
    said = told_by_flash(board, monkeypatch, cut)
    ours = {"app.mpy", "boot.py", "main.py", "sensors", "sets"}
    assert said == [
        f"your own {name} is kept as {name}.own: "
        + ("the firmware has one" if name in ours else "a flash needs that name")
        for name in sorted((*folders, "sensors", "sets"))]  # fmt: skip
    for path in (*(f"{folder}.own/mine.txt" for folder in folders), "sensors.own", "sets.own"):
        assert mpremote(board, "cat", f":{path}") == "mine\n"


@pytest.mark.parametrize("notes", [
    "[[[[", "('/big.py','/big.py.own'),('/main", "('/main.py','/notes.txt'),", "{},", "mine\n"])
def test_notes_of_renamed_files_that_are_damaged_are_told(board, project, put, files_on, notes):
    """With all names that the files may have now: no pair that no flash has made is believed."""
    said = []
    put(board, "main.py", "print('mine')\n")
    put(board, "notes.txt", "mine\n")
    put(board, "big.py.own", "of another time\n")
    put(board, "flash.kept", notes)
    flash(board, progress=lambda step, text: said.append(text))
    assert ("the note of which files of your own were renamed is damaged; the board has: "
            "/big.py.own, /main.py.own") in said  # fmt: skip
    assert not [text for text in said if "notes.txt" in text]
    assert {"/main.py.own", "/notes.txt", "/big.py.own"} < {*files_on(board)}
    assert flash(board, progress=lambda step, text: said.append(text)).written == []


@pytest.mark.parametrize("path, text", [
    ("hashlib.py", "x = 1\n"), ("os/__init__.py", "x = 1\n"), ("json.py", "x = 1\n"),
    ("binascii.mpy", "x"), ("ssl/ca.txt", "mine\n"),
])  # fmt: skip
def test_what_hides_a_module_of_micropythons_is_kept_and_told(
    board, project, put, mpremote, path, text
):
    """Even from the questions that a flash asks, and if boot.py has imported it."""
    flash(board)
    name, _, rest = path.partition("/")
    if not name.endswith(".mpy"):
        put(board, "boot.py", f"import {name.split('.')[0]}\n")
    make = f"uos.mkdir({name!r})\n" if rest else ""  # not by mpremote: it asks as we do
    mpremote(board, "exec", f"import uos\n{make}with open({path!r}, 'w') as f: f.write({text!r})")
    items = [item for item in steps.build() if item.path != "/boot.py"]
    with device.Device(board.port) as one, pytest.raises(BoardError, match=(
            f"/{name} on .* hides .*flash it again")):  # fmt: skip
        verify.verify(one, {"journal": {"kind": "files"}}, items)
    said = []
    flash(board, progress=lambda step, text: said.append(text))
    assert f"your own {name} is kept as {name}.own: it would hide MicroPython's" in said
    board.wait_for("app ran")
    kept = f"{name}.own/{rest}".rstrip("/")
    assert mpremote(board, "exec", f"print(open('/{kept}').read(), end='')") == text
    assert flash(board).written == []


def test_all_modules_of_micropythons_that_we_use_and_a_file_would_hide_are_known():
    """By the imports of what goes on a board, and of what it is asked."""
    used, ours = set(), set(modules(FIRMWARE)) | {"umqtt_min"}
    for folder in (FIRMWARE, LIBRARY):
        for path in build._sources(folder):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    used |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    used.add(node.module)
    for path in (PROJECT / "tools" / "umqtt_board").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for line in node.value.splitlines():
                    said = re.fullmatch(r" *(?:from (\w+) import .*|import ([\w, ]+))", line)
                    used |= set(re.findall(r"\w+", said[1] or said[2])) if said else set()
    used = {name.split(".")[0] for name in used} - ours
    never = {"deflate", "esp32", "gc", "micropython", "network", "sys", "vfs"}  # not from a file
    loaded = {"rp2", "vboard"}  # before there are files
    drivers = {"dht", "ntptime"}  # one's own does the same
    nowhere = {"typing"}  # for type checkers
    assert used - never - loaded - drivers - nowhere == {*built_in.EXTENSIBLE, *built_in.FROZEN}
