"""What a cut left invisible shows on a later boot: what a mount has found stays found.

Knows: the Store interface, NOR.  Must not know: the bytes of a record.
Each test makes the images that a board may read one boot after the other: a bit that a torn
operation left half way reads as before at first, and as done later. `make powercut` draws such
bits at random; what needs three cuts in a row is here.
"""

# heap: 4M
# deadline: 120

from journal_model import walk
from nor import NOR, PREFIX, PowerCut
from umqtt_min.store.flash import FlashStore

BLOCK = 1024


def flash(data=None):
    return NOR(6, BLOCK, 1, data=None if data is None else bytearray(data))


def mounted(device):
    store = FlashStore(device)
    store.open()
    return store


def put(store, i):
    return store.put(i + 1, 2, b"t", b"payload of message %d" % i)


def changed(before, after):
    """Where they differ."""
    return [i for i in range(len(before)) if before[i] != after[i]]


def show(data, places, image):
    """What was programmed at these places shows now."""
    for i in places:
        data[i] &= image[i]


def filled(count):
    """(the flash before the last of so many puts, the flash behind it); five messages wait."""
    device = flash()
    store = mounted(device)
    for i in range(count - 1):
        for seq in walk(store)[:-4]:
            store.done(seq)
        put(store, i)
    before = bytes(device.data)
    put(store, count - 1)
    return before, bytes(device.data)


def test_a_settle_record_that_shows_later():
    """One of two mounts saw the last message. The first of them was cut; the second one finds
    room behind the chunk that the first has touched, or takes a new segment."""
    for late in (True, False):
        took = [0, 0]
        for count in range(5, 40):
            images = filled(count)
            one = flash(images[not late])
            seen = walk(mounted(one))
            places = changed(images[not late], one.data)
            if sum(one.worn) or not set(places).isdisjoint(changed(*images)):
                continue  # it took a new segment itself, or they would have met
            device = flash(images[late])  # that the chunk was touched shows at once
            device.data[places[0]] = one.data[places[0]]
            found = walk(mounted(device))
            assert len(found) == len(seen) + (1 if late else -1)
            took[sum(device.worn) > 0] += 1
            show(device.data, changed(*images), images[True])
            show(device.data, places, one.data)
            assert walk(mounted(device)) == found, (late, count)
        assert min(took) > 0, took


def test_a_record_that_a_cut_mount_did_not_see():
    """The segment is full: a mount decides in place, then goes on in another one."""
    tried = 0
    for count in range(10, 60):
        without, whole = filled(count)
        block = changed(without, whole)[0] // BLOCK
        if changed(without, whole)[-1] // BLOCK > block:
            continue  # it is in a new segment
        one = flash(without)
        mounted(one)
        two = flash(whole)
        found = walk(mounted(two))
        if not sum(one.worn) or one.worn[block] or two.worn[block]:
            continue
        tried += 1
        places = range(block * BLOCK, (block + 1) * BLOCK)
        show(two.data, places, one.data)
        assert walk(mounted(two)) == found, count
    assert tried > 3


def cut(data, work, operation, at=0):
    """The flash when the power went in that operation, `at` bytes behind its beginning; None: it
    makes fewer."""
    device = flash(data)
    device.cut_after(operation, at, PREFIX)
    try:
        work(device)
    except PowerCut:
        device.boot()
        return device
    return None


def test_an_erase_that_reads_as_if_it_had_not_begun():
    """A record in a new segment shows when the mount that did not see it has begun to erase that
    segment, and was cut: the next one must not go on there, where bits are half erased."""
    _, full = filled(60)
    tried = 0
    for operation in range(2, 40):
        before = cut(full, many, operation)
        after = cut(full, many, operation + 1)
        if after is None:
            break
        places = changed(before.data, after.data)
        plain = flash(before.data)
        plain.log = []
        mounted(plain)
        if b"" not in plain.log or not places:
            continue
        device = cut(before.data, mounted, plain.log.index(b"") + 1)
        block = device.worn.index(1)
        if places[0] // BLOCK != block:
            continue
        tried += 1
        show(device.data, places, after.data)
        half = bytes(device.data)
        device.worn = [0] * device.blocks
        store = mounted(device)
        put(store, 99)
        found = walk(store)
        if not device.worn[block]:  # what it had before the erase goes
            for i in range(block * BLOCK, (block + 1) * BLOCK):
                device.data[i] |= ~half[i] & 255
        assert walk(mounted(device)) == found, operation
    assert tried > 1


def test_the_serial_of_a_torn_header_does_not_count():
    """A bit of it that was not programmed makes it large: soon none larger could be written."""
    _, full = filled(60)
    last = max(s for s in serials(flash(full)) if s != 0xFFFFFFFF)
    plain = flash(full)
    plain.log = []
    many(plain)
    header = cut(full, many, plain.log.index(b"") + 3)  # behind an erase and one program
    at = serials(header).index(last + 1) * BLOCK + 16
    for bit in range(6):
        torn = flash(header.data)
        torn.data[at] |= 1 << bit
        many(torn)
        assert max(s for s in serials(torn) if s != 0xFFFFFFFF) == last + 1, bit


def serials(device):
    """What each block has where a header has its serial number."""
    return [int.from_bytes(device.data[i + 16 : i + 20], "big")
            for i in range(0, len(device.data), BLOCK)]


def many(device):
    store = mounted(device)
    for i in range(20):
        for seq in walk(store)[:1]:
            store.done(seq)
        put(store, i)
