"""A NOR flash that can lose power: the journal's adversary. Runs on both interpreters.

Knows: what flash does to bits, torn programs and erases, weak bits, stuck sectors.
Must not know: what is stored on it.

    flash = NOR(blocks=16, page=256)       # the extended block device protocol
    flash.cut_after(7, at=3)               # dies in operation 7 from here, 3 bytes into it
    ... PowerCut is raised; every operation raises it until
    flash.boot()                           # power is back; weak bits are drawn anew

A bit that a torn operation left between 0 and 1 is weak: it reads as one or the other until the
next boot, then is drawn again, until it is programmed to 0 or erased.
"""

# how a program or an erase is torn
PREFIX = 0  # bytes in order; the byte at the cut has weak bits
SUBSET = 1  # any of the bits still to be changed: changed, weak or untouched
INVISIBLE = 2  # as SUBSET, but all that was touched is weak and reads as before on the next boot
LOOKS_DONE = 3  # reads as complete on the next boot, all of it weak

EINVAL = 22
EIO = 5


class PowerCut(Exception):
    """The power is gone."""


class Random:
    """The same numbers on both interpreters."""

    def __init__(self, seed):
        self._state = (seed * 2654435761 + 88172645463325252) & 0x7FFFFFFF or 1

    def bits(self, n):
        """n <= 16 random bits."""
        x = self._state
        x = (x ^ x << 13) & 0x7FFFFFFF
        x ^= x >> 17
        x = (x ^ x << 5) & 0x7FFFFFFF
        self._state = x
        return x >> 8 & (1 << n) - 1

    def below(self, n):
        """0 <= number < n <= 65536."""
        return self.bits(16) * n >> 16


class NOR:
    """blocks erase units of block bytes; page: program unit; once: no page twice."""

    def __init__(self, blocks=16, block=4096, page=1, once=False, seed=1, data=None):
        self.block = block
        self.blocks = blocks
        self.page = page
        self.once = once
        self.data = data or bytearray(b"\xff" * (blocks * block))
        self.random = Random(seed)
        self.weak = {}  # address: bits that are between 0 and 1
        self._calm = set()  # addresses that the next boot does not draw yet
        self.stuck = set()  # blocks that neither erase nor program
        self.failing = False  # what a stuck block does: False nothing, True an error, too
        self.programs = self.programmed = self.reads = self.erases = 0
        self.worn = [0] * blocks  # erases of each block
        self.pages = set()  # programmed since their erase, where that is only allowed once
        self.mode = PREFIX
        self.dead = False
        self.operations = 0  # programs and erases since the last boot
        self._cut = self._at = 0
        self.log = None  # a list to note the operations in: what is programmed, b"" an erase

    # The block device protocol.

    def ioctl(self, op, arg):
        """4: blocks, 5: bytes of a block, 6: erase block arg."""
        if op == 4:
            return self.blocks
        if op == 5:
            return self.block
        if op == 6:
            return self.erase(arg)
        return 0

    def readblocks(self, n, buf, off=0):
        """Fill buf from byte off of block n; it may run on into the next block."""
        if self.dead:
            raise PowerCut()
        at = self._bounds(n, off, len(buf))
        self.reads += 1
        buf[:] = memoryview(self.data)[at : at + len(buf)]
        return 0

    def writeblocks(self, n, buf, off=None):
        """Program; without off erase first, as the protocol says."""
        if off is None:
            for i in range(len(buf) // self.block):
                self.erase(n + i)
            off = 0
        at = self._bounds(n, off, len(buf))
        if at % self.page or len(buf) % self.page:
            raise OSError(EINVAL, "program of %d bytes at %d, the page is %d"
                          % (len(buf), at, self.page))
        cut = self._count(buf)
        self.programs += 1
        self.programmed += len(buf)
        if self.once:
            self._only_once(at, len(buf))
        if at // self.block in self.stuck:
            if self.failing:
                raise OSError(EIO)
        elif cut < 0:
            for i in range(len(buf)):
                self._program(at + i, buf[i])
        else:
            self._tear_program(at, buf, cut)
        if cut >= 0:
            self._die()
        return 0

    def erase(self, n):
        """Set block n to 0xFF."""
        at = self._bounds(n, 0, self.block)
        cut = self._count(b"")
        self.erases += 1
        self.worn[n] += 1
        if n in self.stuck:
            if self.failing:
                raise OSError(EIO)
        elif cut < 0:
            self._wipe(at, self.block)
        else:
            self._tear_erase(at, cut)
        for page in range(at // self.page, (at + self.block) // self.page):
            self.pages.discard(page)
        if cut >= 0:
            self._die()
        return 0

    # Power.

    def cut_after(self, operation, at=0, mode=PREFIX):
        """Die in the operation-th program or erase from now (1 is the next one), at bytes
        into it; at = its length: just after it."""
        self.operations = 0
        self._cut = operation
        self._at = at
        self.mode = mode

    def boot(self):
        """Power is back: draw every weak bit."""
        self.dead = False
        self.operations = self._cut = 0
        for at in sorted(self.weak):
            if at not in self._calm:
                mask = self.weak[at]
                self.data[at] = self.data[at] & ~mask | self.random.bits(8) & mask
        self._calm = set()

    def clone(self):
        """The same flash in the same state, to try two ways from here."""
        other = NOR(self.blocks, self.block, self.page, self.once, 1, bytearray(self.data))
        other.random._state = self.random._state
        other.weak = dict(self.weak)
        other._calm = set(self._calm)
        other.stuck = set(self.stuck)
        other.failing = self.failing
        other.pages = set(self.pages)
        other.worn = list(self.worn)
        return other

    def _count(self, program):
        """Number of the byte at which this operation dies, -1 if it does not."""
        if self.dead:
            raise PowerCut()
        self.operations += 1
        if self.log is not None:
            self.log.append(bytes(program))
        return self._at if self.operations == self._cut else -1

    def _die(self):
        self.dead = True
        raise PowerCut()

    # Bits.

    def _bounds(self, n, off, length):
        at = n * self.block + off
        if not 0 <= n < self.blocks or off < 0 or at + length > len(self.data):
            raise OSError(EINVAL, "block %d, offset %d, %d bytes: outside the device"
                          % (n, off, length))
        return at

    def _only_once(self, at, n):
        """Not an OSError, which a journal would take for a worn page and go around."""
        for page in range(at // self.page, (at + n) // self.page):
            assert page not in self.pages, "page %d is programmed twice" % page
            self.pages.add(page)

    def _program(self, at, byte):
        self.data[at] &= byte
        if at in self.weak:
            self._set_weak(at, self.weak[at] & byte)

    def _set_weak(self, at, mask):
        if mask:
            self.weak[at] = mask
        else:
            self.weak.pop(at, 0)

    def _wipe(self, at, n):
        for i in range(at, at + n):
            self.data[i] = 255
            if i in self.weak:
                del self.weak[i]

    def _tear_program(self, at, buf, cut):
        if self.mode == PREFIX:
            for i in range(min(cut, len(buf))):
                self._program(at + i, buf[i])
            if cut < len(buf):
                self._blur(at + cut, self.data[at + cut] & ~buf[cut] & self.random.bits(8))
            return
        for i in range(len(buf)):
            self._tear_byte(at + i, self.data[at + i] & ~buf[i], i < cut)

    def _tear_byte(self, at, bits, early):
        """bits are the ones still to be changed; early: before the byte of the cut."""
        if self.mode == SUBSET:
            done = bits & (self.random.bits(8) | (255 if early and self.random.bits(1) else 0))
            self._program(at, ~done & 255)
            bits = bits & ~done & self.random.bits(8)
        self._blur(at, bits)
        if self.mode == LOOKS_DONE:
            self.data[at] &= ~bits

    def _blur(self, at, bits):
        if bits:
            self.weak[at] = self.weak.get(at, 0) | bits
            if self.mode >= INVISIBLE:
                self._calm.add(at)

    def _tear_erase(self, at, cut):
        for i in range(at, at + self.block):
            if self.mode == PREFIX and i - at >= cut:
                continue
            gone = 255 if self.mode == PREFIX or self.mode == LOOKS_DONE else self.random.bits(8)
            blur = 255 & ~self.data[i] & self.random.bits(8)
            if self.mode == INVISIBLE:
                gone = 0
            self.data[i] |= gone
            if self.mode != PREFIX:
                self._blur(i, blur)


class Encrypted:
    """A NOR as esp32's flash encryption shows it: blank reads as noise, and what is programmed
    goes through a key stream. A torn program is torn in the plain text, too, where AES would
    make noise of its 16 bytes: what could pass for a record is left to do so."""

    page = 16

    def __init__(self, flash):
        self.flash = flash
        n = len(flash.data)
        self._key = bytes([(i * 7 + (i >> 4) * 13 + (i >> 9)) & 255 for i in range(n)])

    def ioctl(self, op, arg):
        """As NOR."""
        return self.flash.ioctl(op, arg)

    def readblocks(self, n, buf, off=0):
        """As NOR, decrypted."""
        self.flash.readblocks(n, buf, off)
        buf[:] = self._crypt(n, off, buf)
        return 0

    def writeblocks(self, n, buf, off=0):
        """As NOR, encrypted first."""
        return self.flash.writeblocks(n, self._crypt(n, off, buf), off)

    def _crypt(self, n, off, buf):
        at = n * self.flash.block + off
        a = int.from_bytes(bytes(buf), "big")
        b = int.from_bytes(self._key[at : at + len(buf)], "big")
        return (a ^ b).to_bytes(len(buf), "big")
