"""A set that is mounted: what `import` finds in it, and what is not there. Plain files."""
# only: micropython

import os
import sys

import loader
import ota_kit
import trial
from setfs import SetFS

ROOT = os.getcwd() + "/fw_setfs_test"
# mpy-cross's output for "x = 41" as tiny.py, "from .tiny import x; y = x + 1" as face.py
TINY = bytes.fromhex("4d06001f03000e74696e792e7079000f02780040000201a916025163")
FACE = bytes.fromhex("4d06001f05000e666163652e7079000f0278000874696e790002790081400804012c8110022a"
                     "011b031c02160259110281f216045163")  # fmt: skip
FILES = {"app.mpy": TINY, "app2.mpy": b"2", "fw_room/__init__.mpy": FACE, "fw_room/tiny.mpy": TINY,
         "fw_room/deep/er.mpy": b"deep" * 2000, "z.mpy": b"the last"}  # fmt: skip


class Mounted:
    """The set in slot 1, in force; what of it was imported is forgotten at the end."""

    def __enter__(self):
        loader.ROOT = ROOT
        ota_kit.remove_all(ROOT)
        os.mkdir(ROOT)
        made = ota_kit.Set({path: ota_kit.stored(data) for path, data in FILES.items()})
        with open(loader.place(1), "wb") as file:
            file.write(made.run)
        self.modules = set(sys.modules)
        trial.choose({"slot": 1, "index": made.body["index"]})
        return self

    def __exit__(self, *args):
        trial.choose({"slot": 0})
        ota_kit.remove_all(ROOT)
        for name in set(sys.modules) - self.modules:
            del sys.modules[name]


def missing(call, path):
    try:
        call(path)
    except OSError as error:
        assert error.errno == 2, error
        return True
    return False


def test_each_module_begins_where_the_index_says_and_ends_where_it_ends():
    with Mounted():
        for path, data in FILES.items():
            with open("/set/" + path, "rb") as file:
                assert file.read() == data, path


def test_files_and_folders_are_told_apart_and_what_is_not_there_is_missing():
    with Mounted():
        for path in FILES:
            assert os.stat("/set/" + path)[0] == 0x8000, path
        for path in ("fw_room", "fw_room/deep"):
            assert os.stat("/set/" + path)[0] == 0x4000, path
        for path in ("app", "app.mp", "app.py", "pp.mpy", "fw_roo", "room", "deep", "deep/er.mpy",
                     "fw_room/app.mpy", "fw_room/deep/er.mpy/x", "0", "app.mpy 0"):
            assert missing(os.stat, "/set/" + path), path
            assert missing(open, "/set/" + path), path


def test_modules_and_packages_are_imported_from_it():
    with Mounted():
        import app
        import fw_room

        assert (app.x, fw_room.y) == (41, 42)
        assert app.__file__ == "/set/app.mpy" and fw_room.tiny.x == 41
        try:
            import fw_none
        except ImportError:
            fw_none = None
        assert fw_none is None


def test_another_set_takes_its_place_and_none_leaves_nothing_behind():
    with Mounted():
        made = ota_kit.Set({"fw_other.mpy": ota_kit.stored(TINY)})
        with open(loader.place(2), "wb") as file:
            file.write(made.run)
        trial.choose({"slot": 2, "index": made.body["index"]})
        assert missing(os.stat, "/set/app.mpy") and os.stat("/set/fw_other.mpy")
        assert sys.path.count("/set") == 1
        trial.choose({"slot": 0})
        assert missing(os.stat, "/set/fw_other.mpy") and "/set" not in sys.path


def test_tools_that_go_through_all_files_of_a_board_find_it_empty():
    with Mounted():
        assert os.listdir("/set") == []
        assert os.statvfs("/set")[0] == os.statvfs("/")[0]


def test_a_set_that_cannot_be_opened_is_an_oserror():
    assert missing(lambda path: SetFS(path, 10), ROOT + "/none")
