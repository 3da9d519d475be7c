"""The commands of `umqtt-pipeline` and their options. Knows arguments and exit statuses; every
command's work is done in the room of its name. Exit status 2: the arguments or the broker's answer
are wrong. Must not know how Spark is started (umqtt_runtime/command.py) nor signals."""

import logging
import time
from contextlib import contextmanager
from pathlib import Path

import click
from umqtt_runtime import command as running
from umqtt_runtime import failures
from umqtt_runtime.options import Problem, Sentences, log_to_stderr, with_spark
from umqtt_runtime.stop import Stop

from . import options as arguments
from .options import Folder, OutputFile, Seconds, TablesFolder, TablesHere


class Commands(Sentences, click.Group):
    """The commands."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"],
                                             "show_default": True})  # fmt: skip
@click.option("--config", callback=arguments.configured(lambda: main), expose_value=False,
              metavar="FILE.toml",
              help="options by file: [bridge] broker = \"host:1883\"; flags go before it")
@click.pass_context
def main(context):
    """From an MQTT broker to tables of Delta Lake. In the order of the data: bridge, ingest (with
    compact and replay), quarantine, gold, report."""
    context.ensure_object(Stop)
    log_to_stderr()


def _with_decoders(command):
    """Add the options of every command that decodes."""
    keys = click.option(
        "--telemetry-keys", "keys", callback=arguments.telemetry_keys, metavar="FILE",
        type=click.Path(dir_okay=False),
        help="keys of the devices that sign their readings, of `umqtt-board telemetry-keys`")
    decoders = click.option(
        "--decoder", "decoders", multiple=True, callback=arguments.decoders, metavar="MODULE:NAME",
        help="a function for payloads of your own (DECODING.md); several times")
    return decoders(keys(command))  # fmt: skip


@main.command()
@click.option("--broker", required=True, callback=arguments.address, metavar="HOST:PORT",
              help="or mqtt://HOST, mqtts://HOST (which is --tls) with or without a port")
@click.option("--spool", required=True, type=Folder("_state", "tables"), help="its folder")
@click.option("--topic", "topics", multiple=True, default=("fleet/+/+/telemetry",),
              callback=arguments.topic_filters,
              help="topic filter; may be given several times")  # fmt: skip
@click.option("--client-id", default="umqtt-bridge", callback=arguments.mqtt_string,
              help="fixed: it names the session")  # fmt: skip
@click.option("--qos", type=click.IntRange(0, 2), default=1)
@click.option("--keepalive", type=click.IntRange(2, 65_535), default=30, help="seconds")
@click.option("--username", envvar="UMQTT_BROKER_USER", callback=arguments.mqtt_string)
@click.option("--password", envvar="UMQTT_BROKER_PASSWORD", show_default=False,
              callback=arguments.mqtt_string,
              help="better in the environment: UMQTT_BROKER_PASSWORD")  # fmt: skip
@click.option("--tls", is_flag=True, help="TLS; the broker's certificate is verified")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False), help="CA file; implies --tls")
@click.option("--cert", type=click.Path(exists=True, dir_okay=False),
              help="this client's certificate; implies --tls")  # fmt: skip
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="and its key")
@click.option("--peer", "peers", multiple=True, type=click.Path(file_okay=False),
              help="spool of another bridge on the same $share subscription; several times")
@click.option("--wait", is_flag=True, help="go on trying when the broker's name is not known yet")
@click.option("--metrics", type=OutputFile(), help="JSON file, written each second")
@click.option("--segment-bytes", type=click.IntRange(4096), show_default="64 MiB",
              help="a segment is closed at this length; at most a quarter of --max-spool-bytes")
@click.option("--max-spool-bytes", type=click.IntRange(4096),
              help="take no more than that; what does not fit stays unacknowledged")  # fmt: skip
@click.option("--max-packet", type=click.IntRange(1024, arguments.LONGEST_PACKET),
              show_default="64 MiB",
              help="a longer message is dropped: acknowledged, told and counted; at most half of"
                   " --max-spool-bytes")  # fmt: skip
@click.option("--mark-interval", type=Seconds(0.01, 3600), default=0.25,
              help="seconds between two marks for a device")  # fmt: skip
@_with_decoders
@click.option("--mark-keys", type=click.Path(dir_okay=False), metavar="FILE",
              help="keys that marks are signed with, of `umqtt-board mark-keys`")
@click.pass_obj
def bridge(stop, broker, keys, **options):
    """Receive telemetry, make it durable, acknowledge it; tell devices how far."""
    from .bridge.service import Bridge, Refused, Settings
    from .spool.reader import SpoolError

    quarter = (options["max_spool_bytes"] or 1 << 60) // 4
    if (options["segment_bytes"] or 0) > quarter:
        raise Problem(f"--segment-bytes: at most a quarter of --max-spool-bytes, {quarter}")
    options["segment_bytes"] = options["segment_bytes"] or Settings.segment_bytes
    if (options["max_packet"] or 0) > 2 * quarter:
        raise Problem(f"--max-packet: at most half of --max-spool-bytes, {2 * quarter}")
    options["max_packet"] = options["max_packet"] or min(Settings.max_packet, 2 * quarter)
    host, port, tls = broker
    settings = Settings(host=host, port=port, telemetry_keys=keys,
                        **{**options, "tls": options["tls"] or tls})  # fmt: skip
    if settings.password is not None and settings.username is None:
        raise Problem("--password needs --username [MQTT-3.1.2-22]")
    if settings.key is not None and settings.cert is None:
        raise Problem("--key needs --cert")
    if Path(settings.spool).resolve() in (Path(peer).resolve() for peer in settings.peers):
        raise Problem(f"--peer {settings.spool}: that is this bridge's own --spool")
    try:
        receiver = Bridge(settings)
    except (Refused, SpoolError) as error:
        raise Problem(str(error))
    stop.tell(receiver.stop)
    try:
        receiver.run()
    except Refused as error:
        raise Problem(str(error))
    except SpoolError as error:
        raise click.ClickException(str(error))


def _wait_for_spool(folders, once):
    """The bridge may be started after the ingest; a single run needs a spool now."""
    from .spool.reader import SpoolError, spool_id

    said = False
    while True:
        try:
            for folder in folders.split(","):
                spool_id(folder.strip())
            return
        except SpoolError as error:
            if once or "no spool.json" not in str(error):
                raise Problem(str(error))
            if not said:
                logging.getLogger("umqtt.ingest").info("%s; waiting for it", error)
            said = True
            time.sleep(0.5)


@main.command()
@click.option("--spool", help="its folder (several: separated by commas)")
@click.option("--kafka", multiple=True, callback=arguments.pairs, metavar="KEY=VALUE",
              help="instead of a spool: an option of Spark's format(\"kafka\"); several times")
@click.option("--tables", required=True, type=TablesFolder(), help="their folder")
@click.option("--once", is_flag=True, help="take what is there and end")
@click.option("--interval", type=Seconds(0.1, 86_400), default=10.0,
              help="seconds between two batches, without --once")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(1), default=200_000, help="of one batch")
@click.option("--max-bytes", type=click.IntRange(1), default=128 << 20, show_default="128 MiB",
              help="of the messages of one batch, about; one message is always taken")
@click.option("--consumer", default="ingest", help="name under which the spool is released")
@click.option("--compact-files", type=click.IntRange(2),
              help="join the small files of a table's day when there are so many")  # fmt: skip
@click.option("--skip-damaged", is_flag=True,
              help="go on without what is damaged or missing in the spool; it is logged")
@_with_decoders
@with_spark
@click.pass_obj
def ingest(stop, spool, kafka, tables, once, interval, max_rows, max_bytes, consumer,
           compact_files, skip_damaged, decoders, keys, memory, conf):  # fmt: skip
    """Spool to bronze, silver, clock, duplicates and quarantine; may be killed at any time."""
    # Before what takes seconds to load.
    logging.getLogger("umqtt.ingest").info("from %s into %s", spool or "Kafka", tables)
    import pyspark
    from pyspark.errors import PySparkException

    from .ingest.query import InUse, Lock, Runner, ready
    from .source.data_source import Options
    from .spool import consumers
    from .spool.reader import SpoolError
    from .tables.storage import are_there, is_object_store, place

    if not consumers.NAME.fullmatch(consumer):
        raise Problem(f"--consumer {consumer!r}: letters, digits, - and _ only")
    if spool and kafka:
        raise Problem("--spool and --kafka: an ingest has one source; leave out one of them")
    if not spool and not kafka:
        raise Problem("one of --spool and --kafka is needed")
    if kafka and is_object_store(tables):
        raise Problem("--kafka: with tables in an object store there is no folder for Spark's "
                      "checkpoint; name a folder of tables")  # fmt: skip
    if spool:
        try:
            Options({"path": spool})
        except ValueError as error:
            raise Problem(f"--spool: {error}")
        _wait_for_spool(spool, once)
    try:
        lock = Lock(tables)
        are_there(tables)
        ready(tables)
        for folder in spool.split(",") if spool else ():
            consumers.claim(folder.strip(), consumer, place(tables), are_there)
    except (InUse, SpoolError) as error:
        raise Problem(str(error))
    with running.spark(stop, memory, conf) as spark:
        lock.holds(spark)
        runner = Runner(spark, spool, tables, once, interval, max_rows, consumer,
                        compact_files=compact_files, kafka=kafka,
                        skip_damaged=skip_damaged, size=max_bytes,
                        decoders=decoders, keys=keys)  # fmt: skip
        stop.tell(runner.stop)
        try:
            runner.run()
        except PySparkException as error:
            raise _failed(error, pyspark.__version__)


def _failed(error, version):
    """What ends an ingest, as a sentence: Spark's own text has the whole way through the JVM."""
    text = str(error)
    if "KAFKA_DATA_SOURCE_NOT_ENABLED" in text:
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        return Problem("this Spark cannot read Kafka: add "
                       f"--conf spark.jars.packages={package}")  # fmt: skip
    return click.ClickException(f"the query failed and was given up: {failures.why(text)}")


def _there(tables):
    """Raises Problem unless ingest has made these tables, and OSError."""
    from .tables.storage import are_there

    if not are_there(tables):
        raise Problem(f"{tables} has no tables: run `umqtt-pipeline ingest` first")


def _locked(tables):
    """The lock of tables that no ingest may write meanwhile, and that are whole."""
    from .ingest.ledger import ready
    from .spool.reader import SpoolError
    from .tables.lock import InUse, Lock

    _there(tables)
    try:
        lock = Lock(tables)
        ready(tables)
    except InUse as error:
        raise Problem(f"{error}; stop it first")
    except SpoolError as error:
        raise Problem(str(error))
    return lock


@contextmanager
def _sentence_if_in_use():
    """In an object store another machine may win the number of a batch."""
    from .tables.lock import InUse

    try:
        yield
    except InUse as error:
        raise click.ClickException(f"{error}; nothing was changed")


@contextmanager
def _alone(stop, tables, memory, conf):
    """A SparkSession for work on tables that no ingest may write meanwhile."""
    lock = _locked(tables)
    with running.spark(stop, memory, conf) as spark:
        lock.holds(spark)
        with _sentence_if_in_use():
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
    from .ingest.query import Ledger
    from .tables import compaction as joining
    from .tables.schema import ALL
    from .tables.store import Tables

    with _alone(stop, tables, memory, conf) as spark:
        held = Tables(tables, ALL)
        held.clean()
        done = joining.run(spark, held, Ledger(held), files)
    logging.getLogger("umqtt.compact").info("files joined: %d", sum(done.values()))


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@_with_decoders
@with_spark
@click.pass_obj
def replay(stop, tables, decoders, keys, memory, conf):
    """Decode again what is in quarantine; what is a reading now goes to silver."""
    logging.getLogger("umqtt.replay").info("in the tables in %s", tables)
    from .ingest import replay as replaying

    with _alone(stop, tables, memory, conf) as spark:
        counts = replaying.run(spark, tables, decoders, keys)
    log = logging.getLogger("umqtt.replay")
    if counts is None:
        log.info("the quarantine is empty")
    else:
        log.info("%(new)d new, %(duplicate)d duplicates, %(quarantine)d still in quarantine",
                 counts)  # fmt: skip


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@with_spark
@click.pass_obj
def gold(stop, tables, memory, conf):
    """Make the gold tables anew: per minute, device, boot, and gaps."""
    logging.getLogger("umqtt.gold").info("from the tables in %s", tables)
    from .gold import build as making
    from .tables.store import dataset

    silver = dataset(tables, "silver")
    if silver is None or not silver.count_rows():
        raise Problem(f"{tables} has no silver rows: run `umqtt-pipeline ingest` first")
    with running.spark(stop, memory, conf) as spark:
        for name, rows in making.build(spark, tables).items():
            logging.getLogger("umqtt.gold").info("%s: %d rows", name, rows)


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--out", required=True, type=OutputFile(), help="FILE.html")
def report(tables, out):
    """Write an HTML report on the gold tables."""
    logging.getLogger("umqtt.report").info("from the tables in %s", tables)
    from .report import page as making

    try:
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
    from .tables import quarantine as refused

    _there(tables)
    chosen = refused.select(tables, topic, reason)
    held = refused.last(tables, chosen, limit)
    if as_json:
        for row in held:
            click.echo(refused.as_json(row))
        return
    count, of = chosen.num_rows, " of that kind" if topic or reason else ""
    many = f"1 message{of} is" if count == 1 else f"{count:,} messages{of} are"
    click.echo(f"{many} in the quarantine of {tables}")
    for text, times in refused.reasons(chosen):
        click.echo(f"{times:10,}  {refused.plain(text)}")
    if 0 < len(held) < count:
        click.echo(f"The last {len(held)}:")
    for row in held:
        where, why = refused.plain(row["topic"]), refused.plain(row["reason"])
        click.echo(f"{row['received_at']:%Y-%m-%d %H:%M:%S}Z  {where}: {why}")
        click.echo(f"    {refused.shown(row['payload'])}")


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--keep", multiple=True, callback=arguments.days_by_table, metavar="TABLE=DAYS",
              help="let go what of bronze, silver, clock, duplicates, quarantine or batches was "
                   "received longer ago; several times")  # fmt: skip
@click.option("--unused-days", type=click.IntRange(0), default=7,
              help="remove files that no table has needed for so long")  # fmt: skip
def clean(tables, keep, unused_days):
    """Let old days go, and remove files that no table needs any more.

    Until its files are removed a table can be read as it was."""
    from .ingest.ledger import Ledger
    from .tables import maintenance
    from .tables.schema import ALL
    from .tables.storage import is_object_store
    from .tables.store import Tables

    if is_object_store(tables) and not unused_days:
        raise Problem("--unused-days: 1 or more with tables in an object store: another machine "
                      "may be writing files that no table has yet")  # fmt: skip
    lock = _locked(tables)
    held = Tables(tables, ALL)
    with _sentence_if_in_use():
        maintenance.expire(held, Ledger(held), keep)
    count = maintenance.vacuum(held, unused_days)
    logging.getLogger("umqtt.tables").info("%d files removed", count)
    del lock


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--spool", "spools", multiple=True, type=click.Path(exists=True, file_okay=False),
              help="a spool to look at as well; several times")  # fmt: skip
def verify(tables, spools):
    """Look at every byte of the tables, of ingest's state and of spools: exit status 1, and a line
    for each file, if bits have flipped or files are gone. Ingest may run meanwhile."""
    from .ingest.ledger import state_files
    from .spool.reader import SpoolError, begin, durable, walk
    from .tables import maintenance
    from .tables.store import existing

    _there(tables)
    try:
        found = maintenance.verify(existing(tables), lambda: state_files(tables))
    except SpoolError as error:
        raise click.ClickException(str(error))
    for spool in spools:
        try:
            found.bytes += sum(len(body) for _, body in walk(spool, begin(spool), durable(spool)))
        except SpoolError as error:
            found.wrong.append(str(error))
    for line in found.wrong:
        click.echo(line)
    click.echo(f"{found.files} files of the tables, {found.bytes:,} bytes with the spools: "
               f"{len(found.wrong) or 'nothing'} damaged")  # fmt: skip
    if found.wrong:
        raise click.exceptions.Exit(1)


@main.command()
@click.argument("old", type=click.Path(exists=True, file_okay=False))
@click.argument("new", type=Folder("_state", "tables"))
def salvage(old, new):
    """Copy all that is whole in the damaged spool OLD into a new spool, the folder NEW, and say
    what was left behind. OLD stays as it is; no bridge may run on it."""
    from .spool import salvage as saving
    from .spool.files import SpoolError

    try:
        found = saving.salvage(old, new)
    except SpoolError as error:
        raise Problem(str(error))
    for line in found.left:
        click.echo(f"left behind: {line}")
    click.echo(f"{new}: {found.messages:,} messages in {found.blocks:,} blocks, "
               f"{found.bytes:,} bytes; {len(found.left) or 'nothing'} left behind")  # fmt: skip


@main.command()
@click.option("--tables", required=True, type=TablesHere())
@click.option("--out", required=True, type=click.Path(file_okay=False), help="a folder")
@click.option("--table", "names", multiple=True, help="only this one; several times")
@click.option("--version", type=click.IntRange(0), help="one table as it was, by Delta's version")
def export(tables, out, names, version):
    """Write tables as plain Parquet files, for programs that do not know Delta Lake."""
    from deltalake.exceptions import DeltaError

    from .tables import maintenance
    from .tables.store import existing

    _there(tables)
    if version is not None and len(names) != 1:
        raise Problem("--version: name one table (--table), each has versions of its own")
    try:
        for name in names or existing(tables).columns:
            rows = maintenance.export(tables, name, out, version)
            logging.getLogger("umqtt.tables").info("%s: %d rows", Path(out, name), rows)
    except KeyError as error:
        raise Problem(f"--table: there is no table {error}")
    except FileExistsError as error:
        raise Problem(f"--out: {error}")
    except DeltaError as error:
        raise Problem(f"--version {version}: {error}")
