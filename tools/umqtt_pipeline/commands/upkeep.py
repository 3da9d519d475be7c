"""What is done to tables and spools that are there: compact, replay, clean, verify, salvage.

Knows their options and exit statuses. Must not know how Spark is started.
"""

import logging
from contextlib import contextmanager, suppress

import click
from umqtt_runtime import command as running
from umqtt_runtime import progress
from umqtt_runtime.options import Problem, with_spark

from .. import options as arguments
from ..options import SpoolFolder, SpoolsHere, TablesHere
from .group import main, reachable, sentence_if_in_use, there, with_decoders


def _locked(tables, who):
    """The lock of tables that no ingest may write meanwhile, and that are whole. who: the
    command."""
    from ..ingest.ledger import ready
    from ..spool.reader import SpoolError
    from ..tables.lock import InUse, Lock

    there(tables)
    try:
        lock = Lock(tables, who)
        ready(tables)
    except InUse as error:
        raise Problem(f"{error}; stop it first")
    except SpoolError as error:
        raise Problem(str(error))
    return lock


@contextmanager
def _alone(who, stop, tables, memory, conf):
    """A SparkSession for work on tables that no ingest may write meanwhile. who: the command."""
    lock = _locked(tables, who)
    with running.spark(stop, memory, conf) as spark:
        lock.holds(spark)
        with sentence_if_in_use():
            yield spark


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--files", type=click.IntRange(2), default=8,
              help="small files of a day for which it is worth it")  # fmt: skip
@with_spark
@click.pass_obj
def compact(stop, tables, files, memory, conf):
    """Join the small files of the tables, a day at a time."""
    logging.getLogger("umqtt.compact").info("in the tables in %s", tables)
    from ..ingest.query import Ledger
    from ..tables import compaction as joining
    from ..tables.schema import ALL
    from ..tables.store import Tables

    with _alone("compact", stop, tables, memory, conf) as spark:
        held = Tables(tables, ALL)
        held.clean()
        done = joining.run(spark, held, Ledger(held), files)
    logging.getLogger("umqtt.compact").info("files joined: %d", sum(done.values()))


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@with_decoders
@with_spark
@click.pass_obj
def replay(stop, tables, decoders, keys, memory, conf):
    """Decode again what is in quarantine; what is a reading now goes to silver."""
    logging.getLogger("umqtt.replay").info("in the tables in %s", tables)
    from ..ingest import replay as replaying

    with _alone("replay", stop, tables, memory, conf) as spark:
        counts = replaying.run(spark, tables, decoders, keys)
    log = logging.getLogger("umqtt.replay")
    if counts is None:
        log.info("the quarantine is empty")
    else:
        log.info("%(new)d new, %(duplicate)d duplicates, %(quarantine)d still in quarantine",
                 counts)  # fmt: skip


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--keep", multiple=True, callback=arguments.days_by_table, metavar="TABLE=DAYS",
              help="delete the days of a table that are older than so many, 1 to 99999; a file "
                   "that was written less than that ago stays; the table is bronze, silver, "
                   "clock, duplicates, quarantine or batches; several times")  # fmt: skip
@click.option("--unused-days", type=click.IntRange(0), default=7,
              help="remove files that no table has needed for that many days")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="change nothing: say what would go")
def clean(tables, keep, unused_days, dry_run):
    """Delete old days, and remove files that no table needs any more.

    A table can be read as it was until its old files are removed."""
    from ..ingest.ledger import Ledger
    from ..tables import maintenance
    from ..tables.schema import ALL
    from ..tables.storage import is_object_store
    from ..tables.store import Tables

    if is_object_store(tables) and not unused_days:
        raise Problem("--unused-days: 1 or more with tables in an object store: another machine "
                      "may be writing files that no table has yet")  # fmt: skip

    log = logging.getLogger("umqtt.tables")
    if dry_run:
        there(tables)
        gone = maintenance.expire(Tables(tables, {}), None, keep, dry_run=True)
        count = _vacuum(tables, unused_days, True) + (0 if unused_days else sum(gone.values()))
        log.info("%d files that no table needs would be removed; nothing was changed", count)
        return
    lock = _locked(tables, "clean")
    held = Tables(tables, ALL)
    with sentence_if_in_use():
        maintenance.expire(held, Ledger(held), keep)
    log.info("%d files removed", _vacuum(tables, unused_days, False))
    del lock


def _vacuum(tables, unused_days, dry_run):
    """Remove files that no table needs; returns how many."""
    from ..tables import large, maintenance
    from ..tables.schema import ALL
    from ..tables.store import existing

    ours, others = existing(tables), existing(tables)
    ours.columns = {name: {} for name in ours.columns if name in ALL}
    others.columns = {name: {} for name in others.columns if name not in ALL}
    count = maintenance.vacuum(ours, unused_days, dry_run)
    # Gold may run, and have files that no table has yet.
    count += maintenance.vacuum(others, max(unused_days, 1), dry_run)
    return count + large.vacuum(ours.storage, dry_run)


@main.command()
@click.option("--tables", type=TablesHere())
@click.option("--spool", "spools", multiple=True, type=SpoolsHere(),
              help="a spool to look at (several: separated by commas), or s3://BUCKET/PREFIX for "
                   "all logs of bridges there; several times")  # fmt: skip
def verify(tables, spools):
    """Look at every byte of the tables, of their logs, of ingest's state and of spools: exit
    status 1, and a line for each file, if bits have flipped or files are gone. Ingest may run
    meanwhile."""
    from ..gold.schema import MADE
    from ..ingest import agreement
    from ..ingest.ledger import finished, state_files
    from ..spool import logs
    from ..spool.files import SpoolError
    from ..tables import verifying
    from ..tables.schema import ALL
    from ..tables.store import existing

    if tables is None and not spools:
        raise Problem("--tables or --spool: say what to look at")
    spools = [place for given in spools for place in given]
    found = verifying.Verified()
    try:
        if tables is not None:
            reachable(tables)
            if not existing(tables).columns:
                there(tables)
            places = logs.spools(spools)
            found = verifying.verify(tables, lambda: state_files(tables),
                                     lambda intent: finished(tables, intent, places),
                                     {**ALL, **MADE})  # fmt: skip
        with progress.Watch(None, "verify", doing="spools") as watch:
            looks = (logs.verify(spool, found.notes) for spool in spools)
            for size, wrong in (each for look in looks for each in look):
                found.bytes += size
                found.wrong += [wrong] if wrong else []
                watch.at(f"{found.bytes:,} bytes")
        if tables is not None and not found.wrong:
            with suppress(SpoolError):  # of two copies of one spool, say: nothing is damaged
                found.notes += agreement.apart(tables, spools)
    except SpoolError as error:
        raise click.ClickException(str(error))
    for line in (*found.notes, *found.wrong):
        click.echo(line)
    wrong = f"{len(found.wrong)} damaged; RECOVERY.md says what to do" if found.wrong else None
    click.echo(f"{found.files} files of tables, {found.bytes:,} bytes with those of spools: "
               f"{wrong or 'nothing damaged'}")  # fmt: skip
    if found.wrong:
        raise click.exceptions.Exit(1)


@main.command()
@click.argument("old", type=click.Path(exists=True, file_okay=False))
@click.argument("new", type=SpoolFolder())
def salvage(old, new):
    """Copy all that is whole in the damaged spool OLD into a new spool, the folder NEW, and say
    what was left behind. OLD stays as it is; no bridge may run on it."""
    from ..spool import salvage as saving
    from ..spool.files import SpoolError

    try:
        found = saving.salvage(old, new)
    except SpoolError as error:
        raise Problem(str(error))
    for line in found.left:
        click.echo(f"left behind: {line}")
    click.echo(f"{new}: {found.messages:,} messages in {found.blocks:,} blocks, "
               f"{found.bytes:,} bytes; {len(found.left) or 'nothing'} left behind")  # fmt: skip
