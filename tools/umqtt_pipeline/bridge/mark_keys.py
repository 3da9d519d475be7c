"""The keys with which marks are signed: a device that has one heeds no other mark.

Knows the file of keys and the form of a signed mark (firmware/confirm.py). Must not know what a
mark says, nor sockets. With these keys nobody can command a board: they are made of the boards'
keys by a way that does not lead back (`umqtt-board mark-keys`).
"""

import hashlib
import hmac
import json
import logging
import os
import re
import stat

log = logging.getLogger("umqtt.bridge")

_DEVICE = re.compile("fleet/[^/]+/[^/]+")
_KEY = re.compile("[0-9a-f]{64}")


class MarkKeys:
    """The keys of a file, {"fleet/GROUP/DEVICE": 64 hexadecimal digits} in JSON; read again when
    it changes. path: its name, or None: no mark is signed. Raises ValueError for a file that
    cannot be used, with what to do about it."""

    def __init__(self, path):
        self._path = path
        self._seen = None
        self._keys = {}
        if path is not None:
            self._seen = _look(path)
            self._keys = _read(path)
            log.info("%s: keys for the marks of %d devices", path, len(self._keys))

    def refresh(self):
        """Read the file again if it is another one now; those that were read stay while it cannot
        be used."""
        if self._path is None:
            return
        seen = _look(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = _read(self._path)
            log.info("%s: read again, keys for the marks of %d devices", self._path,
                     len(self._keys))  # fmt: skip
        except ValueError as error:
            log.warning("%s; the keys read before stay in use", error)

    def seal(self, topic, payload):
        """The payload to publish on a device's ack topic, both bytes: signed if there is a key."""
        key = self._keys.get(topic.rpartition(b"/")[0])
        if key is None:
            return payload
        code = hmac.new(key, topic + b"\n" + payload, hashlib.sha256).hexdigest()
        return payload[:-1] + b',"code":"' + code.encode() + b'"}'


def _look(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _read(path):
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ValueError(f"{path} holds keys and others may read it: `chmod 600 {path}`")
            data = json.load(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}")
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}")
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds no object of keys: `umqtt-board mark-keys` writes one")
    for device, key in data.items():
        if not _DEVICE.fullmatch(device) or not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValueError(f"{path}: {device!r}: expected \"fleet/GROUP/DEVICE\" and 64 digits "
                             "0-9 a-f: `umqtt-board mark-keys` writes them")  # fmt: skip
    return {device.encode(): bytes.fromhex(key) for device, key in data.items()}
