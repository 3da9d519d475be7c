"""A signing key, a small signed set and its bundle.

Must not know what a test is about.
"""

import zipfile

import pytest
from umqtt_board.ota import fileset
from umqtt_board.release import bundle, signing_key

WORD = "correct horse battery"


@pytest.fixture(scope="module")
def key():
    return signing_key.SigningKey.new()


def small():
    return fileset.Set({"app.mpy": b"a" * 900, "x/y.mpy": bytes(range(256)) * 9}, "9.9")


@pytest.fixture
def release(tmp_path, key):
    """A small signed set, and the bundle with it."""
    made = small()
    bundle.sign(made, key, bundle.Limits())
    bundle.save(made, tmp_path / "release")
    return made, tmp_path / "release"


def parts_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path, parts):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
