"""MicroPython's `vfs` module for CPython: mounts are noted, nothing can be found in them.

Knows: nothing but the calls.  Must not know: file systems.
"""

_mounted = {}


def mount(fsobj, mount_point):
    """Note what is mounted where; OSError when something is already."""
    if mount_point in _mounted:
        raise OSError(1, "EPERM")
    fsobj.mount(False, False)
    _mounted[mount_point] = fsobj


def umount(mount_point):
    """Forget it; OSError when nothing is mounted there."""
    if mount_point not in _mounted:
        raise OSError(22, "EINVAL")
    _mounted.pop(mount_point).umount()
