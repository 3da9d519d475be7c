"""The SparkSession of a command, from its start to its end, and what it fails with: a sentence and
an exit status. Knows click, sessions and their Java. Must not know what a command does with Spark.
"""

import os
from contextlib import contextmanager

import click

from . import failures, progress
from .java import NoJava
from .java_process import Java, NotStarted
from .options import Problem

GONE_S = 10  #: how long a Java that does not answer may take to be gone


@contextmanager
def spark(stop, memory, conf):
    """A session, which is stopped at the end. conf: more configuration; stop: the Stop by which
    the process may be ended.

    Raises click.ClickException for what is the matter with Spark or its Java.
    """
    java = Java()
    stop.leave(java.end)
    with progress.Watch(None, "Spark", doing="starting"):
        made = _started(java, memory, conf)
    try:
        yield made
    except Exception as error:
        raise _gone(java, error) or error
    finally:
        failures.stop(made)


def _started(java, memory, conf):
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from .session import session

    failures.hush_python()
    try:
        made = session(memory=memory, extra=conf, java=java)
        made.conf.get("spark.sql.session.timeZone")  # what is wrong in spark.sql is found now
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not spark-submit's
            made.sparkContext.setLogLevel(conf.get("spark.log.level", "OFF"))
        java.at_work = True
        return made
    except NoJava as error:
        raise Problem(str(error))
    except NotStarted as error:
        raise _gone(java, error) or _unfit(str(error))
    except Exception as error:
        gone = _gone(java, error)
        if gone or not isinstance(error, (PySparkException, Py4JError, ValueError)):
            raise gone or error
        raise _unfit(failures.sentence(error))


def _unfit(why):
    return Problem(f"Spark does not start with this --memory and --conf: {why}")


def _gone(java, error):
    """A ClickException if Java is gone, or is killed, which is what everything else fails for."""
    how = java.ended(GONE_S if _unreachable(error) else 0)
    if how is None or isinstance(error, NotStarted) and "status" in how:
        return None
    when = "" if java.at_work else " while it started"
    return click.ClickException(f"Spark's Java was ended {how}{when}; start it again, it goes on "
                                "where it was")  # fmt: skip


def _unreachable(error):
    """Whether an exception may come of a Java that is about to be gone."""
    from py4j.protocol import Py4JError, Py4JJavaError

    return isinstance(error, (OSError, Py4JError)) and not isinstance(error, Py4JJavaError)
