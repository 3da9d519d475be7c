"""The command `mqtt-audit` and its options. Exit status 2: the arguments are wrong, or nothing of
what was given can be read. Must not know how Spark is started (umqtt_runtime/command.py)."""

import os
import shutil
import sys
from contextlib import suppress

import click
from click.core import ParameterSource
from umqtt_runtime.log_lines import log_to_stderr
from umqtt_runtime.options import Problem, Sentences, with_spark

from .report.lines import EVENTS, TOLD, JsonLines, TextLines, told


def with_events(command):
    """Add the option that says which rows are told as lines."""
    return click.option(
        "--events", default=",".join(TOLD), callback=_events, metavar="KIND,...",
        help=f"what is told as lines: some of {', '.join(sorted(set(EVENTS.values())))}",
    )(command)  # fmt: skip


def _events(_, __, value):
    found = [word.strip() for word in value.split(",")]
    for word in found:
        if word not in EVENTS.values():
            raise click.BadParameter(f"{word!r} is none of {', '.join(set(EVENTS.values()))}")
    return found


class Audit(Sentences, click.Command):
    """The command."""


@click.command(cls=Audit, context_settings={"help_option_names": ["-h", "--help"],
                                            "show_default": True})  # fmt: skip
@click.version_option(package_name="umqtt-min")
@click.argument("captures", nargs=-1, required=True,
                type=click.Path(readable=False, allow_dash=True))
@click.option("--out", type=click.Path(file_okay=False),
              help="folder of tables and report.html; an earlier audit in it is replaced")
@click.option("--json", "as_json", is_flag=True,
              help="instead of that, write an object a line to standard output")
@with_events
@click.option("--port", "ports", multiple=True, default=(1883,), type=click.IntRange(1, 65_535),
              help="of brokers; others are found by CONNECT; may be given several times")
@click.option("--cores", default=None, type=click.IntRange(1), help="without: all there are")
@click.option("--spark/--no-spark", "with_workers", default=None,
              help="by Spark's workers, or in this process; without: by the captures' size")
@with_spark
@click.pass_obj
def audit(stop, captures, out, as_json, events, ports, cores, with_workers, memory,
          conf):  # fmt: skip
    """Decode captured traffic: tables of packets, exchanges and violations, and a report.

    CAPTURES are files of pcap or pcapng, each of them also packed by gzip (.gz); - is standard
    input. One that cannot be read is said and left out; if none can, one is given twice, OUT holds
    other things, or another audit is being made there, the exit status is 2.

    `mqtt-audit live -i INTERFACE` follows an interface. `mqtt-audit warm-up` prepares the first
    audit."""
    if as_json == bool(out):
        raise click.UsageError("Give either --out or --json.")
    source = click.get_current_context().get_parameter_source("events")
    if out and source is not ParameterSource.DEFAULT:
        raise click.UsageError("--events selects what --json writes. With --out leave it away: "
                               "the tables have all kinds.")  # fmt: skip
    log_to_stderr()
    if not with_workers:
        _choose(captures)
    from . import run, sources

    try:
        if as_json:
            sources.lines(captures, JsonLines(sys.stdout, events), ports, stop)
            return
        with sources.files(captures, stop) as (captures, names):
            _into(out, stop, captures, names, ports, cores, with_workers, memory, conf)
        told(out, sys.stdout)
    except run.Refused as error:
        raise Problem(str(error))


def _choose(captures):
    """Have Python run the inner loops if the captures are so small that compiling takes longer.
    Nobody knows that of standard input."""
    from .capture.sizes import bytes_of
    from .compiled import kept

    if "-" in captures:
        return
    with suppress(OSError):  # what cannot be read is said later
        kept.choose(sum(map(bytes_of, filter(os.path.isfile, captures))))


def _into(out, stop, captures, names, ports, cores, with_workers, memory, conf):
    """The audit of files into a folder."""
    from . import run

    if with_workers is None:
        with_workers = not run.small(captures)
    if not with_workers:
        with run.begun(captures, out):
            run.make(None, captures, out, ports, names)
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
            run.make(spark, captures, out, ports, names)


@click.command(cls=Audit, options_metavar="live [OPTIONS]", context_settings={
    "help_option_names": ["-h", "--help"], "show_default": True})  # fmt: skip
@click.argument("_", metavar="", type=click.Choice(["live"]))
@click.option("-i", "--interface", required=True, help="as dumpcap -D names them, lo for instance")
@click.option("-f", "--filter", "wanted", default=None,
              help="capture filter as dumpcap takes it; without: TCP, and all of VLANs, PPPoE and "
                   "IPv6 extension headers; \"tcp port 1883\" costs the machine less")
@click.option("--json", "as_json", is_flag=True, help="an object a line, instead of words")
@with_events
@click.option("--port", "ports", multiple=True, default=(1883,), type=click.IntRange(1, 65_535),
              help="of brokers; others are found by CONNECT; may be given several times")
@click.pass_obj
def live(stop, _, interface, wanted, as_json, events, ports):  # fmt: skip
    """Follow an interface: a line for each packet, connection that ends, violation and problem.

    dumpcap, which comes with Wireshark and tshark, does the capturing; it needs the right to. It
    ends at Ctrl-C, with the connections that are open then."""
    from . import sources

    log_to_stderr()
    out = JsonLines(sys.stdout, events) if as_json else TextLines(sys.stdout, events)
    try:
        why = sources.live(stop, interface, wanted or sources.FILTER, out, ports)
        out.close()
    except sources.Refused as error:
        raise Problem(str(error))
    if why:  # what came until then is told
        raise click.ClickException(why)


@click.command(cls=Audit, options_metavar="warm-up [OPTIONS]",
               context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
@click.argument("_", metavar="", type=click.Choice(["warm-up"]))
def warm_up(_):
    """Compile the inner loops, once for this installation: a minute or two on an idle
    computer.

    Otherwise the first audit that needs them does it."""
    log_to_stderr()
    from .warming import warm

    warm()
