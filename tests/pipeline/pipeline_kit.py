"""What the pipeline's tests share: payloads as devices pack them, spools made without a broker,
processes with deadlines. Must not know what a test asserts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import cbor2
from patience import PATIENCE, wait_until
from umqtt_pipeline import wire
from umqtt_pipeline.spool.writer import SpoolWriter

EPOCH = bytes.fromhex("00112233445566aa")
DAY_US = 86_400_000_000
NOON = 1_767_268_800_000_000  #: 2026-01-01 12:00 UTC in us
# The tests' tables are so small that compiling each plan would be half of the work.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false",
               "spark.sql.codegen.factoryMode": "NO_CODEGEN"}  # fmt: skip
QUICK = [word for pair in INTERPRETED.items() for word in ("--conf", "=".join(pair))]
PROGRAMS = Path(sys.executable).parent
PROGRAM = str(PROGRAMS / "umqtt-pipeline")
AUDIT = str(PROGRAMS / "mqtt-audit")


def base(sequence, device="dev1", epoch=EPOCH, boot=1, uptime_ms=None, low=1):
    """The base fields of a pack with text labels; by default the k-th reading is k s old."""
    up, ms = divmod(sequence * 1000 if uptime_ms is None else uptime_ms, 1000)
    return {"bn": device + "/", "ep": epoch, "bo": boot, "sq": sequence, "up": up, "ms": ms,
            "lo": low}  # fmt: skip


def senml(sequence, values=None, **identity):
    """A SenML CBOR pack; values: [(name, unit or None, int or Decimal)]."""
    values = values or [("temperature", "Cel", Decimal(2000 + sequence).scaleb(-2))]
    records = [{0: n, **({1: u} if u else {}), 2: v} for n, u, v in values]
    first = base(sequence, **identity)
    first[-2] = first.pop("bn")
    records[0] = {-2: first.pop(-2), **first, **records[0]}
    return cbor2.dumps(records)


def senml_text(sequence, values=(("temperature", "Cel", 20.5),), **identity):
    """The same as SenML JSON."""
    first = base(sequence, **identity)
    first["ep"] = first["ep"].hex()
    records = [{"n": n, "u": u, "v": v} for n, u, v in values]
    return json.dumps([{**first, **records[0]}, *records[1:]]).encode()


def flat(sequence, device="dev1", epoch=EPOCH, boot=1, low=1, **values):
    """The same as flat JSON."""
    up = sequence
    return json.dumps({"device": device, "epoch": epoch.hex(), "sequence": sequence, "boot": boot,
                       "up": up, "ms": 0, "low": low, **values}).encode()  # fmt: skip


def clock(sequence, unix_s, **identity):
    """A clock record: at the pack's uptime it was unix_s."""
    return senml(sequence, [("clock", "s", Decimal(unix_s))], **identity)


def topic(device="dev1", group="g"):
    return f"fleet/{group}/{device}/telemetry"


def publish(payload, device="dev1", packet_id=1, dup=False, **more):
    """One PUBLISH packet at QoS 1 as a broker would send it."""
    name = more.pop("topic", topic(device, more.pop("group", "g")))
    return wire.publish_packet(name, payload, 1, False, packet_id, dup)


def messages(body):
    """[(topic, payload)] of the PUBLISH packets that lie in bytes."""
    f = wire.frames(body)
    return [(body[a:b], body[c:d]) for a, b, c, d in zip(f.topic, f.topic_end, f.payload, f.end)]


def fill(folder, packets, received=NOON, per_block=50, step_us=1_000_000):
    """Append packets to a spool, `per_block` in a block, one block every step_us."""
    writer = SpoolWriter(folder)
    try:
        for at in range(0, len(packets), per_block):
            part = packets[at : at + per_block]
            writer.append(b"".join(part), len(part), received + at // per_block * step_us)
    finally:
        writer.close()


_spawned = []


def _words(arguments):
    """The words of a command line: "audit" is a program of its own."""
    words = [str(word) for word in arguments]
    return [AUDIT, *words[1:]] if words[:1] == ["audit"] else [PROGRAM, *words]


def spawn(*arguments, log=None, preexec_fn=None, **environment):
    """Start `umqtt-pipeline ...`, or `mqtt-audit`; its output goes to the file `log`."""
    out = open(log, "ab") if log else subprocess.DEVNULL
    try:
        process = subprocess.Popen(_words(arguments), stdout=out, stderr=out,
                                   stdin=subprocess.DEVNULL, env={**os.environ, **environment},
                                   preexec_fn=preexec_fn)
        _spawned.append(process)
        return process
    finally:  # fmt: skip
        if log:
            out.close()


def end_all():
    """Kill whatever spawn() has started that still runs."""
    while _spawned:
        process = _spawned.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


def run(*arguments, timeout=PATIENCE * 120, **environment):
    """Run `umqtt-pipeline ...`, or `mqtt-audit`, to its end; returns CompletedProcess with text
    output."""
    return subprocess.run(_words(arguments), capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **environment})  # fmt: skip


def end(process, how=signal.SIGTERM, seconds=30):
    """Send a signal and wait; returns the exit status."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def family(pid):
    """[(process id, command line as bytes)] of all that a process has begun, directly or not."""
    parents, lines = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            lines[int(stat.parent.name)] = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue  # it has ended
    found, above = [], {pid}
    while above:
        above = {child for child, parent in parents.items() if parent in above}
        found += [(child, lines[child]) for child in sorted(above) if child in lines]
    return found


def killed(process):
    """Kill a command and all that it has begun, as a machine that is gone."""
    for pid, _ in [(process.pid, b""), *family(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(60)


def wait_for(condition, seconds=30, what="the condition"):
    """Poll until `condition()` is true and return its value; AssertionError PATIENCE * `seconds`
    later."""
    return wait_until(condition, seconds, what)


def batch_done(log, number=0):
    """Whether a log tells the end of that batch: "batch 0: ..." alone may be how far it is."""
    return re.search(rf"batch {number}: \d+ messages: \d+ new", log.read_text())


def put_back(copy, root):
    """A folder is what a copy of it is, which is gone then."""
    shutil.rmtree(root)
    copy.rename(root)
