"""From the spool to the tables, as a stream: exactly once, however late and however often killed.

Tables are compared as pyarrow reads them, not as Spark does.
"""

import json
import random
import shutil
import signal
import time

import pyarrow as pa
import pytest
from patience import PATIENCE
from pipeline_kit import (
    DAY_US,
    EPOCH,
    NOON,
    QUICK,
    end,
    fill,
    publish,
    put_back,
    run,
    senml,
    spawn,
    wait_for,
)
from pipeline_tables import arrow, files, ingest, numbers, story, table, tables
from umqtt_pipeline.ingest import query as ingest_module
from umqtt_pipeline.ingest import state as state_module
from umqtt_pipeline.ingest.batch_tasks import Receive, Work
from umqtt_pipeline.ingest.query import COLUMNS, Ingest, InUse, Lock, Runner
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool.reader import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables import compaction
from umqtt_pipeline.tables.schema import arrow_schema
from umqtt_pipeline.tables.storage import Storage


def test_every_reading_once(told):
    root = told / "tables"
    assert numbers(root) == sorted({*range(1, 45), *range(46, 80), 90, 91, 88})
    assert numbers(root, device="dev2") == list(range(1, 60))
    assert [r["sequence"] for r in table(root, "clock")] == [45, 92]
    assert len(table(root, "quarantine")) == 3
    assert [r["packet_id"] for r in table(root, "bronze")][:3] == [1, 2, 3]


def test_what_came_is_what_there_is(told):
    """bronze = silver + clock + duplicates + quarantine + what carries no readings"""
    found = tables(told / "tables")
    offsets = [r["offset"] for name in ("silver", "clock", "duplicates", "quarantine")
               for r in found[name]]  # fmt: skip
    status = [r["offset"] for r in found["bronze"] if r["topic"].endswith("/status")]
    assert sorted(offsets + status) == [r["offset"] for r in found["bronze"]]
    assert len(found["bronze"]) == len(story())
    assert [bytes(r["payload"]) for r in found["quarantine"]] == [
        b"\xff nonsense", senml(1, device="dev2"), b""]  # fmt: skip
    assert all(r["reason"] for r in found["quarantine"])


def test_times_come_from_the_clock_of_the_boot(told):
    for row in table(told / "tables", "silver"):
        if row["device"] == "dev1":
            begun = NOON / 1e6 - (560 if row["boot"] == 1 else 1)
            assert row["time_quality"] == "clock"
            assert row["time"].timestamp() == begun + row["uptime_ms"] / 1000
        else:
            assert row["time_quality"] == "received" and row["time"] == row["received_at"]


@pytest.fixture(scope="module")
def cut(spark, told, tmp_path_factory):
    """The tables of the story, in batches of 60 packets."""
    root = tmp_path_factory.mktemp("cut")
    ingest(spark, told / "spool", root, 60)
    return root


def test_the_cut_into_batches_does_not_matter(told, cut):
    assert tables(cut) == tables(told / "tables")


def test_the_number_of_buckets_may_change(spark, told, tmp_path, monkeypatch):
    """Other cores than the last time: the state is dealt out anew, nothing is forgotten; the work
    is done by one task or by one for each bucket."""
    (tmp_path / "_checkpoint").mkdir()
    (tmp_path / "_checkpoint" / "metadata").write_text(json.dumps({"id": "q"}))
    frame = spark.read.format("mqtt").load(str(told / "spool"))
    cuts = sorted(r.offset for r in frame.select("offset").collect())
    edges = [0, cuts[45], cuts[80], cuts[110], cuts[-1] + 1]
    for batch, (buckets, few) in enumerate([(2, 0), (3, 0), (1, 0), (4, 100)]):
        monkeypatch.setattr(Ingest, "_buckets", lambda self, n=buckets: n)
        monkeypatch.setattr(ingest_module, "FEW_ROWS", few)
        begin, stop = edges[batch : batch + 2]
        Ingest(spark, tmp_path)(frame.where(f"offset >= {begin} and offset < {stop}"), batch)
        held = {p.name for p in (tmp_path / "_state" / "seen").iterdir()}
        assert held and all(f"-of-{buckets:04d}-" in name for name in held)
    assert tables(tmp_path) == tables(told / "tables")


def test_a_batch_that_loses_packets_is_not_committed(spark, told, tmp_path, monkeypatch):
    """Buckets that no task works on: whatever the reason, rows must not vanish."""
    (tmp_path / "_checkpoint").mkdir()
    (tmp_path / "_checkpoint" / "metadata").write_text(json.dumps({"id": "q"}))
    frame = spark.read.format("mqtt").load(str(told / "spool"))
    monkeypatch.setattr(Ingest, "_buckets", lambda self: -2)
    with pytest.raises(SpoolError, match="have a place"):
        Ingest(spark, tmp_path)(frame, 0)
    assert not any(tables(tmp_path).values()) and not list((tmp_path / "_staging").glob("*"))
    assert not list(tmp_path.rglob("date=*/*.parquet"))
    monkeypatch.undo()
    Ingest(spark, tmp_path)(frame, 0)
    assert tables(tmp_path) == tables(told / "tables")


def test_each_reading_knows_when_its_batch_was_whole(spark, told, cut, tmp_path):
    """A late clock rewrites files of earlier batches, compaction joins them, a batch is run again
    since Spark does not know that it is done: a reading stays with its batch."""
    shutil.copytree(cut, tmp_path, dirs_exist_ok=True)
    before = stored(tmp_path)
    rows, ends = before
    assert sorted(set(rows.values())) == sorted(n for n, commit in ends.items() if commit[1])
    assert sum(of for of, _, _ in ends.values()) == len(story())
    shutil.rmtree(tmp_path / "_checkpoint" / "commits")
    ingest(spark, told / "spool", tmp_path, 60)
    assert stored(tmp_path) == before
    work = Ingest(spark, tmp_path)
    compaction.run(spark, work.tables, work.ledger, 2)
    assert stored(tmp_path) == before and len(files(tmp_path, "batches")) == 1


def stored(root):
    """({(device, sequence): batch} of silver, {batch: (rows, readings, committed_at)})."""
    rows, ends = (arrow(root, name).to_pylist() for name in ("silver", "batches"))
    assert len({r["batch"] for r in ends}) == len(ends)
    return ({(r["device"], r["sequence"]): r["batch"] for r in rows},
            {r["batch"]: (r["rows"], r["readings"], r["committed_at"]) for r in ends})  # fmt: skip


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory):
    """Three runs of one batch, as of `ingest --once` from a timer, then one without news. The
    folder, and what of the spool was left after each: (released, durable, its reader's file,
    segments after the bridge has deleted). The second was killed before Spark's commit."""
    root = tmp_path_factory.mktemp("runs")
    folder, about, left = root / "spool", root / "spool" / "consumers" / "ingest.json", []
    for turn, sent in enumerate([(1, 2, 3, 7), (3, 5, 8), (5, 4, 1), ()]):
        writer = SpoolWriter(folder, segment_bytes=100)  # a segment for each message
        for n in sent:
            writer.append(publish(senml(n)), 1, NOON + turn * 40 * DAY_US)
        ingest(spark, folder, root)
        told = consumers.positions(folder)["ingest"], writer.position, about.read_text()
        if turn == 1:
            for name in ("1", ".1.crc"):
                (root / "_checkpoint" / "commits" / name).unlink()
            consumers.register(folder, "ingest", left[0][0])
        writer.trim(writer.position)
        left.append((*told, writer.segments))
        writer.close()
    return root, left


def test_late_by_40_days(runs):
    """The duplicate goes, the reading stays, whatever a watermark would have said."""
    root, _ = runs
    assert numbers(root) == [1, 2, 3, 4, 5, 7, 8]
    assert numbers(root, "duplicates") == [1, 3, 5]


def test_runs_of_one_batch_free_the_spool(runs):
    """Spark says `commit` for a batch only when there is another one."""
    _, left = runs
    assert [(released == end, segments) for released, end, _, segments in left] == [
        (True, 1), (True, 3), (True, 1), (True, 1)]  # fmt: skip
    assert left[2][2] == left[3][2]


def test_killed_at_any_operation(spark, tmp_path, cuts, monkeypatch):
    """Batch 1, which has everything in it (a late clock rewrites files of batch 0, files of the
    state go into larger ones), is killed between any two changes of files and logs; run again it
    gives the tables of an undisturbed run."""
    monkeypatch.setattr(state_module, "LITTLE", 0)
    fill(tmp_path / "spool", story(), per_block=7)
    root = tmp_path / "tables"
    frame = spark.read.format("mqtt").load(str(tmp_path / "spool")).orderBy("offset")
    half = frame.collect()[65].offset
    (root / "_checkpoint").mkdir(parents=True)
    (root / "_checkpoint" / "metadata").write_text(json.dumps({"id": "q"}))
    Ingest(spark, root)(frame.where(f"offset < {half}"), 0)
    rest = frame.where(f"offset >= {half}")

    def written(copy):
        """How many data files there are, also such as no log names."""
        return sum(1 for name in COLUMNS for _ in (copy / name).rglob("0*-*-*.parquet"))

    before = written(root)
    left = cuts(root, lambda: Ingest(spark, root)(rest, 1))
    whole, after = tables(root), written(root)
    assert len(left) > 30
    undecided = next(n for n, copy in enumerate(left) if written(copy) > before)
    for n in sorted({undecided, *random.Random(3).sample(range(len(left)), 7)}):
        put_back(left[n], root)
        Ingest(spark, root)(rest, 1)
        assert tables(root) == whole, f"killed at operation {n} of {len(left)}"
        assert written(root) == after, f"killed at operation {n} of {len(left)}: orphans"


def test_killed_for_real_and_started_again(spark, told, tmp_path):
    """SIGKILL to the command while it works; the tables are those of an undisturbed run."""
    root, log = tmp_path / "tables", tmp_path / "log"
    command = ("ingest", "--once", "--spool", told / "spool", "--tables", root, "--max-rows", 45,
               "--consumer", "killed", *QUICK)  # fmt: skip
    choose = random.Random(11)
    for kill in range(2):
        process = spawn(*command, log=log)
        wait_for(lambda seen=kill: log.read_text().count(": batch ") > seen, 120, "a batch")
        time.sleep(choose.uniform(0, 2))
        end(process, signal.SIGKILL)
    done = run(*command, timeout=200)
    assert done.returncode == 0, done.stderr
    assert tables(root) == tables(told / "tables")
    assert not list((root / "_staging").glob("*"))


def test_from_the_broker_to_silver(broker, tmp_path):
    """Bridge and ingest as they run for good: started in the wrong order, ended by SIGTERM."""
    import paho.mqtt.publish

    folder, root, log = tmp_path / "spool", tmp_path / "tables", tmp_path / "log"
    ingesting = spawn("ingest", "--spool", folder, "--tables", root, "--interval", 0.5, *QUICK,
                      log=log)  # fmt: skip
    bridging = spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", folder, log=log)
    wait_for(lambda: "subscribed" in log.read_text(), 30, "the subscription")
    for first in (1, 11):
        paho.mqtt.publish.multiple(
            [("fleet/g/dev1/telemetry", senml(n), 1) for n in range(first, first + 12)],
            port=broker.port)  # fmt: skip
        wait_for(lambda n=first: len(numbers(root)) == n + 11, 120, "silver")
    assert end(ingesting, seconds=90) == 0 and end(bridging) == 0
    # Not before: silver is not the last table that a batch writes.
    assert numbers(root) == list(range(1, 23)) and numbers(root, "duplicates") == [11, 12]
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("once", [False, True])
def test_stopped_with_a_backlog(spark, tmp_path, once):
    """The batch that runs is the last; all that is behind it comes with the next run."""
    folder, root, done = tmp_path / "spool", tmp_path / "tables", []
    fill(folder, [publish(senml(n)) for n in range(1, 9)], per_block=1)

    def told(counts):
        done.append(counts["rows"])
        runner.stop()

    runner = Runner(spark, str(folder), str(root), once, interval=0.1, rows=2, on_batch=told,
                    patience=1)  # fmt: skip
    runner.run()
    assert done == [2] and numbers(root) == [1, 2]
    ingest(spark, folder, root)
    assert numbers(root) == list(range(1, 9)) and not table(root, "duplicates")


@pytest.mark.parametrize("stopped", [True, False])
def test_no_compaction_is_begun_when_told_to_stop(spark, tmp_path, stopped):
    folder, root = tmp_path / "spool", tmp_path / "tables"
    fill(folder, [publish(senml(n)) for n in (1, 2)], per_block=1)
    ingest(spark, folder, root, rows=1)
    fill(folder, [publish(senml(3))])
    runner = Runner(spark, str(folder), str(root), once=True, compact_files=2, patience=1)
    work = runner.ingest.work

    def told(*given, **more):
        if stopped:
            runner.stop()
        return work(*given, **more)

    runner.ingest.work = told
    runner.run()
    assert numbers(root) == [1, 2, 3]
    assert runner.ingest.ledger.last["kind"] == ("batch" if stopped else "compact")


def test_a_lost_state_is_an_error_not_a_table_of_duplicates(spark, tmp_path):
    folder, root = tmp_path / "spool", tmp_path / "tables"
    fill(folder, [publish(senml(1))])
    ingest(spark, folder, root)
    shutil.rmtree(root / "_state" / "seen")
    fill(folder, [publish(senml(1))])
    with pytest.raises(Exception, match=r"seen/\S+ is damaged \(No such file"):
        ingest(spark, folder, root)


def test_a_new_checkpoint_goes_on_with_the_old_state(spark, told, tmp_path):
    """Spark's checkpoint deleted, in the middle of a batch even: the spool is read again, and
    nothing is there twice, neither in silver nor in any other table."""
    folder, root = tmp_path / "spool", tmp_path / "tables"
    shutil.copytree(told, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(root / "_checkpoint")
    fill(folder, [publish(senml(n)) for n in (200, 200, 1)] + [publish(b"junk")])
    ingest(spark, folder, root, 60)
    before, after = tables(told / "tables"), tables(root)
    added = {name: len(after[name]) - len(before[name]) for name in after}
    assert added == {"bronze": 4, "silver": 1, "duplicates": 2, "quarantine": 1, "clock": 0}
    assert all(after[name][: len(before[name])] == before[name] for name in after)


def test_later_batches_do_not_pay_for_a_lost_checkpoint(tmp_path):
    """Only packets of a spool that lie below its place are compared with bronze: without any,
    bronze is not even looked for. Offsets of two spools are not the same."""
    schema = arrow_schema(COLUMNS["bronze"])
    places = {"a": 100, "b": 5}
    told = []
    receive = Receive(Work(Storage(tmp_path / "nothing"), "", 7, 1), places)

    def left(*packets):
        rows = [{**dict.fromkeys(schema.names), "spool": spool, "offset": offset}
                for spool, offset in packets]  # fmt: skip
        chunk = pa.Table.from_pylist(rows, schema)
        return receive._left_to_do(told, chunk).num_rows

    assert left(("a", 101), ("b", 6), ("b", 99), ("c", 0)) == 4
    with pytest.raises(AttributeError):  # there is no such table
        left(("a", 101), ("a", 100))


def test_a_lost_state_destroys_no_batch(told, tmp_path):
    """Also that of the only one there was, whose number a batch that begins anew gets again."""
    shutil.copytree(told, tmp_path, dirs_exist_ok=True)
    root = tmp_path / "tables"
    before = tables(root)
    for name in ("_state", "_checkpoint"):
        shutil.rmtree(root / name)
    done = run("ingest", "--once", "--spool", tmp_path / "spool", "--tables", root, *QUICK)
    assert done.returncode == 2 and "_state does not know" in done.stderr, done.stderr
    assert tables(root) == before


def test_a_state_from_before_the_last_batch_destroys_no_batch(spark, tmp_path):
    """That batch's number would be given again, to messages that came later."""
    folder, root = tmp_path / "spool", tmp_path / "tables"
    fill(folder, [publish(senml(1))])
    ingest(spark, folder, root)
    shutil.copytree(root / "_state", tmp_path / "old")
    fill(folder, [publish(senml(2))])
    ingest(spark, folder, root)
    fill(tmp_path / "next", [publish(senml(n)) for n in (3, 4)])  # the first spool is released
    for name in ("_state", "_checkpoint"):
        shutil.rmtree(root / name)
    (tmp_path / "old").rename(root / "_state")
    before = tables(root)
    with pytest.raises(Exception, match="bronze has batch 1, which .*_state does not know"):
        ingest(spark, tmp_path / "next", root)
    assert tables(root) == before


@pytest.mark.parametrize("name,status", [
    ("intents/_delta_log/*0.json", 2), ("seen/*.parquet", 1)])  # fmt: skip
def test_a_damaged_file_of_the_state_is_named_with_what_to_do(told, tmp_path, name, status):
    shutil.copytree(told, tmp_path, dirs_exist_ok=True)
    root = tmp_path / "tables"
    damaged = sorted((root / "_state").glob(name))[-1]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    fill(tmp_path / "spool", [publish(senml(1, device="dev7"), "dev7")])
    before = tables(root)
    done = run("ingest", "--once", "--spool", tmp_path / "spool", "--tables", root, *QUICK)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    last = done.stderr.splitlines()[-1]
    path = damaged if damaged.suffix == ".parquet" else root / "_state" / "intents"
    assert f"{path} is damaged" in last and "back as it was" in last
    assert "--tables" in last and tables(root) == before


@pytest.mark.parametrize("command", ["compact", "replay"])
def test_nothing_is_changed_beside_a_damaged_state(told, tmp_path, command):
    shutil.copytree(told / "tables", tmp_path, dirs_exist_ok=True)
    (first, *_) = sorted((tmp_path / "_state" / "intents" / "_delta_log").glob("*.json"))
    first.write_text("{")
    done = run(command, "--tables", tmp_path)
    assert done.returncode == 2 and "_state/intents is damaged" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and tables(tmp_path) == tables(told / "tables")


def test_an_older_copy_of_one_table_is_refused(cut, tmp_path):
    """Its commits would be made up from the last one on, and what was between would be missing."""
    shutil.copytree(cut, tmp_path / "tables")
    log = tmp_path / "tables" / "silver" / "_delta_log"
    for commit in sorted(log.glob("*.json"))[-2:]:
        commit.unlink()
    done = run("ingest", "--once", "--spool", tmp_path / "s", "--tables", tmp_path / "tables")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    before = tables(tmp_path / "tables")
    fill(tmp_path / "s", [publish(senml(1))])
    done = run("ingest", "--once", "--spool", tmp_path / "s", "--tables", tmp_path / "tables")
    assert done.returncode == 2 and "silver has the batches up to 0 only, and lacks batch 2: it " \
        "is an older copy" in done.stderr, done.stderr
    assert tables(tmp_path / "tables") == before


def test_a_commit_that_a_power_cut_has_torn_is_made_again(spark, cut, told, tmp_path):
    """Of a table: its intent has all of it. Of the intents: then that batch was not decided."""
    root = tmp_path / "tables"
    shutil.copytree(cut, root)
    before = tables(root)
    sorted((root / "silver" / "_delta_log").glob("*.json"))[-1].write_bytes(b"")
    intents = sorted((root / "_state" / "intents" / "_delta_log").glob("*.json"))
    torn = intents[-1].with_name(f"{len(intents):020d}.json")
    half = intents[-1].read_bytes()[:99]
    torn.write_bytes(half)
    shutil.rmtree(root / "_checkpoint" / "commits")
    ingest(spark, told / "spool", root, 60)
    assert tables(root) == before and not torn.exists()
    assert torn.with_name(f"{torn.name}.torn").read_bytes() == half


def test_one_writer_at_a_time(tmp_path):
    lock = Lock(tmp_path)
    with pytest.raises(InUse):
        Lock(tmp_path)
    del lock
    fill(tmp_path / "spool", [publish(senml(1))])
    held = Lock(tmp_path)
    done = run("ingest", "--once", "--spool", tmp_path / "spool", "--tables", tmp_path)
    assert done.returncode == 2 and "is being written by an ingest" in done.stderr
    del held


def test_ingest_waits_for_what_ends_by_itself(tmp_path):
    """A replay: a service that ended with status 2 for it would not be started again."""
    root, log = tmp_path / "tables", tmp_path / "log"
    fill(tmp_path / "spool", [publish(senml(1))])
    held = Lock(root, "replay")
    with pytest.raises(InUse, match="being written by a replay") as error:
        Lock(root)
    assert error.value.passing
    process = spawn("ingest", "--once", "--spool", tmp_path / "spool", "--tables", root, *QUICK,
                    log=log)  # fmt: skip
    wait_for(lambda: "ingest: waiting until replay is done" in log.read_text(), 60, "its word")
    assert process.poll() is None
    del held
    assert process.wait(PATIENCE * 120) == 0, log.read_text()
    assert numbers(root) == [1]


@pytest.mark.parametrize("arguments,words", [
    (["--spool", "{tmp}/none"], "is not a spool"),
    (["--interval", "0"], "--interval"),
    (["--consumer", "../x"], "--consumer"),
    (["--conf", "memory"], "spark.KEY=VALUE"),
])  # fmt: skip
def test_bad_arguments(tmp_path, arguments, words):
    SpoolWriter(tmp_path / "spool").close()
    given = {"--spool": str(tmp_path / "spool"), "--tables": str(tmp_path / "tables")}
    given.update(zip(arguments[::2], (a.format(tmp=tmp_path) for a in arguments[1::2])))
    done = run("ingest", "--once", *[x for pair in given.items() for x in pair])
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_epochs_are_shown_as_hex(told):
    assert {r["epoch"] for r in table(told / "tables", "silver")} == {EPOCH.hex()}
