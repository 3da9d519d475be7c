"""A program that imports the core, connects and publishes from .mpy files: what it takes from the
heap, and the smallest heap in which it does so.

Knows: the files that `make flash` makes, MicroPython's heap option, the strict broker over TCP.
Must not know: which modules the library has.
"""

import subprocess

import pytest
from device_plugin import find_micropython
from patience import wait_until
from strict_server import StrictServer
from umqtt_board.flash import romfs
from umqtt_board.flash.build import build

HEAP = "40K"
# Each module keeps its path on the heap. The unix port looks where the script lies, by the path
# from the root: 38 times the name of a folder that no board has, some KB under a long one.
AS_ON_A_BOARD = """
import sys
sys.path[:] = [""]
"""
PROGRAM = """
from umqtt_min import MQTTClient
c = MQTTClient("small", "127.0.0.1", PORT, keepalive=30)
c.connect()
for i in range(50):
    c.publish("t", "reading", qos=1)
c.disconnect()
print("done")
"""

# Bytes of a 64-bit heap for import and connect() of a client that only publishes: 19.9 KB were
# seen. What the collector takes for a pointer by chance adds to it.
MOST = 20_200
MEASURE = """
import gc, socket, select
gc.collect()
before = gc.mem_alloc()
from umqtt_min import MQTTClient
c = MQTTClient("small", "127.0.0.1", PORT)
c.connect()
gc.collect()
print(gc.mem_alloc() - before)
c.publish("t", "reading")
c.disconnect()
"""

# The same with a FlashStore on 64 KiB, login and subscription, as the sensor firmware has it:
# 85.4 KB were seen, with 619 names. From 621 on MicroPython's table of names takes 6.9 KB more.
MOST_STORED = 85_500
MEASURE_STORED = """
import gc, socket, select
class Flash:  # NOR flash as a block device
    page = 1
    def __init__(self):
        self.data = bytearray(65536)
    def readblocks(self, n, buf, off):
        at = n * 4096 + off
        buf[:] = self.data[at:at + len(buf)]
    def writeblocks(self, n, buf, off):
        at = n * 4096 + off
        for i in range(len(buf)):
            self.data[at + i] &= buf[i]
    def ioctl(self, op, arg):
        if op == 4:
            return 16
        if op == 5:
            return 4096
        for i in range(arg * 4096, arg * 4096 + 4096):
            self.data[i] = 255
flash = Flash()
gc.collect()
before = gc.mem_alloc()
from umqtt_min import FlashStore, MQTTClient
store = FlashStore(flash, hold=True)
store.open()
c = MQTTClient("small", "127.0.0.1", PORT, user="u", password="p", keepalive=30, store=store)
c.connect()
c.publish("t", "reading", qos=1)
while store.live > store.held:
    c.wait_msg()
c.set_callback(lambda topic, msg: None)
c.subscribe("a", qos=1)
gc.collect()
print(gc.mem_alloc() - before)
c.disconnect()
"""

# The same from a ROMFS, where code runs where it lies: 51.0 KB were seen, with 620 names.
MOST_ROMFS = 52_500
MOUNT = """
import sys, vfs
with open("../../library.romfs", "rb") as file:
    image = file.read()
vfs.mount(vfs.VfsRom(image), "/rom")
sys.path[:] = ["/rom/lib"]
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with umqtt_min as .mpy files, as on a board, and as a ROMFS image."""
    folder = tmp_path_factory.mktemp("mpy")
    items = build(firmware=folder, out=folder / "out")
    (folder / "library.romfs").write_bytes(romfs.image_of(items).data)
    return folder / "out" / "lib"


def run(compiled, heap, port, program=PROGRAM):
    """Run the program; (status, output)."""
    script = compiled / "program.py"
    script.write_text(AS_ON_A_BOARD + program.replace("PORT", str(port)))
    done = subprocess.run(
        [find_micropython(), "-X", f"heapsize={heap}", script.name],
        cwd=compiled,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout


def least(compiled, heap, program):
    """The least heap that the program says it takes, of three runs: what the collector takes for a
    pointer by chance can only add to it."""
    with StrictServer() as server:
        said = [run(compiled, heap, server.port, program) for _ in range(3)]
        assert all(status == 0 for status, _ in said), said
        wait_until(lambda: len(server.broker.messages) == 3, 15, "the last message at the broker")
    return min(int(out) for _, out in said)


def test_the_core_works_in_40_kib(compiled):
    with StrictServer() as server:
        status, out = run(compiled, HEAP, server.port)
        assert (status, out) == (0, "done\n")
        assert len(server.broker.messages) == 50


def test_a_heap_that_is_too_small_shows(compiled):
    with StrictServer() as server:
        status, out = run(compiled, "6K", server.port)
    assert status != 0
    assert "MemoryError" in out


def test_import_and_connect_take_little(compiled):
    assert 5_000 < least(compiled, "256K", MEASURE) <= MOST


def test_a_flash_store_with_login_and_subscription_takes_little(compiled):
    assert 5_000 < least(compiled, "512K", MEASURE_STORED) <= MOST_STORED


def test_from_a_romfs_it_takes_a_third_less(compiled):
    assert 5_000 < least(compiled, "1M", MOUNT + MEASURE_STORED) <= MOST_ROMFS
