"""A cable that changes letters on their way, and a board that answers something else: no wrong
value is believed, nothing is written for it, and a sentence says what to do."""

import base64
import hashlib
import json

import pytest
from keep_kit import UNIX, backup
from mpremote.transport import TransportExecError
from umqtt_board.backup import copies, half, held, restoring
from umqtt_board.errors import BoardError
from umqtt_board.flash import install, interpreter, region, romfs, steps, verify
from umqtt_board.ota import giving
from umqtt_board.port import answers, device

LOGIN = {"broker.host": "127.0.0.1", "broker.port": 1, "device": "one", "broker.user": "u"}
SECRET = LOGIN | {"broker.password": "secret1234567890"}
DAMAGED = r"came damaged.*see to its cable.*run the same command again"


class Cable:
    """Changes what goes over it. answer, question: function(bytes or text) that returns it as it
    arrives."""

    def __init__(self, monkeypatch, answer=lambda said: said, question=lambda code: code):
        there = device.Device._exec
        monkeypatch.setattr(device.Device, "_exec", lambda self, code: answer(
            there(self, question(code))))  # fmt: skip


def _one_bit(word):
    """Function that changes a bit of `word` in a file that a board sends in base64."""

    def changed(said):
        for token in said.replace(b"'", b" ").replace(b"\\", b" ").split():
            try:
                raw = bytearray(base64.b64decode(token, validate=True))
            except ValueError:
                continue
            if (at := raw.find(word)) >= 0:
                raw[at + 2] ^= 1
                return said.replace(token, base64.b64encode(raw))
        return said

    return changed


def _settings(board):
    with device.Device(board.port) as one:
        return json.loads(one.read_file("/settings.json"))


@pytest.mark.parametrize("word", [b"secret", b"host"])
@pytest.mark.parametrize("times", [1, 99])
def test_settings_that_come_damaged_are_not_believed(board, project, monkeypatch, word, times):
    """Read once more; if they come so again, nothing is written."""
    steps.flash("unix", board.port, SECRET)
    change, left = _one_bit(word), [times]

    def answer(said):
        new = change(said)
        if new == said or not left[0]:
            return said
        left[0] -= 1
        return new

    with monkeypatch.context() as patch:
        Cable(patch, answer)
        if times == 1:
            assert steps.flash("unix", board.port, LOGIN).settings == "same"
            assert not left[0]
        else:
            with pytest.raises(BoardError, match="reading its settings.*" + DAMAGED):
                steps.flash("unix", board.port, LOGIN)
    assert _settings(board) == SECRET


def test_a_question_that_arrives_damaged_is_not_answered(board, project, monkeypatch):
    """Else the board would say that it has no such file, and lose the password that it keeps."""
    steps.flash("unix", board.port, SECRET)
    with monkeypatch.context() as patch:
        Cable(patch, question=lambda code: code.replace("/settings.json", "/settinks.json"))
        with pytest.raises(BoardError, match=DAMAGED):
            steps.flash("unix", board.port, LOGIN)
    assert _settings(board) == SECRET


def test_a_letter_now_and_then_does_not_stop_a_flash(board, project, monkeypatch):
    """And what is on the board is what was sent."""
    count = [0]

    def answer(said):
        if count[0] % 3 or not said.strip():
            return said
        at = count[0] * 7 % len(said.strip())
        return said[:at] + bytes([said[at] ^ 1]) + said[at + 1 :]

    def question(code):
        count[0] += 1
        at = len(code) // 2
        letter = chr(ord(code[at]) ^ 1)
        return code if count[0] % 4 else code[:at] + letter + code[at + 1 :]

    with monkeypatch.context() as patch:
        Cable(patch, answer, question)
        report = steps.flash("unix", board.port, SECRET)
    assert len(report.written) == 9 and count[0] > 20
    again = steps.flash("unix", board.port, SECRET)
    assert again.written == [] and again.settings == "same"


class Twice:
    """Changes the `first` question that asks for a piece of a file, and then something in what a
    board is sent first."""

    def __init__(self, before, after):
        self.changes, self.first, self.hits = (before, after), True, 0

    def __call__(self, code):
        if self.first and "_f.read(" in code:
            self.first, self.hits = False, 1
            return code.replace("_do(", "_d[(", 1)
        if self.hits == 1 and "def _do" in code and self.changes[0] in code:
            self.hits = 2
            return code.replace(*self.changes, 1)
        return code


@pytest.mark.parametrize("before, after", [
    ("print(_said, _sum_of", "print(_said, _mum_of"),  # it runs the question, and cannot say so
    ("global _said\\n    _said", "global _said\\n    _maid"),  # it says what it said before
    ("__import__(_name).sha256", "__import__(_name).sha257"),  # it checks nothing
])
def test_a_piece_of_a_file_is_read_once_whatever_comes_damaged(
    board, project, monkeypatch, before, after
):
    """Else the file would be empty, and the board would get another key and no password."""
    steps.flash("unix", board.port, SECRET)
    with monkeypatch.context() as patch:
        twice = Twice(before, after)
        Cable(patch, question=twice)
        assert steps.flash("unix", board.port, LOGIN).settings == "same"
        assert twice.hits == 2
    assert _settings(board) == SECRET


def test_an_answer_is_that_of_its_question(board, monkeypatch):
    """One that a board has given before is none, and what it gets again it does not do again."""
    said = []

    def answer(data):
        said.append(data)
        return first if b"\t" in data else data

    with device.Device(board.port) as one:
        one.run("_n = 0")
        with monkeypatch.context() as patch:
            Cable(patch, lambda data: said.append(data) or data)
            assert one.value("_say(True)", bool)
        first = said[-1]
        with monkeypatch.context() as patch:
            Cable(patch, answer)
            with pytest.raises(BoardError, match=DAMAGED):
                one.value("_n += 1\n_say(True)", bool)
        assert one.value("_say(_n)", int) == 1


def test_a_state_that_the_cable_hides_is_not_taken_for_a_damaged_one(
    board, project, put, mpremote, monkeypatch
):
    """Else the counter of commands would begin anew, perhaps below that of the board."""
    put(board, "state.json", '{"count": 5}')
    with monkeypatch.context() as patch:
        Cable(patch, question=lambda code: code.replace("/state.json", "/stake.json"))
        with pytest.raises(BoardError, match="looking at /state.json.*" + DAMAGED):
            steps.flash("unix", board.port, SECRET)
    assert mpremote(board, "cat", ":state.json") == '{"count": 5}'


class Raises(device.Device):
    """A board that answers each program with this error. begins: answers.BEGIN, too."""

    def __init__(self, last, begins):
        super().__init__("/dev/x")
        self.last, self.begins, self.asked = last, begins, 0

    def _exec(self, code):
        if code == answers.BEGIN and not self.begins:
            return b""
        self.asked += 1
        raise TransportExecError("", f"Traceback (most recent call last):\r\n{self.last}\r\n")


@pytest.mark.parametrize("last, begins, noise", [
    ("ValueErlor: not what was sent", False, True), ("ValueError: not what wassent", False, True),
    ("KeyboardInterrupt: ", False, True), ("Na\x03eError: x", False, True),
    ("AttributeError: 'sha256' object has no attribute 'digect'", True, True),
    ("ValueError: syntax error in JSON", False, False), ("SettingsError: host", False, False),
    ("OSError: [Errno 5] EIO", False, False), ("MemoryError: ", True, False),
])  # fmt: skip
def test_what_comes_of_the_cable_has_the_advice_and_is_asked_again(last, begins, noise):
    one = Raises(last, begins)
    with pytest.raises(device.DeviceError) as caught:
        one.run("x = 1")
    assert ("see to its cable" in str(caught.value)) == caught.value.of_noise == noise
    assert one.asked == (device.TRIES if noise else 1)


class Other(device.Device):
    """A board that gives every question the same answer, and gives it undamaged."""

    def __init__(self, said):
        super().__init__("/dev/x")
        self.said = said

    def ask(self, question):
        asked = question.program.rpartition(",")[2][:-1]
        total = int.from_bytes(hashlib.sha256((self.said + asked).encode()).digest()[:6], "big")
        return f"{self.said}\t{total}\r\n"


ITEMS = [install.Item("/a", b"1"), install.Item("/lib/umqtt_min/a", b"1")]
ASKED = {
    "version": lambda one: interpreter.check(one, UNIX),
    "romfs": lambda one: romfs.split(one, ITEMS, lambda *_: None),
    "rom hash": lambda one: romfs.holds(one, romfs.image_of(ITEMS)),
    "hashes": lambda one: install.hashes(one, ["/a", "/b"]),
    "plan": lambda one: install.plan(one, ITEMS),
    "space": lambda one: install._check_space(one, install.Plan()),
    "main": install.silence,
    "mixed": install.refuse_mixed,
    "half": half.of,
    "files": held.stored_files,
    "size": lambda one: held.region_size(one, ""),
    "journal": lambda one: copies.region_hash(one, ""),
    "region": region.look,
    "row": lambda one: region._row(one, {"sectors": 1, "folder": "/f"}, 1),
    "load": lambda one: verify._load(one),
    "sectors": lambda one: verify._journal_size(one, UNIX["journal"]),
    "name": lambda one: giving.name_of(one, {}),
}


@pytest.mark.parametrize("said", ["7.5", "[[1, 2]]", "{'a': 1}", "(1, 2, 3, 4, 5)", "b'x'"])
@pytest.mark.parametrize("what", ASKED)
def test_an_answer_of_another_shape_is_a_sentence(what, said):
    with pytest.raises(BoardError, match=r"answered .* while .*make flash"):
        ASKED[what](Other(said))


@pytest.mark.parametrize("said", ["True", "None", "7", "x y", ""])
def test_an_answer_without_its_sum_is_none(said, board, monkeypatch):
    """A program on the board prints in between, or it is another one than MicroPython."""
    one = Other(said)
    one.ask = lambda question: said
    with pytest.raises(BoardError, match=r"answered .* while .*prints in between"):
        one.value("", {bool, None, int, str})


def test_a_python_without_sha_256_can_still_say_what_it_is(board, put, monkeypatch):
    """And what it says comes twice: a damaged letter is told there, too."""
    put(board, "hashlib.py", "__file__ = '/on/purpose.py'\n")
    put(board, "boot.py", "import hashlib, sys\nsys.modules['uhashlib'] = hashlib\n")
    with device.Device(board.port) as one:
        assert interpreter.check(one, UNIX).platform == "linux"
        Cable(monkeypatch, lambda said: said.replace(b"linux", b"linuy", 1))
        with pytest.raises(BoardError, match=DAMAGED):
            interpreter.check(one, UNIX)


def test_a_restore_reads_settings_as_a_flash_does(used, monkeypatch, tmp_path):
    backup(used, tmp_path / "copy")
    copy = copies.load(tmp_path / "copy", UNIX)
    Cable(monkeypatch, _one_bit(b"secret-word"))
    with device.Device(used.port) as one, pytest.raises(BoardError, match=DAMAGED):
        restoring.restore(one, UNIX, copy, lambda text: True, lambda *_: None, lambda *_: None)
