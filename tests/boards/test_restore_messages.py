"""What a restore asks before it replaces messages of a board, or brings some of another."""

import contextlib
import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest
from keep_kit import (
    UNIX,
    backup,
    change_settings,
    content,
    put_messages,
    quiet,
    restore,
    three_messages,
)
from umqtt_board import boards
from umqtt_board.backup import copies, held, journal, restoring
from umqtt_board.errors import BoardError
from umqtt_board.port import device
from umqtt_min import FileStore


@pytest.mark.parametrize("where, settings", [
    ("region", None), ("files", None), ("region", b"{,}"), ("region", b""),
])  # fmt: skip
def test_a_journal_that_the_board_cannot_deliver_does_not_come_back_unasked(
    used, tmp_path, where, settings
):
    """Nor beside settings that are damaged or were taken out, when the board keeps its own."""
    copy, folder = tmp_path / "copy", tmp_path / "other"
    backup(used, copy)
    before = content(used)
    manifest = json.loads((copy / "manifest.json").read_text())
    store = FileStore(str(folder), size=manifest["region"]["size"], segment=4096, small=False)
    store.open()
    own = b"fleet/default/one/telemetry"
    for pid, flags, topic in ((1, 2, own), (2, 2, b"fleet/default/two/telemetry"), (3, 4, own),
                              (4, 2, own + b"#"), (0, 2, own), (5, 6, own)):  # fmt: skip
        store.put(pid, flags, topic, b"21.5")
    store.close()
    if settings == b"":
        del manifest["files"]["/settings.json"]
    put_messages(copy, folder, manifest, where)
    if settings:
        change_settings(copy, settings)
    with device.Device(used.port) as one, pytest.raises(BoardError, match="4 of 6 messages"):
        restoring.restore(one, UNIX, copies.load(copy, UNIX),
                          lambda text: "no readings of default/one" not in text,
                          quiet, quiet)  # fmt: skip
    assert content(used) == before


@pytest.mark.parametrize("where, store, there, new", [
    ("region", "files", "its journal region", "files"),
    ("files", "auto", "files", "its journal region"), ("region", "auto", "", ""),
])  # fmt: skip
def test_a_board_that_would_not_look_for_its_messages_is_not_restored_unasked(
    used, tmp_path, where, store, there, new
):
    copy, folder = tmp_path / "copy", tmp_path / "three"
    backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    three_messages(folder, manifest["region"]["size"])
    put_messages(copy, folder, manifest, where)
    change_settings(
        copy, {"device": "one", "broker.host": "h", "broker.user": "u", "store": store}
    )
    asked = []
    with device.Device(used.port) as one:
        restoring.restore(one, UNIX, copies.load(copy, UNIX),
                          lambda text: asked.append(text) or True, quiet, quiet)  # fmt: skip
    said = [text for text in asked if "undelivered" in text]
    assert said == ([] if not there else [
        f'with store = "{store}" the board keeps its readings in {new}: 3 that it and the copy '
        f"hold in {there} stay there, undelivered, until store is "
        f'"{"auto" if new == "files" else "files"}" again'])  # fmt: skip


@pytest.mark.parametrize("boot, seq, confirmed, ok", [
    (3, 101, 100, True), (3, 101, 101, False), (3, 1 << 29, 0, False), (1 << 30, 101, 0, False),
    (3, 101, 500_000, False), (3, 1_000_000, 0, False),
])  # fmt: skip
def test_a_journal_with_numbers_of_no_board_does_not_come_back_unasked(
    used, tmp_path, boot, seq, confirmed, ok
):
    copy = tmp_path / "copy"
    backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    head = b"uMqJ" + bytes([1, 12, 16, 0]) + b"an epoch" + struct.pack(
        ">6IHBB", 5, 0, boot, seq, 0, confirmed, 0, 0, 0)  # fmt: skip
    head += struct.pack(">I", crc32(head))
    topic = b"fleet/default/one/telemetry"
    put = b"\x42" + struct.pack(">HIH", 8 + len(topic), 100, len(topic)) + topic + b"\0\x05"
    put += struct.pack(">I", crc32(head[-4:] + struct.pack(">H", len(head)) + put))
    image = (head + put).ljust(manifest["region"]["size"], b"\xff")
    (copy / "journal.img").write_bytes(image)
    manifest["region"]["sha256"] = hashlib.sha256(image).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert 100 in journal.Journal(image).live
    asked = []
    with device.Device(used.port) as one:
        with contextlib.nullcontext() if ok else pytest.raises(BoardError, match="of no board"):
            restoring.restore(one, UNIX, copies.load(copy, UNIX),
                              lambda text: asked.append(text) or len(asked) < 2,
                              quiet, quiet)  # fmt: skip
    assert len(asked) == (1 if ok else 2)


def test_newer_messages_in_files_are_not_replaced_unasked(used, put, mpremote, tmp_path):
    """And none of them stays beside those of the copy, as a part of their journal."""
    copy, folder = tmp_path / "copy", tmp_path / "three"
    flat = {"device": "one", "broker.host": "h", "broker.user": "u", "store": "files"}
    put(used, "settings.json", json.dumps(flat | {"broker.password": "secret-word"}))
    size = used.config["journal"]
    three_messages(folder, size)
    mpremote(used, "mkdir", ":mqtt")
    for file in folder.iterdir():
        mpremote(used, "cp", str(file), f":mqtt/{file.name}")
    backup(used, copy)
    restore(used, copy)  # the same: nothing to ask
    store = FileStore(str(folder), size=size, segment=4096, small=False)
    store.open()
    store.put(4, 2, b"fleet/default/one/telemetry", b"5")
    store.close()
    newer = {file.name: file.read_bytes() for file in folder.iterdir()} | {"9.log": b"more"}
    for name, data in newer.items():
        (folder / name).write_bytes(data)
        mpremote(used, "cp", str(folder / name), f":mqtt/{name}")
    with pytest.raises(BoardError, match="has given the numbers 4 to 4 since"):
        restore(used, copy)
    restore(used, copy, yes=True)
    (tmp_path / "again").mkdir()
    backup(used, tmp_path / "again" / "copy")
    there = tmp_path / "again" / "copy" / "files" / "mqtt"
    assert {file.name: file.read_bytes() for file in there.iterdir()} == {
        file.name: file.read_bytes() for file in (copy / "files" / "mqtt").iterdir()}


def test_newer_messages_are_not_replaced_unasked(used, mpremote, tmp_path):
    backup(used, tmp_path / "copy")
    code = "import vboard\nvboard.journal.writeblocks(4, b'newer', 0)\nprint(1)"
    mpremote(used, "exec", code)
    before = content(used)
    with pytest.raises(BoardError, match="Nothing was changed: the messages .* will be replaced"):
        restore(used, tmp_path / "copy")
    assert content(used) == before
    restore(used, tmp_path / "copy", yes=True)
    assert content(used) != before
    restore(used, tmp_path / "copy")  # the same already: nothing to ask


def test_messages_in_files_are_counted_and_kept(board, mpremote, tmp_path):
    with device.Device(board.port) as one:
        assert held.waiting_in_files(one) == 0
    code = """
import sys
sys.path[:] = [sys.argv[1]]
from umqtt_min.store.files import FileStore
store = FileStore(sys.argv[2])
store.open()
for n in range(3):
    store.put(n + 1, 2, b"topic", b"payload %d" % n)
"""
    script, folder = tmp_path / "fill.py", tmp_path / "mqtt"
    script.write_text(code)
    library = boards.BOARDS.parent / "lib"
    interpreter = Path(sys.executable).with_name("micropython")
    subprocess.run([interpreter, script, library, folder], check=True, timeout=60)
    mpremote(board, "fs", "cp", "-r", str(folder), ":")
    with device.Device(board.port) as one:
        assert held.waiting_in_files(one) == 3
        manifest = copies.backup(one, UNIX, tmp_path / "copy", quiet, quiet)
    assert any(path.startswith("/mqtt/") for path in manifest["files"])
