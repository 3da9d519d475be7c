"""Every flipped bit of the tables, of their logs and of the intents is found, and every file and
table that is gone."""

import json
import os
import random
import re
import shutil

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pipeline_kit import QUICK, fill, publish, run, senml, wait_for
from pipeline_tables import files, put, three_days
from umqtt_pipeline import commands
from umqtt_pipeline.gold import build
from umqtt_pipeline.ingest.ledger import Ledger, finished, ready, state_files
from umqtt_pipeline.spool import consumers, logs
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables import compaction, verifying
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import File, Tables, written

LOGS = ["bronze", "silver", "quarantine", "batches", "gold_boot", "_state/intents",
        "_gold/intents"]  # fmt: skip


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Tables of three days, the last one twice, a compaction, and gold."""
    root = tmp_path_factory.mktemp("made")
    three_days(spark, root, last=2)
    held = Tables(root / "tables", ALL)
    assert compaction.run(spark, held, Ledger(held), small=2)
    build.build(spark, root / "tables")
    return root


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "all")
    return tmp_path / "all" / "tables"


def verified(root):
    return verifying.verify(root, lambda: state_files(root), lambda told: finished(root, told))


def wrong(root):
    return verified(root).wrong


def faults(done):
    """The lines on standard error that are not about progress."""
    return [line for line in done.stderr.splitlines() if " umqtt.progress: verify: " not in line]


def commits(root, name):
    return sorted((root / name / "_delta_log").glob("*.json"))


def flips(path, count, choose):
    """Flip that many single bits of a file, one after the other, and have it whole at the end."""
    raw = path.read_bytes()
    for _ in range(count):
        at, bit = choose.randrange(len(raw)), choose.randrange(8)
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
        yield f"byte {at}, bit {bit}"
    path.write_bytes(raw)


def replaced(path, old, new):
    text = path.read_text()
    assert text.count(old), text
    path.write_text(text.replace(old, new, 1))


def meaning(path):
    """What a commit says that a reader heeds; None if it is no JSON. No reader heeds times, nor
    who wrote it; and the check value says nothing but whether the intent is whole."""
    try:
        lines = [json.loads(line) for line in path.read_bytes().decode().splitlines()]
        for line in lines:
            for kind, told in line.items():
                if kind == "commitInfo":
                    line[kind] = told.get("intent")
                for name in ("modificationTime", "deletionTimestamp", "extendedFileMetadata",
                             "tags", "baseRowId", "defaultRowCommitVersion",
                             "clusteringProvider"):  # fmt: skip
                    told.pop(name, None)
    except (ValueError, AttributeError):
        return None
    return lines


def test_every_flipped_bit_of_data_is_found(root):
    """40 single bits in the files of tables and state: all are found, before and after a reader
    has looked at the same files."""
    choose = random.Random(4)
    whole = verified(root)
    paths = [path for name in ALL for path in files(root, name)]
    paths += [root / name for name in state_files(root)]
    assert whole.wrong == [] and whole.files > len(paths)
    for _ in range(40):
        path = choose.choice(paths)
        for where in flips(path, 1, choose):
            (told,) = wrong(root)
            assert told.startswith(str(path)), where


@pytest.mark.parametrize("name", [name if name in ("silver", "_state/intents", "_gold/intents")
                                  else pytest.param(name, marks=pytest.mark.campaign)
                                  for name in LOGS])  # fmt: skip
def test_every_flipped_bit_of_a_log_is_found(root, name):
    choose, count = random.Random(name), 0
    for path in commits(root, name):
        before = meaning(path)
        for where in flips(path, 6, choose):
            if meaning(path) != before:
                count += 1
                said = wrong(root)
                assert any(name in line for line in said), f"{path}: {where}: {said}"
                assert not any("\n" in line for line in said)
    assert count > 2 and wrong(root) == []


@pytest.mark.parametrize("old,new", [
    ('sequence\\": 1,', 'sequence\\": 9,'), ('"date":"2026-01-01"', '"date":"2026-01-02"'),
    ('{"add"', '{"cdd"'), ('"umqtt-ingest"', '"umqtt-ingesu"'), ('"version":0', '"version":8'),
    ('numRecords\\": 1', 'numRecords\\": 3')])  # fmt: skip
def test_a_flip_that_readers_would_believe(root, old, new):
    path = root / "silver" / "_delta_log" / f"{1:020d}.json"
    replaced(path, old, new)
    done = run("verify", "--tables", root)
    assert done.returncode == 1 and str(path) in done.stdout and not faults(done), done.stderr


@pytest.mark.parametrize("old,new", [('"places":{"', '"places":{"1'), ('"check"', '"chesk"')])
def test_an_intent_that_was_changed(root, old, new):
    newest = commits(root, "_state/intents")[-1]
    replaced(newest, old, new)
    done = run("verify", "--tables", root)
    assert done.returncode == 1 and not faults(done), done.stderr
    assert f"{newest}: it is not the intent that was written" in done.stdout
    ended = run("clean", "--tables", root)
    assert ended.returncode == 2 and "is damaged (its last intent is not" in ended.stderr


def test_a_log_that_cannot_be_read_is_one_sentence(root):
    path = commits(root, "silver")[-1]
    path.write_bytes(path.read_bytes()[:-40])
    done = run("verify", "--tables", root)
    assert done.returncode == 1 and not faults(done)
    *lines, last = done.stdout.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"{path}: ")
    assert last.endswith("1 damaged; RECOVERY.md says what to do")


@pytest.mark.parametrize("gone", ["silver", "silver/_delta_log", "_state/intents"])
def test_what_was_removed(root, gone):
    shutil.rmtree(root / gone)
    (root / "clock").joinpath("_delta_log").mkdir(exist_ok=True)
    done = run("verify", "--tables", root)
    assert done.returncode == 1 and not faults(done), done.stderr
    assert str(root / gone.removesuffix("/_delta_log")) in done.stdout and "gone" in done.stdout


def test_a_table_that_a_full_disk_left_without_a_log(root, tmp_path):
    """What delta-rs has made before it finds no room: it is no table, and no damage."""
    (root / "new" / "_delta_log").mkdir(parents=True)
    assert run("verify", "--tables", root).returncode == 0
    done = run("export", "--tables", root, "--out", tmp_path / "out")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert Tables(root, {"new": {"x": "bigint"}}).number("new") == -1


def test_a_commit_that_was_removed(root):
    first, second, after = commits(root, "bronze")[2:5]
    first.unlink()
    assert f"{second}: the commit 2 before it is missing" in wrong(root)
    second.unlink()
    assert f"{after}: the commits 2 to 3 before it are missing" in wrong(root)


def test_a_commit_that_was_changed_accuses_no_checkpoint(root):
    """Who removed it as they were told would lose rows."""
    held = DeltaTable(str(root / "bronze"))
    held.create_checkpoint()
    at = held.version()
    path = root / "bronze" / "_delta_log" / f"{at:020d}.checkpoint.parquet"
    assert path.exists()
    commit = next(each for each in commits(root, "bronze") if b"fleet/" in each.read_bytes())
    replaced(commit, "fleet/", "fledt/")
    said = wrong(root)
    assert any(str(commit) in each for each in said), said
    assert not any("checkpoint" in each for each in said), said
    shutil.copy(commits(root, "silver")[-1], path)  # and a checkpoint that is none is told
    assert any("checkpoint" in each for each in wrong(root))


@pytest.mark.parametrize("name", ["bronze", "quarantine", "duplicates", "clock", "batches"])
def test_the_first_batch_of_a_log_that_is_empty(root, name):
    path = next(each for each in sorted((root / name / "_delta_log").glob("*.json"))
                if b'"txn"' in each.read_bytes())  # fmt: skip
    path.write_bytes(b"")
    said = wrong(root)
    assert f"{path}: it is empty, and so no action of Delta Lake" in said
    assert not any("checkpoint" in each for each in said), said


@pytest.mark.parametrize("name", ["bronze", "quarantine"])
def test_the_first_batch_of_a_log_of_which_only_its_writer_is_left(root, name):
    path = next(each for each in commits(root, name) if b'"txn"' in each.read_bytes())
    kept = [line for line in path.read_bytes().splitlines(True) if line.startswith(b'{"commitI')]
    assert len(kept) == 1
    path.write_bytes(kept[0])
    said = wrong(root)
    assert any(f"/{name}: it" in each and "has no commit" in each for each in said), said


def test_an_older_copy_of_a_table(root):
    commits(root, "silver")[-1].unlink()
    assert any(str(root / "silver") in line and "no commit after batch" in line
               for line in wrong(root))  # fmt: skip


@pytest.mark.parametrize("older", [False, True])
def test_a_table_that_lacks_what_the_newest_batch_did(root, tmp_path, older):
    """An empty table, or an older copy, in place of one that the newest batch has changed."""
    ledger = Ledger(Tables(root, ALL))
    shutil.copytree(root / "bronze", tmp_path / "bronze")
    for number in range(2):
        file = File(f"date=2026-01-0{number + 1}/x", 1, 1, f"2026-01-0{number + 1}")
        ledger.storage.keep(f"bronze/{file.path}", b"x")
        ledger.decide("batch", {"bronze": ([file], [])})
        ledger.finish()
    assert not any("no commit" in line for line in wrong(root))
    shutil.rmtree(root / "bronze")
    if older:
        shutil.copytree(tmp_path / "bronze", root / "bronze")
    else:
        Tables(root, ALL)
    number = ledger.last["number"]
    said = f"after batch {number - 2}" if older else "of any batch"
    assert any(line.startswith(f"{root / 'bronze'}: it has no commit {said}, and batch {number} ")
               for line in wrong(root)), wrong(root)


def test_a_commit_that_a_kill_has_left_undone_is_no_damage(root):
    """The next ingest makes it."""
    ledger = Ledger(Tables(root, ALL))
    file = File("date=2026-01-01/x", 1, 1, "2026-01-01")
    ledger.storage.keep(f"bronze/{file.path}", b"x")
    ledger.decide("batch", {"bronze": ([file], [])}, query=QUERY)
    assert wrong(root) == []
    (root / "bronze" / file.path).unlink()
    assert any("bronze" in line and "no commit after batch" in line for line in wrong(root))


def test_what_is_no_plain_file_is_named_and_not_waited_for(tmp_path):
    """A pipe in place of a data file, a segment or `durable`, and a link that leads nowhere."""
    root, one, other = tmp_path / "tables", tmp_path / "one", tmp_path / "other"
    decided(root, 1)
    for spool in (one, other):
        fill(spool, [publish(senml(1))])
    odd = [files(root, "bronze")[0], one / f"{0:020d}.seg", other / "durable"]
    for path in odd:
        path.unlink()
        os.mkfifo(path)
    (root / "elsewhere").symlink_to(tmp_path / "unmounted")
    done = run("verify", "--tables", root, "--spool", one, "--spool", other)
    assert done.returncode == 1 and not faults(done), done.stderr
    for path in odd:
        assert f"{path}: it is no plain file, but a pipe" in done.stdout
    assert f"{root}/elsewhere: it is a link that leads nowhere, to {tmp_path}/unm" in done.stdout
    assert f"{one}: positions 0 to " in done.stdout and "5 damaged" in done.stdout, done.stdout
    pipe = root / "silver" / "_delta_log" / "_last_checkpoint"
    os.mkfifo(pipe)
    done = run("verify", "--tables", root)
    assert done.returncode == 1 and f"{pipe}: it is no plain file, but a pipe" in done.stdout


@pytest.mark.parametrize("kind,said", [
    ("expire", "clean is just making it.* until then readers still see what it deletes"),
    ("compact", "compact or ingest is just .* readers see the same rows in smaller files"),
    ("replay", "replay is just making it.* readers do not see what it brings")])  # fmt: skip
def test_what_a_kill_has_left_undone_is_told_by_its_command(tmp_path, kind, said):
    decided(tmp_path, 1)
    ledger = Ledger(Tables(tmp_path, ALL))
    ledger.decide(kind, {"bronze": ([], ledger.tables.files("bronze"))}, query=QUERY)
    (note,) = verified(tmp_path).notes
    assert wrong(tmp_path) == [] and re.search(said, note), note


IN_TURN = ["bronze", "silver", "batches"]  #: the order of the commits of a batch


QUERY = {"id": "q", "batch": 7, "end": ['{"s": [9, 0]}']}  #: of each batch


def decided(root, batches):
    """Tables with so many batches, of a row in each table of IN_TURN."""
    ledger = Ledger(Tables(root, ALL))
    for number in range(batches):
        changes = {}
        for name in IN_TURN:
            rows = pa.table({"batch" if name == "batches" else "offset": [1]})
            changes[name] = [written(ledger.storage, name, number, "2026-01-01", rows)], []
        ledger.decide("batch", changes, query=QUERY)
        ledger.finish()


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("left", [[name for at, name in enumerate(IN_TURN) if bits >> at & 1]
                                  for bits in range(8)], ids=lambda left: "-".join(left) or "none")
def test_the_newest_commit_of_a_table_is_gone_if_a_later_one_was_made(tmp_path, left, batches):
    """A kill leaves the first commits of a batch, in their order: no damage. `left`: the tables
    whose newest commit is there; whatever comes before one of them has lost its own."""
    decided(tmp_path, batches)
    for name in set(IN_TURN) - set(left):
        commits(tmp_path, name)[-1].unlink()
    latest = max((IN_TURN.index(name) for name in left), default=0)
    number = batches - 1
    assert wrong(tmp_path) == [
        f"{tmp_path / name}: its log has lost its commit of batch {number}: the next "
        "`umqtt-pipeline ingest` makes it again"
        for name in sorted(IN_TURN[:latest]) if name not in left]  # fmt: skip
    Ledger(Tables(tmp_path, ALL)).recover()
    assert wrong(tmp_path) == [] and len(commits(tmp_path, "silver")) == 1 + batches


def reader(root, end, tables=None):
    """The spool of a reader who is done up to an offset, for these tables by default."""
    SpoolWriter(root / "spool").close()
    consumers.register(root / "spool", "ingest", 0, tables=str(tables or root), committed=end)


def checkpoint(root, query, batch):
    (root / "_checkpoint" / "commits").mkdir(parents=True)
    (root / "_checkpoint" / "commits" / str(batch)).write_text("v1\n{}")
    (root / "_checkpoint" / "metadata").write_text(json.dumps({"id": query}))


@pytest.mark.parametrize("gone", [IN_TURN[2:], IN_TURN], ids=len)
@pytest.mark.parametrize("say,known", [
    (lambda root: checkpoint(root, "q", 7), True),
    (lambda root: reader(root, {"s": [9, 0]}), True),
    (lambda root: checkpoint(root, "q", 6), False),
    (lambda root: checkpoint(root, "p", 7), False),
    (lambda root: reader(root, {"s": [8, 5]}), False),
    (lambda root: reader(root, {"s": [9, 0]}, "/others"), False),
    (lambda root: None, False),
], ids="checkpoint reader earlier another-query reader-earlier others-reader none".split())
def test_the_last_commits_of_a_batch_are_gone(tmp_path, say, known, gone):
    """They are gone if somebody knows that the batch was done; else they may be those that a kill
    has left undone, of which readers lack as much. `say`: who knows of the batch."""
    root = tmp_path / "tables"
    decided(root, 2)
    say(root)
    for name in gone:
        commits(root, name)[-1].unlink()
    spools = [arg for path in root.glob("spool") for arg in ("--spool", str(path))]
    done = CliRunner().invoke(commands.main, ("verify", "--tables", str(root), *spools))
    *lines, last = done.output.splitlines()
    lines = [line for line in lines if " umqtt.progress: verify: " not in line]
    if known:
        assert done.exit_code == 1 and lines == [
            f"{root / name}: its log has lost its commit of batch 1: the next "
            "`umqtt-pipeline ingest` makes it again" for name in sorted(gone)]  # fmt: skip
        assert last.endswith(f": {len(gone)} damaged; RECOVERY.md says what to do")
    else:
        assert done.exit_code == 0 and last.endswith("nothing damaged") and lines == [
            f"{root}/_state/intents: batch 1 has no commit in {', '.join(sorted(gone))}: ingest "
            "is just making it, a kill came before, or it was lost. The next `umqtt-pipeline "
            "ingest` makes it; until then readers do not see what it brings"]
    Ledger(Tables(root, ALL)).recover()
    assert verified(root).notes == wrong(root) == []


@pytest.mark.parametrize("command,log,advice", [
    ("verify", "silver", "; RECOVERY.md says what to do\n"),
    ("clean", "silver", "; `umqtt-pipeline verify --tables {}` names all that is damaged, and "
                        "RECOVERY.md says what to do\n"),
    ("clean", "_state/intents", "put it back as it was, or begin in another folder (--tables)\n"),
])  # fmt: skip
def test_a_gap_in_a_log_is_told_by_its_ends(tmp_path, command, log, advice):
    """The library prints what its own objects are made of."""
    decided(tmp_path, 3)
    before, gone, after = commits(tmp_path, log)[1:4]
    gone.unlink()
    done = CliRunner().invoke(commands.main, (command, "--tables", str(tmp_path)))
    assert done.exit_code and isinstance(done.exception, SystemExit)
    said = f"Expected contiguous commit files, but found gap: {before} -> {after}"
    if command == "verify":
        said = f"{after}: the commit 2 before it is missing\n"
        assert ": 1 damaged; " in done.output, done.output
    assert said in done.output and not re.search("[Kk]ernel|{", done.output), done.output
    assert done.output.endswith(advice.format(tmp_path)), done.output


def test_tables_whose_state_is_gone_are_looked_at_all_the_same(tmp_path):
    decided(tmp_path / "tables", 1)
    shutil.rmtree(tmp_path / "tables" / "_state")
    (damaged,) = files(tmp_path / "tables")
    damaged.write_bytes(b"x")
    fill(tmp_path / "spool", [publish(senml(1))])
    (segment,) = (tmp_path / "spool").glob("*.seg")
    segment.write_bytes(segment.read_bytes()[:-1])
    done = CliRunner().invoke(commands.main, (
        "verify", "--tables", str(tmp_path / "tables"), "--spool", str(tmp_path / "spool")))
    said = [line for line in done.output.splitlines() if " umqtt.progress: " not in line]
    assert done.exit_code == 1 and said[0].startswith(f"{damaged}: 1 bytes, the log says ")
    assert said[1] == (f"{tmp_path}/tables/_state/intents: it is gone, and there are batches in "
                       "batches, bronze, silver")
    assert said[2].startswith(f"{segment}: ") and ": 4 damaged; " in said[-1]


def test_a_torn_intent_of_a_batch_that_the_tables_have_is_kept(tmp_path):
    """No power cut leaves that, as it was durable before the batch was committed. Put back, all is
    as it was."""
    decided(tmp_path, 2)
    newest = commits(tmp_path, "_state/intents")[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:99])
    for _ in range(2):
        with pytest.raises(SpoolError, match="batch 1, which .*/_state does not know"):
            ready(tmp_path)
    assert newest.with_name(f"{newest.name}.torn").read_bytes() == whole[:99]
    newest.write_bytes(whole)
    assert wrong(tmp_path) == []
    ready(tmp_path)


def test_tables_whose_state_is_gone(tmp_path):
    decided(tmp_path, 1)
    shutil.rmtree(tmp_path / "_state")
    done = CliRunner().invoke(commands.main, ("quarantine", "--tables", str(tmp_path)))
    assert done.exit_code == 2 and done.output == (
        f"Error: {tmp_path / 'bronze'} has batch 0, which {tmp_path / '_state'} does not know: "
        "its rows would come a second time. Put that folder back as it was, or begin in another "
        "folder (--tables)\n")


def test_gold_that_its_owner_has_removed_is_a_sentence(root):
    for name in ("gold_boot", "gold_device", "gold_minute"):
        shutil.rmtree(root / name)
    done = run("verify", "--tables", root)
    assert done.returncode == 1 and not faults(done), done.stderr
    (line, last) = done.stdout.splitlines()
    assert line == (f"{root}: tables of gold are gone: gold_boot, gold_device, gold_minute. "
                    "`umqtt-pipeline gold` makes them again; if you do not want gold any more, "
                    f"remove {root / '_gold'} and its other tables, too")
    shutil.rmtree(root / "_gold")
    assert run("verify", "--tables", root).returncode == 0


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", ["clock", "duplicates", "quarantine"])
def test_an_empty_table_that_is_gone(tmp_path, name, whole):
    """No batch has changed it, and readers need it all the same. whole: all of it is gone, and not
    its only commit."""
    decided(tmp_path, 1)
    if whole:
        shutil.rmtree(tmp_path / name)
    else:
        commits(tmp_path, name)[0].unlink()
    assert wrong(tmp_path) == [
        f"{tmp_path / name}: this table is gone, to which no batch has brought anything: the next "
        "`umqtt-pipeline ingest` makes it again"]  # fmt: skip
    ready(tmp_path)
    assert wrong(tmp_path) == [] and len(DeltaTable(str(tmp_path / name)).schema().fields) > 3


def counted(root):
    """Rows of each table of gold."""
    held = Tables(root, build.TABLES)
    return {name: sum(file.rows for file in held.files(name)) for name in build.TABLES}


def test_the_only_intent_of_gold_is_lost(spark, root):
    first, only = commits(root, "_gold/intents")
    only.unlink()
    found, rows = verified(root), counted(root)
    assert found.wrong == [] and [line.partition(": the next")[0] for line in found.notes] == [
        f"{root / '_gold' / 'intents'}: it has lost what was decided on "
        f"{', '.join(sorted(name for name in build.MADE if files(root, name)))}"]  # fmt: skip
    build.build(spark, root)
    assert (verified(root).notes, wrong(root)) == ([], [])
    assert counted(root) == rows


def test_empty_tables_of_gold_that_are_gone(spark, root):
    empty = [name for name in build.TABLES if not files(root, name)]
    assert "restarts" in empty and len(empty) > 1
    for name in empty:
        commits(root, name)[0].unlink()
    (line,) = wrong(root)
    assert line.startswith(f"{root}: tables of gold are gone: {', '.join(sorted(empty))}. "
                           "`umqtt-pipeline gold` makes them again")  # fmt: skip
    build.build(spark, root)
    assert wrong(root) == [] and not files(root, "restarts")


def test_a_checkpoint_that_lacks_a_file(root, tmp_path):
    """Readers take the checkpoint, and not the commits before it."""
    other = tmp_path / "other"
    shutil.copytree(root / "bronze", other)
    replaced(commits(root / "..", "tables/bronze")[1], '{"add"', '{"cdc"')
    DeltaTable(str(root / "bronze")).create_checkpoint()
    for path in commits(root, "bronze"):
        shutil.copy(other / "_delta_log" / path.name, path)
    assert any("checkpoint" in line and "bronze" in line for line in wrong(root))


def test_tables_that_others_have_changed_are_whole(root):
    DeltaTable(str(root / "silver")).delete("sequence = 25")
    DeltaTable(str(root / "bronze")).optimize.compact()
    DeltaTable(str(root / "bronze")).create_checkpoint()
    assert wrong(root) == []


def test_verify_says_what_is_wrong(root):
    one, two, *_ = files(root, "bronze")
    one.unlink()
    raw = two.read_bytes()
    two.write_bytes(raw[:-1])
    (segment,) = (root.parent / "spool").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)
    done = run("verify", "--tables", root, "--spool", root.parent / "spool")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = done.stdout.splitlines()
    assert said[0] == f"{one}: No such file or directory"
    assert said[1] == f"{two}: {len(raw) - 1} bytes, the log says {len(raw)}"
    assert str(segment) in said[2] and said[3].endswith("3 damaged; RECOVERY.md says what to do")


HINT = ("`umqtt-pipeline verify --tables {}` names all that is damaged, and RECOVERY.md says what "
        "to do")  # fmt: skip


@pytest.mark.parametrize("gone,said", [
    (True, "No such file or directory"), (False, "it cannot be read")])  # fmt: skip
def test_gold_of_a_damaged_file_names_it(root, gone, said):
    """A file that is gone is found before Spark is started, another one by Spark."""
    path = files(root, "silver" if gone else "quarantine")[0]
    path.write_bytes(path.read_bytes()[:-48] + b"\xff" * 40 + path.read_bytes()[-8:])
    if gone:
        path.unlink()
    done = run("gold", "--anew", "--tables", root, *QUICK)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == f"Error: {path}: {said}; {HINT.format(root)}"


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("table,command", [
    ("silver", ["export", "--out", "out"]), ("quarantine", ["quarantine"]),
    ("gold_device", ["report", "--out", "r.html"])], ids=lambda one: one[0])  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, monkeypatch, table, command, gone):
    monkeypatch.chdir(tmp_path)
    decided(tmp_path, 2)
    if table != "silver":
        columns = {**ALL, **build.TABLES}[table]
        put(tmp_path, table, columns, {"topic": "t"} if table in ALL else {"group": "g"})
    one = files(tmp_path, table)[0]
    raw = one.read_bytes()
    one.write_bytes(raw[:-48] + b"\xff" * 40 + raw[-8:])  # of its footer
    if gone:
        one.unlink()
    why = "No such file or directory" if gone else "its bytes are not those that were written"
    done = CliRunner().invoke(commands.main, (*command, "--tables", str(tmp_path)))
    assert done.exit_code == 1 and done.output.splitlines()[-1] == (
        f"Error: {one}: {why}; {HINT.format(tmp_path)}")


def test_a_spool_that_takes_long_says_how_far_it_is(tmp_path, monkeypatch, caplog):
    def slow(place, notes):
        yield 7_000, None
        wait_for(lambda: "verify: spools, 7,000 bytes" in caplog.text, 60, "progress")
        yield 1, None

    fill(tmp_path / "spool", [publish(senml(1))])
    monkeypatch.setattr(logs, "verify", slow)
    caplog.set_level("INFO", "umqtt.progress")
    done = CliRunner().invoke(commands.main, ("verify", "--spool", str(tmp_path / "spool")))
    assert done.exit_code == 0 and "7,001 bytes" in done.output, done.output
