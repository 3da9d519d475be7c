"""A board that has the library in a ROMFS takes updates over MQTT: the library of the set wins."""

import shutil

import pytest
from bench import Subscriber
from patience import PatientBoard, wait_until
from umqtt_board.flash.steps import flash
from umqtt_board.ota import fileset, giving, keys
from umqtt_board.paths import LIBRARY
from update_kit import NEW, Sending, changed

ROM = "/rom/lib/umqtt_min"


@pytest.fixture
def board(broker, tmp_path):
    """A running board with a ROMFS, flashed, with a key."""
    shutil.rmtree(keys.root(), ignore_errors=True)
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port, "interval_ms": 100, "report_s": 1,
            "retry.first_ms": 100, "retry.max_ms": 500}  # fmt: skip
    flat["command_key"] = giving.give(flat, "b1")[0]["command_key"]
    with PatientBoard(tmp_path / "b1", name="b1", romfs=0x20000) as made:
        made.power_on()
        assert flash("unix", made.port, flat).folder == ROM
        made.wait_for("first publish acknowledged", 20)
        yield made


def test_the_library_of_an_update_wins_until_the_next_flash(board, broker, tmp_path):
    cable = fileset.constant(LIBRARY / "__init__.py", "__version__")
    made = changed(tmp_path / "new")
    with Subscriber(broker.port) as subscriber:

        def runs(version, id):
            # The version is that of the library which the firmware has imported.
            wait_until(lambda: [last for last in subscriber.status[-1:]
                                if (last.get("version"), last.get("set")) == (version, id)],
                       30, f"version {version} in the status")  # fmt: skip

        runs(cable, "")
        with Sending(broker.port, made, "b1") as sending:
            pass
        assert sending.states == {"b1": "done"}, sending.session.members["b1"].why
        runs(NEW, made.id)
        board.cut()
        board.power_on()
        runs(NEW, made.id)
        report = flash("unix", board.port)
        assert report.folder == ROM and not report.rom_written
        runs(cable, "")
