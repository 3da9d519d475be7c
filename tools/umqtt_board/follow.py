"""The step that watches a board start until its first message is acknowledged.

Knows the line that the firmware prints then. It must not know MQTT.
"""

import re
import time

from umqtt_board.errors import BoardError

ACKNOWLEDGED = re.compile(r"first publish acknowledged")
BANNER = ("MicroPython ", 'Type "help()"')
PROMPT = ">>> "  # main.py has ended
TIMEOUT_S = 90


def follow(device, show, timeout=TIMEOUT_S):
    """Reset the board and show what it prints, line by line, until the first acknowledgement.

    `show` is given each line. Raises BoardError when `timeout` seconds pass without it.
    """
    device.doing = "starting"
    device.hard_reset(keep_open=True)
    deadline = time.monotonic() + timeout
    pending, said = "", []
    while time.monotonic() < deadline:
        pending += device.read().decode(errors="replace")
        *lines, pending = pending.replace("\r", "").split("\n")
        for line in lines:
            if line.strip() and not line.startswith(BANNER):
                said = [*said[-2:], line]
                show(line)
            if ACKNOWLEDGED.search(line):
                return
        if pending.startswith(PROMPT):
            raise BoardError(
                f"The board on {device.port} is installed, but its program has ended. What it "
                f"said before: {' / '.join(said)}"
            )
    raise BoardError(
        f"The board on {device.port} is installed, but no publish was acknowledged within "
        f"{timeout} s. Its last line: {said[-1:]}. See to the broker and the settings; "
        "`make logs` shows more."
    )
