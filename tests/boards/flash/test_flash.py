"""Flashing a board: only what differs, whatever is cut in the middle, and errors that help."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from flash_kit import SETTINGS, cut_flash, flash, operations_of_an_update
from keep_kit import quiet
from umqtt_board import boards
from umqtt_board.backup import copies, restoring
from umqtt_board.errors import BoardError
from umqtt_board.flash import build, install, steps
from umqtt_board.port import device

CLI = [sys.executable, "-m", "umqtt_board"]


def _bytes_sent(board):
    sent = [0]
    report = flash(board, transfer=lambda done, total, path: sent.append(total))
    return report, max(sent)


def test_a_bare_board_gets_everything_and_starts(board, project, mpremote, files_on):
    report = flash(board)
    board.wait_for(r"boot ran\napp ran")
    assert report.library == "9.9" and report.journal == 65536 and report.settings == "written"
    assert report.heap_before > report.heap_after > 100_000
    assert files_on(board) == [
        "/app.mpy", "/big.mpy", "/boot.py", "/installed.json", "/lib/umqtt_min/__init__.mpy",
        "/lib/umqtt_min/part.mpy", "/main.py", "/sensors/one.mpy", "/settings.json",
    ]  # fmt: skip
    stored = mpremote(board, "cat", ":settings.json")
    assert stored == '{"broker.host":"127.0.0.1","broker.port":1,"device":"one"}'


def test_the_second_time_nothing_is_written(board, project):
    flash(board)
    image = board.flash_image.read_bytes()
    report, sent = _bytes_sent(board)
    assert report.written == [] and report.removed == [] and sent == 0
    assert report.settings == "same"
    assert board.flash_image.read_bytes() == image


def test_only_what_differs_is_written(board, project):
    flash(board)
    project("lib/part.py", "def f():\n    return 2\n")
    report, sent = _bytes_sent(board)
    assert report.written == ["/lib/umqtt_min/part.mpy"]
    assert sent < 200


def test_settings_stay_when_none_are_given_and_change_alone(board, project, mpremote):
    flash(board)
    assert flash(board, None).settings == "kept"
    report = flash(board, SETTINGS | {"device": "two"})
    assert report.written == ["/settings.json"]
    assert '"device":"two"' in mpremote(board, "cat", ":settings.json")


def test_one_variable_changes_one_setting_and_a_password_need_not_be_given_again(
    board, project, mpremote
):
    login = {"broker.user": "u", "broker.password": "hunter2"}
    flash(board, SETTINGS | login)
    report = flash(board, None, environment={"UMQTT_WINDOW": "3"})
    assert report.written == ["/settings.json"]
    assert json.loads(mpremote(board, "cat", ":settings.json")) == SETTINGS | login | {"window": 3}
    assert flash(board, SETTINGS | {"broker.user": "u", "window": 3}).settings == "same"
    with pytest.raises(BoardError, match="in the environment .*:\n  window: expected a whole num"):
        flash(board, None, environment={"UMQTT_WINDOW": "many"})


def test_what_an_update_drops_is_removed_and_the_users_files_stay(board, project, put, mpremote):
    flash(board)
    put(board, "mine.py", "x = 1\n")
    put(board, "app.py", "hides app.mpy\n")
    os.remove(project.folder / "firmware" / "big.py")
    os.remove(project.folder / "lib" / "part.py")
    report = flash(board)
    assert report.removed == ["/big.mpy", "/lib/umqtt_min/part.mpy"]
    assert mpremote(board, "cat", ":mine.py") == "x = 1\n"
    assert "settings.json" in mpremote(board, "fs", "ls")


def test_a_damaged_file_is_found_and_mended(board, project, put):
    flash(board)
    put(board, "app.mpy", "not bytecode")
    assert flash(board).written == ["/app.mpy"]


def _update(project):
    """A new firmware whose files only work together."""
    project("firmware/app.py", "import big, sensors.one, time\n"
                               "print('new app', big.NEW, sensors.one.X)\n"
                               "while True:\n    time.sleep(1)\n")  # fmt: skip
    project("firmware/big.py", "NEW = 5\n" + "".join(f"W{n} = '{n}'\n" for n in range(500)))
    project("firmware/sensors/one.py", "X = 7\n")
    project("firmware/main.py", "import app  # new\n")
    project("firmware/boot.py", "import sensors.one\nassert sensors.one.X == 7, 'old and new'\n")


# Fractions of the work of writing aside, then of the work of putting in force.
@pytest.mark.parametrize("part, of", [
    ("aside", 0.5), *(("force", n / 9) for n in (0, 4, 9)), *(
        pytest.param(*each, marks=pytest.mark.campaign) for each in (
            ("aside", 0.0), ("aside", 1.0), *(("force", n / 9) for n in (1, 2, 3, 5, 6, 7, 8)))),
])  # fmt: skip
def test_a_cut_at_any_flash_operation_never_mixes_old_and_new(
    make_board, project, files_on, part, of
):
    board, measured = make_board("one"), make_board("measured")
    for one in (board, measured):
        one.power_on()
        flash(one)
    _update(project)
    total, force = operations_of_an_update(measured)
    at = round(force * of) if part == "aside" else force + round((total - 1 - force) * of)
    board.cut_after(at)
    with pytest.raises(BoardError, match="was lost while .* run the same command again"):
        flash(board)
    assert not board.running
    board.cut_after(None)
    mark = len(board.printed())
    board.power_on()
    board.wait_for(r">>> |app ran|new app 5 7", since=mark)
    assert "Traceback" not in board.printed()[mark:]
    mark = len(board.printed())
    flash(board)
    board.wait_for("new app 5 7", since=mark)
    assert not [path for path in files_on(board) if path.endswith((".new", ".off", ".half"))]


# Of the work of writing aside, and of putting in force.
@pytest.mark.parametrize("part, of", [("aside", 0.7), ("force", 0.6)])
def test_other_files_after_a_cut_leave_nothing_of_those_that_were_cut(
    make_board, project, files_on, part, of
):
    board, measured = make_board("one"), make_board("measured")
    for one in (board, measured):
        one.power_on()
        flash(one)
    first = files_on(board)
    project("firmware/sensors/newest.py", "X = 8\n")
    project("firmware/sensors/one.py", "X = 9\n")
    project("firmware/alone.py", "".join(f"A{n} = '{n}'\n" for n in range(300)))
    cut_flash(board, measured, part, of)
    for name in ("sensors/newest.py", "sensors/one.py", "alone.py"):
        os.remove(project.folder / "firmware" / name)
    project("firmware/app.py", "import time\nprint('third app')\nwhile True:\n    time.sleep(1)\n")
    mark = len(board.printed())
    board.power_on()
    flash(board)
    board.wait_for("third app", since=mark)
    assert files_on(board) == [path for path in first if path != "/sensors/one.mpy"]
    report, sent = _bytes_sent(board)
    assert (report.written, report.removed, sent) == ([], [], 0)


@pytest.mark.parametrize("of", [0.5, *(
    pytest.param(of, marks=pytest.mark.campaign) for of in (0.2, 0.9))])  # fmt: skip
def test_a_restore_never_starts_old_and_new_files(make_board, project, tmp_path, of):
    board, measured = make_board("one"), make_board("measured")
    for one in (board, measured):
        one.power_on()
        flash(one)
    unix = boards.load("unix")
    with device.Device(board.port) as one:
        copies.backup(one, unix, tmp_path / "copy", quiet, quiet)
    _update(project)
    total, force = operations_of_an_update(measured)
    board.cut_after(force + round((total - 1 - force) * of))
    with pytest.raises(BoardError, match="was lost while"):
        flash(board)
    board.cut_after(None)
    mark = len(board.printed())
    board.power_on()
    copy = copies.load(tmp_path / "copy", unix)
    with device.Device(board.port) as one:
        with pytest.raises(BoardError, match="a flash of the board .* was cut.* Run that flash"):
            restoring.restore(one, unix, copy, lambda text: True, quiet, quiet)
    flash(board)
    board.wait_for("new app 5 7", since=mark)
    with device.Device(board.port) as one:
        assert restoring.restore(one, unix, copy, lambda text: True, quiet, quiet)


def test_what_was_sent_before_a_cut_is_not_sent_again(board, project):
    flash(board)
    project("firmware/big.py", "".join(f"W{n} = 'new {n}'\n" for n in range(600)))
    for name in ("zz", "zzz"):
        project(f"firmware/{name}.py", "Z = 1\n" * 300)

    def cut_late(done, total, path):
        if path == "/zz.mpy":
            board.cut()

    with pytest.raises(BoardError, match="was lost"):
        flash(board, transfer=cut_late)
    board.power_on()
    report, sent = _bytes_sent(board)
    assert report.written == ["/big.mpy", "/zz.mpy", "/zzz.mpy", "/installed.json"]
    assert 0 < sent < 1500


def _cli(*arguments, **environment):
    done = subprocess.run(
        [*CLI, *arguments], capture_output=True, text=True, timeout=120,
        env=os.environ | environment,
    )  # fmt: skip
    return done.returncode, done.stderr, done.stdout


def test_the_wrong_board_is_not_touched(board):
    image = board.flash_image.read_bytes()
    status, said, _ = _cli("flash", "--board", "rp2040", "--port", board.port)
    assert status == 2 and "not BOARD=rp2040: give BOARD=unix" in said
    assert board.flash_image.read_bytes() == image


@pytest.mark.parametrize("port, said", [
    ("/dev/ttyNONE", "no port /dev/ttyNONE: plug the board in"),
    ("nonsense://x", "not an address of a serial port"),
    ("socket://127.0.0.1:1", "cannot be opened"),
])  # fmt: skip
def test_a_port_that_is_not_there(port, said):
    status, error, _ = _cli("flash", "--port", port)
    assert status == 2 and said in error


def test_a_board_without_power(board, monkeypatch):
    board.cut()
    monkeypatch.setattr(device, "ANSWER_S", 1)
    with pytest.raises(BoardError, match="does not answer at the Python prompt"):
        flash(board)


def test_an_image_is_refused_rather_than_ignored_by_a_board_that_brings_its_own():
    with pytest.raises(BoardError, match="FIRMWARE=x.bin: BOARD=unix brings its interpreter"):
        steps.flash("unix", firmware="x.bin")


@pytest.mark.parametrize("text, said", [
    ("[broker]\nport = 1883\n", "broker.host: expected a text of 1 to 253 bytes, got nothing"),
    ('[broker]\nhost = "h"\nport = "x"\n', "broker.port: expected a whole number from 0 to 65535"),
    ('intervall_ms = 5\n[broker]\nhost = "h"\n', "intervall_ms: unknown key"),
    ("[broker\nhost = 1\n", "is not TOML"),
    ("[broker]\nhost = 1\n".encode("utf-8-sig"), "broker.host: expected a text"),
    ('[broker]\nhost = "\xe4"\n'.encode("latin-1"), "is not UTF-8 (byte 18): save it as UTF-8"),
])  # fmt: skip
def test_malformed_settings_name_the_key_and_touch_nothing(board, tmp_path, text, said):
    path = tmp_path / "settings.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    image = board.flash_image.read_bytes()
    status, error, _ = _cli("flash", "--port", board.port, "--settings", str(path))
    assert status == 2 and said in error and str(path) in error
    assert board.flash_image.read_bytes() == image


def test_missing_settings_file():
    status, said, _ = _cli("flash", "--settings", "/nowhere/settings.toml")
    assert status == 2 and "SETTINGS=/nowhere/settings.toml cannot be read" in said


def test_secrets_come_from_the_environment_and_are_never_shown(board, mpremote):
    settings = {
        "UMQTT_BROKER_HOST": "127.0.0.1", "UMQTT_BROKER_PORT": "1", "UMQTT_BROKER_USER": "u",
        "UMQTT_BROKER_PASSWORD": "hunter2-very-secret",
    }  # fmt: skip
    status, error, output = _cli("flash", "--port", board.port, "--no-follow", **settings)
    assert status == 0, error
    assert "hunter2" not in error + output + board.printed()
    assert '"broker.password":"hunter2-very-secret"' in mpremote(board, "cat", ":settings.json")
    wrong = settings | {"UMQTT_BROKER_PASSWORD": "s3cret" * 60}
    status, error, output = _cli("flash", "--port", board.port, **wrong)
    assert status == 2 and "broker.password: expected a text" in error
    assert "s3cret" not in error + output


def test_a_full_filesystem_says_so_and_keeps_the_old_program(make_board, project, mpremote):
    board = make_board(filesystem=0x18000)
    board.power_on()
    flash(board)
    mpremote(board, "exec", "f = open('fill', 'wb')\nwhile True:\n"
                            "  try: f.write(bytes(512)); f.flush()\n  except OSError: break")
    project("firmware/big.py", "".join(f"W{n} = 'new {n}'\n" for n in range(900)))
    with pytest.raises(BoardError, match="filesystem .* is full: ") as raised:
        flash(board)
    print(raised.value, mpremote(board, "df"))
    mark = len(board.printed())
    board.reset()
    board.wait_for("app ran", since=mark)


def test_a_source_that_does_not_compile_touches_nothing(board, project):
    project("firmware/app.py", "def broken(:\n")
    image = board.flash_image.read_bytes()
    with pytest.raises(BoardError, match=r"app.py does not compile:\n(?s:.*)line 1"):
        flash(board)
    assert board.flash_image.read_bytes() == image


def test_what_reads_back_wrong_is_not_put_in_force(board, project, monkeypatch):
    write = device.Device.write_file
    monkeypatch.setattr(device.Device, "write_file", lambda self, path, data, progress:
                        write(self, path, data[:-1] + b"?", progress))  # fmt: skip
    with pytest.raises(BoardError, match="is not what was written"):
        flash(board)
    monkeypatch.undo()
    assert "main.py\n" not in subprocess.run(
        [sys.executable, "-m", "mpremote", "connect", board.port, "fs", "ls"],
        capture_output=True, text=True, timeout=60).stdout  # fmt: skip


def test_the_real_firmware_reports_to_a_real_broker(board, iotcore):
    lines = []
    report = flash(
        board,
        {"device": "one", "broker.host": "127.0.0.1", "broker.port": iotcore.port,
         "interval_ms": 100},
        follow_log=True, progress=lambda step, text: lines.append((step, text)),
    )  # fmt: skip
    assert report.acknowledged
    assert any(step == "log" and "first publish acknowledged" in text for step, text in lines)


def test_no_acknowledgement_is_an_error_with_the_last_line(board, project):
    with pytest.raises(BoardError, match="acknowledged within 2 s. Its last line: app ran"):
        flash(board, follow_log=True, follow_timeout=2)


def test_a_program_that_ends_is_an_error_with_what_it_said(board, project):
    project("firmware/app.py", "import nothing_of_the_kind\n")
    with pytest.raises(BoardError, match="program has ended.* no module named 'nothing_of_the_k"):
        flash(board, follow_log=True)


def test_the_acknowledged_publish_ends_the_following(board, project):
    project("firmware/app.py", "print('umqtt: first publish acknowledged seq=1')\n"
                               "import time\nwhile True:\n    time.sleep(1)\n")  # fmt: skip
    assert flash(board, follow_log=True).acknowledged


def test_examples_stay_off_the_board_wherever_the_project_lies(tmp_path):
    folder = tmp_path / "examples" / "project"
    for name in ("lib/a.py", "lib/examples/b.py", "lib/manifest.py", "fw/main.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("X = 1\n")
    items = build.build(folder / "lib", folder / "fw", folder / "out")
    assert [item.path for item in items] == ["/lib/umqtt_min/a.mpy", "/main.py"]


def test_builds_at_the_same_time_do_not_disturb_each_other(tmp_path):
    for n in range(12):
        path = tmp_path / "lib" / f"m{n}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"V{i} = 'text {i}'\n" for i in range(300)))
    (tmp_path / "fw").mkdir()
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(build.build, tmp_path / "lib", tmp_path / "fw", tmp_path / "out")
                for _ in range(8)]  # fmt: skip
    assert len({tuple(run.result()) for run in runs}) == 1


def test_install_compares_nothing_but_content():
    own = [build.Item(path, b"{}") for path in install.STAYING]
    items = [build.Item("/b", b"2"), *own, build.Item("/a", b"1")]
    assert json.loads(install.record_item(items).data) == {"/a": "", "/b": ""}
