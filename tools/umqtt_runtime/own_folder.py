"""The folder for small files that are made once for this Python, its Java and its pyspark.

Must not know what they are.
"""

import os
import sys
import tempfile
from pathlib import Path


def own_folder():
    """Path of the folder: in the virtual environment, else one of this user. A new one each time
    if neither can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    inside = [Path(sys.prefix, "share")] if sys.prefix != sys.base_prefix else []
    for folder in [*inside, Path(base)]:
        folder = folder / "umqtt_pipeline"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="umqtt-jdk-"))


def write(path, text, mode):
    """Write a file at once, if it does not say that already: others may be using it."""
    if path.is_file() and path.read_text() == text:
        return
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.write_text(text)
    hidden.chmod(mode)
    os.replace(hidden, path)
