"""State: a few numbers that must outlive a power cut, in one small file.

Knows one JSON file and how to replace it as a whole. Must not know what the numbers mean.
"""

import json
import os

PATH = "/state.json"
_ENOENT = 2


class StateError(ValueError):
    """The file may be there and cannot be read: nothing that depends on it may be trusted."""


def load(path=None):
    """Return the saved dict, {} when there is no such file.

    Raises StateError when it is damaged and when it cannot be read: only the filesystem's word
    that there is none means that nothing was ever saved.
    """
    path = path or PATH
    try:
        with open(path) as file:
            data = json.loads(file.read())
    except OSError as error:
        if error.args[0] == _ENOENT:
            return {}
        raise StateError("%s: cannot be read (%s)" % (path, error))
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
