"""The keys of the boards on this computer, and the set of files that an update sends."""

import datetime
import json
import os
import ssl
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench import MPREMOTE
from certificates import Authority
from commands import Commands, hmac_sha256
from patience import wait_until
from strict_server import StrictServer
from umqtt_board.errors import BoardError
from umqtt_board.flash.steps import flash
from umqtt_board.identity import authority
from umqtt_board.ota import counters, fileset, giving, keys, send
from umqtt_board.paths import FIRMWARE, PROJECT
from update_kit import flashed

sys.path.insert(0, str(PROJECT / "tests" / "device"))
import ota_kit  # noqa: E402

FLAT = {"device": "oven", "group": "g", "broker.host": "10.0.0.2", "broker.user": "u",
        "broker.password": "hidden-word"}  # fmt: skip


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_a_new_board_gets_a_random_key_and_keeps_it():
    first, count = flashed(FLAT, "oven")
    key = first["command_key"]
    assert len(bytes.fromhex(key)) == 32
    assert flashed(FLAT, "oven", key) == (first, count)
    assert flashed(FLAT, "other")[0]["command_key"] != key
    assert [record.device for record in keys.members("g")] == ["other", "oven"]


def test_a_key_in_the_settings_is_kept_and_an_empty_one_means_none():
    given, _ = flashed(FLAT | {"command_key": "ab" * 16}, "oven")
    assert given["command_key"] == keys.load("g", "oven").key == "ab" * 16
    assert flashed(FLAT | {"command_key": ""}, "off")[0]["command_key"] == ""
    assert keys.find("g", "off") is None


@pytest.mark.parametrize("shown", [None, "", "00" * 32])
def test_a_key_is_given_to_no_board_that_does_not_show_it(shown):
    """It was erased, or it is another one that says this name."""
    first, count = flashed(FLAT, "oven")
    second, later = flashed(FLAT, "oven", shown)
    assert second["command_key"] != first["command_key"] and later >= count
    assert keys.load("g", "oven").key == second["command_key"]


def test_files_are_for_their_owner_only_and_without_the_password():
    flashed(FLAT, "oven")
    path = keys.root() / "g" / "oven.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.is_relative_to(PROJECT)
    assert "hidden-word" not in path.read_text()
    assert json.loads(path.read_text())["broker"] == {
        "host": "10.0.0.2", "port": 1883, "tls": False, "user": "u"}
    path.chmod(0o640)
    with pytest.raises(BoardError, match="chmod 600"):
        keys.load("g", "oven")


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"key":"zz"}', '{"key":"00"}', '{"group":"g","device":"oven","key":""}',
    '{"group":"g","device":"oven","key":"00112233445566778899aabbccddee"}',
    *(json.dumps({"group": "g", "device": "oven", "key": "ab" * 32} | more) for more in (
        {"broker": "10.0.0.2"}, {"broker": {"host": "h", "port": "1883", "tls": False}},
        {"broker": {"host": "h", "port": 0}}, {"broker": {"port": 1883}}, {"signs": "yes"},
        {"former": "ab"}, {"broker": {"host": "h", "port": 1883, "more": 1}})),
])  # fmt: skip
def test_a_damaged_file_is_named(text):
    flashed(FLAT, "oven")
    path = keys.root() / "g" / "oven.json"
    path.write_text(text)
    with pytest.raises(BoardError, match="oven.json is damaged .*keys import"):
        keys.load("g", "oven")


def test_a_folder_of_another_user_is_named(monkeypatch):
    """As after `sudo -E make flash`. A test may be root's, who is refused nothing."""
    flashed(FLAT, "oven")

    for whose in (keys.root(), keys.root() / "g"):

        def refused(path, whose=whose):
            if path == whose:
                raise PermissionError(13, "Permission denied", str(path))
            return [one.name for one in os.scandir(path)]

        with monkeypatch.context() as patch:
            patch.setattr(keys.os, "listdir", refused)
            for ask in (keys.every, keys.each, keys.in_use, lambda: keys.members("g")):
                with pytest.raises(BoardError, match=f"^{whose} belongs to another user"):
                    ask()


def test_files_that_are_swapped_are_named_with_what_to_do():
    for name in ("oven", "fridge"):
        flashed(FLAT | {"device": name}, name)
    (keys.root() / "g" / "fridge.json").replace(keys.root() / "g" / "oven.json")
    with pytest.raises(BoardError, match="give it back the name g/fridge.json"):
        keys.load("g", "oven")


def test_counters_never_repeat_even_with_a_clock_that_goes_back(monkeypatch):
    flashed(FLAT, "oven")
    records = keys.members("g")
    first = keys.next_count(records)
    monkeypatch.setattr(counters.time, "time_ns", lambda: 5)
    second = keys.next_count(records)
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: keys.next_count(records), range(20)))
    assert first < second < min(counts) and len(set(counts)) == 20


def put_count(board, count):
    on_board(board, f"with open('/state.json', 'w') as f:\n f.write('{{\"count\": {count}}}')")
    assert f": {count}}}" in on_board(board, "print(open('/state.json').read())")


def test_a_key_that_is_revoked_during_its_flash_stays_revoked(boards):
    board = boards.make(1, "b1", group="g", command_key="5e" * 32)
    board.power_on()
    settings = {"broker": {"host": "127.0.0.1", "port": 1}, "device": "b1", "group": "g"}
    flash("unix", port=board.port, settings=settings, giving=giving)
    first = keys.load("g", "b1")
    assert not first.revoked

    def progress(step, text):
        if step == "verify":
            keys.revoke([first])

    flash("unix", port=board.port, settings=settings, giving=giving, progress=progress)
    assert keys.load("g", "b1").revoked
    flash("unix", port=board.port, settings=settings, giving=giving)
    assert keys.load("g", "b1").key != first.key and not keys.load("g", "b1").revoked


def test_a_flash_learns_a_counter_that_another_computer_has_raised(boards):
    board = boards.make(1, "b1", group="g", command_key="5e" * 32)
    board.power_on()
    settings = {"broker": {"host": "127.0.0.1", "port": 1}, "device": "b1", "group": "g"}
    flash("unix", port=board.port, settings=settings, giving=giving)
    said = []
    for days, learnt in ((1, True), (400, False)):
        later = counters.now() + days * 86_400_000
        put_count(board, later)
        flash("unix", port=board.port, settings=settings, giving=giving,
              progress=lambda step, text: said.append(text))  # fmt: skip
        assert (keys.next_count(keys.members("g")) > later) is learnt
        assert any("obeys no other computer" in text for text in said) is not learnt


def test_another_key_gives_up_a_counter_that_is_too_far_ahead(boards):
    """A board that somebody has shut out is mended without an erase: its journal stays."""
    board = boards.make(1, "b1", group="g", command_key="5e" * 32)
    board.power_on()
    put_count(board, (1 << 53) - 1)
    flash("unix", port=board.port, settings={
        "broker": {"host": "127.0.0.1", "port": 1}, "device": "b1", "group": "g"}, giving=giving)
    state = json.loads(on_board(board, "print(open('/state.json').read())"))
    assert 0 <= counters.now() - state["count"] < 600_000


def on_board(board, code):
    """Run a program on a board; what it printed."""
    done = subprocess.run([*MPREMOTE, board.port, "resume", "exec", code],
                          capture_output=True, timeout=120, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr + board.printed()[-2000:]
    return done.stdout


def test_flashing_gives_the_board_its_key_and_takes_updates_away(boards):
    board = boards.make(1, "b1")
    board.power_on()
    settings = {"broker": {"host": "127.0.0.1", "port": 1}}
    first = flash("unix", port=board.port, settings=settings, giving=giving,
                  confirm=lambda text: "it took as test/b1" in text)  # fmt: skip
    assert first.settings == "written"
    (record,) = keys.members("default")
    assert record.device.startswith("umqtt-")
    second = flash("unix", port=board.port, settings=settings, giving=giving)
    assert second.settings == "same" and second.written == second.removed == []
    wait_until(lambda: record.device in board.printed(), 20, "the name of the board")
    assert record.key not in board.printed()
    # Which set from over the air is in force: none is after flashing.
    on_board(board, "import os; os.mkdir('/sets'); open('/sets/boot.json', 'w').write('{}')")
    third = flash("unix", port=board.port, settings=settings, giving=giving)
    assert third.removed == ["/sets/boot.json"]


FILL = """
import os
for path in ("/sets", "/sets/1", "/sets/1/lib"):
    os.mkdir(path)
with open("/sets/1/lib/x.mpy", "wb") as file:
    stat = os.statvfs("/")
    for _ in range(stat[3] - 4):
        file.write(bytes(stat[0]))
with open("/sets/boot.json", "w") as file:
    file.write('{"slot":1,"id":"abcdef01","version":"1"}')
"""


def test_flashing_makes_room_for_itself_by_taking_updates_away(boards):
    board = boards.make(1, "b1")
    board.power_on()
    on_board(board, FILL)
    report = flash("unix", port=board.port,
                   settings={"device": "b1", "group": "test",
                             "broker": {"host": "127.0.0.1", "port": 1}})  # fmt: skip
    assert report.settings == "written"
    listed = on_board(board, "import os; print(os.listdir('/'))")
    assert "'sets'" not in listed and "settings.json" in listed


# What is sent


def test_one_command_carries_a_code_for_each_board_of_a_group():
    records = [keys.Record("g", f"b{n}", f"{n:02x}" * 16) for n in range(1, 9)]
    sent = send.messages(records, "g", "ota", {"count": 3, "sha": "0" * 64})
    assert len(sent) > 1 and {topic for topic, _ in sent} == {"fleet/g/-all/cmd/ota"}
    assert all(len(payload) <= send.PAYLOAD for _, payload in sent)
    for record in records:
        obeyed = 0
        for topic, payload in sent:
            board = Commands(bytes.fromhex(record.key), 0, lambda count: None)
            try:
                obeyed += board.check(topic.encode(), payload)["count"] == 3
            except ValueError:
                assert not board.meant
        assert obeyed == 1, record


def test_the_code_is_the_firmwares():
    code = send.sign("0b" * 20, "a/b", b"{}")
    assert code == b"." + hmac_sha256(b"\x0b" * 20, b"a/b\n{}").hex().encode()


def test_the_set_has_the_form_that_the_firmware_is_tested_with():
    files = {"app.mpy": b"a" * 1000, "umqtt_min/x.mpy": bytes(range(256)) * 9, "z.mpy": b"c"}
    packed = {path: fileset.deflated(data) for path, data in files.items()}
    made, other = fileset.Set(files, "9.9"), ota_kit.Set(packed, piece=fileset.PIECE)
    assert made.run == other.run and list(made.pieces.values())[::-1] == other.pieces
    body = made.command(3, 600)
    assert {key: body[key] for key in ("sha", "chain", "size", "index", "piece", "mpy")} == {
        key: other.body[key] for key in ("sha", "chain", "size", "index", "piece", "mpy")}


def test_the_projects_set_is_what_a_board_may_take():
    made = fileset.of_project()
    assert "app.mpy" in made.files and "umqtt_min/client.mpy" in made.files
    assert not {"boot.py", "main.py", "loader.mpy", "setfs.mpy", "watchdog.mpy"} & set(made.files)
    assert fileset.PIECE == fileset.constant(FIRMWARE / "ota.py", "PIECE")
    # A piece fits the client's buffer: fixed header, the longest topic, packet identifier.
    topic = f"fleet/{'g' * 32}/{'d' * 32}/cmd/piece"
    head = 5 + 2 + len(topic) + 2
    assert head + fileset.PIECE <= fileset.constant(FIRMWARE / "link.py", "BUFFER")
    assert made.need >= len(made.run)


def test_an_empty_file_cannot_be_sent():
    with pytest.raises(BoardError):
        fileset.Set({"a": b""}, "1")


def test_the_host_checks_the_brokers_certificate(tmp_path):
    authority, other = Authority("umqtt_min test CA"), Authority("umqtt_min test CA")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"".join(authority.issue("localhost", ["127.0.0.1"])))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server = StrictServer(tls=context)
    try:
        records = [keys.Record("g", "oven", "00" * 16)]
        where = {"host": "127.0.0.1", "port": server.port, "tls": True}
        with send.Session("g", records, where | {"ca": authority.pem.decode()}, None) as good:
            assert good._ready
        for ca in (other.pem.decode(), None):
            with pytest.raises(BoardError, match="is not trusted: .*signed by the one of --ca"):
                send.Session("g", records, where | {"ca": ca}, None).__enter__()
        with pytest.raises(BoardError, match="not right"):
            send.Session("g", records, where | {"ca": "-----BEGIN nonsense"}, None)
    finally:
        server.stop()


def test_a_certificate_of_another_time_is_told_with_the_clock(monkeypatch, tmp_path):
    ahead = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=3650)
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_now", lambda: ahead)
        made = authority.Authority("broker-ca", tmp_path)
        chain = tmp_path / "chain.pem"
        chain.write_bytes(b"".join(made.issue("broker", 30, ["127.0.0.1"])))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server = StrictServer(tls=context)
    where = {"host": "127.0.0.1", "port": server.port, "tls": True, "ca": made.pem.decode()}
    try:
        records = [keys.Record("g", "oven", "00" * 16)]
        with pytest.raises(BoardError, match="not yet valid. By this computer's clock it is 20"):
            send.Session("g", records, where, None).__enter__()
    finally:
        server.stop()


@pytest.mark.parametrize("ahead_s", [3600, 40, -0.2, -3600])
def test_two_computers_that_know_one_counter_give_different_ones(home, monkeypatch, ahead_s):
    """At the same millisecond, for a board that is off and has said none: each would take the next
    one, or the time, and one of them the other's command for its own."""
    now = counters.now()
    monkeypatch.setattr(counters, "now", lambda: now)
    keys.save(keys.Record("g", "oven", "5e" * 16, count=now + round(1000 * ahead_s)))
    record, given = keys.load("g", "oven"), set()
    for _ in range(5):
        keys.save(record)
        given.add(keys.next_count([record]))
    assert len(given) > 1 and min(given) > record.count
