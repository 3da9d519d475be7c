"""STORE.md's medium and its test do what the page says, on both interpreters: the blocks of the
page are the program.

Knows: STORE.md, the kit of the stores' tests.  Must not know: stores.
"""

import os
import re
import subprocess

import pytest
from device_plugin import INTERPRETERS, ROOT, command

PAGE = (ROOT / "lib" / "umqtt_min" / "STORE.md").read_text()
#: A record in two pieces. Where no chunk is left, each mount programs the last record again
#: (settle.py), and the padding of its first piece lies over its second.
TWO_PIECES = """
LAST = 3840  # the last chunk of a segment
for cut in range(17, 60):
    power_on = new()
    store = Journal(power_on())
    store.open()
    while store._off < LAST - cut:  # no public call says where the log ends
        store.put(1, 2, b"t", b"x" * max(0, min(200, LAST - cut - store._off - 30)))
    sent = bytes(range(33, 33 + 80))
    seq = store.put(2, 2, b"t", sent)
    for _ in range(3):
        store = Journal(power_on())
        store.open()
        got = bytearray(store.find(seq))
        store.read(0, got, len(got))
        assert bytes(got).endswith(sent), cut
print("kept")
"""
FOLDERS = {"cpython": ["tests/shim"], "micropython": ["boards/unix/shim"]}


def run(interpreter, text, tmp_path):
    script = tmp_path / "fram.py"
    script.write_text(("import mpshim\n" if interpreter == "cpython" else "") + text)
    folders = [*FOLDERS[interpreter], "lib", "tests/device/kit"]
    path = os.pathsep.join(str(ROOT / folder) for folder in folders)
    env = {**os.environ, "PYTHONPATH": path, "MICROPYPATH": path + os.pathsep + ".frozen"}
    return subprocess.run([*command(interpreter, "4M"), str(script)], env=env, cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)  # fmt: skip


@pytest.fixture
def medium():
    """The page's medium and test, as one program that says when it is done."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    found = [block for block in blocks if "Medium" in block or "store_kit" in block]
    assert len(found) == 2
    return "\n".join(found) + "\ntest_fram()\nprint('held')\n"


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_the_medium_of_the_page_passes_the_kit(interpreter, medium, tmp_path):
    done = run(interpreter, medium, tmp_path)
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stdout + done.stderr


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_the_kit_notices_a_fault_in_it(interpreter, medium, tmp_path):
    wrong = medium.replace("segment * self.size + off, view", "segment * self.size, view")
    assert wrong != medium
    done = run(interpreter, wrong, tmp_path)
    assert done.returncode and "held" not in done.stdout


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_record_in_two_pieces_outlives_each_mount(interpreter, medium, tmp_path):
    done = run(interpreter, medium + TWO_PIECES, tmp_path)
    assert (done.returncode, done.stdout) == (0, "held\nkept\n"), done.stdout + done.stderr


def test_the_page_is_short():
    assert len(PAGE.split()) < 1500


def test_the_page_names_every_file_of_the_room():
    for path in (ROOT / "lib" / "umqtt_min" / "store").glob("*.py"):
        assert f"`{path.name}`" in PAGE or path.name == "__init__.py", path.name
