"""The NOR emulator does to bits what flash does: otherwise its verdicts are worth nothing.

Knows: nor.py.  Must not know: the journal.
"""

from nor import INVISIBLE, LOOKS_DONE, NOR, PREFIX, SUBSET, Encrypted, PowerCut


def raises(kind, work, *args):
    try:
        work(*args)
    except kind:
        return True
    return False


def read(flash, block, off, n):
    buf = bytearray(n)
    flash.readblocks(block, buf, off)
    return bytes(buf)


def test_program_only_clears_bits():
    flash = NOR(2)
    flash.writeblocks(0, b"\xf0", 5)
    flash.writeblocks(0, b"\x3c", 5)
    assert read(flash, 0, 4, 3) == b"\xff\x30\xff"


def test_erase_sets_one_block():
    flash = NOR(2)
    flash.writeblocks(0, b"\x00", 0)
    flash.writeblocks(1, b"\x00", 0)
    flash.ioctl(6, 1)
    assert read(flash, 0, 0, 1) == b"\x00" and read(flash, 1, 0, 1) == b"\xff"
    assert flash.worn == [0, 1]


def test_bounds_and_alignment_are_errors():
    flash = NOR(2, page=256)
    assert raises(OSError, flash.writeblocks, 0, bytes(16), 0)
    assert raises(OSError, flash.writeblocks, 0, bytes(256), 8)
    assert raises(OSError, flash.writeblocks, 1, bytes(256), 4096)
    assert raises(OSError, flash.writeblocks, -1, bytes(256), 0)
    assert raises(OSError, flash.readblocks, 2, bytearray(1), 0)
    assert raises(OSError, flash.ioctl, 6, 2)
    flash.writeblocks(1, bytes(256), 4096 - 256)


def test_once_takes_no_second_program_of_a_page_until_it_is_erased():
    flash = NOR(2, page=16, once=True)
    flash.writeblocks(0, bytes(16), 16)
    assert raises(AssertionError, flash.writeblocks, 0, bytes(16), 16)
    flash.ioctl(6, 0)
    flash.writeblocks(0, b"\xff" * 16, 16)
    assert raises(AssertionError, flash.writeblocks, 0, b"\xff" * 16, 16)
    flash.cut_after(1, 0, INVISIBLE)
    assert raises(PowerCut, flash.writeblocks, 0, bytes(16), 32)
    flash.boot()
    assert raises(AssertionError, flash.writeblocks, 0, bytes(16), 32), "it was begun"


def test_encrypted_flash_reads_back_and_blank_is_noise():
    flash = Encrypted(NOR(2, page=16, once=True))
    blank = bytearray(64)
    flash.readblocks(1, blank, 0)
    assert len(set(blank)) > 30
    data = bytes(range(48))
    flash.writeblocks(1, data, 16)
    assert data not in bytes(flash.flash.data)
    found = bytearray(20)
    flash.readblocks(1, found, 26)
    assert bytes(found) == data[10:30]


def test_a_cut_program_leaves_its_first_bytes():
    flash = NOR(2)
    flash.cut_after(2, 3, PREFIX)
    flash.writeblocks(0, bytes(8), 100)
    assert raises(PowerCut, flash.writeblocks, 0, bytes(8), 0)
    assert raises(PowerCut, flash.readblocks, 0, bytearray(1), 0), "it is dead"
    flash.boot()
    assert read(flash, 0, 0, 3) == bytes(3) and read(flash, 0, 4, 4) == b"\xff" * 4
    assert read(flash, 0, 100, 8) == bytes(8)


def test_weak_bits_are_drawn_on_each_boot_and_end_with_a_program_or_an_erase():
    flash = NOR(2)
    flash.cut_after(1, 0, LOOKS_DONE)
    assert raises(PowerCut, flash.writeblocks, 0, bytes(8), 0)
    flash.boot()
    assert read(flash, 0, 0, 8) == bytes(8), "looks done"
    seen = set()
    for _ in range(10):
        flash.boot()
        seen.add(read(flash, 0, 0, 8))
    assert len(seen) > 5
    flash.writeblocks(0, bytes(4), 0)
    flash.boot()
    assert read(flash, 0, 0, 4) == bytes(4)
    flash.ioctl(6, 0)
    flash.boot()
    assert read(flash, 0, 0, 8) == b"\xff" * 8 and not flash.weak


def test_an_invisible_program_shows_later():
    flash = NOR(2)
    flash.cut_after(1, 0, INVISIBLE)
    assert raises(PowerCut, flash.writeblocks, 0, bytes(8), 0)
    flash.boot()
    assert read(flash, 0, 0, 8) == b"\xff" * 8
    flash.boot()
    assert read(flash, 0, 0, 8) != b"\xff" * 8


def test_a_torn_program_touches_no_bit_that_it_does_not_clear():
    for seed in range(20):
        flash = NOR(2, seed=seed)
        flash.writeblocks(0, b"\xfe" * 8, 0)
        flash.cut_after(1, 4, SUBSET)
        assert raises(PowerCut, flash.writeblocks, 0, b"\x0f" * 8, 0)
        for _ in range(3):
            flash.boot()
            for byte in read(flash, 0, 0, 8):
                assert byte & 0x0F == 0x0E


def test_a_torn_erase_may_look_clean():
    flash = NOR(2)
    flash.writeblocks(0, bytes(4096), 0)
    flash.cut_after(1, 0, LOOKS_DONE)
    assert raises(PowerCut, flash.ioctl, 6, 0)
    flash.boot()
    assert read(flash, 0, 0, 4096) == b"\xff" * 4096
    flash.boot()
    assert read(flash, 0, 0, 4096) != b"\xff" * 4096
    assert read(flash, 1, 0, 4096) == b"\xff" * 4096


def test_a_stuck_block_takes_nothing():
    flash = NOR(2)
    flash.writeblocks(0, b"\x0f", 0)
    flash.stuck.add(0)
    flash.ioctl(6, 0)
    flash.writeblocks(0, b"\x00", 0)
    assert read(flash, 0, 0, 1) == b"\x0f"
    flash.failing = True
    assert raises(OSError, flash.ioctl, 6, 0)
