"""Fixtures and helpers of the tests of keys: two boards with locked keys, another computer.

Knows where keys lie. Must not know what a test is about.
"""

import json

import pytest
from umqtt_board.lock import lock
from umqtt_board.ota import keys
from update_kit import flashed

WORD = "correct horse battery"
OTHER = "another horse, another battery"
FLAT = {"device": "oven", "group": "g", "broker.host": "10.0.0.2"}


@pytest.fixture
def words(monkeypatch, home):
    """No passphrase is set, none is remembered."""
    for name in ("KEYS", "KEYS_NEW", "EXPORT"):
        for end in ("", "_FILE"):
            monkeypatch.delenv(f"UMQTT_{name}_PASSPHRASE{end}", raising=False)
    lock.forget()
    yield
    lock.forget()


@pytest.fixture
def locked(words, monkeypatch):
    """The passphrase is in the environment, and two boards have keys: {name: key}."""
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    return {name: flashed(FLAT | {"device": name}, name)[0]["command_key"]
            for name in ("oven", "fridge")}  # fmt: skip


def everything():
    """All bytes of the files below the folder of the keys."""
    return b"\n".join(path.read_bytes() for path in keys.home().rglob("*") if path.is_file())


def board_file(name):
    return keys.root() / "g" / f"{name}.json"


def on_another_computer(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    monkeypatch.delenv("UMQTT_KEYS_PASSPHRASE", raising=False)
    lock.forget()
    assert not keys.in_use()


def keys_in(path):
    """The boards' keys in a file of mark-keys or telemetry-keys: {"fleet/GROUP/DEVICE": ...}."""
    return {name: key for name, key in json.loads(path.read_text()).items() if "/" in name}


def open_copy(folder, record):
    """A file of `keys export --no-passphrase` with one board, as anybody may write it."""
    path = folder / "copy"
    path.write_text(json.dumps({"umqtt_keys": 2, "lock": "", "authorities": {},
                                "boards": [keys.packed(record, None)]}))  # fmt: skip
    return path
