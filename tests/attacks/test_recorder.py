"""A thief who has recorded commands and an update: no board obeys them once more, whatever it was
that took its counter."""

import re

import pytest
from bench import Subscriber
from patience import PATIENCE
from umqtt_board import boards as board_files
from umqtt_board.backup import copies, restoring
from umqtt_board.flash.steps import flash
from umqtt_board.ota import giving, keys
from umqtt_board.ota.send import Session
from umqtt_board.port.device import Device
from update_kit import Sending, changed

UNIX = board_files.load("unix")


class Thief(Subscriber):
    """Keeps every command and piece of an update that goes by, to send them again."""

    def __init__(self, port):
        self.recorded = []
        super().__init__(port, client_id="thief")

    def _on_message(self, client, userdata, message):
        if "/cmd/" in message.topic:
            self.recorded.append((message.topic, bytes(message.payload)))
        super()._on_message(client, userdata, message)

    def replay(self):
        """Send all of it again, in its order; returns how many of it are commands."""
        loot = list(self.recorded)
        for topic, payload in loot:
            self.client.publish(topic, payload, qos=1).wait_for_publish(PATIENCE * 10)
        return len([topic for topic, _ in loot if not topic.endswith("/piece")])


def quiet(*_):
    """No progress."""


def by_flashing(board, settings, copy):
    """Erase the board and flash it anew."""
    board.power_off()
    board.erase()
    board.power_on()
    flash("unix", port=board.port, settings=settings, giving=giving)


def by_restoring(board, settings, copy):
    """Erase the board, flash it, and bring an older copy back: its key, its counter."""
    by_flashing(board, settings, copy)
    with Device(board.port) as device:
        kept = copies.load(copy, UNIX)
        restoring.restore(device, UNIX, kept, lambda _: True, quiet, quiet, giving)


def by_an_older_copy(board, settings, copy):
    """Bring an older copy back onto an empty board that nobody has flashed since."""
    board.power_off()
    board.erase()
    board.power_on()
    with Device(board.port) as device:
        kept = copies.load(copy, UNIX)
        restoring.restore(device, UNIX, kept, lambda _: True, quiet, quiet, giving)
    flash("unix", port=board.port, giving=giving)


def command(port, ms):
    """Tell the board to measure so often; returns when it has obeyed."""
    where = {"host": "127.0.0.1", "port": port}
    with Session("test", [keys.load("test", "b1")], where, keys.next_count) as session:
        session.command("interval", {"interval_ms": ms}, PATIENCE * 20)
        assert session.members["b1"].state == "done"


@pytest.fixture(scope="module")
def update(tmp_path_factory):
    """A set of files for an update."""
    return changed(tmp_path_factory.mktemp("update"))


@pytest.mark.parametrize("loss, key", [
    (by_flashing, None), (by_restoring, "ab" * 16), (by_an_older_copy, None), *(
        pytest.param(*both, marks=pytest.mark.campaign) for both in (
            (by_flashing, "ab" * 16), (by_restoring, None), (by_an_older_copy, "ab" * 16)))],
    ids=lambda each: each.__name__ if callable(each) else "key" if each else "own key")
def test_what_was_recorded_is_obeyed_by_no_board_that_has_lost_its_counter(
    boards, broker, update, tmp_path, loss, key
):
    settings = {"device": "b1", "group": "test", "interval_ms": 100, "report_s": 1,
                "broker": {"host": "127.0.0.1", "port": broker.port},
                "retry": {"first_ms": 100, "max_ms": 500}} | ({"command_key": key} if key else {})
    board = boards.make(broker.port, "b1")
    board.power_on()
    flash("unix", port=board.port, settings=settings, giving=giving)
    with Device(board.port) as device:
        copies.backup(device, UNIX, tmp_path / "copy", quiet, quiet)
        since = len(board.printed())
        device.hard_reset(keep_open=True)
    with Thief(broker.port) as thief:
        board.wait_for("first publish acknowledged", 20, since)
        command(broker.port, 7777)
        with Sending(broker.port, update, "b1") as sending:
            pass
        assert sending.states == {"b1": "done"}
        loss(board, settings, tmp_path / "copy")
        board.reset()
        since = len(board.printed())
        board.wait_for("first publish acknowledged", 20, since)
        many = thief.replay()
        assert many == 2
        command(broker.port, 333)  # it is obeyed, and what came before it has been looked at
        board.wait_for("interval 333 ms by command", 20, since)
    said = board.printed()[since:]
    assert "interval 7777" not in said and "bytes to come" not in said
    # That it was for another start is no reason here: a command may be for any.
    reason = "command [a-z]+ refused: (wrong code|count [0-9]+ is not above)"
    assert len(re.findall(reason, said)) == many
