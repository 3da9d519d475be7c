"""What the tests of backup and restore share: commands, a copy that somebody has changed, messages
in a journal. Must not know what a test asserts."""

import hashlib
import json
import os
import subprocess
import sys

from umqtt_board import boards
from umqtt_board.backup import copies, journal, restoring
from umqtt_board.port import device
from umqtt_min import FileStore

UNIX = boards.load("unix")
JOURNAL = "import vboard\nvboard.journal.writeblocks(3, b'message' * 100, 0)\n_say(1)"


def cli(*arguments, data=None):
    done = subprocess.run(
        [sys.executable, "-m", "umqtt_board", *arguments], capture_output=True, text=True,
        timeout=120, env=os.environ | ({"XDG_DATA_HOME": str(data)} if data else {}),
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def content(board):
    """The image without what the filesystem does by itself."""
    return board.flash_image.read_bytes()[board.config["filesystem"] :]


def quiet(*_):
    """No progress."""


def backup(board, target):
    with device.Device(board.port) as one:
        return copies.backup(one, UNIX, target, quiet, quiet)


def restore(board, source, yes=False):
    with device.Device(board.port) as one:
        restoring.restore(one, UNIX, copies.load(source, UNIX), lambda text: yes, quiet, quiet)


def change_settings(copy, settings):
    """Other settings in a copy that is whole by its manifest, as its thief may leave it. bytes:
    as they are."""
    data = settings if isinstance(settings, bytes) else json.dumps(settings).encode()
    (copy / "files" / "settings.json").write_bytes(data)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["/settings.json"] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def three_messages(folder, size):
    store = FileStore(str(folder), size=size, segment=4096, small=False)
    store.open()
    for pid in (1, 2, 3):
        store.put(pid, 2, b"fleet/default/one/telemetry", b"21.5")
    store.close()


def put_messages(copy, folder, manifest, where):
    """The journal in `folder` comes into a copy, as its region or as files of its store."""
    manifest = {**manifest, "files": dict(manifest["files"])}
    if where == "region":
        image = journal.load(folder).ljust(manifest["region"]["size"], b"\xff")
        manifest["region"] = {"size": len(image), "sha256": hashlib.sha256(image).hexdigest()}
        (copy / "journal.img").write_bytes(image)
    else:
        manifest["region"] = None
        (copy / "files" / "mqtt").mkdir()
        for file in folder.iterdir():
            data = file.read_bytes()
            (copy / "files" / "mqtt" / file.name).write_bytes(data)
            manifest["files"][f"/mqtt/{file.name}"] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
