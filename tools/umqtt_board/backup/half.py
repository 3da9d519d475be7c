"""A restore that was cut: what the board holds then is half of a copy, and no messages of its own.

Knows: the file by which the board tells so. Must not know: what a copy has in it.
"""

PATH = "/restore.half"
TEXT = "an earlier restore onto the board was cut, and what it holds is half of that copy"


def begin(device, copy):
    """From now on the board holds half of a copy. copy: a text that says which one."""
    device.doing = "beginning to write"
    device.run(f"_f = open({PATH!r}, 'w')\n_f.write({copy!r})\n_f.close()")


def end(device):
    """The board holds a whole copy, or nothing any more."""
    device.doing = "ending what was written"
    device.run(f"import os\ntry:\n os.remove({PATH!r})\nexcept OSError:\n pass")


def of(device):
    """Of which copy the board holds half, as begin() was told; None if it does not."""
    device.doing = "looking for a restore that was cut"
    data = device.read_file(PATH)
    return None if data is None else data.decode(errors="replace")
