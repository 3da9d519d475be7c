"""A board gets another group or name: what it holds under the old one is delivered before, or is
given up. With certificates and access lists at a real mosquitto, which cuts off who publishes what
is not its own."""

import json
import subprocess

import pytest
from bench import MPREMOTE, Bridge
from identity_kit import files
from patience import wait_until
from umqtt_board.errors import BoardError
from umqtt_board.flash.steps import flash
from umqtt_board.ota import giving, keys

TAKEN = 20


class Seen(Bridge):
    """Marks what comes, and knows for which groups it came."""

    def __init__(self, port, **options):
        self.groups = []
        super().__init__(port, **options)

    def telemetry(self, message):
        self.groups.append(message.topic.split("/")[1])
        super().telemetry(message)


def settings(fleet, port, group, readings):
    """Of the board `a` of a group, with its certificate."""
    cert, key = (open(path).read() for path in files(fleet, f"{group}/a"))
    ca = (fleet / "broker-ca.pem").read_text()
    return {"device": "a", "group": group, "confirm": "pipeline", "readings": readings,
            "interval_ms": 50, "report_s": 0, "retry": {"first_ms": 100, "max_ms": 500},
            "broker": {"host": "localhost", "port": port, "ca": ca, "cert": cert,
                       "key": key}}  # fmt: skip


@pytest.fixture
def moving(boards, guarded, fleet):
    """(board of the group g, function that flashes it into a group with so many readings)."""
    port = guarded.guarded
    board = boards.make(port, "a", command_key=keys.load("g", "a").key,
                        **{key: value for key, value in settings(fleet, port, "g", TAKEN).items()
                           if key != "device"})  # fmt: skip

    def into(group, **options):
        flash("unix", port=board.port, settings=settings(fleet, port, group, 2 * TAKEN),
              giving=giving, **options)  # fmt: skip

    return board, into


@pytest.mark.parametrize("user", ["h/a", "bridge"])
def test_a_certificate_of_another_user_is_not_flashed_unasked(boards, fleet, user):
    board = boards.make(1, "a", command_key=keys.load("g", "a").key, group="g")
    cert, key = (open(path).read() for path in files(fleet, user))
    data = settings(fleet, 1, "g", 1)
    asked = []
    board.power_on()
    for confirm in (lambda text: False, lambda text: asked.append(text) or True):
        given = data | {"broker": data["broker"] | {"cert": cert, "key": key}}
        try:
            flash("unix", port=board.port, settings=given, giving=giving, confirm=confirm)
        except BoardError as error:
            assert not asked and f"the certificate of {user}, and this board is g/a: the" in (
                str(error))
            assert "Give broker.cert and broker.key the files of g/a: " in str(error)
    assert len(asked) == 1


def test_a_board_that_holds_readings_keeps_its_group_until_they_are_delivered(moving, guarded):
    board, into = moving
    with Seen(guarded.port, marking=False) as seen:
        board.power_on()
        seen.await_readings(TAKEN)
        with pytest.raises(BoardError, match="the board holds 2[0-9] readings that it took as g/a."
                                             "*--group g interval 86400.*UMQTT_CONFIRM=broker"):
            into("h")
        since = len(board.printed())
        seen.marking = True
        board.wait_for("all delivered: 20 readings", 60, since=since)
        into("h")
        board.wait_for("all delivered: 40 readings", 60)
        wait_until(lambda: len(seen.ordinals()) == 2 * TAKEN, 10, "all readings")
        assert set(seen.groups) == {"g", "h"}


def test_a_board_that_cannot_deliver_gives_up_what_it_holds(moving, guarded):
    board, into = moving
    with Seen(guarded.port, marking=False) as seen:
        board.power_on()
        seen.await_readings(TAKEN)
        into("h", confirm=lambda text: "will be erased" in text)
        seen.marking = True
        board.wait_for("all delivered: 40 readings", 60)
        assert "h" in seen.groups


def test_a_board_that_is_flashed_back_keeps_what_it_holds_of_that_name(moving, guarded, fleet):
    """An earlier tool gave it another group, and the broker lets nothing through."""
    board, into = moving
    with Seen(guarded.port, marking=False) as seen:
        board.power_on()
        seen.await_readings(TAKEN)
        path = fleet / "settings.json"
        path.write_text(json.dumps(settings(fleet, guarded.guarded, "h", TAKEN)))
        subprocess.run([*MPREMOTE, board.port, "fs", "cp", str(path), ":settings.json"],
                       check=True, capture_output=True, timeout=60)  # fmt: skip
        into("g")
        seen.marking = True
        board.wait_for("all delivered: 40 readings", 60)
        assert set(seen.groups) == {"g"}


def test_an_interval_that_came_by_command_is_over_with_the_name(boards, home):
    board = boards.make(1, "oven", group="g", command_key="5c" * 32, interval_ms=1000)
    state = board.folder / "state"
    state.write_text(json.dumps({"count": 7, "interval_ms": 86400000, "interval_was": 1000}))
    board.power_on()
    subprocess.run([*MPREMOTE, board.port, "fs", "cp", str(state), ":state.json"], check=True,
                   capture_output=True, timeout=60)  # fmt: skip
    for name, held in (("oven", True), ("lamp", False)):
        flash("unix", port=board.port, giving=giving, confirm=lambda text: True,
              settings={"broker": {"host": "127.0.0.1", "port": 1}, "device": name, "group": "g",
                        "interval_ms": 1000})  # fmt: skip
        said = subprocess.run([*MPREMOTE, board.port, "fs", "cat", ":state.json"], check=True,
                              capture_output=True, timeout=60).stdout  # fmt: skip
        assert ("interval_ms" in json.loads(said)) is held
