"""`bridge` and `ingest`, which run until they are stopped.

Knows their options and exit statuses; the work is done in the rooms of their names. Exit status 2:
the arguments or the broker's answer are wrong. Must not know how Spark is started
(umqtt_runtime/command.py) nor signals.
"""

import logging
import time
from pathlib import Path

import click
from umqtt_runtime import command as running
from umqtt_runtime import failures
from umqtt_runtime.options import Problem, with_spark

from .. import options as arguments
from ..options import OutputFile, Seconds, SpoolFolder, TablesFolder
from .group import main, with_decoders

#: how long ingest waits for a replay or a compaction, before it ends with status 1
REPLAY_S = 600


@main.command()
@click.option("--broker", required=True, callback=arguments.address, metavar="HOST:PORT",
              help="or mqtt://HOST, mqtts://HOST (which is --tls) with or without a port")
@click.option("--spool", required=True, type=SpoolFolder(), help="its folder")
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
@click.option("--peer", "peers", multiple=True, type=arguments.PeerPlace(),
              help="spool of another bridge on the same $share subscription, or s3://BUCKET/"
                   "PREFIX for all that ship there; several times")  # fmt: skip
@click.option("--ship", type=arguments.ObjectPlace(), metavar="s3://BUCKET/PREFIX",
              help="ship the spool there, too; a mark waits for that, and the spool's machine may "
                   "be lost")  # fmt: skip
@click.option("--ship-interval", type=Seconds(0.05, 3600), default=1.0,
              help="seconds between two objects that are shipped, unless much is waiting")
@click.option("--wait", is_flag=True, help="go on trying when the broker's name is not known "
              "yet, or each connection is closed at once, as by a forwarder")  # fmt: skip
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
@with_decoders
@click.option("--mark-keys", type=click.Path(dir_okay=False), metavar="FILE",
              help="keys that marks are signed with, of `umqtt-board mark-keys`")
@click.pass_obj
def bridge(stop, broker, keys, **options):
    """Receive telemetry, make it durable, acknowledge it; tell devices how far."""
    from ..bridge.service import Bridge, Refused, Settings
    from ..spool.reader import SpoolError

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
    """The bridge may be started after the ingest; a single run needs a spool now. Returns the
    places of all spools."""
    from ..spool import logs
    from ..spool.reader import SpoolError

    said, places = False, [folder.strip() for folder in folders.split(",")]
    while True:
        try:
            found = logs.by_id(places)
            if not found:
                raise SpoolError(f"{folders}: no bridge has shipped there: no spool.json")
            return list(found.values())
        except SpoolError as error:
            if once or "no spool.json" not in str(error):
                raise Problem(str(error))
            if not said:
                logging.getLogger("umqtt.ingest").info("%s; waiting for it", error)
            said = True
            time.sleep(0.5)


@main.command()
@click.option("--spool", help="its folder (several: separated by commas), or s3://BUCKET/PREFIX "
              "for all that bridges ship there")  # fmt: skip
@click.option("--kafka", multiple=True, callback=arguments.pairs, metavar="KEY=VALUE",
              help="instead of a spool: an option of Spark's format(\"kafka\"); several times")
@click.option("--nats", metavar="nats://HOST:PORT/STREAM", help="instead of a spool: a stream of "
              "JetStream in which an MQTT broker of NATS keeps the messages")  # fmt: skip
@click.option("--tables", required=True, type=TablesFolder(), help="their folder")
@click.option("--work", type=click.Path(file_okay=False),
              help="folder for Spark's checkpoint and metrics when the tables are in an object "
                   "store; it may be lost")  # fmt: skip
@click.option("--once", is_flag=True, help="take what is there and end")
@click.option("--interval", type=Seconds(0.1, 86_400), default=10.0,
              help="seconds between two batches, without --once")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(1), default=200_000, help="of one batch")
@click.option("--max-bytes", type=click.IntRange(1), default=128 << 20, show_default="128 MiB",
              help="of the messages of one batch, about; one message is always taken")
@click.option("--consumer", default="ingest", help="name under which the spool is released")
@click.option("--compact-files", type=click.IntRange(2),
              help="join the small files of a table's day when there are that many")  # fmt: skip
@click.option("--skip-damaged", is_flag=True,
              help="go on without what is damaged or missing in the spool, or deleted while the "
                   "tables lack it; it is logged")
@with_decoders
@with_spark
@click.pass_obj
def ingest(stop, spool, kafka, nats, tables, work, once, interval, max_rows, max_bytes, consumer,
           compact_files, skip_damaged, decoders, keys, memory, conf):  # fmt: skip
    """Spool to bronze, silver, clock, duplicates and quarantine; may be killed at any time."""
    _one_source(spool, kafka, nats)
    # Before what takes seconds to load.
    logging.getLogger("umqtt.ingest").info("from %s into %s", spool or nats or "Kafka", tables)
    import pyspark
    from pyspark.errors import PySparkException

    from ..ingest.query import InUse, Lock, Runner, ready
    from ..source.data_source import Options
    from ..spool import consumers
    from ..spool.reader import SpoolError
    from ..tables.storage import are_there, is_object_store, place

    if not consumers.NAME.fullmatch(consumer):
        raise Problem(f"--consumer {consumer!r}: letters, digits, - and _ only")
    if kafka and is_object_store(tables):
        raise Problem("--kafka: with tables in an object store there is no folder for Spark's "
                      "checkpoint; name a folder of tables")  # fmt: skip
    if work and not is_object_store(tables):
        raise Problem("--work: these tables are a folder, and Spark's checkpoint lies in it")
    spools = ()
    if spool:
        try:
            Options({"path": spool})
        except ValueError as error:
            raise Problem(f"--spool: {error}")
        spools = _wait_for_spool(spool, once)
    try:
        lock = Lock(tables, wait=REPLAY_S)
        are_there(tables)
        for folder in spools:  # before tables are made that nobody wants
            consumers.check(folder, consumer, place(tables), are_there)
        ready(tables)
        for folder in spools:
            consumers.claim(folder, consumer, place(tables), are_there)
    except InUse as error:
        raise (click.ClickException if error.passing else Problem)(str(error))
    except SpoolError as error:
        raise Problem(str(error))
    with running.spark(stop, memory, conf) as spark:
        lock.holds(spark)
        runner = Runner(spark, spool, tables, once, interval, max_rows, consumer,
                        compact_files=compact_files, kafka=kafka, nats=nats,
                        skip_damaged=skip_damaged, size=max_bytes,
                        decoders=decoders, keys=keys, work=work)  # fmt: skip
        stop.tell(runner.stop)
        try:
            runner.run()
        except SpoolError as error:
            raise Problem(str(error))
        except PySparkException as error:
            raise _failed(error, pyspark.__version__)


def _one_source(spool, kafka, nats):
    """Raises Problem unless one source is named, and named rightly."""
    given = [name for name, value in (("--spool", spool), ("--kafka", kafka), ("--nats", nats))
             if value]  # fmt: skip
    if not given:
        raise Problem("one of --spool, --kafka and --nats is needed")
    if len(given) > 1:
        raise Problem(f"{' and '.join(given)}: an ingest has one source; leave out one of them")
    if nats:
        from ..source.jetstream import place_of

        try:
            place_of(nats)
        except ValueError as error:
            raise Problem(f"--nats: {error}")


def _failed(error, version):
    """What ends an ingest, as a sentence: Spark's own text has the whole way through the JVM."""
    text = str(error)
    if "KAFKA_DATA_SOURCE_NOT_ENABLED" in text:
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        return Problem("this Spark cannot read Kafka: add "
                       f"--conf spark.jars.packages={package}")  # fmt: skip
    why = failures.why(text)
    if "No such file or directory: " in why and ".parquet" in why:
        why += ". `umqtt-pipeline verify` says what the tables lack, or which log is wrong"
    if "No space left on device" in why:
        why += ". Nothing is lost: make room, and start ingest again"
    return click.ClickException(f"the query failed and was given up: {why}")
