"""What is wrong with the arguments of a journal, in words. Loaded when something is.

Knows: the limits that setup.py and flash.py keep to.  Must not know: records.
"""


def refuse(j, inbound, timeless):
    """Raise ValueError for the first argument of a journal that is out of range."""
    medium = j.medium
    if j._policy not in (0, 1, 2):
        raise ValueError("policy must be RAISE, DROP_OLDEST or LATEST")
    if timeless:
        raise ValueError("max_age needs a clock: a function that gives seconds")
    if not 1 <= inbound <= 64:
        raise ValueError("inbound must be 1 to 64")
    _power(medium.size, "the segment size", 256)
    _power(medium.page, "the page", 1)
    if medium.count < 3 + medium.spare:
        n = 3 + medium.spare
        raise ValueError("a journal needs %d segments of %d, %d bytes; here are %d segments"
                         % (n, medium.size, n * medium.size, medium.count))
    raise ValueError("the page must be a multiple of 16 from 64 to 256, not %d" % j._page)


def _power(n, what, least):
    if n & n - 1 or n < least or n > 65536:
        raise ValueError("%s must be a power of two from %d to 65536, not %d" % (what, least, n))


def refuse_region(total, first, blocks, block):
    """Raise ValueError for blocks that the device does not have, or segments not of whole ones."""
    if first < 0 or blocks < 1 or first + blocks > total:
        raise ValueError("the device has %d blocks; %d from block %d on were asked for"
                         % (total, blocks, first))
    raise ValueError("a segment is a multiple of the block size, %d" % block)


def refuse_medium(device):
    """Raise ValueError for what is no block device."""
    raise ValueError("device=%r: a block device, as esp32.Partition is" % (device,))
