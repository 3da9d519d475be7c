"""Writes files into the littlefs of a virtual board's flash image, on MicroPython:
`write_image.py IMAGE SECTORS FOLDER`, with boards/unix/shim on the search path.

Knows: how vstart.py mounts it.  Must not know: what the files are.
"""

import os
import sys

import vfs
from vflash import Region

OPTIONS = {"readsize": 32, "progsize": 32, "lookahead": 32}


def copy(folder, to):
    """Copy a folder's files, those below it, too."""
    for name, kind, *_ in os.ilistdir(folder):
        if kind == 0x4000:
            os.mkdir(to + "/" + name)
            copy(folder + "/" + name, to + "/" + name)
        else:
            with open(folder + "/" + name, "rb") as source, open(to + "/" + name, "wb") as out:
                out.write(source.read())


def main(image, sectors, folder):
    """Format the filesystem and fill it."""
    flash = Region(open(image, "r+b"), 0, int(sectors))
    vfs.VfsLfs2.mkfs(flash, **OPTIONS)
    vfs.mount(vfs.VfsLfs2(flash, **OPTIONS), "/flash")
    copy(folder, "/flash")
    vfs.umount("/flash")


if __name__ == "__main__":
    main(*sys.argv[1:])
