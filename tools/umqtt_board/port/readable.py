"""What a board printed, without what was said between host tools and its raw REPL.

Pure: text in, lines out, in pieces of any size.
Knows: the greetings that begin and end the raw REPL (MicroPython, shared/runtime/pyexec.c), the
traceback of a program that a tool has interrupted, the notes of the virtual board's supervisor.
Must not know: files, ports, what the lines mean.
"""

RAW = "raw REPL; CTRL-B to exit"
NOTE = "[board "  # a line of the supervisor; after it the interpreter is another one
SOFT = "soft reset"  # ... except that a soft reset asked for in the raw REPL comes back there
PROMPT = ">>>"
BANNER = ("MicroPython ", 'Type "help()"')
TRACEBACK = "Traceback (most recent call last):"
INTERRUPTED = "KeyboardInterrupt:"


class Readable:
    """Filter of a console log: feed it text, it returns whole lines worth reading."""

    def __init__(self):
        self._raw = False
        self._pending = ""
        self._traceback = []  # of an exception whose name has not come yet

    def feed(self, text):
        """Take text as it comes; return the lines that are complete and worth reading."""
        *lines, self._pending = (self._pending + text).replace("\r", "").split("\n")
        return [shown for line in lines for shown in self._shown(line)]

    def _shown(self, line):
        if line == TRACEBACK and not self._raw:
            held, self._traceback = self._traceback, [line]
            return held
        if self._traceback and line.startswith("  "):
            self._traceback.append(line)
            return []
        held, self._traceback = self._traceback, []
        if held and line.startswith(INTERRUPTED):
            return []  # somebody took the board over to talk to it
        return [*held, line] if self._worth(line) else held

    def _worth(self, line):
        if RAW in line:
            self._raw = True
        elif line.startswith(NOTE):
            self._raw = self._raw and SOFT in line
            return not self._raw
        elif line.startswith(BANNER):
            self._raw = False  # the friendly prompt greets
        elif not self._raw:
            return any(word != PROMPT for word in line.split())
        return False
