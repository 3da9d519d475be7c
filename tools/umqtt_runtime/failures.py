"""What it means that Spark has failed: one sentence, without the way through JVM and Python.

Knows what exceptions of Spark and of py4j look like. Must not know processes, queries, spools or
tables.
"""

import logging
import re
import sys
import sysconfig
import traceback
from pathlib import Path, PurePath

log = logging.getLogger("umqtt.failures")


_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t].*\n)+)(\S.*)")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in ')
_SPARKS = re.compile(r"[\\/](?:pyspark|py4j)[\\/]")
_TOOLS = re.escape(str(Path(__file__).parents[1]))
#: these packages' own code, and the import's own
_OURS = re.compile(rf"{_TOOLS}[\\/](?:umqtt_runtime|umqtt_pipeline|mqtt_audit)[\\/]|<frozen")
_LIBRARY = re.compile(rf"{re.escape(sysconfig.get_path('stdlib'))}[\\/](?!site-packages)")
_CALLING = re.compile(r"\bAn error occurred while calling ")
#: Spark's words for a Python process of its own that is gone, and what they mean
_WORKER_GONE = "Python worker exited unexpectedly"
WORKER_GONE = "a Python process of Spark was killed, perhaps because memory ran out"
_OF_SPARK = re.compile(r"(?:pyspark|py4j)\.[\w.]+: (?=\S)")
#: the parts of an object of Delta's kernel, which stands for a file of a log; and who says so
_PARTS = re.compile(r'ParsedLogPath \{.*?\bpath: "([^"]*)".*?\bfile_type: \w+ \}')
_KERNEL = re.compile(r"\AKernel error(?:: Generic delta kernel error)?(?::| ->) ")
#: how a library colours the arrows in front of causes, each in a line of its own
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = re.compile(r"\n\s*\u21b3\s*")


def _raised(text):
    """What the last Python traceback in a text ends in, and where that was raised, or None. Whose
    decoder it is has no other way to find the line."""
    said = _TRACEBACK.findall(text)
    if not said:
        return None
    frames, last = said[-1]
    if _CALLING.search(last):  # in the JVM, whose own words follow
        return sentence(text[[found.start() for found in _CALLING.finditer(text)][-1]:])
    where = "".join(f" ({path}, line {line})" for path, line in _FRAME.findall(frames)[-1:])
    return f"{_OF_SPARK.sub('', last, count=1)[:500]}{where}"


def raised_at(error):
    """What an exception of the user's own code says, and the line in that code: the last on its
    way that is neither Spark's nor of these packages, and of Python's own library only if there
    is no other."""
    frames = [frame for frame in _frames(error) if not _OURS.match(frame.filename)
              and not _SPARKS.search(frame.filename)]  # fmt: skip
    frames = [frame for frame in frames if not _LIBRARY.match(frame.filename)] or frames
    where = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in frames[-1:])
    said = str(error).strip().partition("\n")[0][:500]
    return f"{type(error).__name__}{said and ': '}{said}{where}"


def _frames(error):
    return traceback.extract_tb(error.__traceback__)


def why(text):
    """What a failed query was given up for; `text` is all that Spark says of it."""
    text = _CAUSE.sub(": ", _COLOUR.sub("", text))
    told = re.findall(r"\bumqtt_pipeline(?:\.\w+)+: (.+)|(\w[^\n]*No space left on device"
                      r"(?:: '[^'\n]+')?)", text)
    found = next((one or other for one, other in told), None) or _raised(text)
    return _printable(found or text.partition("\n")[0][:500])


def plain(error):
    """What a library says of a failure, in one line. Of a chain of causes it is the first and the
    last; what the library tells its own developers is left out."""
    text = _COLOUR.sub("", str(error)).strip()
    text = _PARTS.sub(r"\1", _KERNEL.sub("", text))
    lines = [line.strip() for line in text.splitlines()] or [""]
    causes = [line.removeprefix("\u21b3").strip() for line in lines if line.startswith("\u21b3")]
    return _printable(": ".join([lines[0], *causes[-1:]])[:500]) or type(error).__name__


def _printable(text):
    """Text with what could move a cursor escaped: bytes of a damaged file stand in messages."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def no_traceback_of_py4j(record):
    """Filter of a log handler: what py4j logs with a traceback it also raises."""
    return not record.exc_info or "py4j" not in PurePath(record.pathname).parts


def hush_python():
    """Have pyspark not print what it raises, too: its server's tracebacks when the JVM is gone,
    and the JVM's stack for a column that there is not. Before there is a session."""
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)

    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: log.debug("pyspark's server failed", exc_info=True)


def stop(spark):
    """Stop a session; its JVM may be gone already."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, ConnectionError) as error:
        log.debug("Spark cannot be stopped any more: %s", error)


def _is(error, *kinds):
    """Whether an exception is of one of these (module, name); a module that is not loaded has
    raised nothing."""
    known = (getattr(sys.modules[name], kind) for name, kind in kinds if name in sys.modules)
    return isinstance(error, tuple(known))


def of_spark(error):
    """Whether an exception is Spark's own; to know that it need not be loaded."""
    return _is(error, ("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"))


def of_tables(error):
    """The same of what reads and writes tables: Delta Lake, Arrow, a client of an object store."""
    return _is(error, ("deltalake.exceptions", "DeltaError"), ("pyarrow", "ArrowException"),
               ("obstore.exceptions", "BaseError"))  # fmt: skip


def sentence(error):
    """What an exception of Spark or of the JVM says, without the way through both."""
    text = re.sub(r"\AAn error occurred while calling .*?: ", "", str(error), flags=re.DOTALL)
    causes = re.findall(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)", text, re.MULTILINE)
    causes = [said for said in causes if "instantiating" not in said]
    if causes and _WORKER_GONE in causes[0]:
        return WORKER_GONE
    return (causes or [text.strip().partition("\n")[0]])[0][:500]
