"""Updates for which the heap has no room: each is refused with a reason; the board measures on.

Both interpreters. What finds no memory is planted, one step after the other.
"""
# heap: 2M

import json

import app
import fw_board
import loader
import ota
import state
from ota_kit import Set, files
from signed_kit import FIRST, PROJECT, signed
from updated import Board

SIZES = (700, 3000, 9000)
WHY = "allocation failed"
STATE = "fw_memory_state.json"


def none(*args):
    raise MemoryError(WHY)


class Planted:
    """While it lasts, this part of the firmware finds no memory."""

    def __init__(self, owner, name):
        self._owner, self._name = owner, name

    def __enter__(self):
        self._saved = getattr(self._owner, self._name)
        setattr(self._owner, self._name, none)

    def __exit__(self, *args):
        setattr(self._owner, self._name, self._saved)


def transfer(board, made):
    board.update.begin(made.body)
    board.give(made)
    board.finish()


def test_each_step_of_an_update_that_finds_no_memory_ends_in_a_refusal():
    made = Set(files(1, SIZES))
    steps = ((ota, "SetFile"), (ota, "SetFS"), (ota, "free"), (state, "save"), (loader, "point"),
             (ota.SetFile, "write"), (ota.SetFile, "sync"), (ota.SetFile, "check"))  # fmt: skip
    for owner, name in steps:
        with Board() as board:
            with Planted(owner, name):
                transfer(board, made)
            assert board.last["state"] == "refused", name
            assert (board.last["id"], board.last["why"]) == (made.id, WHY), name
            assert not board.update.busy and not loader.exists(loader.ROOT + "/get.json"), name
            assert loader.pointer() == {"slot": 0}, name
            board.install(made)  # with memory it is taken


def test_what_fails_after_the_swap_is_no_refusal():
    made = Set(files(1, SIZES))
    with Board() as board:
        board.update.begin(made.body)
        board.give(made)
        with Planted(board.update, "_send"):
            board.update._pieces = 0  # nothing to tell before
            assert board.finish()
        assert loader.pointer()["id"] == made.id and board.last["state"] == "receiving"
        assert board.lines[-1] == "MemoryError: " + WHY


def test_the_end_of_an_update_that_finds_no_memory_after_the_swap_is_no_refusal():
    made = Set(files(1, SIZES))
    for owner, name in ((ota, "remove"), (ota.SetFile, "close")):
        with Board() as board:
            board.update.begin(made.body)
            board.give(made)
            with Planted(owner, name):
                assert board.finish(), name
            assert loader.pointer()["id"] == made.id, name
            assert "refused" not in [report["state"] for report in board.reports], name


def test_a_board_that_makes_room_and_cannot_say_so_has_refused_nothing():
    one, two = Set(files(1, SIZES), need=50000), Set(files(2, SIZES), need=60000)
    for silent in (("making room",), ("making room", "refused")):
        with Board() as board:

            def send(report, silent=silent):
                if report["state"] in silent:
                    none()
                board.reports.append(report)

            board.install(one)
            loader.healthy()
            board.update._send = send
            before = len(board.reports)
            saved, ota.free = ota.free, lambda: 40000
            try:
                if "refused" in silent:
                    board.update.give_up(MemoryError(WHY), "5e7")  # nobody has heard of it
                board.update.begin(two.body)
            finally:
                ota.free = saved
            assert loader.pointer() == {"slot": 0} and board.update.step()
            assert board.lines[-1] == "MemoryError: " + WHY
            assert len(board.reports) == before


class Hashless:
    """hashlib without memory for a hash."""

    def sha256(self, data):
        none()


def test_a_piece_raises_nothing_whatever_finds_no_memory():
    made = Set(files(1, SIZES))
    for owner, name in ((ota, "hashlib"), (ota.SetFile, "write")):
        with Board() as board:
            board.update.begin(made.body)
            before = len(board.reports)
            saved = getattr(owner, name)
            setattr(owner, name, Hashless() if name == "hashlib" else none)
            try:
                with Planted(board.update, "_send"):
                    board.update.piece(made.pieces[0])
            finally:
                setattr(owner, name, saved)
            assert len(board.reports) == before, name
            assert not board.update.step(), name
            assert (board.last["state"], board.last["why"]) == ("refused", WHY), name
            board.install(made)


def test_a_board_with_keys_gives_an_update_up_though_it_cannot_read_what_was_before():
    one, two = [signed(Set(files(seed, SIZES)), FIRST) for seed in (1, 2)]
    for half in (False, True):
        with Board([FIRST.print], PROJECT) as board:
            if half:
                board.prove(one)
                board.give(one, one.head, -1)
            board.update.begin(two.body)
            with Planted(state, "load"):
                board.update.give_up(MemoryError(WHY))
            assert not board.update.busy and not loader.exists(loader.ROOT + "/get.json")
            board.update.tell()
            last = board.last
            assert (last["id"], last["state"], last["why"]) == (two.id, "refused", WHY)
            if half:
                board.install(two)


def test_a_refusal_that_cannot_be_told_is_told_later_once():
    made = Set(files(1, SIZES))
    with Board() as board:
        transfer(board, Set(files(1, SIZES), size=5))
        before = len(board.reports)
        board.update.begin(made.body)
        with Planted(board.update, "_send"):
            try:
                board.update.tell()
                raise AssertionError("the report was not sent, and nothing said so")
            except MemoryError as error:
                board.update.give_up(error)
        assert len(board.reports) == before + 1, "only that it has begun"
        board.update.tell()
        assert (board.last["state"], board.last["why"]) == ("refused", WHY)
        board.update.tell()
        assert len(board.reports) == before + 2


class Running:
    """The whole application, subscribed to commands, and what it has said of updates."""

    def __enter__(self):
        self._path, state.PATH = state.PATH, STATE
        self._files = Board()  # a folder for sets
        ota.make_folder(loader.ROOT)
        self.board = fw_board.Board(command_key="00" * 16, readings=0)
        self.app = self.board.app
        self.board.run(lambda: self.app.client.counters.acked > 2)
        return self

    def __exit__(self, *args):
        self.board.__exit__()
        self._files.__exit__()
        state.PATH = self._path
        ota.remove(STATE)

    def said(self):
        """The reports of the update so far, dicts."""
        return [json.loads(m.payload) for m in self.board.broker.messages
                if m.topic.endswith(b"/ota")]

    def measures(self):
        """Wait until five more readings are acknowledged."""
        before = self.app.client.counters.acked
        self.board.run(lambda: self.app.client.counters.acked > before + 5)


def test_a_board_without_memory_gives_the_update_up_instead_of_reconnecting_for_ever():
    made = Set(files(1, SIZES))
    report = app.status.report

    def short(board, *args):
        update = board.remote._update
        return none() if update and update._get else report(board, *args)

    with Running() as running:
        app.status.report = short
        try:
            running.app.remote._obey("ota", made.body)
            assert running.said()[-1]["state"] == "receiving"
            running.board.run(lambda: running.said()[-1]["state"] == "refused")
        finally:
            app.status.report = report
        assert running.said()[-1]["why"] == WHY
        assert running.app.client.counters.connects == 2
        running.measures()
        assert running.app.client.counters.connects == 2


def test_a_reading_without_memory_ends_the_update_and_not_the_measuring():
    made = Set(files(1, SIZES))
    with Running() as running:
        update = running.app.remote._load_update(made.body["sha"])
        update.begin(made.body)
        put = running.app._put

        def short(payload):
            return none() if update._get else put(payload)

        running.app._put = short
        running.board.run(lambda: running.said()[-1]["state"] == "refused")
        assert running.said()[-1]["why"] == WHY and running.app.troubles == 1
        running.measures()
        assert running.app.client.counters.connects == 1


def test_code_of_updates_that_finds_no_memory_is_a_refusal_too():
    made = Set(files(1, SIZES))
    with Running() as running, Planted(ota, "Update"):
        running.app.remote._obey("ota", made.body)
        last = running.said()[-1]
        assert (last["id"], last["state"]) == (made.id, "refused") and WHY in last["why"]
        running.measures()


def test_an_update_that_a_restart_cannot_take_up_is_refused_once():
    made = Set(files(1, SIZES))
    with Running() as running:
        state.save({"sha": made.body["sha"]}, loader.ROOT + "/get.json")
        with Planted(ota, "Update"):
            running.app.remote.connected()
            last = running.said()[-1]
            assert (last["id"], last["state"]) == (made.id, "refused") and WHY in last["why"]
        before = len(running.said())
        running.app.remote.connected()
        assert len(running.said()) == before
        running.measures()


def test_an_update_that_cannot_even_be_given_up_ends_nothing():
    with Running() as running:
        update = running.app.remote._load_update("")
        with Planted(update, "give_up"):
            running.app.remote.failed(MemoryError(WHY))
        running.measures()
        assert running.app.client.counters.connects == 1


def test_a_connection_lives_on_though_what_it_has_to_say_of_updates_finds_no_memory():
    made = Set(files(1, SIZES))
    with Running() as running:
        remote = running.app.remote
        path = loader.ROOT + "/get.json"
        state.save({"sha": made.body["sha"]}, path)
        with Planted(state, "load"):
            remote.connected()
        with Planted(ota, "Update"):
            with Planted(remote, "_send"):
                remote.connected()
            assert not running.said() and remote._update is None
            remote.connected()  # with memory for the report alone
        assert running.said()[-1]["state"] == "refused" and not loader.exists(path)
        remote._load_update("").give_up(MemoryError(WHY), made.body["sha"])
        with Planted(remote, "_send"):
            remote.connected()
        assert len(running.said()) == 1
        remote.connected()
        assert [report["id"] for report in running.said()] == [made.id] * 2
        running.measures()
        assert running.app.client.counters.connects == 1


def test_an_update_whose_report_finds_no_memory_is_given_up_as_the_connection_stands():
    made = Set(files(1, SIZES))
    with Running() as running:
        remote = running.app.remote
        remote._obey("ota", made.body)
        with Planted(remote, "_send"):
            remote.connected()
        running.board.run(lambda: running.said()[-1]["state"] == "refused")
        assert running.said()[-1]["why"] == WHY
        running.measures()
        assert running.app.client.counters.connects == 1
