"""The virtual board behaves as a chip: power, resets, flash, serial line, the real mpremote."""

import os
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from umqtt_board import cli
from umqtt_board.errors import BoardError
from umqtt_board.port.device import why_not_open
from umqtt_board.virtual.board import VirtualBoard

TICKING = """
import time
n = 0
while True:
    n += 1
    print("tick", n)
    time.sleep(0.05)
"""


def test_unchanged_mpremote_lists_runs_and_copies(board, mpremote, put):
    assert mpremote(board, "exec", "print(6 * 7)").strip() == "42"
    put(board, "note.txt", "kept\n")
    assert "note.txt" in mpremote(board, "fs", "ls")
    assert mpremote(board, "cat", ":note.txt") == "kept\n"
    assert mpremote(board, "resume", "exec", "print(1)").strip() == "1"


def test_the_board_looks_like_a_chip(board, mpremote):
    shown = mpremote(board, "exec", "import sys, os; print(sys.path, os.listdir('/'))")
    assert shown.strip() == "['', '.frozen', '/lib'] []"
    shown = mpremote(board, "exec", "import machine; print(len(machine.unique_id()))")
    assert shown.strip() == "6"
    shown = mpremote(board, "exec", "print(sorted(k for k in globals() if k[0] != '_'))")
    assert shown.strip() == "[]"


def test_main_runs_at_power_on_and_is_interrupted_by_mpremote(board, mpremote, put):
    put(board, "boot.py", "print('boot ran')\n")
    put(board, "main.py", TICKING)
    board.cut()
    mark = len(board.printed())
    board.power_on()
    board.wait_for(r"boot ran\ntick 1\ntick 2", since=mark)
    assert "main.py" in mpremote(board, "fs", "ls")
    assert mpremote(board, "exec", "print('n' in globals())").strip() == "False"


def cli_says(capsys, *arguments):
    """What `umqtt-board` prints that ends with status 0."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert not ended.value.code, said
    return said.out


def test_start_says_of_a_board_with_power_that_nothing_runs(board, mpremote, put, capsys):
    put(board, "main.py", TICKING)
    board.cut()
    assert "prompt" not in cli_says(capsys, "start", "--folder", board.folder)
    board.wait_for("tick 2")
    said = cli_says(capsys, "start", "--folder", board.folder)
    assert "it had power already" in said and "prompt" not in said
    mpremote(board, "exec", "print(1)")  # as make backup leaves it
    mark = len(board.printed())
    said = cli_says(capsys, "start", "--folder", board.folder)
    assert "it had power already, and stands at its prompt: " in said
    again = f"umqtt-board stop --folder {board.folder}, then umqtt-board start --folder "
    assert again in said and "tick" not in board.printed()[mark:]


@pytest.mark.parametrize("command", ["backup", "logs", "repl", "stop", "start", "erase"])
def test_a_slip_in_the_name_of_a_folder_makes_no_board(tmp_path, capsys, command):
    slip = tmp_path / "bord"
    with pytest.raises(SystemExit) as ended:
        given = ["--to", str(tmp_path / "copy")] if command == "backup" else []
        cli.main([command, "--folder", str(slip), *given])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"There is no virtual board in {slip}. `umqtt-board flash --folder {slip}` " in said
    assert list(tmp_path.iterdir()) == []


def test_the_port_of_a_board_without_power_is_not_to_be_plugged_in(make_board):
    board = make_board()
    board.power_on()
    board.power_off()
    assert why_not_open(board.port) == (
        f"The virtual board one is off: umqtt-board start --folder {board.folder} gives it power."
    )


def test_files_survive_a_cut(board, mpremote, put):
    put(board, "note.txt", "kept\n" * 2000)
    image = board.flash_image.read_bytes()
    board.cut()
    assert not board.running
    assert board.flash_image.read_bytes() == image
    board.power_on()
    assert mpremote(board, "cat", ":note.txt") == "kept\n" * 2000


def test_a_cut_in_the_middle_of_writing_keeps_what_was_closed(board, mpremote, put):
    put(board, "main.py", """
import machine, os
n = 0
while machine.reset_cause() == machine.HARD_RESET:
    n += 1
    with open("new", "w") as file:
        file.write(str(n) + "\\n" + "x" * 3000)
    os.rename("new", "data")
    print("wrote", n)
""")
    for _ in range(5):
        mark = len(board.printed())
        board.reset()
        board.wait_for(r"wrote 7\n", since=mark)
        board.cut()
        last = int(re.findall(r"wrote (\d+)\n", board.printed())[-1])
        board.power_on()
        code = "f = open('data'); print(f.readline()); print(len(f.read()))"
        number, length = mpremote(board, "exec", code).split()
        assert int(number) >= last and length == "3000"


def test_a_cut_can_be_put_before_any_flash_operation(board, put):
    put(board, "main.py", "import vboard\nvboard.journal.writeblocks(0, bytes(1024), 0)\n"
                          "print('all written')\n")  # fmt: skip
    board.cut_after(3)
    mark = len(board.printed())
    board.reset()
    board.wait_for("power off", since=mark)
    assert not board.running and board.cut_left() == -1
    region = board.flash_image.read_bytes()[0x100000:0x100400]
    assert region == bytes(768) + b"\xff" * 256
    board.power_on()  # it came: no second time
    board.wait_for("all written", since=mark)
    assert board.flash_image.read_bytes()[0x100000:0x100400] == bytes(1024)


def test_reset_causes(board, mpremote, put):
    cause = ("exec", "import machine; print(machine.reset_cause())")
    assert mpremote(board, "resume", *cause).strip() == "1"
    assert mpremote(board, *cause).strip() == "5"
    put(board, "main.py", "import machine\nprint('cause', machine.reset_cause())\n")
    mark = len(board.printed())
    mpremote(board, "reset")
    board.wait_for(r"cause 2\n", since=mark)


def test_soft_reset_at_the_friendly_prompt_runs_main_again(board, put):
    put(board, "main.py", "print('main ran')\n")
    mark = len(board.printed())
    with open(board.port, "r+b", buffering=0) as port:
        port.write(b"\r\x02\r\x04")
        board.wait_for(r"MPY: soft reboot\n[^>]*main ran\n[^>]*>>> ", since=mark)


def test_sys_exit_in_main_is_a_soft_reset(board, put):
    put(board, "main.py", "import machine, sys\nif machine.reset_cause() != 5:\n    sys.exit()\n"
                          "print('again')\n")  # fmt: skip
    mark = len(board.printed())
    board.reset()
    board.wait_for(r"MPY: soft reboot\n[^>]*again", since=mark)


def test_exception_in_boot_keeps_main_from_running(board, put):
    put(board, "boot.py", "1 / 0\n")
    put(board, "main.py", "print('main ran')\n")
    mark = len(board.printed())
    board.reset()
    board.wait_for(r"ZeroDivisionError[^>]*>>> ", since=mark)
    assert "main ran" not in board.printed()[mark:]


def test_a_crashed_interpreter_is_started_again(board):
    mark, pid = len(board.printed()), board.pid
    os.kill(pid, signal.SIGSEGV)
    board.wait_for(r"crashed with signal 11[^>]*>>> ", since=mark)
    assert board.pid not in (pid, None)


@pytest.mark.parametrize("kind", ["kind", "chip"])
def test_watchdog_bites_a_program_that_hangs(make_board, put, kind):
    board = make_board(watchdog=kind)
    board.power_on()
    put(board, "main.py", """
import machine
print("cause", machine.reset_cause())
if machine.reset_cause() != machine.WDT_RESET:
    machine.WDT(timeout=200)
    while True:
        pass
""")
    mark = len(board.printed())
    board.reset()
    board.wait_for(r"cause 2\n[^>]*cause 3\n", since=mark)


@pytest.mark.parametrize("kind, bites", [("kind", False), ("chip", True)])
def test_watchdog_and_the_prompt(make_board, mpremote, kind, bites):
    board = make_board(watchdog=kind)
    board.power_on()
    mpremote(board, "resume", "exec", "import machine; machine.WDT(timeout=300)")
    if bites:
        board.wait_for("watchdog: not fed")
    else:
        time.sleep(1)
        assert "watchdog: not fed" not in board.printed()


@pytest.mark.parametrize("kind, bites", [("kind", False), ("chip", True)])
def test_watchdog_of_a_program_that_gets_no_time(make_board, put, kind, bites):
    board = make_board(watchdog=kind)
    board.power_on()
    put(board, "main.py", """
import machine, time
dog = machine.WDT(timeout=500)
print("cause", machine.reset_cause())
for turn in range(100_000):
    dog.feed()
    if turn % 200 == 0:
        print("turn")
    time.sleep_ms(1)
""")
    mark = len(board.printed())
    board.reset()
    board.wait_for(r"cause 2\n[^>]*turn", since=mark)
    pid = board.pid
    os.kill(pid, signal.SIGSTOP)  # as a machine does that has no time for it
    if bites:
        board.wait_for("watchdog: not fed", since=mark)
        return
    time.sleep(1.5)
    mark = len(board.printed())
    os.kill(pid, signal.SIGCONT)
    board.wait_for("turn\n", since=mark)
    assert board.pid == pid and "watchdog: not fed" not in board.printed()


def test_deep_sleep_ends_with_a_boot(board, put):
    put(board, "main.py", "import machine\nprint('cause', machine.reset_cause())\n"
                          "if machine.reset_cause() == 2:\n    machine.deepsleep(300)\n")
    mark = len(board.printed())
    board.reset()
    board.wait_for(r"cause 2\n[^>]*cause 4\n", since=mark)


def test_a_machine_without_files_for_an_interpreter_is_asked_again(board, put):
    """As one with too many processes: what ends the shortage brings the board back."""
    put(board, "main.py", "import machine\nprint('cause', machine.reset_cause())\n"
                          "if machine.reset_cause() == 2:\n    machine.deepsleep(2000)\n")
    mark = len(board.printed())
    board.reset()
    board.wait_for("cause 2\n", since=mark)
    supervisor = board.status()["supervisor"]
    _, most = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, most))
    for _ in range(2):
        tried = board.wait_for(r"no interpreter could be started \(.*open files", since=mark)
        mark = tried.end()
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (most, most))
    board.wait_for("cause 4\n", since=mark)


def test_a_supervisor_that_has_ended_is_told(board):
    os.kill(board.status()["supervisor"], signal.SIGKILL)
    with pytest.raises(BoardError, match=r"Its supervisor has ended with status -9; .*\.log"):
        VirtualBoard.wait_for(board, "never printed", 1)


def test_journal_region_is_nor_flash_outside_the_filesystem(board, mpremote):
    code = """
import vboard
j = vboard.journal
a = bytearray(2)
print(j.ioctl(4, 0), j.ioctl(5, 0), j.writeblocks(15, b"\\xf0\\xff", 4094))
j.writeblocks(15, b"\\x3c\\x81", 4094)
j.readblocks(15, a, 4094); print(a)
j.ioctl(6, 15); j.readblocks(15, a, 4094); print(a)
for block, offset in ((16, 0), (15, 4095), (-1, 0)):
    try:
        j.writeblocks(block, b"ab", offset)
    except OSError as error:
        print(error.errno)
j.writeblocks(0, b"journal!", 0)
"""
    shown = mpremote(board, "exec", code).split("\n")
    assert shown[0] == "16 4096 None"
    assert shown[1:3] == [r"bytearray(b'0\x81')", r"bytearray(b'\xff\xff')"]
    assert shown[3:6] == ["22"] * 3
    board.cut()
    assert board.flash_image.read_bytes()[0x100000:0x100008] == b"journal!"


def test_sensor_log_is_outside_the_flash_and_only_grows(board, mpremote):
    take = "import vboard; vboard.sensor_log.write(b'take 1\\n'); vboard.sensor_log.seek(0); "
    mpremote(board, "exec", take + "print(vboard.sensor_log.read())")
    board.cut()
    board.erase()
    board.power_on()
    assert mpremote(board, "exec", take + "print(vboard.sensor_log.read())").count("take 1") == 2
    assert board.sensor_log.read_text() == "take 1\n" * 2


def test_name_seed_and_heap(make_board, mpremote):
    boards = [make_board("a", seed=3, heap="200K"), make_board("b", seed=3)]
    seen = set()
    for board in boards:
        board.power_on()
        code = "import vboard, gc; print(vboard.name, vboard.seed, gc.mem_free() + gc.mem_alloc())"
        name, seed, heap = mpremote(board, "exec", code).split()
        assert (name, seed) == (board.name, "3")
        assert int(heap) // 1024 == (199 if name == "a" else 253) or int(heap) > 190_000
        code = "import machine; print(machine.unique_id())"
        seen.add(mpremote(board, "exec", code))
    assert len(seen) == 2


def test_a_board_has_a_number_of_its_own_that_stays(tmp_path):
    """Two folders of one name: with one number they would push each other out of the broker."""
    one, two = (VirtualBoard(tmp_path / n / "unix") for n in "ab")
    assert one.config["uid"] != two.config["uid"]
    assert VirtualBoard(tmp_path / "a" / "unix").config["uid"] == one.config["uid"]


def test_unread_output_does_not_stop_the_board(board, put):
    put(board, "main.py", "for n in range(4000):\n    print(n, 'x' * 60)\nprint('all said')\n")
    with open(board.port, "r+b", buffering=0):  # somebody who never reads
        mark = len(board.printed())
        board.reset()
        board.wait_for("all said", since=mark)


def test_interrupt_sent_while_the_board_starts_is_not_lost(board, put):
    put(board, "main.py", TICKING)
    for _ in range(5):
        board.cut()
        mark = len(board.printed())
        with open(board.port, "r+b", buffering=0) as port:
            board.power_on(wait=False)
            port.write(b"\r\x03")
            board.wait_for(r"KeyboardInterrupt[^>]*>>> ", since=mark)


COLLECTING = """
import gc, time
kept = [[n] for n in range(3000)]
print("collecting")
while True:
    for _ in range(20):
        gc.collect()
    time.sleep_ms(1)
"""


def test_an_interrupt_never_leaves_the_heap_locked(board, put):
    """Raised inside a garbage collection, which this program does nearly always, it would."""
    put(board, "main.py", COLLECTING)
    for _ in range(10):
        board.cut()
        mark = len(board.printed())
        with open(board.port, "r+b", buffering=0) as port:
            board.power_on()
            board.wait_for("collecting", since=mark)
            port.write(b"\r\x03")
            board.wait_for(r"KeyboardInterrupt[^>]*>>> ", since=mark)
            port.write(b"print(len(bytearray(5000)) + 1)\r")
            board.wait_for("5001", since=mark)
        assert "FATAL" not in board.printed()[mark:]


def test_a_program_that_never_sleeps_is_interrupted(board, put):
    put(board, "main.py", "print('busy')\nwhile True:\n    pass\n")
    board.cut()
    mark = len(board.printed())
    with open(board.port, "r+b", buffering=0) as port:
        board.power_on()
        board.wait_for("busy", since=mark)
        port.write(b"\r\x03print(6 * 7)\r")
        board.wait_for("42", since=mark)


def test_board_loses_power_with_its_supervisor_and_with_its_owner(tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-c", "import sys; from umqtt_board.virtual.board import VirtualBoard\n"
         f"b = VirtualBoard({str(tmp_path / 'b')!r}); b.power_on(); print(b.pid, flush=True)\n"
         "sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    _wait_gone(pid)
    board = VirtualBoard(tmp_path / "b")
    board.power_on()
    status = board.status()
    os.kill(status["supervisor"], signal.SIGKILL)
    _wait_gone(status["pid"])
    board.power_on()
    assert board.running
    board.power_off()
    assert not (tmp_path / "b" / "port").is_symlink()


def _wait_gone(pid):
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def test_untied_board_outlives_its_maker(tmp_path):
    code = (
        "from umqtt_board.virtual.board import VirtualBoard\n"
        f"VirtualBoard({str(tmp_path / 'b')!r}, tied=False).power_on()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    board = VirtualBoard(tmp_path / "b")
    assert board.running
    board.power_off()
    assert not board.running


@pytest.mark.parametrize("options, said", [
    ({"heap": "lots"}, "heap 'lots'"),
    ({"journal": 5000}, "multiple of 4096"),
    ({"watchdog": "cat"}, "watchdog 'cat'"),
    ({"name": "a b"}, "Board name 'a b'"),
])  # fmt: skip
def test_wrong_settings_of_a_board_say_what_is_expected(tmp_path, options, said):
    with pytest.raises(BoardError, match=said):
        VirtualBoard(tmp_path / "b", **options)


def test_sizes_are_fixed_once_there_is_an_image(board, tmp_path):
    board.power_off()
    with pytest.raises(BoardError, match="erase the board or set them back"):
        VirtualBoard(board.folder, journal=0x20000).power_on()


def test_damaged_filesystem_is_reported_not_formatted(board, mpremote):
    board.cut()
    with open(board.flash_image, "r+b") as image:
        image.write(b"\x00" * 0x4000)
    mark = len(board.printed())
    board.power_on()
    board.wait_for(r"filesystem in flash is damaged[^>]*>>> ", since=mark)
    assert board.flash_image.read_bytes()[:0x4000] == b"\x00" * 0x4000


def test_a_folder_that_is_no_board_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BoardError, match="no virtual board.*new or an empty folder"):
        VirtualBoard(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def others_may_read(folder):
    """Files of a folder that somebody else than their owner may do anything with."""
    return sorted(path.name for path in folder.iterdir()
                  if path.lstat().st_mode & 0o077 and not stat.S_ISLNK(path.lstat().st_mode))


def test_flash_and_all_that_the_board_says_are_its_owners_alone(make_board, mpremote):
    """Its settings lie there with their passwords; the log has what tools have read of them."""
    umask = os.umask(0)
    try:
        board = make_board()
        # An image and a log of before, as anybody may read.
        board.flash_image.write_bytes(b"\xff" * (0x100000 + 0x10000))
        board.console_log.touch()
        board.power_on()
        mpremote(board, "exec", "print(1)")
        assert others_may_read(board.folder) == ["board.json", "supervisor.log"]
        board.power_off()
        board.erase()
        assert others_may_read(board.folder) == ["board.json", "supervisor.log"]
    finally:
        os.umask(umask)


def test_an_image_is_private_while_it_is_written(make_board, monkeypatch):
    seen = []
    rename = Path.rename

    def look(path, target):
        seen.append(stat.S_IMODE(path.stat().st_mode))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", look)
    umask = os.umask(0)
    try:
        make_board()._make_images()
    finally:
        os.umask(umask)
    assert seen == [0o600]
