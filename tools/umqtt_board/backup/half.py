"""A restore that was cut: what the board holds then is half of a copy, and no messages of its own.

Knows: the file by which the board tells so. Must not know: what a copy has in it.
"""

from umqtt_board.flash import install

PATH = "/restore.half"
TEXT = "an earlier restore onto the board was cut, and what it holds is half of that copy"


def begin(device):
    """From now on the board holds half of a copy."""
    device.doing = "beginning to write"
    device.run(f"open({PATH!r}, 'w').close()")


def end(device):
    """The board holds a whole copy, or nothing any more."""
    device.doing = "ending what was written"
    device.run(f"import os\ntry:\n os.remove({PATH!r})\nexcept OSError:\n pass")


def there(device):
    """Whether the board holds half of a copy."""
    return bool(install.hashes(device, [PATH])[PATH])
