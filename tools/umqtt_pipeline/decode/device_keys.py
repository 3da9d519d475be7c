"""A file with a key for each device, as `umqtt-board mark-keys` and `telemetry-keys` write it.

Knows the file. Must not know what a key is for.
"""

import json
import logging
import os
import re
import stat

from ..spool.files import open_plain

log = logging.getLogger("umqtt.keys")

_DEVICE = re.compile("fleet/[^/]+/[^/]+")
_KEY = re.compile("[0-9a-f]{64}")
OF = "file"  #: member that names the command which has written it
GIVEN = "given"  #: member that is for that command alone


class DeviceKeys:
    """The keys of a file, {"fleet/GROUP/DEVICE": 64 hexadecimal digits} in JSON, with the members
    OF and GIVEN, which an older file lacks; read again when it changes. path: its name, or None:
    no device has a key. Raises ValueError for a file that cannot be used, or is another command's,
    with what to do about it.

    Where `most` is above 1 a device may have a list of keys: its own, then those that it had. An
    empty one says that it has none any more.
    """

    command = ""  #: of umqtt-board, that writes the file
    most = 1  #: keys that one device may have
    of = ""  #: what the keys are for, in words
    without = ""  #: what it means for a device that it is not in the file, in words

    def __init__(self, path):
        self._path = path
        self._seen = None
        self._keys = {}
        if path is not None:
            self._seen = _look(path)
            self._keys = self._read()
            log.info("%s: keys for %s of %d devices", path, self.of, len(self._keys))

    def __bool__(self):
        return bool(self._keys)

    def keys(self, topic):
        """The keys of the device that a topic belongs to, all bytes, its own first; () if it has
        none any more, None if it is not in the file."""
        return self._keys.get(topic.rpartition(b"/")[0])

    def refresh(self):
        """Read the file again if it has changed. Keeps the old keys while the file is unusable."""
        if self._path is None:
            return
        seen = _look(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        before = self._keys
        try:
            self._keys = self._read()
            log.info("%s: read again, keys for %s of %d devices", self._path, self.of,
                     len(self._keys))  # fmt: skip
            gone = sorted(name.decode() for name in set(before) - set(self._keys))
            if gone:
                log.warning("%s: %d devices are no longer in it, such as %s: %s", self._path,
                            len(gone), gone[0], self.without)  # fmt: skip
        except ValueError as error:
            log.warning("%s; the keys read before stay in use", error)

    def _read(self):
        path, data = self._path, _json(self._path)
        write = f"`umqtt-board {self.command}` writes"
        if not isinstance(data, dict):
            raise ValueError(f"{path} holds no object of keys: {write} one")
        data.pop(GIVEN, None)
        of = data.pop(OF, self.command)
        if of != self.command:
            raise ValueError(f"{path} is the file of `umqtt-board {of!s:.20}`, not of "
                             f"`umqtt-board {self.command}`: give each file to the option of its "
                             "name")
        found = {}
        for device, told in data.items():
            keys = told if isinstance(told, list) else [told]
            right = all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys)
            if not (_DEVICE.fullmatch(device) and right and len(keys) <= self.most
                    and (keys or self.most > 1)):
                raise ValueError(f"{path}: {device!r}: expected \"fleet/GROUP/DEVICE\" and 64 "
                                 f"digits 0-9 a-f: {write} them")  # fmt: skip
            found[device.encode()] = tuple(bytes.fromhex(key) for key in keys)
        return found


def _look(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _json(path):
    try:
        with open(path, "rb", opener=open_plain) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ValueError(f"{path} holds keys and others may read it: `chmod 600 {path}`")
            return json.load(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}")
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}")
