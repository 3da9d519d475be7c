"""A checkpoint that says something twice, and a stray file that readers take for the newest one:
`verify` names that file and no sound one, and what it says to do mends it."""

import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_pipeline_checkpoints
from deltalake import DeltaTable
from test_pipeline_checkpoints import NEW, OLD, THERE, as_read, checkpoint, hint, wrong
from umqtt_pipeline.ingest.ledger import ready
from umqtt_pipeline.spool.files import SpoolError

made, root = test_pipeline_checkpoints.made, test_pipeline_checkpoints.root
LAST = 5  #: version of silver
ELSEWHERE = "When nobody writes to this log, move this file elsewhere"


def changed(path, change):
    """Have a checkpoint with the rows that `change` makes of its own."""
    rows = change(pq.read_table(path).to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(path)), path)


def row_of(rows, kind):
    return next(row for row in rows if row[kind])


def copied(row, kind, **more):
    return {**row, kind: {**row[kind], **more}}


def file_twice(rows):
    return [*rows, row_of(rows, "add")]


def other_file_first(rows):
    return [copied(row_of(rows, "add"), "add", stats=None), *rows]


def other_columns_first(rows):
    row = row_of(rows, "metaData")
    schema = row["metaData"]["schemaString"].replace('"name":"device"', '"name":"devicf"')
    return [copied(row, "metaData", schemaString=schema), *rows]


def file_removed_as_well(rows):
    add = row_of(rows, "add")
    gone = {"path": add["add"]["path"], "dataChange": True, "size": add["add"]["size"]}
    return [*rows, {**dict.fromkeys(add), "remove": gone}]


def number_twice(rows):
    return [*rows, row_of(rows, "txn")]


def log_of(root, name):
    return root / "silver" / "_delta_log" / name


@pytest.mark.parametrize("change,said", [
    (file_twice, ".parquet' twice"), (other_file_first, ".parquet' twice"),
    (file_removed_as_well, ".parquet' as added and as removed"),
    (other_columns_first, "it has metaData twice"), (number_twice, "'umqtt-ingest' twice")])
def test_the_newest_checkpoint_says_something_twice(root, change, said):
    path = checkpoint(root)
    changed(path, change)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: it does not say what the commits up to it say: ")
    assert said in line and line.endswith(f"{THERE}: remove it and _last_checkpoint")
    path.unlink()
    hint(root).unlink()
    assert wrong(root) == []


@pytest.mark.parametrize("change,said", [
    (lambda held: held.append_column("add", held["add"]), "its column 'add' is there twice"),
    (lambda held: held.drop_columns(["txn"]), "a row of it is of no action, by the columns that "
                                              "it has")])  # fmt: skip
def test_the_columns_of_a_checkpoint_are_wrong(root, change, said):
    pq.write_table(change(pq.read_table(checkpoint(root))), checkpoint(root))
    (line,) = wrong(root)
    assert line.startswith(f"{checkpoint(root)}: it cannot be read ({said})")


def test_an_older_checkpoint_has_a_file_twice(root):
    changed(checkpoint(root, OLD), file_twice)
    (line,) = wrong(root)
    assert line.startswith(f"{checkpoint(root, OLD)}: ") and ".parquet' twice" in line


def test_a_checkpoint_without_its_commits_has_a_file_twice(root):
    """As Delta Lake removes them after a month: nothing else says what is right."""
    for version in range(NEW):
        log_of(root, f"{version:020d}.json").unlink()
    checkpoint(root, OLD).unlink()
    changed(checkpoint(root), file_twice)
    (line,) = wrong(root)
    assert line.startswith(f"{checkpoint(root)}: ") and line.endswith(".parquet' twice")


@pytest.mark.parametrize("name", [
    f"{LAST + 4:020d}.checkpoint.parquet", f"{LAST + 1:020d}.checkpoint.parquet",
    f"{LAST:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
    f"{LAST:020d}.checkpoint.{1:010d}.{1:010d}.parquet"])  # fmt: skip
def test_a_copy_of_a_checkpoint_that_readers_take(root, tmp_path, name):
    path = log_of(root, name)
    shutil.copy(checkpoint(root, OLD), path)
    hint(root).unlink()
    assert len(DeltaTable(str(root / "silver")).file_uris()) == 2
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ")
    assert line.endswith(f"{ELSEWHERE}, and remove _last_checkpoint")
    with pytest.raises(SpoolError, match="`umqtt-pipeline verify` names"):
        ready(root)
    path.rename(tmp_path / name)
    assert wrong(root) == [] and len(DeltaTable(str(root / "silver")).file_uris()) == 4
    ready(root)


def test_a_copy_of_a_checkpoint_behind_a_damaged_commit(root, tmp_path):
    """The one does not hide what to do about the other."""
    commit, path = log_of(root, f"{LAST:020d}.json"), checkpoint(root, LAST + 4)
    commit.write_bytes(b"")
    shutil.copy(checkpoint(root, OLD), path)
    lines = wrong(root)
    assert [line.partition(": ")[0] for line in lines] == [str(commit), str(path)]
    assert "the next `umqtt-pipeline ingest` makes that commit again" in lines[0]
    assert lines[1].endswith(f"{ELSEWHERE}, and remove _last_checkpoint")
    for each in (commit, path):
        each.rename(tmp_path / each.name)
    hint(root).unlink()
    ready(root)
    assert wrong(root) == [] and len(DeltaTable(str(root / "silver")).file_uris()) == 4


def test_a_copy_of_a_checkpoint_of_the_intents(root, tmp_path):
    path = checkpoint(root, LAST + 4, "_state/intents")
    shutil.copy(checkpoint(root, NEW, "_state/intents"), path)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: the commits {LAST + 1} to {LAST + 4} that lead up to it are")
    path.rename(tmp_path / path.name)
    assert wrong(root) == []


def test_a_checkpoint_whose_own_commit_is_lost(root):
    """It has what that commit said: readers lack nothing."""
    DeltaTable(str(root / "silver")).create_checkpoint()
    log_of(root, f"{LAST:020d}.json").unlink()
    assert wrong(root) == []


def test_a_compaction_of_the_log_is_named(root):
    """Not each reader takes it."""
    path = log_of(root, f"{1:020d}.{3:020d}.compacted.json")
    shutil.copy(log_of(root, f"{2:020d}.json"), path)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and ELSEWHERE in line


def summary(root, old="", new=""):
    """Have a file beside the newest commit, as Spark writes it, that says what the table is like,
    or something else."""
    lines = log_of(root, f"{0:020d}.json").read_text().replace(old, new).splitlines()
    told = {kind: content for line in lines for kind, content in json.loads(line).items()}
    path = log_of(root, f"{LAST:020d}.crc")
    path.write_text(json.dumps({
        "tableSizeBytes": 1, "numFiles": 4, "numMetadata": 1, "numProtocol": 1,
        "metadata": told["metaData"], "protocol": told["protocol"]}))  # fmt: skip
    return path


def test_a_summary_beside_a_commit_that_says_something_else(root):
    summary(root)
    assert wrong(root) == []
    path = summary(root, '\\"name\\":\\"sequence\\"', '\\"name\\":\\"sequencf\\"')
    (line,) = wrong(root)
    assert line == (f"{path}: its metaData is not what the commits up to it say. {ELSEWHERE}")
    path.write_text("{")  # cut: readers leave it out
    assert wrong(root) == []


@pytest.mark.parametrize("version", [LAST + 1, LAST + 3])
def test_a_copy_of_a_commit_behind_the_newest(root, tmp_path, version):
    path = log_of(root, f"{version:020d}.json")
    shutil.copy(log_of(root, f"{2:020d}.json"), path)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and "an earlier commit is of batch 1 already" in line
    assert line.endswith(ELSEWHERE)
    path.rename(tmp_path / path.name)
    assert wrong(root) == []


def test_a_changed_copy_of_a_commit_behind_the_newest(root):
    path = log_of(root, f"{LAST + 1:020d}.json")
    path.write_text(log_of(root, f"{2:020d}.json").read_text().replace("sequence", "sequencf"))
    (line,) = wrong(root)
    assert line == f"{path}: it does not say what batch 1 has decided. {ELSEWHERE}"


def test_the_newest_commit_is_one_version_too_late(root, tmp_path):
    path = log_of(root, f"{LAST + 1:020d}.json")
    log_of(root, f"{LAST:020d}.json").rename(path)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: the commit {LAST} before it is missing. When no ingest ")
    path.rename(tmp_path / path.name)
    ready(root)
    assert wrong(root) == [] and len(DeltaTable(str(root / "silver")).file_uris()) == 4


# -- checkpoints before which the commits are not all there ---------------------------------------


@pytest.fixture(params=[OLD, OLD + 1])
def cleaned(root, request):
    """Delta Lake has removed the commits before the older checkpoint, as after a month, or that
    one's, too."""
    for path in sorted((root / "silver/_delta_log").glob("*.json"))[: request.param]:
        path.unlink()
    assert wrong(root) == []
    return root


def test_a_flip_in_the_older_checkpoint_has_nobody_remove_the_newer(cleaned):
    """It is the newer by which readers go."""
    choose, path, told = random.Random(11), checkpoint(cleaned, OLD), 0
    raw, newest = path.read_bytes(), checkpoint(cleaned)
    for _ in range(16):
        at, bit = choose.randrange(len(raw)), choose.randrange(8)
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
        lines = wrong(cleaned)
        told += bool(lines)
        assert {line.partition(": ")[0] for line in lines} <= {str(path)}, (at, bit, lines)
    assert told > 2 and newest.exists()


def test_a_flip_in_the_newer_checkpoint_has_nobody_remove_the_older(cleaned):
    choose, path, told = random.Random(12), checkpoint(cleaned), 0
    raw, removed = path.read_bytes(), 0
    whole = as_read(cleaned / "silver", path)
    for _ in range(16):
        at, bit = choose.randrange(len(raw)), choose.randrange(8)
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
        lines = wrong(cleaned)
        told += bool(lines)
        for line in lines:
            assert line.startswith((f"{path}: ", f"{checkpoint(cleaned, OLD)}: ")), (at, bit, line)
            if "remove it" in line:
                assert line.startswith(f"{path}: ")
                removed += 1
        assert lines or as_read(cleaned / "silver", path) == whole, (at, bit)
    assert told > 2 and removed > 1


@pytest.mark.parametrize("at", [OLD, NEW])
@pytest.mark.parametrize("own", [True, False])
def test_a_copy_of_an_older_checkpoint_in_the_place_of_a_later_one(made, tmp_path, at, own):
    """The log is cleaned below it. own: the commit of its version is there."""
    shutil.copytree(made, root := tmp_path / "tables")
    log = root / "silver/_delta_log"
    early, newest = checkpoint(root, 1), hint(root).read_bytes()
    DeltaTable(str(root / "silver"), version=1).create_checkpoint()
    hint(root).write_bytes(newest)
    shutil.copy(early, checkpoint(root, at))
    for path in (early, *sorted(log.glob("*.json"))[: at if own else at + 1]):
        path.unlink()
    if at == NEW:
        checkpoint(root, OLD).unlink()
    (line,) = wrong(root)
    assert line.startswith(f"{checkpoint(root, at)}: it is of batch 0, and ")
    assert "an older one has taken its place" in line


@pytest.mark.parametrize("old,new", [('"numRecords', '"numRecord\x7f'), ("{", "{{")])
def test_what_the_older_one_says_wrong_is_no_fault_of_the_newer(cleaned, old, new):
    """Of statistics that are no JSON any more it is named."""
    def change(rows):
        row = row_of(rows, "add")
        stats = row["add"]["stats"].replace(old, new, 1)
        return [copied(row, "add", stats=stats) if each is row else each for each in rows]

    changed(checkpoint(cleaned, OLD), change)
    (line,) = wrong(cleaned)
    assert line.startswith(f"{checkpoint(cleaned, OLD)}: ") and "remove it" not in line


def test_a_foreign_checkpoint_behind_a_damaged_commit(root):
    """Nothing it could be compared with is left: but none of its files is there."""
    DeltaTable(str(root / "batches"), version=3).create_checkpoint()
    shutil.copy(checkpoint(root, 3, "batches"), checkpoint(root))
    checkpoint(root, 3, "batches").unlink()
    hint(root, "batches").unlink()
    commit = log_of(root, f"{NEW - 1:020d}.json")
    commit.write_bytes(commit.read_bytes()[:40] + bytes(30) + commit.read_bytes()[70:])
    assert [line.partition(": ")[0] for line in wrong(root)] == [str(commit),
                                                                str(checkpoint(root))]
