"""The power goes in each flash operation of an update, of a trial and of a command's counter.

Everything happens once on a real littlefs over a flash that notes each program and erase. Then
for each of them the flash is made anew as a cut before it, and in the middle of it, would have
left it; littlefs mounts it, and the board must boot a whole set, the one before or the new one,
know the old counter or the new one, and come through with what was cut.
"""
# only: micropython
# heap: 8M
# deadline: 120

import os

import commands
import guard
import loader
import ota
import release
import resets
import state
import trial
import vfs
from ota_kit import Set, files, plain
from setfs import SetFS
from signed_kit import PROJECT, manifest

BLOCK = 4096
BLOCKS = 28
MOUNT = "/cut"
# As on rp2, where a program is a page; esp32's 32 bytes make more of the same.
PROGRAM = 256
KEY = b"k" * 16
TOPIC = b"fleet/g/oven/cmd/report"


class Flash:
    """NOR flash as a block device; `log` is a list of (block, offset, bytes or None: an erase)."""

    def __init__(self, data=None):
        self.data = data or bytearray(b"\xff" * (BLOCK * BLOCKS))
        self.log = None

    def readblocks(self, n, buf, off=0):
        at = n * BLOCK + off
        buf[:] = memoryview(self.data)[at : at + len(buf)]

    def writeblocks(self, n, buf, off=0):
        if self.log is not None:
            self.log.append((n, off, bytes(buf)))
        self.apply(n, off, buf)

    def apply(self, n, off, buf):
        # Programming clears bits; as one long integer it is quick.
        at = n * BLOCK + off
        old = int.from_bytes(self.data[at : at + len(buf)], "little")
        new = old & int.from_bytes(buf, "little")
        self.data[at : at + len(buf)] = new.to_bytes(len(buf), "little")

    def erase(self, n, first=0, last=BLOCK):
        self.data[n * BLOCK + first : n * BLOCK + last] = b"\xff" * (last - first)

    def ioctl(self, op, arg):
        if op == 4:
            return BLOCKS
        if op == 5:
            return BLOCK
        if op == 6:
            if self.log is not None:
                self.log.append((arg, 0, None))
            self.erase(arg)
        return 0


def mounted(flash, program=PROGRAM):
    """Mount a littlefs on the flash, in the place of the one before."""
    try:
        vfs.umount(MOUNT)
    except OSError:
        pass  # the first one
    vfs.mount(vfs.VfsLfs2(flash, readsize=32, progsize=program, lookahead=32), MOUNT)
    loader.ROOT = MOUNT + "/sets"


def formatted(program=PROGRAM):
    flash = Flash()
    vfs.VfsLfs2.mkfs(flash, readsize=32, progsize=program, lookahead=32)
    mounted(flash, program)
    return flash


def cuts(image, log):
    """Flash after image as each cut in the log leaves it: before an operation and halfway."""
    data = bytearray(image)
    for n, off, buf in log:
        yield Flash(bytearray(data))
        torn, whole = Flash(bytearray(data)), Flash(data)
        if buf is None:
            torn.erase(n, BLOCK // 2)
            whole.erase(n)
        else:
            torn.apply(n, off, buf[: len(buf) // 2])
            whole.apply(n, off, buf)
        yield torn
    yield Flash(bytearray(data))


def record(flash, work):
    """Do the work on the mounted flash; return (image before, what it did to the flash)."""
    image = bytes(flash.data)
    flash.log = log = []
    work()
    flash.log = None
    assert log
    return image, log


def updater():
    reports = []
    return ota.Update(reports.append, lambda line: None), reports


def install(made):
    """What the board does from the signed command to the restart, wherever it stands."""
    update, reports = updater()
    update.begin(made.body)
    if loader.pointer().get("id") == made.id:
        return
    update.tell()
    step = made.body["piece"] - 24
    for piece in made.pieces[reports[-1]["have"] // step :]:
        update.piece(piece)
    for _ in range(20):
        if update.step():
            return
    raise AssertionError(reports[-3:])


def boots(sets):
    """The set that the board boots: one of `sets`, whole, or None for what the cable put."""
    found = loader.pointer()
    for made in sets:
        if found.get("id") == made.id:
            assert made.lies_in(loader.place(found["slot"])), found
            fs = SetFS(loader.place(found["slot"]), found["index"])
            for path, data in made.files.items():
                with fs.open(path, "rb") as file:
                    assert file.read() == plain(data), (path, found)
            return made
    assert found["slot"] == 0, found
    return None


def test_flash_that_is_full_in_the_middle_ends_the_update_and_nothing_else():
    formatted()
    one = small(1)
    install(one)
    loader.healthy()
    big = Set(files(2, (24000, 24000, 24000, 24000)), piece=384)  # "need": 0 is not true
    update, reports = updater()
    update.begin(big.body)
    for piece in big.pieces:
        update.piece(piece)
    assert not update.step()
    assert reports[-1]["state"] == "refused" and "28" in reports[-1]["why"], reports[-1]
    assert boots((one,)) is one and not loader.exists(loader.ROOT + "/get.json")
    # What it had taken goes with the next one.
    install(small(3))
    assert boots((one, small(3))).id == small(3).id


def test_a_set_fits_when_the_board_says_so_and_is_refused_with_a_block_less():
    for program in (32, PROGRAM):
        for more in (0, -1):
            formatted(program)
            made = Set(files(2, (12000, 9000)), piece=384)
            made.body["need"] = -(-len(made.run) // 4088) * BLOCK  # pointers take 8 bytes of each
            with open(MOUNT + "/others", "wb") as file:
                while ota.free() > made.body["need"] + ota.SPARE + more * BLOCK:
                    file.write(bytes(512))
                    file.flush()
            if more == 0:
                install(made)
                for _ in range(3):
                    trial.try_once()
                assert loader.healthy() and boots((made,)) is made, program
            else:
                update, reports = updater()
                update.begin(made.body)
                assert reports[-1]["why"].startswith("needs "), reports


def small(seed):
    return Set(files(seed, (2500, 300, 2600)), piece=384)


def test_cut_anywhere_in_an_update_boots_the_old_set_or_the_new_one():
    flash = formatted()
    one, two = small(1), small(2)
    first = record(flash, lambda: install(one))
    loader.healthy()
    second = record(flash, lambda: install(two))
    for (image, log), old, new in ((first, None, one), (second, one, two)):
        seen = []
        for number, left in enumerate(cuts(image, log)):
            mounted(left)
            found = boots((one, two))
            assert found is old or found is new, number
            seen.append(found)
            # The sender hears what the board has and goes on.
            install(new)
            assert boots((one, two)) is new
        # Once the new set boots it always does.
        assert seen == sorted(seen, key=lambda found: found is new)
        assert seen[0] is old and seen[-1] is new
        print("%d cuts, new from %d on" % (len(seen), seen.index(new)))


def test_cut_anywhere_in_a_trial_never_gives_it_more_tries():
    flash = formatted()
    one, two = small(1), small(2)
    install(one)
    loader.healthy()
    install(two)

    def tries():
        for _ in range(4):
            trial.try_once()

    count = 0
    for left in cuts(*record(flash, tries)):
        mounted(left)
        before = loader.pointer()
        boots((one, two))
        for _ in range(before.get("left", 0) + 1):
            trial.try_once()
        assert boots((one, two)) is one, "taken back in the end"
        assert loader.pointer()["failed"]["id"] == two.id
        count += 1
    print("%d cuts" % count)


def test_cut_anywhere_as_a_set_becomes_healthy():
    flash = formatted()
    one = small(1)
    install(one)
    trial.try_once()
    states = []
    for left in cuts(*record(flash, loader.healthy)):
        mounted(left)
        assert boots((one,)) is one
        states.append(loader.on_trial(loader.pointer()))
    assert states[0] and not states[-1] and states == sorted(states, reverse=True)


def lets_no_older_one_in():
    """Whether a set of security version 2 is refused, because 3 has been in force."""
    old = small(7)
    try:
        release.check(manifest(old, security=2), old.body, PROJECT, 0)
    except ValueError as error:
        return "security version 2, this board takes 3" in str(error)
    return False


def test_cut_anywhere_as_a_trial_ends_and_in_the_start_after_it_lets_no_older_set_in():
    flash = formatted()
    install(small(1))
    loader.point(dict(loader.pointer(), security=3))
    trial.try_once()
    count = passed = 0
    for left in cuts(*record(flash, loader.healthy)):
        mounted(left)
        if loader.on_trial(loader.pointer()):
            assert guard.floor() == 0 and not passed  # and during a trial no set is taken at all
            continue
        passed += 1
        assert lets_no_older_one_in()
        image, left.log = bytes(left.data), []
        trial.try_once()
        for again in cuts(image, left.log):
            mounted(again)
            assert lets_no_older_one_in()
            trial.try_once()
            for number in (1, 2):
                assert state.load("%s.floor%d" % (loader.ROOT, number)) == {"security": 3}
            count += 1
    assert passed > 4 and count > 2 * passed, (passed, count)


def test_cut_anywhere_as_crashes_bring_the_set_before_back():
    saved = resets.PATH
    resets.PATH = MOUNT + "/resets.json"
    try:
        flash = formatted()
        one, two = small(1), small(2)
        for made in (one, two):
            install(made)
            trial.try_once()
            loader.healthy()
        state.save({"row": 2}, resets.PATH)
        resets.began("wdt")
        seen = []
        for left in cuts(*record(flash, trial.try_once)):
            mounted(left)
            seen.append(boots((one, two)))
            resets.began("wdt")
            trial.try_once()
            assert boots((one, two)) is one and loader.pointer()["failed"]["id"] == two.id
        assert seen[0] is two and seen[-1] is one
        assert seen == sorted(seen, key=lambda made: made is one)
    finally:
        trial.choose({"slot": 0})
        resets.PATH = saved
        resets._data = {}


def test_cut_anywhere_in_the_counter_of_a_command():
    flash = formatted()
    path = MOUNT + "/state.json"
    state.save({"count": 5, "interval_ms": 9}, path)
    payload = commands.sign(KEY, TOPIC, b'{"count":6}')

    def board():
        kept = state.load(path)  # never damaged
        assert kept["interval_ms"] == 9

        def keep(count):
            kept["count"] = count
            state.save(kept, path)

        return commands.Commands(KEY, kept["count"], keep)

    acted = record(flash, lambda: board().check(TOPIC, payload))
    lost = again = 0
    for left in cuts(*acted):
        # The command has not acted when the power goes; the sender sends it once more.
        mounted(left)
        try:
            board().check(TOPIC, payload)
            again += 1
        except commands.Refused as error:
            assert "repeated" in str(error)
            lost += 1
        assert board().count == 6
        try:
            board().check(TOPIC, payload)
            raise AssertionError("obeyed twice")
        except commands.Refused:
            pass  # as it should
    assert again and lost, (again, lost)
    assert sorted(os.listdir(MOUNT))[-1] == "state.json"
