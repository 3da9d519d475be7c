"""Boards that take updates: sets of files to send them, and a sending that goes on meanwhile.

Knows the host's commands and how a set is made of the project. Must not know what a test is about.
"""

import shutil
from threading import Thread

import pytest
from patience import PATIENCE, wait_until
from umqtt_board import cli
from umqtt_board.ota import fileset, giving, keys
from umqtt_board.ota.send import Session
from umqtt_board.paths import FIRMWARE, LIBRARY

NEW = "9.9.9"


def changed(folder, version=NEW, **files):
    """The project's set with another version, and with these files of the firmware replaced."""
    library, firmware = folder / "lib", folder / "firmware"
    shutil.copytree(LIBRARY, library)
    shutil.copytree(FIRMWARE, firmware)
    face = library / "__init__.py"
    ours = fileset.constant(face, "__version__")
    face.write_text(face.read_text().replace(f'"{ours}"', f'"{version}"'))
    for name, text in files.items():
        (firmware / f"{name}.py").write_text(text)
    return fileset.of_project(library, firmware)


def fleet(boards, port, *names, **settings):
    """Running boards with keys, as `make flash` would have left them."""
    made = []
    for name in names:
        flat = {"device": name, "group": "test", "broker.host": "127.0.0.1", "broker.port": port}
        key = flashed(flat, name)[0]["command_key"]
        board = boards.make(port, name, command_key=key, interval_ms=100, report_s=1, **settings)
        board.power_on()
        made.append(board)
    for board in made:
        board.wait_for("first publish acknowledged", 20)
    return made


def flashed(flat, name, *shown, **more):
    """As giving.give(), for a flash that comes to its end: the board has the key."""
    given = giving.give(flat, name, *shown, **more)
    record = keys.find(flat.get("group", "default"), name)
    if record:  # a board that obeys no commands has none
        record.arrived()
        keys.save(record)
    return given


def board_cli(*arguments):
    """Run `umqtt-board` in this process; its exit status."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return ended.value.code or 0


def run_cli(capsys, *arguments):
    """Exit status and what the command line said."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return ended.value.code or 0, said.out + said.err


class Sending:
    """An update of some boards, in a thread of its own."""

    def __init__(self, port, made, *names, boots=2, seconds=60, timeout=45):
        self.session = Session("test", [keys.load("test", name) for name in names],
                               {"host": "127.0.0.1", "port": port}, keys.next_count)  # fmt: skip
        self._work = (made, boots, seconds, PATIENCE * timeout)
        self._thread = Thread(target=self._run)

    def _run(self):
        with self.session:
            self.session.update(*self._work)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(PATIENCE * 150)
        assert not self._thread.is_alive()

    @property
    def states(self):
        return {name: member.state for name, member in self.session.members.items()}

    def await_part(self, name, part):
        """Wait until a board has said that it has more than so much of the set."""
        size = self._work[0].size
        member = self.session.members[name]
        wait_until(lambda: member.have > part * size, 30, f"{part} of the set")
