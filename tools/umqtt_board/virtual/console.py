"""What the interpreter of the virtual board prints, made into what a chip's serial line carries.

Pure: bytes in, bytes out. Knows the unix port's REPL and in what it differs from a
chip's. It must not know processes, terminals or files.

Two things differ. The unix port writes a bare newline where a chip writes CR LF;
outside the raw REPL (whose answers may be binary) that is put right here. And after
a soft reset asked for in the raw REPL a chip comes back *in* the raw REPL, while a
new process starts in the friendly one: everything from the mark that ends the
boot to the raw REPL's greeting is left out.
"""

PROMPT_MARK = b"\x1d[prompt]\x1d"  # printed by boards/unix/shim/vstart.py before the first prompt
RAW_GREETING = b"raw REPL; CTRL-B to exit\r\n"
FRIENDLY_GREETING = b'Type "help()" for more information.\r\n'
_LONGEST = max(len(RAW_GREETING), len(FRIENDLY_GREETING))


class Console:
    """Filter of one interpreter's output.

    `raw` says whether the REPL is (or will next be) the raw one. `at_prompt` becomes
    True when the boot is over. With `raw=True` at the start the caller must send
    Ctrl-A to the interpreter as soon as `at_prompt` is True.
    """

    def __init__(self, raw=False):
        self.raw = raw
        self.at_prompt = False
        self._held = b""  # bytes that may be the beginning of the mark or the greeting
        self._tail = b""  # last bytes shown, to find a greeting cut in two
        self._swallow = False

    def feed(self, data):
        """Take output of the interpreter; return the bytes that the serial line shows."""
        data = self._held + data
        self._held = b""
        if not self.at_prompt:
            before, mark, data = data.partition(PROMPT_MARK)
            if not mark:
                return self._shown(self._hold_back(before, PROMPT_MARK))
            self.at_prompt = True
            self._swallow = self.raw
            return self._shown(before) + self.feed(data)
        if self._swallow:
            at = data.find(RAW_GREETING)
            if at < 0:
                self._held = data[-_LONGEST:]
                return b""
            self._swallow = False
            data = data[at:]
        return self._shown(data)

    def close(self):
        """The interpreter has ended: return what was held back."""
        held, self._held = self._held, b""
        return b"" if self._swallow else self._shown(held)

    def _hold_back(self, data, mark):
        """Keep an end of `data` that could be the beginning of `mark`; return the rest."""
        for length in range(min(len(mark) - 1, len(data)), 0, -1):
            if data.endswith(mark[:length]):
                self._held = data[-length:]
                return data[:-length]
        return data

    def _shown(self, data):
        if not data:
            return data
        last = self._tail[-1:]
        window = self._tail + data
        raw, friendly = window.rfind(RAW_GREETING), window.rfind(FRIENDLY_GREETING)
        cooked = data if self.raw else _with_returns(data, last)
        if raw != friendly:  # both are -1 where there is none
            self.raw = raw > friendly
        self._tail = window[-(_LONGEST - 1):]
        return cooked


def _with_returns(data, last):
    """Put CR before each LF that has none. `last`: the byte before `data`."""
    fixed = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if last == b"\r" and data.startswith(b"\n"):
        fixed = fixed[1:]
    return fixed
