"""MicroPython's module rp2, as far as the flash goes, over the virtual board's filesystem flash.

Runs on the virtual board. Knows: the block protocol of rp2.Flash (ports/rp2/rp2_flash.c), which
checks no bounds. Must not know: what lies in the flash.
"""

import vboard


class Flash:
    """All of it, or `len` bytes from `start` on."""

    def __init__(self, start=0, len=None):
        self.first = start // 4096
        self.count = (len or vboard.flash.size) // 4096

    def readblocks(self, block, buf, off=0):
        vboard.flash.readblocks(self.first + block, buf, off)

    def writeblocks(self, block, buf, off=None):
        if off is None:
            vboard.flash.writeblocks(self.first + block, buf)
        else:
            vboard.flash.writeblocks(self.first + block, buf, off)

    def ioctl(self, op, arg):
        if op == 4:
            return self.count
        if op == 5:
            return 4096
        if op == 6:
            vboard.flash.ioctl(6, self.first + arg)
        return 0
