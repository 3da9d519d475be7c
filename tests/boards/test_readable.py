"""`make logs` shows what the board's program says, not what host tools and the REPL say."""

import subprocess
import sys

from umqtt_board.port.readable import Readable

# As a flashing leaves it: power on, the tool takes the board over twice, resets, the program runs.
LOG = """\r
[board 2026-01-01T00:00:00] power on, process 1\r
Traceback (most recent call last):\r
  File "main.py", line 3, in <module>\r
  File "app.py", line 24, in <module>\r
KeyboardInterrupt: \r
MicroPython v1 on 2026-01-01; linux version\r
Type "help()" for more information.\r
>>> \r
>>> \r
raw REPL; CTRL-B to exit\r
>OK\r
MPY: soft reboot\r
\r
[board 2026-01-01T00:00:01] soft reset, process 2\r
raw REPL; CTRL-B to exit\r
>R\x01M-\x00\x01\x01\x04('micropython', (1, 29, 0))\r
\x04\x04>OK\x04Traceback (most recent call last):\r
  File "<stdin>", line 1\r
\x04\x04>\r
[board 2026-01-01T00:00:02] hard reset, process 3\r
umqtt: one boot 1\r
Traceback (most recent call last):\r
  File "app.py", line 24, in <module>\r
ValueError: x\r
umqtt: first publish acknowledged seq=1\r
"""
SHOWN = [
    "[board 2026-01-01T00:00:00] power on, process 1",
    "[board 2026-01-01T00:00:02] hard reset, process 3",
    "umqtt: one boot 1",
    "Traceback (most recent call last):",
    '  File "app.py", line 24, in <module>',
    "ValueError: x",
    "umqtt: first publish acknowledged seq=1",
]


def test_only_what_the_program_says_is_shown_however_the_text_is_cut():
    for size in (1, 2, 7, 50, len(LOG)):
        readable = Readable()
        pieces = (LOG[at : at + size] for at in range(0, len(LOG), size))
        assert [line for piece in pieces for line in readable.feed(piece)] == SHOWN, size


def test_logs_of_a_board_that_was_talked_to(board, mpremote, put):
    put(board, "main.py", "print('hello from main')\n")
    mpremote(board, "exec", "print('answer', 6 * 7)")
    mark = len(board.printed())
    mpremote(board, "reset")
    board.wait_for("hello from main", since=mark)
    command = [sys.executable, "-m", "umqtt_board", "logs", "--no-follow", "--folder"]
    done = subprocess.run(
        [*command, str(board.folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "hello from main" in done.stdout.splitlines()
    assert not [word for word in ("raw REPL", "answer 42", "\x04", ">>>") if word in done.stdout]
