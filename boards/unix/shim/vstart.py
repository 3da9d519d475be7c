"""From power-on to the prompt: what `_boot.py` and the C main loop do on a chip.

Knows the order of things: the modules that replace built-in ones are loaded,
littlefs takes `/`, a ROMFS /rom, boot.py runs, main.py runs unless boot.py failed or the host
is about to use the raw REPL. Knows nothing of what these files do.
"""

import gc
import os
import sys

import vboard
import vfs

# Printed between the last line of the program and the first prompt, cut out by the supervisor.
PROMPT_MARK = "\x1d[prompt]\x1d"


def _load_replacements(folder):
    """Import every module beside this one now: later they are out of reach, under the old root.
    The one for a ROMFS takes heap that a board without it has."""
    for entry in os.listdir(folder):
        if entry.endswith(".py") and (vboard.rom or entry != "vrom.py"):
            __import__(entry[:-3])
    vboard.complete(sys.modules["machine"])


def _is_blank():
    """Whether the start of the flash was never written: only then is formatting safe."""
    buf = bytearray(vboard.SECTOR)
    for block in range(2):
        vboard.flash.readblocks(block, buf)
        if buf != b"\xff" * vboard.SECTOR:
            return False
    return True


def _mount_flash():
    # Sizes as on esp32 and rp2 (extmod/vfs_lfs.c).
    options = {"readsize": 32, "progsize": vboard.program_size, "lookahead": 32}
    if _is_blank():
        vfs.VfsLfs2.mkfs(vboard.flash, **options)
    try:
        filesystem = vfs.VfsLfs2(vboard.flash, **options)
    except OSError as error:
        print("The filesystem in flash is damaged (%s): erase the board, flash it anew." % error)
        return False
    vfs.umount("/")
    vfs.mount(filesystem, "/")
    os.chdir("/")
    sys.path[:] = ["", ".frozen", "/lib"]
    if vboard.rom:
        sys.modules["vrom"].mount_rom()
    return True


def _run(filename, names):
    """Run one file. Returns False where a chip would not go on to the next one."""
    try:
        os.stat(filename)
    except OSError:
        return True
    try:
        execfile(filename, names)  # noqa: F821  (a built-in of MicroPython)
    except SystemExit:
        vboard.soft_reset()
    except BaseException as error:
        sys.print_exception(error)
        return False
    return True


def start(names):
    """Bring the board to its prompt. `names`: the globals of `__main__`."""
    _load_replacements(os.getenv("VBOARD_SHIM"))
    mounted = _mount_flash()
    gc.collect()
    try:
        vboard._started()
        if mounted and _run("boot.py", names) and os.getenv("VBOARD_MAIN") == "1":
            _run("main.py", names)
    finally:
        print(PROMPT_MARK, end="")
