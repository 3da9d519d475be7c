"""What the demo prints while it runs: a live table on a terminal, plain lines elsewhere.

Knows rich and lines of text. Must not know how the numbers come about.
"""

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

STYLES = {"fault": "bold red", "back": "green", "good": "bold green", "bad": "bold red",
          "info": "default"}
MARKS = {"fault": "✗", "back": "↺", "good": "✓", "bad": "✗", "info": "·"}
EVERY_S = 10.0


class Plain:
    """One line per event, and one of progress every ten seconds."""

    def __init__(self, out=None):
        self._out = out or sys.stdout
        self._next = 0.0

    def event(self, seconds, text, kind):
        """An event, `seconds` after the start; kind as in timeline.Timeline.tell."""
        mark = MARKS[kind] if self._can(MARKS[kind]) else "*"
        print("%6.1f s  %s %s" % (seconds, mark, text), file=self._out, flush=True)

    def _can(self, text):
        try:
            text.encode(self._out.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    def state(self, seconds, devices, parts):
        """Progress: devices [{"name", "on", "link", "taken", "wanted", "rows"}], parts
        {name of a server process: whether it runs}."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        counts = "  ".join("%s %d/%d" % (d["name"], d["taken"], d["rows"]) for d in devices)
        print("%6.1f s    taken/in the table: %s" % (seconds, counts), file=self._out, flush=True)

    def close(self):
        """Nothing more will come."""


class Terminal:
    """Events scroll by above a table that is kept up to date."""

    def __init__(self, console=None):
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def event(self, seconds, text, kind):
        line = Text("%6.1f s  " % seconds, style="dim")
        line.append("%s %s" % (MARKS[kind], text), style=STYLES[kind])
        self._console.print(line)

    def state(self, seconds, devices, parts):
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("device", "power", "link", "readings taken", "", "in the table", ""):
            table.add_column(name, justify="right" if not name else "left")
        for d in devices:
            table.add_row(d["name"], self._dot(d["on"]), self._dot(d["link"]),
                          ProgressBar(total=d["wanted"], completed=d["taken"], width=24,
                                      complete_style="blue"),
                          str(d["taken"]),
                          ProgressBar(total=d["wanted"], completed=d["rows"], width=24,
                                      complete_style="green"), str(d["rows"]))
        foot = Text("%6.1f s  " % seconds, style="dim")
        for name, up in parts.items():
            foot.append_text(self._dot(up))
            foot.append(" %s   " % name)
        self._live.update(Group(Text(), table, foot), refresh=True)

    @staticmethod
    def _dot(on):
        return Text("●", style="green") if on else Text("○", style="bold red")

    def close(self):
        self._live.stop()


def choose():
    """A Terminal on a terminal, else Plain."""
    return Terminal() if Console().is_terminal else Plain()


def verdict_table(verdicts, console=None):
    """Print the table of the end: one line per device."""
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    table = Table(title="Readings, from sensor to table", title_justify="left")
    for name in ("device", "readings taken", "cut off while being taken", "rows in silver",
                 "missing", "duplicates removed", "gaps", "exact"):
        table.add_column(name, justify="left" if name == "device" else "right",
                         overflow="fold")
    for v in verdicts:
        gaps = sum(last - first + 1 for _, first, last in v.gaps)
        numbers = v.taken, v.cut_off, v.rows, len(v.missing), v.duplicates, gaps
        table.add_row(v.device, *map(str, numbers),
                      Text("yes", style="green") if v.ok else Text("NO", style="bold red"))
    console.print(table)
