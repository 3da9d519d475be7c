"""What comes out of the tables: gold, report, quarantine, export.

Knows their options and exit statuses. Must not know how Spark is started.
"""

import logging
from pathlib import Path

import click
from umqtt_runtime import command as running
from umqtt_runtime.options import Problem, with_spark

from .. import options as arguments
from ..options import Folder, OutputFile, TablesHere
from .group import damaged_file_named, main, reachable, sentence_if_in_use, there, writable

REASONS = 20  #: that are listed: a decoder of one's own may give each message another


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--anew", is_flag=True, help="read all of silver, whatever was read before")
@with_spark
@click.pass_obj
def gold(stop, tables, anew, memory, conf):
    """Bring the gold tables up to date: per minute, device, boot, and gaps.

    What has not changed since the last run is not read again."""
    logging.getLogger("umqtt.gold").info("from the tables in %s", tables)
    from ..gold import build as making
    from ..ingest.ledger import newest
    from ..tables.store import dataset

    reachable(tables)
    silver = dataset(tables, "silver")
    # What `clean` has deleted was there: of that gold has to be told.
    if silver is None or not silver.count_rows() and "silver" not in newest(tables)["touched"]:
        raise Problem(f"{tables} has no silver rows: run `umqtt-pipeline ingest` first")
    writable(tables)
    with running.spark(stop, memory, conf) as spark, sentence_if_in_use():
        for name, rows in making.build(spark, tables, anew).items():
            logging.getLogger("umqtt.gold").info("%s: %d rows", name, rows)


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--out", required=True, type=OutputFile(), help="FILE.html")
def report(tables, out):
    """Write an HTML report on the gold tables."""
    logging.getLogger("umqtt.report").info("from the tables in %s", tables)
    from ..report import page as making

    reachable(tables)
    try:
        with damaged_file_named(tables, making.READS):
            making.build(tables, out)
    except making.NoTables as error:
        raise Problem(str(error))
    logging.getLogger("umqtt.report").info("wrote %s", out)


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--topic", callback=arguments.one_topic_filter, metavar="FILTER",
              help="only topics that match it, such as home/+/state")
@click.option("--reason", help="only those with this text in the reason")
@click.option("--limit", type=click.IntRange(0), default=20, help="messages that are shown")
@click.option("--json", "as_json", is_flag=True, help="one line of JSON for each, payloads whole")
def quarantine(tables, topic, reason, limit, as_json):
    """Show what came and is no reading: when, on which topic, why, and the payload.

    First the reasons and how many messages each has, then the last messages, the newest at the
    end. Nothing of the quarantine is lost: `replay` decodes it again."""
    from ..tables import quarantine as refused

    there(tables)
    with damaged_file_named(tables, ["quarantine"]):
        chosen = refused.select(tables, topic, reason)
        held = refused.last(tables, chosen, limit)
    if as_json:
        for row in held:
            click.echo(refused.as_json(row))
        return
    count, of = chosen.num_rows, " of that kind" if topic or reason else ""
    many = f"1 message{of} is" if count == 1 else f"{count:,} messages{of} are"
    click.echo(f"{many} in the quarantine of {tables}")
    reasons = refused.reasons(chosen)
    for text, times in reasons[:REASONS]:
        click.echo(f"{times:10,}  {refused.plain(text)}")
    if len(reasons) > REASONS:
        others = sum(times for _, times in reasons[REASONS:])
        click.echo(f"{others:10,}  for {len(reasons) - REASONS:,} more reasons: --reason TEXT")
    if 0 < len(held) < count:
        click.echo(f"The last {len(held)}:")
    for row in held:
        where, why = refused.plain(row["topic"]), refused.plain(row["reason"])
        click.echo(f"{row['received_at']:%Y-%m-%d %H:%M:%S}Z  {where}: {why}")
        click.echo(f"    {refused.content(tables, row)}")


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--out", required=True, type=Folder("_state", "tables"), help="a folder")
@click.option("--table", "names", multiple=True, help="only this one; several times")
@click.option("--version", type=click.IntRange(0), help="one table as it was, by Delta's version")
def export(tables, out, names, version):
    """Write tables as plain Parquet files, for programs that do not know Delta Lake."""
    from ..tables.store import existing

    there(tables)
    if version is not None and len(names) != 1:
        raise Problem("--version: name one table (--table), each has versions of its own")
    for name in names or existing(tables).columns:
        rows = _exported(tables, name, out, version)
        logging.getLogger("umqtt.tables").info("%s: %d rows", Path(out, name), rows)


def _exported(tables, name, out, version):
    """Export one table; returns how many rows."""
    from deltalake.exceptions import DeltaError

    from ..tables import maintenance

    try:
        with damaged_file_named(tables, [name], version):
            return maintenance.export(tables, name, out, version)
    except KeyError as error:
        raise Problem(f"--table: there is no table {error}")
    except FileExistsError as error:
        raise Problem(f"--out: {error}")
    except DeltaError:
        first, last = maintenance.versions(tables, name)
        if version is None or first <= version <= last:
            raise
        raise Problem(f"--version {version}: {name} has the versions {first} to {last}")
