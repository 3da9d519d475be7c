"""What a wrong input to a command ends in: a sentence that says what and where, and status 2."""

import errno
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake.exceptions import DeltaError
from pipeline_kit import PROGRAM, fill, publish, run, senml, spawn, wait_for
from umqtt_pipeline import commands, options
from umqtt_pipeline.commands.group import Commands, writable
from umqtt_pipeline.ingest.ledger import ready
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.tables.storage import place
from umqtt_runtime import failures


@pytest.mark.parametrize("command,words", [
    (("ingest", "--spool", "a-file", "--tables", "t", "--once"), "a-file is not a spool"),
    (("ingest", "--spool", "spool", "--tables", "/proc/none/t", "--once"), "/proc/none"),
    (("ingest", "--spool", "spool", "--tables", "t", "--once", "--conf", "spark.master=none"),
     "Spark does not start with this --memory and --conf"),
    (("compact", "--tables", "empty"), "empty has no tables: run"),
    (("replay", "--tables", "empty"), "empty has no tables: run"),
    (("report", "--tables", "gold", "--out", "/proc/none/r.html"), "/proc/none"),
])  # fmt: skip
def test_what_and_where(tmp_path, monkeypatch, command, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("x")
    (tmp_path / "empty").mkdir()
    fill(tmp_path / "spool", [publish(senml(1))])
    if "gold" in command:
        _gold(tmp_path / "gold")
    done = run(*command, timeout=60)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "empty").iterdir())  # nothing is begun in a folder named wrongly


@pytest.mark.parametrize("package,program", [
    ("umqtt_pipeline", "umqtt-pipeline"), ("umqtt_board", "umqtt-board"),
    ("mqtt_audit", "mqtt-audit")])  # fmt: skip
def test_each_program_tells_its_version(package, program):
    done = subprocess.run([sys.executable, "-m", package, "--version"], capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{program}, version {version('umqtt-min')}\n")


@pytest.mark.parametrize("command,words", [
    (("bridge", "--broker", "h:1", "--spool", "made"), "made is the folder of tables"),
    (("ingest", "--spool", "spool", "--tables", "spool"), "spool is the folder of a spool"),
])  # fmt: skip
def test_a_folder_of_another_kind(tmp_path, monkeypatch, command, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made" / "_state").mkdir(parents=True)
    fill(tmp_path / "spool", [publish(senml(1))])
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(commands.main, command)
    assert done.exit_code == 2 and words in done.output
    assert sorted(tmp_path.rglob("*")) == before


def _gold(root):
    """The least that a report can be made of: a gold_device without rows."""
    from umqtt_pipeline.gold import schema
    from umqtt_pipeline.tables.store import Tables

    Tables(root, {"gold_device": schema.DEVICES})


BRIDGE = ("bridge", "--broker", "h:1", "--spool", "s")
NAMES = ("--client-id", "--topic", "--username", "--password")
STRINGS = (("x" * 70_000, "70000 bytes"), ("\u00e9" * 32_768, "65536 bytes"),
           ("a\udcff", "not UTF-8"), ("a\0", "U+0000"))  # fmt: skip
INGEST = ("ingest", "--spool", "none", "--tables", "t", "--once")


@pytest.mark.parametrize("command,words", [
    ((*BRIDGE, "--metrics", "none/x"), "none/x: its folder"),
    (("bridge", "--broker", "h:1", "--spool", ""), "the folder is empty"),
    (("bridge", "--broker", "h:1", "--spool", os.devnull), "is no folder"),
    (("bridge", "--broker", "h:1", "--spool", f"{os.devnull}/s"), "/dev/null is no folder: name"),
    (("bridge", "--broker", "h:1", "--spool", "s3://b/p"), "ships it to an object store with"),
    (("export", "--tables", ".", "--out", ""), "the folder is empty"),
    (("export", "--tables", ".", "--out", "s3://b/p"), "no folder on a disk"),
    (("bridge", "--broker", "h:1", "--spool", "a,b"), "the name of a spool has no comma"),
    *(((*BRIDGE, "--topic", topic), "$share/GROUP/FILTER")
      for topic in ("$share", "$share/x", "$share//a", "$share/x/", "$share/+/a")),
    (("ingest", "--spool", "none", "--tables", ""), "the folder is empty"),
    (("report", "--tables", ".", "--out", "none/x.html"), "none/x.html: its folder"),
    (("ingest", "--spool", "a,./a", "--tables", "t"), "named twice"),
    ((*INGEST, "--memory", "lots"), "such as 512m"), ((*INGEST, "--memory", "1k"), "least 512m"),
    ((*INGEST, "--memory", "\u0661g"), "such as 512m"), ((*INGEST, "--conf", "a=b"), "spark.KEY"),
    ((*INGEST, "--conf", "spark.=b"), "spark.KEY"), ((*INGEST, "--conf", "spark.a"), "spark.KEY"),
    *(((*INGEST, "--interval", v), "--interval") for v in ("nan", "inf", "-inf", "0", "-1", "x")),
    *(((*BRIDGE, "--mark-interval", v), "--mark-interval") for v in ("nan", "inf", "0", "-1")),
    ((*BRIDGE, "--segment-bytes", "40000", "--max-spool-bytes", "20000"), "quarter"),
    (("bridge", "--broker", "h:\u0661", "--spool", "s"), "HOST:PORT"),
    ((*BRIDGE, "--peer", "other", "--peer", "./s"), "own --spool"),
    *(((*BRIDGE, option, value), words) for option in NAMES for value, words in STRINGS),
    ((*BRIDGE, "--ship", "/srv/log"), "no place in an object store: write s3://BUCKET/PREFIX"),
    (("bridge", "--broker", "ws://h:1", "--spool", "s"), "ws:// is not spoken here; write HOST"),
    (("bridge", "--broker", "mqtt://u:secret@h:1", "--spool", "s"), "--username"),
    (("bridge", "--broker", "mqtt://h:1/path", "--spool", "s"), "HOST:PORT"),
    (("bridge", "--broker", "mqtt://", "--spool", "s"), "HOST:PORT"),
    *((("bridge", "--broker", host + ":1883", "--spool", "s"), "no host of that name")
      for host in ("a..b", "x" * 300, "a\udcff")),
])  # fmt: skip
def test_an_argument_that_cannot_be(tmp_path, monkeypatch, command, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands.main, command)
    assert done.exit_code == 2 and words in done.output, done.output
    assert not list(tmp_path.iterdir()) and "secret" not in done.output


def test_a_refused_ingest_makes_no_tables(tmp_path, monkeypatch):
    """The spool's reader works for others."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "spool", [publish(senml(1))])
    (tmp_path / "second").mkdir()
    ready("first")
    consumers.claim(tmp_path / "spool", "ingest", place("first"), lambda _: True)
    for name in ("second", "third"):
        done = CliRunner().invoke(
            commands.main, ["ingest", "--spool", "spool", "--tables", name, "--once"])
        assert done.exit_code == 2 and "choose another name with --consumer" in done.output
        assert not list(tmp_path.glob(f"{name}/[a-z]*"))


@pytest.mark.parametrize("text,meant", [
    ("h:1", ("h", 1, False)), ("mqtt://h:1", ("h", 1, False)), ("mqtt://h", ("h", 1883, False)),
    ("mqtts://h", ("h", 8883, True)), ("MQTTS://h:7/", ("h", 7, True)),
    ("mqtt://[::1]", ("::1", 1883, False)), ("mqtt://[::1]:5", ("::1", 5, False)),
])  # fmt: skip
def test_where_the_broker_is(text, meant):
    assert options.address(None, None, text) == meant


@pytest.mark.parametrize("text", [
    "qos = true", "qos = 1.5", 'qos = "1"', "qos = [1]", "mark-interval = true", "tls = 1",
    'mark-interval = "1"', "mark-interval = nan", "tls = \"yes\"", "client-id = 5",
    'topic = "a/b"', "topic = [1]", "peer = [[]]", "spool = []", "broker = 1883", "broker = {}",
    "metrics = 1979-05-27", "segment-bytes = -1", "speed = 1",
])  # fmt: skip
def test_a_value_of_the_wrong_kind_in_the_file_of_options(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(f"[bridge]\n{text}\n")
    done = CliRunner().invoke(commands.main, ["--config", "x.toml", *BRIDGE])
    assert done.exit_code == 2 and text.partition(" ")[0] in done.output, done.output
    assert text != "topic = [1]" or "[1] is not a list of texts" in done.output
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("text,said", [
    ("An error occurred while calling o1.get.\n: org.apache.X: Error while instantiating 'a':\n"
     "\tat b\nCaused by: org.apache.spark.SparkIllegalArgumentException: [INVALID] is wrong\n",
     "[INVALID] is wrong"),
    ("something\nelse", "something"),
])  # fmt: skip
def test_what_spark_says_as_a_sentence(text, said):
    assert failures.sentence(ValueError(text)) == said


BATCH_FAILED = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided \
function in foreach batch sink. Reason: Return Message: Traceback (most recent call last):
  File "a.py", line 1, in call
    return work()
           ^^^^^^
  File "b.py", line 2, in work
%s

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""


@pytest.mark.parametrize("text,status,words", [
    ("[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find ...", 2,
     "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"),
    ("[STREAM_FAILED] Query ended\nTraceback ...\numqtt_pipeline.spool.SpoolError: t: a replay "
     "was interrupted\n\tat org.x", 1, "given up: t: a replay was interrupted"),
    ("[STREAM_FAILED] Query ended\njava.io.IOException: No space left on device\n\tat x", 1,
     "given up: java.io.IOException: No space left on device. Nothing is lost: make room, and"),
    (BATCH_FAILED % "OSError: [Errno 28] No space left on device: '/t/silver/a'", 1,
     "given up: OSError: [Errno 28] No space left on device: '/t/silver/a'. Nothing is lost: "),
    (BATCH_FAILED % "FileNotFoundError: [Errno 2] No such file or directory: '/t/a.parquet'",
     1, "`umqtt-pipeline verify` says what the tables lack"),
    ("[OTHER] Something else\nmore", 1, "given up: [OTHER] Something else"),
    (BATCH_FAILED % "ValueError: day is out of range", 1, "given up: ValueError: day is out of"),
    (BATCH_FAILED % "pyspark.errors.exceptions.captured.AnalysisException: [PATH_NOT_FOUND] x", 1,
     "given up: [PATH_NOT_FOUND] x"),
])  # fmt: skip
def test_why_an_ingest_was_given_up(text, status, words):
    told = commands.services._failed(ValueError(text), "4.3.0")
    assert isinstance(told, click.ClickException) and told.exit_code == status
    assert words in told.message and "\n" not in told.message


@pytest.mark.parametrize("closed", [2, 1, 0])
def test_a_closed_standard_stream_does_not_become_a_file_of_the_spool(tmp_path, closed):
    """As in `umqtt-pipeline bridge ... 2>&-`."""
    process = spawn("bridge", "--broker", "127.0.0.1:9", "--spool", tmp_path / "spool",
                    "--metrics", tmp_path / "metrics", preexec_fn=lambda: os.close(closed))
    wait_for((tmp_path / "metrics").exists, 60, "the bridge")
    assert Path(f"/proc/{process.pid}/fd/{closed}").readlink() == Path(os.devnull)


@pytest.mark.parametrize("command", [("--help",), ("gold", "--help")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_printed_cannot_be_written(command, unbuffered):
    """A full disk is a sentence, a pipe that its reader has closed is nothing to be said."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    reader, pipe = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for out, said in ((full, b"Error: cannot write: No space left on device\n"), (pipe, b"")):
            done = subprocess.run([PROGRAM, *command], stdout=out, stderr=subprocess.PIPE,
                                  env=environment, timeout=60)  # fmt: skip
            assert (done.returncode, done.stderr) == (1, said)
    finally:
        os.close(full)
        os.close(pipe)


def test_a_report_is_replaced_at_once(tmp_path):
    from umqtt_pipeline.report.page import _write

    made = tmp_path / "r.html"
    made.write_text("old")
    with open(made) as opened:
        _write(made, "new")
        assert opened.read() == "old" and made.read_text() == "new"
    with pytest.raises(OSError, match="full.html"):
        _write(tmp_path / "none" / "full.html", "new")
    assert list(tmp_path.iterdir()) == [made]


@pytest.mark.parametrize("command", [(*BRIDGE, "--metrics"), ("report", "--tables", ".", "--out")])
@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "link"])
def test_what_is_no_file_is_not_replaced_by_one(tmp_path, monkeypatch, command, kind):
    """As /dev/null would be, by a program that may."""
    monkeypatch.chdir(tmp_path)
    node = tmp_path / "node"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "socket":
            listening.bind("node")
        elif kind == "folder":
            node.mkdir()
        else:
            os.mkfifo(tmp_path / "fifo" if kind == "link" else node)
        if kind == "link":
            node.symlink_to("fifo")
        before = [(path, path.lstat().st_mode) for path in sorted(tmp_path.iterdir())]
        done = CliRunner().invoke(commands.main, [*command, "node"])
    assert done.exit_code == 2 and "node" in done.output, done.output
    assert [(path, path.lstat().st_mode) for path in sorted(tmp_path.iterdir())] == before


@pytest.mark.parametrize("command", ["gold", "compact", "replay"])
def test_a_name_that_spark_cannot_be_told(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    os.mkdir(b"a\xff")
    for arguments_ in ((command, "--tables", "a\udcff"), (*INGEST[:4], "a\udcff", "--once")):
        done = CliRunner().invoke(commands.main, arguments_)
        assert done.exit_code == 2 and "not UTF-8: rename" in done.output, done.output


def test_every_line_of_the_log_says_whose_it_is(tmp_path, caplog):
    """Not `root:`."""
    caplog.set_level("INFO")
    _gold(tmp_path)
    done = CliRunner().invoke(commands.main, ["report", "--tables", str(tmp_path), "--out",
                                              str(tmp_path / "r.html")])  # fmt: skip
    assert done.exit_code == 0 and {r.name for r in caplog.records} == {"umqtt.report"}
    tools = Path(commands.__file__).parents[2]
    nameless = re.compile(r"\blogging\.(debug|info|warning|error|exception|critical|log)\(")
    packages = ("umqtt_pipeline", "umqtt_runtime", "mqtt_audit")
    modules = [path for name in packages for path in (tools / name).rglob("*.py")]
    assert len(modules) > 80 and not [p for p in modules if nameless.search(p.read_text())]


FULL = OSError("Unable to copy data to file: No space left on device (os error 28)\n   0: x")


def failing(raised, *options):
    """(status, output) of a command that ends with an exception."""
    @click.group(cls=Commands)
    def group():
        pass

    @group.command()
    @click.option("--tables")
    def fails(tables):
        raise raised

    done = CliRunner().invoke(group, ["fails", *options])
    return done.exit_code, done.output


@pytest.mark.parametrize("raised,status,said", [
    (FULL, 1, "Unable to copy data to file: No space left on device (os error 28)"),
    (OSError(errno.ENOSPC, "No space left on device", "/t/a"), 1, "/t/a: No space left on device"),
    (OSError(errno.EIO, "Input/output error", "/t/a"), 1, "/t/a: Input/output error"),
    (FileNotFoundError(errno.ENOENT, "No such file", "/t/a"), 2, "/t/a: No such file"),
    (PermissionError(errno.EACCES, "Cannot create directory 'ro/p'. Detail: [errno 13] "
                                   "Permission denied"), 2,
     "Cannot create directory 'ro/p': Permission denied"),
    (PermissionError(errno.EACCES, "Failed stat()ing path 't/a'"), 2,
     "Failed stat()ing path 't/a'"),
    (DeltaError("Kernel error: Json error: x\n   0: <unknown>"), 1, "Json error: x"),
    (pa.ArrowInvalid("not a Parquet file"), 1, "not a Parquet file"),
    (OSError("Kernel error -> store\n \x1b[31m\u21b3\x1b[0m one\n  \u21b3 refused"), 1,
     "store: refused"),
    (SpoolError("t/silver is gone"), 1, "t/silver is gone"),
])  # fmt: skip
def test_what_a_command_fails_with_is_a_sentence(raised, status, said):
    """A full disk may have room the next time, and a service is then started again."""
    assert failing(raised) == (status, f"Error: {said}\n")


@pytest.mark.parametrize("kind", [OSError, DeltaError])
@pytest.mark.parametrize("tables,said", [
    ("s3://bucket/t", "s3://bucket/t: the object store does not answer as it should: Generic S3 "
     "error: connection closed. Start the command again when it does"),
    ("t", "Generic S3 error: connection closed"),  # of a spool's log, for instance
])  # fmt: skip
def test_an_object_store_that_is_away_is_named(kind, tables, said):
    raised = kind("Generic S3 error: connection closed")
    assert failing(raised, "--tables", tables) == (1, f"Error: {said}\n")


def test_tables_that_may_not_be_written_are_no_damaged_ones(tmp_path, monkeypatch):
    """What Delta Lake says of a folder without rights is what it says of one that is gone."""
    writable(str(tmp_path))
    writable("s3://bucket/x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may write all
    with pytest.raises(PermissionError, match="Permission denied"):
        writable(str(tmp_path))
