"""What it means that Spark has failed: one sentence, without the way through JVM and Python.

Knows what exceptions of Spark and of py4j look like, and how a JVM ends. Must not know queries,
spools or tables.
"""

import logging
import re
import signal
import subprocess
from pathlib import PurePath

log = logging.getLogger("umqtt.failures")

JAVA_END_S = 10  #: how long a JVM that does not answer may take to be gone


class JavaEnded(Exception):
    """The JVM behind a SparkSession is gone."""


def why(text):
    """What a failed query was given up for; `text` is all that Spark says of it."""
    told = re.findall(r"umqtt_pipeline\.\w+\.\w+: (.+)|(\w[^\n]*No space left on device)", text)
    return next((one or other for one, other in told), text.partition("\n")[0][:500])


def no_traceback_of_py4j(record):
    """Filter of a log handler: what py4j logs with a traceback it also raises."""
    return not record.exc_info or "py4j" not in PurePath(record.pathname).parts


def hush(spark, level):
    """Have the JVM log from `level` on only (OFF: nothing), and pyspark's own server not print a
    traceback when the JVM is gone: what fails is raised, too."""
    spark.sparkContext.setLogLevel(level)
    server = spark.sparkContext._accumulatorServer
    server.handle_error = lambda *_: log.debug("pyspark's server failed", exc_info=True)


def stop(spark):
    """Stop a session; its JVM may be gone already."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, ConnectionError) as error:
        log.debug("Spark cannot be stopped any more: %s", error)


def java_ended(spark):
    """Raises JavaEnded if the JVM that this session has started is gone."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:  # spark-submit's
        return
    try:
        status = process.wait(JAVA_END_S)
    except subprocess.TimeoutExpired:
        return
    how = f"with status {status}"
    if status < 0:
        how = f"by {signal.Signals(-status).name}"
    if status == -signal.SIGKILL:
        how += " (by the system, if memory has run out: --memory is its heap)"
    raise JavaEnded(f"Spark's Java was ended {how}; start it again, it goes on where it was")
