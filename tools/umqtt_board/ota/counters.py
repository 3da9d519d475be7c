"""The counter of commands in a board's /state.json: whatever is done to the board, it never goes
back, for a command that somebody has recorded acts as soon as it is above the counter.

Knows: that file. Must not know: keys, what a command is.
"""

import json
import time

from umqtt_board.flash.build import Item
from umqtt_board.port.device import DeviceError

STATE = "/state.json"
COUNT = "count"
BEFORE = "before"  # counters of the commands obeyed before that one
INTERVAL = "interval_ms"  # that came by command
INTERVAL_WAS = "interval_was"  # that of the settings then: with another one it is over
AHEAD_MS = 30 * 86_400_000  # so far ahead of this computer's clock is no counter to be believed


def now():
    """A counter above all that computers with a right clock have ever given: the time in ms."""
    return time.time_ns() // 1_000_000


def ahead(found):
    """Whether a counter is too far ahead to be believed. Who takes it over obeys nobody else."""
    return found > now() + AHEAD_MS


def read(device):
    """Return the board's counter; None when it has lost it, or never had one."""
    return count(state(_file(device)))


def count(held):
    """The counter in a state; None when there is none to be trusted."""
    found = (held or {}).get(COUNT)
    return found if type(found) is int and found >= 0 else None


def raised(device, least, commands=True, anew=False, renamed=False):
    """Return (Item, whether the board's file is damaged): the file with which the board obeys no
    command up to `least`; None instead of the Item when its own will do.

    commands  whether the board has a key; without one it gets no file that it has not
    anew      whether it gets another key: no command for that one has been recorded, so a counter
              that is too far ahead goes back
    renamed   whether it gets another name: an interval that came by command is over

    A board that has lost its counter shall obey no command of before this instant.
    """
    data = _file(device)
    there = state(data)
    held = count(there)
    if held is None:
        least = max(least, now())
    elif anew and ahead(held):
        least, held = max(least, now()), -1
    item = None
    if renamed and there and there.pop(INTERVAL, None) is not None and held is not None:
        item = Item(STATE, json.dumps(there).encode())
    if (commands or data is not None) and (held is None or held < least):
        item = Item(STATE, json.dumps((there or {}) | {COUNT: least}).encode())
    return item, data is not None and held is None


def forward(there, kept, least, anew=False):
    """The state to write over `there` when `kept` is brought back, both bytes or None: the counter
    is the highest of theirs and `least`, 0 for a board that takes no commands. One in `kept` that
    is too far ahead does not count: somebody has changed the copy; one in `there` does not with
    `anew`, see raised()."""
    old = state(kept) or {}
    old.pop(BEFORE, None)  # reports say it to whoever waits for a command: not from a copy
    held, brought = count(state(there)), count(old)
    if brought is not None and ahead(brought):
        brought = None
    if anew and held is not None and ahead(held):
        held = None
    known = [found for found in (held, brought) if found is not None]
    return json.dumps(old | {COUNT: max([least, *known])}).encode()


def _file(device):
    device.doing = f"looking at {STATE}"
    try:
        return device.read_file(STATE)
    except DeviceError as error:
        if error.of_noise:
            raise
        return b""  # it may be there, and cannot be read: damaged


def state(data):
    """The dict in the bytes of the board's file, None when it is damaged or not there."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
