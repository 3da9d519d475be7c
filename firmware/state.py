"""State: a few numbers that must outlive a power cut, in one small file.

Knows one JSON file and how to replace it as a whole. Must not know what the numbers mean.
"""

import json
import os

PATH = "/state.json"


class StateError(ValueError):
    """The file is there and cannot be read: nothing that depends on it may be trusted."""


def load(path=None):
    """Return the saved dict, {} when nothing was ever saved. Raises StateError when damaged."""
    path = path or PATH
    try:
        with open(path) as file:
            text = file.read()
    except OSError:
        return {}
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise StateError("%s: damaged" % path)
    return data


def save(data, path=None):
    """Make the dict durable; when this returns, a cut finds the new one. Raises OSError."""
    path = path or PATH
    new = path + ".new"
    with open(new, "w") as file:
        file.write(json.dumps(data))
        file.flush()
        # littlefs commits at close; a host needs to be told
        if hasattr(os, "fsync"):
            os.fsync(file.fileno())
    os.rename(new, path)
    if hasattr(os, "sync"):
        os.sync()
