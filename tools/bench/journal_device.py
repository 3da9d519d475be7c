"""The part of bench_journal.py that runs on a MicroPython: one measurement per call.

Knows: the stores, littlefs, a flash that counts.  Must not know: how results are shown.
Usage: micropython journal_device.py LIB NAME MESSAGES; prints "key value" lines.
"""

import gc
import os
import sys
import time

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])

from umqtt_min.store.files import FileStore  # noqa: E402
from umqtt_min.store.flash import FlashStore  # noqa: E402
from umqtt_min.store.ram import RAMStore  # noqa: E402
from umqtt_min.store.segment_log import copy  # noqa: E402

TOPIC = b"fleet/hall/one/telemetry"
PAYLOAD = bytes(range(100))
SECTOR = 4096
WINDOW = 16  # messages between two "may have been sent" marks, as the client has it


class Flash:
    """A NOR flash without faults, which counts; fast enough for thousands of messages."""

    def __init__(self, blocks, page=1):
        self.page = page
        self.blocks = blocks
        self.data = bytearray(b"\xff" * (blocks * SECTOR))
        self.blank = b"\xff" * SECTOR
        self.worn = [0] * blocks
        self.programs = self.programmed = 0

    def ioctl(self, op, arg):
        """The block device protocol."""
        if op == 4:
            return self.blocks
        if op == 5:
            return SECTOR
        if op == 6:
            self.worn[arg] += 1
            copy(self.data, arg * SECTOR, self.blank, 0, SECTOR)
        return 0

    def readblocks(self, n, buf, off=0):
        """Fill buf."""
        copy(buf, 0, self.data, n * SECTOR + off, len(buf))

    def writeblocks(self, n, buf, off=0):
        """Program: clear bits."""
        self.programs += 1
        self.programmed += len(buf)
        at = n * SECTOR + off
        data = self.data
        for i in range(len(buf)):
            byte = buf[i]
            if byte != 255:
                data[at + i] &= byte


class Direct(Flash):
    """Blank flash only, no AND: what is left is the journal's own time."""

    def writeblocks(self, n, buf, off=0):
        """Store the bytes."""
        copy(self.data, n * SECTOR + off, buf, 0, len(buf))


def deliver(store, count, late=0):
    """count messages, each acknowledged `late` messages later."""
    for i in range(count):
        seq = store.put(1 + i % 60000, 2, TOPIC, PAYLOAD)
        if seq > store.sent:
            store.mark(seq + WINDOW - 1)
        if seq > late:
            store.done(seq - late)


def wear(flash, count, store=None):
    """Print the counters of a flash, per message."""
    erases = sum(flash.worn)
    print("erases", erases / count)
    print("programmed", flash.programmed / count)
    print("programs", flash.programs / count)
    if store:
        print("spread", max(flash.worn) * len(flash.worn) / erases if erases else 1)


def journal(count, page, once=False, late=0, fill=0):
    """A FlashStore on 64 KiB; fill: messages that lie in it all the time."""
    flash = Flash(16, page)
    store = FlashStore(flash, once=once)
    store.open()
    for i in range(fill):
        store.put(60001 + i % 5000, 2, TOPIC, PAYLOAD)
    deliver(store, 200, late)
    flash.programs = flash.programmed = 0
    flash.worn = [0] * 16
    deliver(store, count, late)
    wear(flash, count, store)


def full(count):
    """As many messages in the journal as it takes; each new one after an acknowledgement."""
    flash = Flash(16, 1)
    store = FlashStore(flash)
    store.open()
    while store.free() > 200 and store.seq - store.low < 640:
        store.put(7, 2, TOPIC, PAYLOAD)
    print("live", store.live)
    flash.programs = flash.programmed = 0
    flash.worn = [0] * 16
    for _ in range(count):
        store.done(store.low)
        store.put(7, 2, TOPIC, PAYLOAD)
    wear(flash, count, store)


def littlefs(prog):
    """A littlefs on 256 KiB, mounted at /bench, as the ports configure it."""
    flash = Flash(64, prog)
    os.VfsLfs2.mkfs(flash, progsize=prog)
    os.mount(os.VfsLfs2(flash, progsize=prog), "/bench")
    flash.worn = [0] * 64
    flash.programs = flash.programmed = 0
    return flash


def record():
    """What a user would write: the packet, whose identifier a redelivery needs."""
    return b"\x32\x80" + bytes((0, len(TOPIC))) + TOPIC + b"\x00\x07" + PAYLOAD


def file_each(count, prog):
    """One file per message, removed when it is acknowledged."""
    flash = littlefs(prog)
    for i in range(count):
        with open("/bench/%d" % i, "wb") as file:
            file.write(record())
        os.remove("/bench/%d" % i)
    wear(flash, count)


def file_rewritten(count, prog):
    """One file for the message in flight, emptied when it is acknowledged."""
    flash = littlefs(prog)
    for _ in range(count):
        with open("/bench/queue", "wb") as file:
            file.write(record())
        with open("/bench/queue", "wb") as file:
            pass
    wear(flash, count)


def file_appended(count, prog):
    """One file, appended and synced; begun anew at 16 KiB. Acknowledgements are not stored."""
    flash = littlefs(prog)
    file = open("/bench/log", "ab")
    for _ in range(count):
        file.write(record())
        file.flush()
        if file.tell() > 16384:
            file.close()
            file = open("/bench/log", "wb")
    file.close()
    wear(flash, count)


def file_store(count, prog, chunk=0):
    """The FileStore on littlefs."""
    flash = littlefs(prog)
    store = FileStore("/bench/mqtt", chunk=chunk)
    store.open()
    deliver(store, count)
    wear(flash, count)


def times(count):
    """Microseconds for a put and a done, on RAM and on a flash that costs nothing itself."""
    for name, store in (("ram", RAMStore(65536)),
                        ("flash", FlashStore(Direct(16, 1)))):
        store.open()
        gc.collect()
        put = done = 0
        for i in range(count):
            t = time.ticks_us()
            seq = store.put(1 + i % 60000, 2, TOPIC, PAYLOAD)
            put += time.ticks_diff(time.ticks_us(), t)
            t = time.ticks_us()
            store.done(seq)
            done += time.ticks_diff(time.ticks_us(), t)
        print(name + "_put", put / count)
        print(name + "_done", done / count)


def filled():
    """A flash with as many live messages as a journal of 64 KiB takes; how many."""
    flash = Direct(16, 1)
    store = FlashStore(flash)
    store.open()
    while store.free() > 200 and store.seq - store.low < 640:
        store.put(7, 2, TOPIC, PAYLOAD)
    return flash, store.live


class Peak:
    """Stands for the module gc in a mount: sees how full the heap is before it is cleared."""

    def __init__(self):
        self.most = 0

    def collect(self):
        """As gc.collect()."""
        self.most = max(self.most, gc.mem_alloc())
        gc.collect()


def replay(count):
    """Mount a full 64 KiB: milliseconds, bytes of heap it keeps and takes at most."""
    flash, live = filled()
    sys.modules["gc"] = peak = Peak()
    gc.collect()
    before = gc.mem_alloc()
    gc.disable()
    store = FlashStore(flash)
    t = time.ticks_us()
    store.open()
    print("ms", time.ticks_diff(time.ticks_us(), t) / 1000)
    peak.collect()
    gc.enable()
    kept = gc.mem_alloc() - before
    print("heap", kept)
    print("churn", peak.most - before - kept)
    assert store.live == live
    print("live", live)


class Steps:
    """replay() in steps, for an interpreter that collects between two calls only."""

    def __init__(self):
        self.flash, self.live = filled()
        self.store = None
        self.at = 0

    def make(self):
        """The store; its buffers and index."""
        self.store = FlashStore(self.flash)

    def mount(self):
        """Mount it, and print what that took with its garbage."""
        before = gc.mem_alloc()
        self.store.open()
        print("churn", gc.mem_alloc() - before)
        assert self.store.live == self.live

    def show(self, name):
        """Print what was taken since the last time."""
        now = gc.mem_alloc()
        if name:
            print(name, now - self.at)
        self.at = now


CASES = {
    "any": lambda n: journal(n, 1),
    "pages": lambda n: journal(n, 256),
    "late": lambda n: journal(n, 1, late=16),
    "aligned": lambda n: journal(n, 16, once=True),
    "once": lambda n: journal(n, 256, once=True),
    "full": full,
    "each32": lambda n: file_each(n, 32),
    "each256": lambda n: file_each(n, 256),
    "rewritten32": lambda n: file_rewritten(n, 32),
    "rewritten256": lambda n: file_rewritten(n, 256),
    "appended32": lambda n: file_appended(n, 32),
    "appended256": lambda n: file_appended(n, 256),
    "files32": lambda n: file_store(n, 32),
    "files256": lambda n: file_store(n, 256, 224),
    "times": times,
    "replay": replay,
}

if __name__ == "__main__":
    CASES[sys.argv[2]](int(sys.argv[3]))
