"""The command `mqtt-audit` and its options. Exit status 2: the arguments are wrong, or nothing of
what was given can be read. Must not know how Spark is started (umqtt_runtime/command.py)."""

import os
import shutil

import click
from umqtt_runtime.options import Problem, Sentences, log_to_stderr, with_spark


class Audit(Sentences, click.Command):
    """The command."""


@click.command(cls=Audit, context_settings={"help_option_names": ["-h", "--help"],
                                            "show_default": True})  # fmt: skip
@click.argument("captures", nargs=-1, required=True, type=click.Path(readable=False))
@click.option("--out", required=True, type=click.Path(file_okay=False),
              help="folder of tables and report.html; an earlier audit in it is replaced")
@click.option("--port", "ports", multiple=True, default=(1883,), type=click.IntRange(1, 65_535),
              help="of brokers; others are found by CONNECT; may be given several times")
@click.option("--cores", default=None, type=click.IntRange(1), help="without: all there are")
@click.option("--spark/--no-spark", "with_workers", default=None,
              help="by Spark's workers, or in this process; without: by the captures' size")
@with_spark
@click.pass_obj
def audit(stop, captures, out, ports, cores, with_workers, memory, conf):  # fmt: skip
    """Decode captured traffic: tables of packets, exchanges and violations, and a report.

    CAPTURES are files of pcap or pcapng, each of them also packed by gzip (.gz). One that cannot
    be read is said and left out; if none can, one is given twice, OUT holds other things, or
    another audit is being made there, the exit status is 2."""
    from . import run

    log_to_stderr()
    try:
        if with_workers is None:
            with_workers = not run.small(captures)
        if not with_workers:
            with run.begun(captures, out):
                run.make(None, captures, out, ports)
            return
        from umqtt_runtime import command as running

        cores = str(cores or os.cpu_count())
        conf = {"spark.master": f"local[{cores}]", "spark.default.parallelism": cores,
                "spark.sql.shuffle.partitions": cores, **conf}  # fmt: skip
        with run.begun(captures, out), run.sockets() as settings:
            folder = settings.get("spark.python.unix.domain.socket.dir")
            if folder:
                stop.leave(lambda: shutil.rmtree(folder, ignore_errors=True))
            with running.spark(stop, memory, {**settings, **conf}) as spark:
                run.make(spark, captures, out, ports)
    except run.Refused as error:
        raise Problem(str(error))
