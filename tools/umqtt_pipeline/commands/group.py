"""The group of commands of `umqtt-pipeline`, and what several of them share.

Knows what comes before a command's name. Must not know any command.
"""

import errno
import os
import re
from contextlib import contextmanager

import click
from umqtt_runtime import failures
from umqtt_runtime.log_lines import log_to_stderr
from umqtt_runtime.options import Problem, Sentences
from umqtt_runtime.stop import Stop

from .. import options as arguments
from ..spool.files import SpoolError

#: Spark's words for a file of a table that it cannot read
_FILE = re.compile(r"\[FAILED_READ_FILE[.\w]*\].* file (?:file://)?(\S+\.parquet)")
LOST = (None, errno.ENOENT, errno.EIO)  #: of an OSError that may come of a damaged disk
_AWAY = re.compile(r"Generic \w+ error|error sending request")  #: a store, not what is in it


def all_damaged(tables):
    """Where to find out what else of tables is damaged, and what to do, for the end of a
    sentence."""
    return (f"`umqtt-pipeline verify --tables {tables}` names all that is damaged, and "
            "RECOVERY.md says what to do")  # fmt: skip


@contextmanager
def damaged_file_named(tables, names, version=None):
    """What Arrow cannot read is named: its own words seldom do. names: of the tables that are
    read; version: the only one as it was then."""
    import pyarrow as pa

    from ..tables import verifying
    from ..tables.store import existing

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) not in LOST:
            raise
        for name in set(names) & set(existing(tables).columns):
            wrong = verifying.damaged(tables, name, version)
            if wrong and version is not None and not verifying.damaged(tables, name):
                raise click.ClickException(
                    f"version {version} of {name} cannot be read any more ({wrong}): "
                    "`umqtt-pipeline clean` removes the files that only older versions have")
            if wrong:
                raise click.ClickException(f"{wrong}; {all_damaged(tables)}")
        raise


def _damaged(error):
    """What an exception says of tables that are damaged; None if it is of something else."""
    if isinstance(error, OSError):
        path = str(error.filename or error)
        lost = error.errno in LOST and path.endswith(".parquet")
        return f"{path}: {error.strerror or 'No such file or directory'}" if lost else None
    if failures.of_spark(error):
        found = _FILE.search(str(error))
        return found and f"{found[1]}: it cannot be read"
    if failures.of_tables(error) and not _AWAY.search(str(error)):
        return failures.plain(error)
    return None


def _away(error):
    """Whether an exception says that an object store does not answer, but not which one."""
    unnamed = isinstance(error, OSError) and error.filename is None or failures.of_tables(error)
    return unnamed and _AWAY.search(str(error))


class Command(click.Command):
    """A command. If it ends because its tables are damaged, it says who knows more; if because
    their object store is away, which one that is."""

    def invoke(self, context):
        try:
            return super().invoke(context)
        except Exception as error:
            tables, said = context.params.get("tables"), _damaged(error)
            if tables is not None and "://" in str(tables) and _away(error):
                raise click.ClickException(f"{tables}: the object store does not answer as it "
                                           f"should: {failures.plain(error)}. Start the command "
                                           "again when it does")  # fmt: skip
            if said is None or tables is None or self.name == "verify":
                raise
            raise click.ClickException(f"{said}; {all_damaged(tables)}")


class Commands(Sentences, click.Group):
    """The commands."""

    command_class = Command

    def invoke(self, context):
        try:
            return super().invoke(context)
        except SpoolError as error:
            raise click.ClickException(str(error))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"],
                                             "show_default": True})  # fmt: skip
@click.version_option(package_name="umqtt-min")
@click.option("--config", callback=arguments.configured(lambda: main), expose_value=False,
              metavar="FILE.toml",
              help="options by file: [bridge] broker = \"host:1883\"; flags go before it")
@click.pass_context
def main(context):
    """From an MQTT broker to tables of Delta Lake. In the order of the data: bridge, ingest (with
    compact and replay), quarantine, gold, report."""
    context.ensure_object(Stop)
    log_to_stderr()


def with_decoders(command):
    """Add the options of every command that decodes."""
    keys = click.option(
        "--telemetry-keys", "keys", callback=arguments.telemetry_keys, metavar="FILE",
        type=click.Path(dir_okay=False),
        help="keys of the devices that sign their readings, of `umqtt-board telemetry-keys`")
    decoders = click.option(
        "--decoder", "decoders", multiple=True, callback=arguments.decoders, metavar="MODULE:NAME",
        help="a function for payloads of your own (DECODING.md); several times")
    return decoders(keys(command))  # fmt: skip


@contextmanager
def sentence_if_in_use():
    """Of two that write the same tables without a lock between them, one wins; the other one says
    so."""
    from ..tables.lock import InUse

    try:
        yield
    except InUse as error:
        raise click.ClickException(f"{error}; nothing was changed")


def reachable(tables):
    """Raises Unreachable, which says where, if the store of these tables does not answer."""
    from ..tables.storage import storage_of

    storage_of(tables).check()


def writable(tables):
    """Raises PermissionError, which names them, if tables in a folder may not be written: Delta
    Lake would say so as of a damaged table."""
    if "://" not in tables and not os.access(tables, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), tables)


def there(tables):
    """Raises Problem unless ingest has made these tables, and OSError."""
    from ..tables.storage import are_there

    if not are_there(tables):
        from ..ingest.ledger import lost

        raise Problem(lost(tables) or f"{tables} has no tables: run `umqtt-pipeline ingest` first")
