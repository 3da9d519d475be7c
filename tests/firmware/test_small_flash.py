"""A Pico W's flash has room for the cable's set, the one that runs and the one that comes."""

import shutil

import bench
import littlefs
import pytest
from patience import wait_until
from signed_kit import FIRST
from umqtt_board.flash.steps import flash
from umqtt_board.ota import fileset, giving, keys
from umqtt_board.paths import LIBRARY
from umqtt_board.release import bundle
from update_kit import Sending, changed

BLOCK = 4096
# A Pico W's file system has 212 blocks; the journal's 16 of them lie apart on the virtual board.
BLOCKS, JOURNAL = 196, 16
PICO = {"filesystem": BLOCKS * BLOCK, "journal": JOURNAL * BLOCK, "program_size": 256,
        "heap": "220K"}  # 27 KB of it are the modules that stand for the silicon
# A board with keys checks a signature besides.
SIGNED = PICO | {"heap": "226K"}
# 30% of all blocks stay free.
MOST = (BLOCKS + JOURNAL) * 7 // 10


@pytest.fixture(params=[PICO, SIGNED], ids=["plain", "signed"])
def pico(request):
    """What the board of a test has."""
    return request.param


@pytest.fixture
def board(broker, tmp_path, pico):
    """A running board with a Pico W's room, flashed, with a key."""
    shutil.rmtree(keys.root(), ignore_errors=True)
    image = bench.make_image(tmp_path, **pico)
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port}  # fmt: skip
    settings = {"device": "b1", "group": "test", "interval_ms": 100, "report_s": 1,
                "broker": {"host": "127.0.0.1", "port": broker.port},
                "retry": {"first_ms": 100, "max_ms": 500},
                "update": {"key": FIRST.print if pico is SIGNED else ""},
                "command_key": giving.give(flat, "b1")[0]["command_key"]}  # fmt: skip
    with bench.make_board(image, tmp_path / "b1", settings, name="b1", **pico) as made:
        made.power_on()
        made.wait_for("first publish acknowledged", 20)
        yield made


def blocks_taken(board):
    """Blocks of the file system that are in use, read from the image of a board that is off."""
    data = board.flash_image.read_bytes()[: BLOCKS * BLOCK]
    context = littlefs.UserContext(len(data))
    context.buffer[:] = data
    size = PICO["program_size"]
    host = littlefs.LittleFS(context=context, block_size=BLOCK, block_count=BLOCKS, prog_size=size,
                             read_size=32, cache_size=4 * size, lookahead_size=32)  # fmt: skip
    return host.used_block_count


def runs(subscriber, version, id):
    """Wait until the board says that it runs this version, and then for more readings."""
    wait_until(lambda: [last for last in subscriber.status[-1:]
                        if (last.get("version"), last.get("set")) == (version, id)],
               30, f"version {version} in the status")  # fmt: skip
    subscriber.await_readings(len(subscriber.ordinals()) + 3)


def test_flash_update_and_update_again_in_a_pico_ws_room(board, broker, tmp_path, pico):
    cable = fileset.constant(LIBRARY / "__init__.py", "__version__")
    with bench.Subscriber(broker.port) as subscriber:
        runs(subscriber, cable, "")
        for version in ("9.9.1", "9.9.2"):
            made = changed(tmp_path / version, version)
            if pico is SIGNED:
                text = bundle.manifest(made, bundle.Limits())
                made.seal(FIRST.modulus + FIRST.sign(text) + text)
            with Sending(broker.port, made, "b1") as sending:
                pass
            assert sending.states == {"b1": "done"}, sending.session.members["b1"].why
            runs(subscriber, version, made.id)
        # One start for each: the second did not have to make room first.
        assert board.printed().count("restart by update") == 2
        board.cut()
        taken = blocks_taken(board)
        print(f"{taken} of {BLOCKS} blocks are taken, at most {MOST} may be")
        assert taken <= MOST
        # It runs from a start without power, too, and makes way for the cable.
        board.power_on()
        runs(subscriber, "9.9.2", made.id)
        report = flash("unix", port=board.port)
        assert {"/sets/1", "/sets/2", "/sets/boot.json"} <= set(report.removed)
        assert report.library == cable
        runs(subscriber, cable, "")
        board.cut()
    assert blocks_taken(board) < taken - 2 * made.need // BLOCK + 3


@pytest.mark.parametrize("size", [1, 4096, 4097, 8188, 8189, 40000, 91442, 300000])
def test_a_set_says_how_many_blocks_its_file_takes(size):
    host = littlefs.LittleFS(block_size=BLOCK, block_count=BLOCKS, prog_size=256)
    before = host.used_block_count
    made = fileset.Set({"app.mpy": b"x"}, "1")
    made.run = bytes(size)
    with host.open("set", "wb") as file:
        file.write(made.run)
    taken = host.used_block_count - before
    # littlefs keeps the smallest files in their folder's blocks.
    assert made.need == BLOCK * (taken or 1)
