"""The keys of signed readings: for which boards, and the same on host and board."""

import json

import pytest
from bench import Subscriber
from keys_kit import keys_in
from umqtt_board.errors import BoardError
from umqtt_board.flash.steps import flash
from umqtt_board.ota import counters, forgotten, giving, keys, marks_cli
from umqtt_pipeline.bridge.mark_keys import MarkKeys
from umqtt_pipeline.decode.signed import GONE, WRONG, TelemetryKeys
from update_kit import board_cli, flashed

pytestmark = pytest.mark.usefixtures("home")


def test_host_and_firmware_make_the_same_code(tmp_path):
    from signing import signer
    from telemetry import Packer

    record = keys.Record("g", "oven", "000102030405060708090a0b0c0d0e0f", signs=True)
    made = marks_cli.made([record], marks_cli.TELEMETRY)
    (tmp_path / "keys").write_text(json.dumps(made))
    (tmp_path / "keys").chmod(0o600)
    held = TelemetryKeys(tmp_path / "keys")
    settings = {"telemetry": "signed", "command_key": record.key, "group": "g", "device": "oven"}
    packer = Packer("oven", bytes(8), 1, (("t", "Cel", 2), ("n", None, 0)), signer(settings))
    payload = bytes(packer.view(packer.pack(1, 1, 0, 0, (5, 6))))
    assert held.fault(b"fleet/g/oven/telemetry", payload) is None
    assert held.fault(b"fleet/g/oven/telemetry", payload[:-1] + b"x") == WRONG


def test_only_boards_that_sign_are_in_the_file(tmp_path):
    for device, telemetry in (("a", "signed"), ("b", "plain"), ("c", None)):
        more = {"telemetry": telemetry} if telemetry else {}
        flashed({"device": device, "group": "g", "broker.host": "h", **more}, device)
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert list(keys_in(tmp_path / "keys")) == ["fleet/g/a"]
    # Flashed once more without it.
    flashed({"device": "a", "group": "g", "broker.host": "h"}, "a")
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert keys_in(tmp_path / "keys") == {}


def sign(record, number=1):
    """(topic, payload) of a reading, packed by the firmware under that key."""
    from signing import signer
    from telemetry import Packer

    settings = {"telemetry": "signed", "command_key": record.key, "group": "g", "device": "oven"}
    packer = Packer("oven", bytes(8), 1, (("t", "Cel", 2),), signer(settings))
    return b"fleet/g/oven/telemetry", bytes(packer.view(packer.pack(number, 1, 0, 0, (5,))))


def test_readings_held_over_a_change_of_keys_stay_the_boards(tmp_path, capsys):
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    held = []
    for _ in range(keys.FORMER + 2):
        flashed(flat, "oven")  # shows no key: it gets another one each time
        held.append(sign(keys.load("g", "oven")))
    record = keys.load("g", "oven")
    assert len(record.former) == keys.FORMER and record.key not in record.former
    for options, good in (([], keys.FORMER + 1), (["--no-former"], 1)):
        capsys.readouterr()
        assert board_cli("telemetry-keys", "--out", tmp_path / "keys", *options) == 0
        assert ("1 of them had other keys" in capsys.readouterr().out) is (good > 1)
        faults = [TelemetryKeys(tmp_path / "keys").fault(*one) for one in held]
        assert faults == [WRONG] * (len(held) - good) + [None] * good
    assert board_cli("mark-keys", "--out", tmp_path / "marks") == 0
    assert isinstance(json.loads((tmp_path / "marks").read_text())["fleet/g/oven"], str)


def test_a_board_with_another_key_delivers_what_it_held(boards, broker, bridge, tmp_path, capsys):
    """The day on which the operator's computer is lost: boards/LOST_COMPUTER.md, steps 4 to 7."""
    flat = {"device": "oven", "group": "g", "broker.host": "127.0.0.1", "telemetry": "signed"}
    key = flashed(flat, "oven")[0]["command_key"]
    board = boards.make(broker.port, "oven", group="g", command_key=key, confirm="pipeline",
                        marks="signed", telemetry="signed", readings=20)  # fmt: skip
    with Subscriber(broker.port) as seen:
        board.power_on()
        seen.await_readings(20)  # and nobody makes them durable
        assert board_cli("keys", "revoke", "--all") == 0
        flash("unix", port=board.port, giving=giving)
        assert keys.load("g", "oven").former == [key]
        for name in ("mark", "telemetry"):
            assert board_cli(f"{name}-keys", "--out", tmp_path / name) == 0, capsys.readouterr()
        bridge("--mark-keys", tmp_path / "mark", "--telemetry-keys", tmp_path / "telemetry")
        board.wait_for("all delivered", 60)


def test_flashes_that_are_cut_make_one_key_and_leave_the_board_its_old_one(tmp_path):
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    old = flashed(flat, "oven")[0]["command_key"]
    held = sign(keys.load("g", "oven"))
    keys.revoke(keys.every())
    made = {giving.give(flat, "oven", old)[0]["command_key"] for _ in range(keys.FORMER + 2)}
    assert len(made) == 1 and old not in made
    record = keys.load("g", "oven")
    assert record.revoked and record.fresh  # the board obeys the old key
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert TelemetryKeys(tmp_path / "keys").fault(*held) is None
    # The last one did reach the board, and was cut then: it shows the new key.
    assert flashed(flat, "oven", record.key)[0]["command_key"] == record.key
    assert not (keys.load("g", "oven").revoked or keys.load("g", "oven").fresh)
    keys.revoke(keys.every())
    assert flashed(flat, "oven", record.key)[0]["command_key"] != record.key


def test_no_former_leaves_the_key_of_a_board_whose_flash_has_not_ended(tmp_path, capsys):
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    old = flashed(flat, "oven")[0]["command_key"]
    held = sign(keys.load("g", "oven"))
    keys.revoke(keys.every())
    giving.give(flat, "oven", old)
    assert board_cli("telemetry-keys", "--no-former", "--out", tmp_path / "keys") == 0
    assert TelemetryKeys(tmp_path / "keys").fault(*held) is None
    assert "still to be flashed: g/oven." in capsys.readouterr().out
    flashed(flat, "oven", keys.load("g", "oven").key)
    assert board_cli("telemetry-keys", "--no-former", "--out", tmp_path / "keys") == 0
    assert TelemetryKeys(tmp_path / "keys").fault(*held) == WRONG


def takes(file, *records):
    """Of which of these Records the pipeline takes readings by that file."""
    return [TelemetryKeys(file).fault(*sign(record)) is None for record in records]


def test_a_key_that_was_given_up_stays_so(tmp_path, capsys):
    """It was stolen. A new or an erased board asks for the file to be written anew."""
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    records = []
    for _ in range(3):
        flashed(flat, "oven")
        records.append(keys.load("g", "oven"))
        if len(records) == 1:
            assert board_cli("telemetry-keys", "--out", tmp_path / "older") == 0
        if len(records) == 2:
            assert board_cli("telemetry-keys", "--no-former", "--out", tmp_path / "keys") == 0
            assert "1 key that boards had before is given up" in capsys.readouterr().out
            flashed(flat | {"device": "fridge"}, "fridge")
            assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
            assert takes(tmp_path / "keys", *records) == [False, True]
    # What came after still counts, in whatever file: readings wait that are signed with it.
    for name in ("keys", "older", "new"):
        assert board_cli("telemetry-keys", "--out", tmp_path / name) == 0
        assert takes(tmp_path / name, *records) == [False, True, True], name
    assert board_cli("telemetry-keys", "--no-former", "--group", "g", "--out",
                     tmp_path / "keys") == 0  # fmt: skip
    for name in ("keys", "older"):
        assert board_cli("telemetry-keys", "--out", tmp_path / name) == 0
        assert takes(tmp_path / name, *records) == [False, False, True], name
    assert board_cli("telemetry-keys", "--with-former", "--no-former", "--out",
                     tmp_path / "keys") == 2  # fmt: skip
    assert board_cli("telemetry-keys", "--with-former", "--out", tmp_path / "keys") == 0
    assert takes(tmp_path / "keys", *records) == [True, True, True]


def test_a_key_that_was_given_up_comes_in_no_copy(tmp_path, monkeypatch):
    """Neither to the computer that gave it up nor to another; until it is the board's own."""
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", "several random words")
    flashed(flat, "oven")
    stolen = keys.load("g", "oven")
    assert board_cli("keys", "export", tmp_path / "old") == 0
    flashed(flat, "oven")
    own = keys.load("g", "oven")
    assert board_cli("telemetry-keys", "--no-former", "--out", tmp_path / "keys") == 0
    assert board_cli("keys", "export", tmp_path / "new") == 0
    assert board_cli("keys", "import", tmp_path / "old") == 0
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert takes(tmp_path / "keys", stolen, own) == [False, True]
    for copies in ("old", "new"), ("new", "old"):
        file = tmp_path / "-".join(copies)
        monkeypatch.setenv("XDG_CONFIG_HOME", f"{file}.config")
        for copy in copies:
            assert board_cli("keys", "import", tmp_path / copy) == 0
        assert board_cli("telemetry-keys", "--out", file) == 0
        assert takes(file, stolen, own) == [False, True]
    # Somebody gives the board that key on purpose: its readings count, after the next one, too.
    flashed(flat | {"command_key": stolen.key}, "oven", own.key)
    flashed(flat | {"command_key": own.key}, "oven", stolen.key)
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert takes(tmp_path / "keys", stolen, own) == [True, True]


def test_a_key_that_was_given_up_and_is_shown_by_a_board_is_not_taken(tmp_path):
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    flashed(flat, "oven")
    stolen = keys.load("g", "oven")
    flashed(flat, "oven")
    assert board_cli("telemetry-keys", "--no-former", "--out", tmp_path / "keys") == 0
    said = []
    with keys.locked():
        record = keys.load("g", "oven")
        record.former = []  # ... for it has had so many since
        keys.save(record)
    assert not giving.knows(None, flat, {}, keys.fingerprint(stolen.key, "g/oven"))
    flashed(flat, "oven", stolen.key, tell=said.append, signed=stolen.key)
    assert any("was given up" in text for text in said), said
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert takes(tmp_path / "keys", stolen, keys.load("g", "oven")) == [False, True]


def test_a_key_is_revoked_while_it_is_on_its_way():
    flat = {"device": "oven", "group": "g", "broker.host": "h"}
    first = giving.give(flat, "oven")[0]["command_key"]
    keys.revoke(keys.every())
    assert giving.give(flat, "oven", first)[0]["command_key"] != first


def test_a_board_of_a_computer_without_a_copy_delivers_what_it_held(boards, tmp_path, capsys):
    """boards/LOST_COMPUTER.md without step 3: the board shows the key that it has signed with."""
    key = "5c" * 32
    board = boards.make(1, "oven", group="g", command_key=key, telemetry="signed")
    board.power_on()
    held = sign(keys.Record("g", "oven", key))
    said = []
    settings = {"broker": {"host": "127.0.0.1", "port": 1}, "device": "oven", "group": "g",
                "telemetry": "signed"}  # fmt: skip
    flash("unix", port=board.port, settings=settings, giving=giving,
          progress=lambda step, text: said.append(text))  # fmt: skip
    record = keys.load("g", "oven")
    assert record.key != key and record.former == [key] and not record.fresh
    assert any("a key that this computer did not know" in text for text in said), said
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert TelemetryKeys(tmp_path / "keys").fault(*held) is None
    # A board of another name cannot say what the oven's key was.
    flash("unix", port=board.port, settings={**settings, "device": "fridge"}, giving=giving,
          confirm=lambda text: True)  # fmt: skip
    assert keys.load("g", "fridge").former == []


def test_a_flash_without_settings_tells_of_a_key_that_nobody_here_has(boards):
    board = boards.make(1, "oven", group="g", command_key="5c" * 32)
    board.power_on()
    said = []
    flash("unix", port=board.port, giving=giving, progress=lambda step, text: said.append(text))
    assert any("obeys whoever has it" in text for text in said), said
    # A copy that is older than the board's key, and revoked: the board gets another one.
    flashed({"device": "oven", "group": "g", "broker.host": "h"}, "oven")
    keys.revoke(keys.every())
    flash("unix", port=board.port, giving=giving)
    assert not keys.load("g", "oven").revoked


def test_a_flash_that_takes_a_boards_protection_away_asks(boards):
    board = boards.make(1, "oven", group="g", telemetry="signed", command_key="5c" * 32)
    board.power_on()
    settings = {"broker": {"host": "127.0.0.1", "port": 1}, "device": "oven", "group": "g"}
    with pytest.raises(BoardError, match="Nothing was changed. .*can forge its readings"):
        flash("unix", port=board.port, settings=settings, giving=giving)
    assert keys.find("g", "oven") is None
    asked = []
    flash("unix", port=board.port, settings=settings, giving=giving,
          confirm=lambda text: asked.append(text) or True)  # fmt: skip
    assert len(asked) == 1 and not keys.load("g", "oven").signs


def test_keys_in_the_file_that_another_computer_has_given_stay(tmp_path, monkeypatch, capsys):
    """A computer with an old copy writes the file: what the board signs with now stays good."""
    file, flat = tmp_path / "keys", {"device": "oven", "group": "g", "broker.host": "h",
                                     "telemetry": "signed"}  # fmt: skip
    flashed(flat, "oven")
    old = keys.load("g", "oven")
    flashed(flat, "oven")
    held = sign(keys.load("g", "oven"))
    assert board_cli("telemetry-keys", "--out", file) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    with keys.locked():
        keys.save(old)
    assert board_cli("telemetry-keys", "--out", file) == 0
    assert TelemetryKeys(file).fault(*held) is None is TelemetryKeys(file).fault(*sign(old))
    assert "in it, too: keys that another computer has given to fleet/g/oven." in (
        capsys.readouterr().out)
    before = file.read_bytes()
    assert board_cli("telemetry-keys", "--out", file, "--no-former") == 0
    assert "another computer has given them a key: fleet/g/oven." in capsys.readouterr().out
    assert file.read_bytes() == before
    assert board_cli("telemetry-keys", "--out", file, "--no-former", "--replace") == 0
    assert "left out: keys that another computer has given to fleet/g/oven." in (
        capsys.readouterr().out)
    assert TelemetryKeys(file).fault(*held) == WRONG


@pytest.mark.parametrize("signs", [True, False])
def test_a_key_that_was_taken_out_comes_not_back_from_a_computer_that_still_has_it(
    signs, tmp_path, monkeypatch, capsys
):
    """It was stolen; the board has another one, and the file that one alone."""
    file, flat = tmp_path / "keys", {"device": "oven", "group": "g", "broker.host": "h"}
    flashed(flat | ({"telemetry": "signed"} if signs else {}), "oven")
    old = keys.load("g", "oven")
    flashed(flat | {"telemetry": "signed"}, "oven")
    held = sign(keys.load("g", "oven"))
    assert board_cli("telemetry-keys", "--no-former", "--out", file) == 0
    before = file.read_bytes()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    with keys.locked():
        keys.save(old)
    for more in ([], ["--no-former"], ["--group", "g"]):
        capsys.readouterr()
        assert board_cli("telemetry-keys", "--out", file, *more) == 0
        said = capsys.readouterr().out
        assert "another computer has given them a key: fleet/g/oven." in said
        assert "keys for the signed readings of 1 board" in said and "Anybody" not in said
        assert file.read_bytes() == before
    assert TelemetryKeys(file).fault(*sign(old)) == WRONG
    assert board_cli("telemetry-keys", "--out", file, "--replace") == 0
    assert TelemetryKeys(file).fault(*sign(old)) is None
    if signs:  # what the board still holds stays good
        assert TelemetryKeys(file).fault(*held) is None


def test_a_forgotten_board_stays_in_the_file_without_a_key(tmp_path, capsys):
    file = tmp_path / "keys"
    flat = {"group": "g", "broker.host": "h", "telemetry": "signed"}
    for name in ("oven", "fridge"):
        flashed(flat | {"device": name}, name)
    payload = sign(keys.load("g", "oven"))
    assert board_cli("telemetry-keys", "--out", file) == 0
    assert TelemetryKeys(file).fault(*payload) is None
    forgotten.forget("g", "oven")
    capsys.readouterr()
    assert board_cli("telemetry-keys", "--out", file) == 0
    out = capsys.readouterr().out
    assert "the signed readings of 1 board" in out and "without a key here: fleet/g/oven." in out
    held = TelemetryKeys(file)
    assert held.fault(*payload) == held.fault(payload[0], b"plain") == GONE
    assert held.fault(b"fleet/g/other/telemetry", b"plain") is None
    assert board_cli("telemetry-keys", "--out", file, "--drop") == 0
    assert "left out: fleet/g/oven" in capsys.readouterr().out
    assert TelemetryKeys(file).fault(*payload) is None


def test_a_board_that_this_computer_never_knew_is_forgotten(tmp_path, monkeypatch):
    """It was stolen, and the computer that flashed it is lost."""
    file, new = tmp_path / "keys", tmp_path / "new"
    flat = {"group": "g", "broker.host": "h", "telemetry": "signed"}
    flashed(flat | {"device": "oven"}, "oven")
    assert board_cli("telemetry-keys", "--out", file) == 0
    payload = sign(keys.load("g", "oven"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    for path in (file, new):
        assert board_cli("telemetry-keys", "--out", path, "--group", "g") == 0
        assert TelemetryKeys(path).fault(*payload) == GONE
    assert board_cli("telemetry-keys", "--out", new, "--group", "h") == 2
    flashed(flat | {"device": "oven"}, "oven")
    assert board_cli("telemetry-keys", "--out", new) == 0
    assert TelemetryKeys(new).fault(*sign(keys.load("g", "oven"))) is None


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_boards_of_another_computer_stay_in_the_file(name, tmp_path, monkeypatch, capsys):
    file = tmp_path / "keys"
    flat = {"group": "g", "broker.host": "h", "telemetry": "signed"}
    for device in ("oven", "fridge"):
        flashed(flat | {"device": device}, device)
    assert board_cli(name, "--out", file) == 0
    before = keys_in(file)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    flashed(flat | {"device": "lamp"}, "lamp")
    capsys.readouterr()
    assert board_cli(name, "--out", file) == 0
    assert "as they were, for this computer has no keys of them: fleet/g/fridge, fleet/g/oven" in (
        capsys.readouterr().out)
    after = keys_in(file)
    assert after.pop("fleet/g/lamp") and after == before


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
@pytest.mark.parametrize("late_ms", [0, 86_400_000])
def test_of_two_computers_in_turn_the_later_flash_counts(
    late_ms, name, tmp_path, monkeypatch, capsys
):
    """Neither has a copy of the other's keys; the clock of the second is late."""
    file, now = tmp_path / "keys", counters.now
    flat = {"group": "g", "device": "oven", "broker.host": "h", "telemetry": "signed"}

    def at(computer, late=0):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / computer))
        monkeypatch.setattr(counters, "now", lambda: now() - late)

    def write():
        capsys.readouterr()
        assert board_cli(name, "--out", file) == 0
        own = marks_cli.made(keys.every(), {"mark-keys": marks_cli.MARKS,
                                            "telemetry-keys": marks_cli.TELEMETRY}[name])
        first = [one if isinstance(one, str) else one[0] for one in keys_in(file).values()]
        said = capsys.readouterr().out
        return first == [*own.values()], "given them a key: fleet/g/oven" in said

    at("a")
    count = flashed(flat, "oven")[1]
    assert write() == (True, False)
    at("b", late_ms)
    count = flashed(flat, "oven", "77" * 32, count=count)[1]
    assert write() == (True, False)
    at("a")
    right = file.read_bytes()
    if name == "mark-keys":
        assert write() == (False, True) and file.read_bytes() == right
    flashed(flat, "oven", count=count)
    assert write() == (True, False)


def test_files_that_are_swapped_say_what_they_are(tmp_path):
    flashed({"group": "g", "device": "oven", "broker.host": "h", "telemetry": "signed"}, "oven")
    for name in ("mark-keys", "telemetry-keys"):
        assert board_cli(name, "--out", tmp_path / name) == 0
    assert MarkKeys(tmp_path / "mark-keys") and TelemetryKeys(tmp_path / "telemetry-keys")
    with pytest.raises(ValueError, match="the file of `umqtt-board telemetry-keys`, not of `umqtt-"
                                         "board mark-keys`: give each file to"):  # fmt: skip
        MarkKeys(tmp_path / "telemetry-keys")
    with pytest.raises(ValueError, match="the file of `umqtt-board mark-keys`, not"):
        TelemetryKeys(tmp_path / "mark-keys")


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_the_last_board_is_forgotten_as_well(name, tmp_path, capsys):
    file, flat = tmp_path / "keys", {"group": "g", "device": "oven", "broker.host": "h"}
    flashed(flat | {"telemetry": "signed"}, "oven")
    assert board_cli(name, "--out", file) == 0
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    assert board_cli(name, "--out", file) == 0
    gone = {} if name == "mark-keys" else {"fleet/g/oven": []}
    assert keys_in(file) == gone
    flashed(flat | {"telemetry": "signed"}, "oven")
    assert board_cli(name, "--out", file) == 0
    assert keys_in(file)["fleet/g/oven"]


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_a_computer_without_keys_leaves_a_file_as_it_is(name, tmp_path, monkeypatch, capsys):
    file = tmp_path / "keys"
    flashed({"group": "g", "device": "oven", "broker.host": "h", "telemetry": "signed"}, "oven")
    assert board_cli(name, "--out", file) == 0
    before = file.read_bytes()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    assert board_cli(name, "--out", file) == 2
    assert "has keys of 1 board, and this computer has none" in capsys.readouterr().err
    assert file.read_bytes() == before
    file.write_text("[]")
    assert board_cli(name, "--out", file) == 2
    assert "is no file of `umqtt-board" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_a_group_is_written_into_the_fleets_file(name, tmp_path):
    file = tmp_path / "keys"
    for group in ("g", "h"):
        flat = {"group": group, "device": "oven", "broker.host": "h", "telemetry": "signed"}
        flashed(flat, "oven")
    assert board_cli(name, "--out", file) == 0
    before = keys_in(file)
    flashed({**flat, "group": "g"}, "oven")
    assert board_cli(name, "--out", file, "--group", "g") == 0
    after = keys_in(file)
    assert after["fleet/h/oven"] == before["fleet/h/oven"]
    assert set(after) == set(before) and after["fleet/g/oven"] != before["fleet/g/oven"]


def test_a_group_whose_last_board_is_forgotten_stops_no_file(tmp_path):
    for group in ("g", "shed"):
        flashed({"group": group, "device": "oven", "broker.host": "h"}, "oven")
    forgotten.forget("shed", "oven")
    assert board_cli("mark-keys", "--out", tmp_path / "keys") == 0
    assert list(keys_in(tmp_path / "keys")) == ["fleet/g/oven"]


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_a_file_of_keys_is_its_owners_alone(name, tmp_path):
    assert board_cli(name, "--out", tmp_path / "keys") == 0
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
