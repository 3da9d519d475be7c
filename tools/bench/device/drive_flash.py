"""umqtt_min with FlashStore on flash that is a bytearray: what the code costs, not the chip.
Buffers of 512 bytes each, 1 KiB together."""

import drive_umqtt_min as plain
import micropython

_names = {}

OPS = plain.OPS + ("window",)
do = plain.do
receive = plain.receive


# Programming clears bits and never sets one. Compiled here: a .mpy with native code fits one
# architecture only.
_AND = """
@micropython.viper
def program(dst, at: int, src, n: int):
    d = ptr8(dst)
    s = ptr8(src)
    for i in range(n):
        d[at + i] &= s[i]
"""
_scope = {"micropython": micropython}
try:
    exec(_AND, _scope)
except SyntaxError:  # no native code emitter: the 32-bit interpreter, where nothing is timed
    exec(_AND.replace("@micropython.viper", "").replace("ptr8", ""), _scope)
program = _scope["program"]


class Flash:
    """A NOR flash of 4096-byte sectors and pages of 256, as rp2.Flash shows it. Nothing here
    allocates: what is measured is the journal."""

    def __init__(self, sectors):
        self._bytes = bytearray(4096 * sectors)
        self._blank = b"\xff" * 4096
        self._sectors = sectors
        for i in range(sectors):
            self.ioctl(6, i)

    def readblocks(self, block, buf, off=0):
        _names["copy"](buf, 0, self._bytes, block * 4096 + off, len(buf))

    def writeblocks(self, block, buf, off=0):
        program(self._bytes, block * 4096 + off, buf, len(buf))

    def ioctl(self, op, arg):
        if op == 4:
            return self._sectors
        if op == 5:
            return 4096
        if op == 6:
            self._bytes[arg * 4096 : arg * 4096 + 4096] = self._blank
        return 0


_names["flash"] = Flash(8)  # before anybody looks at the heap


def load():
    plain.load("FlashStore")
    from umqtt_min.store.segment_log import copy  # allocates nothing

    _names["copy"] = copy


def _make():
    store = plain._names["store"](_names["flash"])
    store.open()
    store.close()


def connect(host, port, name):
    # There is a journal, as on any board but a new one: its replay is loaded, too.
    _make()
    return plain.connect(host, port, name, plain._names["store"](_names["flash"]), buffer_size=512)
