"""A littlefs in RAM that is small, and a FileStore on it.

Knows: MicroPython's VfsLfs2.  Must not know: what a store keeps there.
"""

import os

import vfs
from umqtt_min import FileStore

_BLOCK = 4096

_memory = memoryview(bytearray(40 * _BLOCK))  # once: the disks follow one another


class Disk:
    """A block device in RAM, with a littlefs on it, mounted at /full."""

    def __init__(self, blocks, block=_BLOCK):
        self._blocks = blocks
        self._block = block
        self._mounted = False
        self.format()

    def format(self):
        """Make it empty."""
        self.off()
        vfs.VfsLfs2.mkfs(self)
        self.boot()

    def ioctl(self, op, arg):
        if op == 4:
            return self._blocks
        if op == 5:
            return self._block
        return 0

    def readblocks(self, n, buf, off=0):
        off += n * self._block
        buf[:] = _memory[off : off + len(buf)]

    def writeblocks(self, n, buf, off=0):
        off += n * self._block
        _memory[off : off + len(buf)] = buf

    def boot(self):
        """Mount it, anew."""
        self.off()
        vfs.mount(vfs.VfsLfs2(self), "/full")
        self._mounted = True

    def off(self):
        """Leave no mount behind."""
        if self._mounted:
            vfs.umount("/full")
        self._mounted = False

    def fill(self, keep=0):
        """Another file, until no more than that many blocks are free."""
        try:
            with open("/full/log.txt", "ab") as file:
                while not keep or os.statvfs("/full")[4] > keep:
                    file.write(bytes(_BLOCK))
                    file.flush()
        except OSError as e:
            assert e.errno == 28, repr(e)
        try:
            for i in range(0 if keep else 9):  # what is left, block by block
                with open("/full/%d.txt" % i, "wb") as file:
                    file.write(bytes(_BLOCK // 2))
        except OSError as e:
            assert e.errno == 28, repr(e)

    def empty(self):
        """Remove what filled it."""
        for name in os.listdir("/full"):
            if name.endswith(".txt"):
                os.remove("/full/" + name)


def on_disk(blocks, test, block=_BLOCK):
    """Run a test with a disk of so many blocks."""
    disk = Disk(blocks, block)
    try:
        test(disk)
    finally:
        disk.off()


def folder(**options):
    """The store, as after a reboot."""
    return FileStore("/full/mq", **options)
