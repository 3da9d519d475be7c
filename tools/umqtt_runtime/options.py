"""Options of every command that starts Spark, and what their failures say.

Knows click. Must not know what a command does.
"""

import errno
import re

import click

from . import failures
from .program import UNWRITTEN

#: Spark itself refuses less than 450 MiB, of which the collector takes a part
LEAST_MEMORY = 512 << 20
#: errors of the system that are not of what was given, and may be over the next time
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
           errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)  # fmt: skip
_NUMBERS = re.compile(r"\A\[Errno \d+\] |(?<=: )\[errno \d+\] ")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Problem(click.ClickException):
    """What is wrong with what was given: a clear message and exit status 2."""

    exit_code = 2


class Sentences:
    """Of a click command or group: a file or folder that cannot be used, and Spark's failure, are
    a sentence and an exit status."""

    def invoke(self, context):
        try:
            return super().invoke(context)
        except OSError as error:
            raise _of_system(error)
        except Exception as error:
            if failures.of_spark(error):
                raise click.ClickException(f"Spark has failed: {failures.sentence(error)}")
            if failures.of_tables(error):
                raise click.ClickException(failures.plain(error))
            raise


def _of_system(error):
    """What an OSError is: a Problem if what was given cannot be used, else what may be tried
    again, such as a full disk, or a server that does not answer."""
    kind = click.ClickException if error.errno in PASSING else Problem
    if error.filename is not None:
        return kind(f"{error.filename}: {error.strerror}")
    if not error.errno:
        return click.ClickException(failures.plain(error))
    if error.errno in UNWRITTEN:  # of standard output: program.py knows what to say
        return error
    # Arrow names the file in its own words.
    return kind(_NUMBERS.sub("", failures.plain(error)).replace(". Detail: ", ": "))


def paired(value, prefix, shape):
    """KEY=VALUE, several times -> dict; every key begins with `prefix`, which is not all of it."""
    pairs = [item.partition("=") for item in value]
    for (key, equals, _rest), item in zip(pairs, value):
        if not key.startswith(prefix) or key == prefix or not equals:
            raise click.BadParameter(f"{item!r} is not {shape}")
    return {key: rest for key, _equals, rest in pairs}


def spark_conf(_, __, value):
    """Callback: spark.KEY=VALUE, several times -> dict."""
    return paired(value, "spark.", "spark.KEY=VALUE")


def memory(_, __, value):
    """Callback: a size as Java writes it, of at least LEAST_MEMORY."""
    if not re.fullmatch(r"[1-9][0-9]*[kmgt]", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r} is not a size such as 512m or 2g")
    if int(value[:-1]) * _UNITS[value[-1].lower()] < LEAST_MEMORY:
        raise click.BadParameter(f"{value!r}: Spark needs at least {LEAST_MEMORY >> 20}m")
    return value


_SPARK = [
    click.option("--memory", default="1g", callback=memory, help="heap of the Java side"),
    click.option("--conf", multiple=True, callback=spark_conf, metavar="spark.KEY=VALUE",
                 help="more configuration of Spark; may be given several times"),
]  # fmt: skip


def with_spark(command):
    """Add the options of every command that starts Spark: memory, conf."""
    for option in reversed(_SPARK):
        command = option(command)
    return command
