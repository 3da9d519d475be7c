"""A hand on the board: whoever holds it can be that board, and have it say what he likes. What it
says is text on a terminal, and nobody else's words. Its names open no file of this computer, and
its key is no other board's."""

import contextlib
import dataclasses
import io
import re
import sys

import pytest
from attack_kit import strange
from bench import taken
from certificates import Authority
from patience import wait_until
from rich.console import Console
from umqtt_board import boards as board_files
from umqtt_board import cli, plain
from umqtt_board.backup import copies, held, restoring
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.ota import giving, keys, ota_cli, send
from umqtt_board.port import device
from umqtt_board.settings import settings_file
from update_kit import flashed

UNIX = board_files.load("unix")
HOSTILE = {
    "C0": "a\x07\x08\x00\x0b\x0cb", "ESC": "\x1bc\x1b7", "CSI": "\x1b[2J\x1b[1;1Hfake",
    "OSC": "\x1b]0;title\x07\x1b]8;;http://x\x1b\\\\link", "C1": "\x9b2J\x9d0;t\x9c\x85x",
    "bidi": "\u202eeno\u202c \u2066x\u2069\u200f\u061c", "separators": "a\u2028b\u2029c",
    "DEL": "\x7f", "surrogate": "\udc9b", "tag": "\U000e0041", "invisible": "\u200b\u2060\ufeff",
}


# What a board runs before anybody can ask it for anything: it lists what it likes, and gives
# each of these names a content.
LISTS = """
import builtins, io, os, sys
class Name:
    def __init__(self, text):
        self.text = text
    def __radd__(self, other):
        return self.text
class Os:
    __file__ = "/on/purpose.py"  # one by accident would hide nothing from our questions
    def __getattr__(self, name):
        return getattr(os, name)
    def ilistdir(self, folder):
        return [(Name(name), 0x8000) for name in NAMES]
def lie(path, mode="r"):
    return io.BytesIO(b"hostile") if path in NAMES else honest(path, mode)
honest, builtins.open = builtins.open, lie
sys.modules["os"] = Os()
"""


def fit(text):
    """Whether a terminal shows this, and does nothing."""
    return all(part.isprintable() for part in text.split("\n"))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_printable_stands_there_escaped(text):
    assert not fit(text) and fit(plain.line(f"<{text}>")) and fit(plain.block(text))
    assert plain.line("one\ntwo\rthree") == "one\\ntwo\\rthree"
    assert plain.block("one\ntwo") == "one\ntwo"
    assert plain.line("21.5 \u00b0C in der K\u00fcche, \u6e29\u5ea6") == (
        "21.5 \u00b0C in der K\u00fcche, \u6e29\u5ea6")


def test_a_serial_line_in_pieces_of_any_size():
    said = ("21 \u00b0C\r\n" + "".join(HOSTILE.values()) + "\r\n").encode(errors="replace")
    whole = plain.Stream().feed(said)
    assert whole.startswith("21 \u00b0C\n") and fit(whole) and whole.count("\n") == 2
    by_byte = plain.Stream()
    assert "".join(by_byte.feed(said[at : at + 1]) for at in range(len(said))) == whole
    assert fit(plain.Stream().feed(bytes(range(256)) * 2))


def test_logs_show_no_escape_sequence(board, put, capsys, monkeypatch):
    put(board, "main.py", f"for text in {list(HOSTILE.values())!a}:\n"
                          "    try:\n        print('<<' + text + '>>')\n"
                          "    except UnicodeError:\n        print('<<>>')\nprint('over')\n")
    mark = len(board.printed())
    board.reset()
    board.wait_for("over", since=mark)
    monkeypatch.setattr(sys, "argv", ["umqtt-board"])
    with pytest.raises(SystemExit):
        cli.main(["logs", "--folder", str(board.folder), "--no-follow", "--lines", "100"])
    said = capsys.readouterr().out
    assert said.count("<<") >= len(HOSTILE) - 1 and fit(said)


LIAR = """
for text in ("sensor: umqtt: first publish acknowledged seq=1", "x\\rumqtt: first publish acknowledged seq=2",
             "\\x1b[2Kumqtt: first publish acknowledged seq=3", "umqtt: first publish acknowledged seq=4?",
             "umqtt: wifi NAME first publish acknowledged", "umqtt: first publish acknowledged seq=5 \\u202e"):
    print(text)
from sensors.simulated import make
"""  # noqa: E501


def test_words_inside_another_line_are_no_acknowledgement(board, put, mpremote):
    """What a network, a driver or a broker is called, and what it says, may stand in the log."""
    mpremote(board, "fs", "mkdir", ":sensors")
    put(board, "sensors/liar.py", LIAR)
    shown = []
    with pytest.raises(BoardError, match="nothing listens there"):
        steps.flash("unix", board.port, {"device": "one", "broker.host": "127.0.0.1",
                    "broker.port": 1, "sensor": "liar", "retry.first_ms": 200}, follow_log=True,
                    follow_timeout=3600, progress=lambda *what: shown.append(what[1]))  # fmt: skip
    assert any("seq=3" in line for line in shown) and all(fit(line) for line in shown)


def test_what_a_program_on_the_board_raises_is_one_line_of_text(board):
    with device.Device(board.port) as one:
        with pytest.raises(device.DeviceError) as raised:
            one.run("raise ValueError('\\x1b[2J\\x9b1m\\u202e  start   acknowledged')")
    assert fit(str(raised.value)) and "\n" not in str(raised.value)


def test_a_reason_is_no_markup_and_no_link():
    session = send.Session("g", [keys.Record("g", "oven", "00" * 32)], {"host": "h", "port": 1},
                           None)  # fmt: skip
    session.members["oven"].why = "[link=http://x]here[/link] [/] \x1b]8;;http://x\x07\x9b2J\u202e"
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(ota_cli._table(session, 1))
    assert fit(out.getvalue()) and "[link=http://x]here[/link] [/]" in out.getvalue()


def test_an_error_is_text_too(capsys, monkeypatch):
    def fails(*_):
        raise BoardError("It says \x1b[2J\x9b\u202e.\nAnd more.")

    monkeypatch.setattr(cli.board_files, "load", fails)
    with pytest.raises(SystemExit):
        cli.main(["repl", "--board", "x"])
    assert capsys.readouterr().err == "umqtt-board: It says \\x1b[2J\\x9b\\u202e.\nAnd more.\n"


def test_no_name_that_a_board_reports_leads_out_of_the_copy(board, put, tmp_path):
    names = [*strange(tmp_path), "/mqtt/0.0", "/mqtt/17.31", "/mqtt/002.log", "/mqtt/0.0"]
    put(board, "settings.json", '{"broker.host":"h"}')
    put(board, "boot.py", f"NAMES = {names!r}\n{LISTS}")
    place, said = tmp_path / "copies", []
    place.mkdir()
    before = {path for path in tmp_path.rglob("*")}
    with device.Device(board.port) as one:
        assert held.waiting_in_files(one) == 0
        copies.backup(one, board_files.load("unix"), place / "copy",
                      lambda *what: said.append(what[1]), lambda *_: None)  # fmt: skip
    made = {path for path in tmp_path.rglob("*") if place not in path.parents} - before
    assert made == set()
    files = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
    assert files == ["copy/files/mqtt/0.0", "copy/files/mqtt/002.log", "copy/files/mqtt/17.31",
                     "copy/files/settings.json", "copy/journal.img", "copy/manifest.json"]
    told = [line for line in said if line.startswith("not copied: ")]
    assert len(told) == len(strange(tmp_path))
    assert all(line.isascii() and line.isprintable() and len(line) < 150 for line in told)


def test_a_certificate_that_a_board_names_is_no_file_of_this_computer(tmp_path):
    mine = tmp_path / "ca.pem"
    mine.write_bytes(Authority("mine").pem)
    there = {"broker.host": "h", "broker.ca": str(mine)}
    assert settings_file.changed(there, {"window": 3})["broker.ca"] == str(mine)
    given = settings_file.changed({"broker.host": "h"}, {"broker.ca": str(mine)})
    assert given["broker.ca"] == mine.read_text()


def test_names_that_differ_only_in_case_share_no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    flat = {"device": "oven", "group": "g", "broker.host": "h"}
    _, count = giving.give(flat, "oven")
    record = keys.load("g", "oven")
    assert dataclasses.asdict(record)["count"] == count
    # As a disk would answer that takes both names for one.
    (keys.root() / "g" / "OVEN.json").symlink_to("oven.json")
    for ask in (lambda: keys.find("g", "OVEN"), lambda: giving.give(flat, "OVEN", record.key)):
        with pytest.raises(BoardError, match="cannot have names that differ only in case"):
            ask()


def test_a_key_that_a_board_says_is_not_taken_for_another_ones(home, boards, mpremote):
    """Whoever made that key would be asked in place of the board whose name this one says."""
    flashed({"device": "b1", "group": "test", "broker.host": "h"}, "b1")
    known, evil = keys.load("test", "b1").key, "ee" * 32
    board = boards.make(1, "b1", command_key=evil)
    board.power_on()
    said = []
    report = steps.flash("unix", port=board.port, environment={"UMQTT_WINDOW": "3"},
                         giving=giving, progress=lambda *what: said.append(what))  # fmt: skip
    now = keys.load("test", "b1").key
    assert now not in (evil, known) and report.settings == "written"
    told = [text for step, text in said if step == "commands"]
    assert len(told) == 1 and "did not show the key of b1: it was erased, or is another" in told[0]
    assert now in mpremote(board, "cat", ":settings.json")
    # From now on it shows its key, and keeps it.
    steps.flash("unix", port=board.port, environment={"UMQTT_WINDOW": "4"}, giving=giving,
                progress=lambda *what: said.append(what))  # fmt: skip
    assert keys.load("test", "b1").key == now
    assert len([text for step, text in said if step == "commands"]) == 1


def quiet(*_):
    """No progress."""


def test_a_copy_from_which_a_board_has_run_on_is_told_of(boards, tmp_path):
    """It would give the numbers of readings to others: these would be lost as copies."""
    board = boards.make(1, "oven", interval_ms=20)  # no broker: it keeps what it takes
    board.power_on()

    def count():
        return len(taken(board).taken)

    wait_until(lambda: count() >= 3, 20, "readings")
    asked = []

    def ask(text):
        asked.append(text)
        return False

    def restore():
        with device.Device(board.port) as one:
            with contextlib.suppress(BoardError):
                kept = copies.load(tmp_path / "copy", UNIX)
                restoring.restore(one, UNIX, kept, ask, quiet, quiet)
            one.hard_reset(keep_open=True)

    with device.Device(board.port) as one:
        copies.backup(one, UNIX, tmp_path / "copy", quiet, quiet)
        one.hard_reset(keep_open=True)
    before = copied = count()
    wait_until(lambda: count() > before, 20, "readings")
    restore()
    found = re.search("has given the numbers ([0-9]+) to ([0-9]+) since", asked.pop())
    assert before < int(found[1]) <= int(found[2]), found
    # Another journal: the numbers are of another epoch.
    with device.Device(board.port) as one:
        held.give_up(one, UNIX)
        one.hard_reset(keep_open=True)
    before = count()
    wait_until(lambda: count() > before + copied, 20, "more readings than are in the copy")
    restore()
    assert "will be replaced" in asked[0] and "since" not in asked[0]
