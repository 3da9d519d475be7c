"""The host's reader of journal images, written from JOURNAL.md, agrees with the device's replay.

Knows: both readers, the campaign's checks.  Must not know: records, segments.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from umqtt_board.backup.journal import Journal, NoJournal, load, main

ROOT = Path(__file__).resolve().parent.parent.parent
# Device code runs in a process of its own: the shim changes the one it is in.
PRELUDE = f"""
import sys
sys.path[:0] = [{str(ROOT / "lib")!r}, {str(ROOT / "tests/shim")!r}]
import mpshim
from umqtt_min.store.files import FileStore
folder = sys.argv[1]
"""


def device(code, folder):
    """Run code on CPython as a device would."""
    subprocess.run([sys.executable, "-c", PRELUDE + code, str(folder)], check=True, timeout=60)


def test_after_every_recovery_both_read_the_same():
    campaign = subprocess.run(
        [sys.executable, str(ROOT / "tests/powercut/campaign.py"), "--compare", "--points", "1",
         "--steps", "12", "--quiet", "120", "--seed", "50", "--jobs", "1"],
        capture_output=True, text=True, timeout=250)
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    tried = int(campaign.stdout.splitlines()[-1].split()[0])
    assert tried > 100, campaign.stdout


@pytest.fixture
def folder(tmp_path):
    """A FileStore with two live messages, one of them released."""
    device("""
store = FileStore(folder, size=16384)
store.open()
store.session(b"key")
for i in range(3):
    store.put(i + 1, 4, b"fleet/a/b", b"payload %d" % i)
store.done(1)
store.rec(2)
""", tmp_path / "mqtt")
    return tmp_path / "mqtt"


def test_folder_and_image_show_the_same(folder, tmp_path, capsys):
    assert main([str(folder)]) == 0
    shown = capsys.readouterr().out
    image = tmp_path / "image.bin"
    image.write_bytes(load(folder))
    assert main([str(image), "--records"]) == 0
    records = capsys.readouterr().out
    assert "2 live messages" in shown and "2  id 2  qos 2  released  fleet/a/b" in shown
    assert "PUT 3 qos 2 queued" in records and "DONE 1" in records and "SESSION 6b6579" in records


def test_small_files_are_put_together(tmp_path):
    device("""
store = FileStore(folder, size=16384, small=True)
store.open()
for i in range(40):
    store.put(i + 1, 2, b"t", bytes(150))
    store.done(i)
""", tmp_path / "mqtt")
    assert list(Journal(load(tmp_path / "mqtt")).live) == [40]


def test_a_region_is_found_inside_a_whole_flash(folder):
    image = b"\xff" * 12288 + load(folder) + bytes(5000)
    assert sorted(Journal(image).live) == [2, 3]


def test_damage_is_reported(folder, tmp_path, capsys):
    data = bytearray(load(folder))
    data[data.index(b"payload 1")] ^= 4
    image = tmp_path / "image.bin"
    image.write_bytes(data)
    assert main([str(image)]) == 1
    shown = capsys.readouterr().out
    assert "1 live messages" in shown and "damage: " in shown


def test_no_journal_is_said(tmp_path, capsys):
    image = tmp_path / "image.bin"
    image.write_bytes(bytes(4096))
    with pytest.raises(NoJournal):
        Journal(bytes(4096))
    assert main([str(image)]) == 2
    assert "no segment begins with uMqJ" in capsys.readouterr().err
    assert main([str(tmp_path / "missing")]) == 2
