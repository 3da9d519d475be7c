"""A log that says something wrong of whole files is named, and they are not. What `verify` says to
do mends it."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_pipeline_checkpoints
from deltalake import DeltaTable
from pipeline_tables import files
from test_pipeline_verify import commits, decided, replaced, wrong
from umqtt_pipeline.ingest.ledger import Ledger, ready
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.tables import intents
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import Tables, written

AGAIN = (". When no ingest runs, move this file elsewhere; the next `umqtt-pipeline ingest` makes "
         "that commit again")  # fmt: skip
#: what stands in the newest commit of silver, and what somebody has made of it
WRONG = [('numRecords\\": 1', 'numRecords\\": 2'), ('minValues\\": {\\"offset\\": 1', 'minValues'
         '\\": {\\"offset\\": 0'), ('maxValues\\": {\\"offset\\": 1', 'maxValues\\": {\\"offset'
         '\\": 0'), ('nullCount\\": {\\"offset\\": 0', 'nullCount\\": {\\"offset\\": 1'),
         ('"size":', '"size":1'),
         ('"date":"2026-01-01"', '"date":"2026-01-02"'), ('date=2026-01-01', 'date=2026-01-02'),
         ('"dataChange":true', '"dataChange":false'), ('"version":2', '"version":1'),
         ('"version":2', '"version":9'), ('"umqtt-ingest"', '"umqtt-ingesu"'),
         ('"tags":null', '"tags":1'), ('000000000002-', '000000000002-\x15')]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables of three batches. Silver has a checkpoint before the last one."""
    root = tmp_path_factory.mktemp("made")
    decided(root, 3)
    DeltaTable(str(root / "silver"), version=2).create_checkpoint()
    assert wrong(root) == []
    return root


root = test_pipeline_checkpoints.root  # a copy of what is made


def as_read(root):
    held = DeltaTable(str(root / "silver"))
    told = pa.table(held.get_add_actions(flatten=True)).drop_columns(["modification_time"])
    return held.transaction_version("umqtt-ingest"), told.to_pylist()


def columns(root):
    """What the first commit of silver says of the columns."""
    return next(json.loads(line) for line in commits(root, "silver")[0].read_text().splitlines()
                if line.startswith('{"metaData"'))  # fmt: skip


def named_and_made_again(root, tmp_path, old, new):
    """Verify names silver's newest commit alone if it says that; the next run makes it again."""
    whole, path = as_read(root), commits(root, "silver")[-1]
    replaced(path, old, new)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and line.endswith(AGAIN), line
    path.rename(tmp_path / path.name)
    ready(root)
    assert wrong(root) == [] and as_read(root) == whole


@pytest.mark.parametrize("old,new", WRONG)
def test_only_the_newest_commit_is_named_and_made_again(root, tmp_path, old, new):
    named_and_made_again(root, tmp_path, old, new)


@pytest.mark.parametrize("old,new", [
    ('"umqtt-ingest"', '"umqtt-ingesu"'), ('"version":3', '"version":2'),
    ('000000000001-', '000000000009-'), ('"dataChange":true', '"dataChange":false')])
def test_a_commit_that_only_removes_files(root, tmp_path, old, new):
    ledger = Ledger(Tables(root, ALL))
    ledger.decide("expire", {"silver": ([], ledger.tables.files("silver")[1:2])})
    ledger.finish()
    named_and_made_again(root, tmp_path, old, new)


def test_the_newest_commit_is_cut(root, tmp_path):
    whole, path = as_read(root), commits(root, "silver")[-1]
    path.write_bytes(path.read_bytes()[:-40])
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and line.endswith(AGAIN), line
    ready(root)  # which puts it aside
    assert wrong(root) == [] and as_read(root) == whole


@pytest.mark.parametrize("later,gone", [(True, False), (False, True), (True, True)])
def test_a_commit_that_nobody_can_make_again(root, later, gone):
    """A later batch has changed the table, or the file is gone that the commit brought."""
    path, data = commits(root, "silver")[-1], files(root)[-1]
    if later:
        decided(root, 1)  # its number is the next one
    if gone:
        data.unlink()
    replaced(path, 'numRecords\\": 1', 'numRecords\\": 2')
    assert [line for line in wrong(root) if line.startswith(f"{path}: ")] == [
        f"{path}: it does not say what batch 2 has decided"]  # fmt: skip


def test_a_damaged_file_beside_a_wrong_commit_is_named_too(root):
    path, data = commits(root, "silver")[-1], files(root)[-1]
    replaced(path, 'numRecords\\": 1', 'numRecords\\": 2')
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    first, second = wrong(root)
    assert first.startswith(f"{path}: ")
    assert second == f"{data}: its bytes are not those that were written"


@pytest.mark.parametrize("old,new,said", [
    ('numRecords\\": 1', 'numRecords\\": 2', "2 rows, and it has 1"),
    ('"size":', '"size":1', "bytes, and it has"),
    ('offset\\": 1', 'offset\\": 0', "offset from 0 to 1, and it has 1 to 1")])  # fmt: skip
def test_a_commit_whose_intent_is_gone(root, old, new, said):
    """Only the files tell that it is wrong. Each has its check value in its name."""
    shutil.rmtree(root / "_state")
    path, data = commits(root, "silver")[-1], files(root)[-1]
    replaced(path, old, new)
    first, second = wrong(root)
    assert first.startswith(f"{path}: it says of {data.relative_to(root / 'silver')}: ")
    assert said in first and "_state/intents: it is gone" in second


def test_a_checkpoint_whose_commits_are_gone(root):
    """As Delta Lake removes them after a month."""
    path = root / "silver" / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    held = pq.read_table(path).to_pylist()
    for row in held:
        if row["add"]:
            row["add"]["stats"] = row["add"]["stats"].replace('"numRecords": 1', '"numRecords": 2')
    pq.write_table(pa.Table.from_pylist(held, pq.read_schema(path)), path)
    for old in commits(root, "silver")[:3]:
        old.unlink()
    (line,) = wrong(root)
    assert line.startswith(f"{path}: it says of ")
    assert line.endswith(": 2 rows, and it has 1; and 1 more")


def test_a_commit_that_takes_a_column_away(root):
    shutil.rmtree(root / "_state")
    path, told = commits(root, "silver")[-1], columns(root)
    schema = json.loads(told["metaData"]["schemaString"])
    schema["fields"] = [each for each in schema["fields"] if each["name"] != "offset"]
    told["metaData"]["schemaString"] = json.dumps(schema)
    path.write_text(f"{path.read_text()}\n{json.dumps(told)}")
    line, _ = wrong(root)
    assert line == f"{path}: it takes the column offset away"


@pytest.mark.parametrize("change", ["gone", "copy"])
@pytest.mark.parametrize("lost,which", [(1, "batch 4 has"), (2, "batch 3 to batch 4 have")])
def test_the_newest_intents_are_missing(root, change, lost, which):
    """Their commits are sound, and the state before was removed when they had been made."""
    ledger, state = Ledger(Tables(root, ALL)), "_state/seen/000000000003-x.parquet"
    for number in (3, 4):
        rows = written(ledger.storage, "batches", number, "2026-01-01", pa.table({"batch": [1]}))
        ledger.decide("batch", {"batches": ([rows], [])},
                      state={"seen": [state]} if number == 3 else {})  # fmt: skip
        ledger.finish()
    assert wrong(root) == []
    *_, before, _, _ = commits(root, "_state/intents")
    for path in commits(root, "_state/intents")[-lost:]:
        path.unlink()
        if change == "copy":
            shutil.copy(before if lost == 2 else commits(root, "_state/intents")[-1], path)
    *named, line = wrong(root)
    assert line == (f"{root}/_state/intents: it lacks what {which} decided, and there are commits "
                    "of it in batches")  # fmt: skip
    strange = commits(root, "_state/intents")[-lost:] if change == "copy" else []
    assert named == [f"{path}: it is batch {5 - lost - 1} in the place of another one. When no "
                     "ingest runs, move this file elsewhere" for path in strange]  # fmt: skip


@pytest.mark.parametrize("version", [4, 9])
def test_a_copy_of_an_intent_behind_the_newest(root, tmp_path, version):
    *_, older, _ = commits(root, "_state/intents")
    path = older.with_name(f"{version:020d}.json")
    shutil.copy(older, path)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and line.endswith(
        "it is batch 1 in the place of another one. When no ingest runs, move this file elsewhere")
    with pytest.raises(SpoolError):
        ready(root)
    path.rename(tmp_path / path.name)
    assert wrong(root) == []
    ready(root)


def test_a_later_intent_over_an_earlier_one_accuses_no_table(root):
    _, path, _, newest = commits(root, "_state/intents")
    shutil.copy(newest, path)
    assert wrong(root) == [f"{path}: it is batch 2 in the place of another one"]


@pytest.mark.parametrize("later", [2, 3])
def test_a_later_commit_over_an_earlier_one(root, later):
    """It is named, and not the later one, which is where it should be."""
    path = commits(root, "silver")[1]
    shutil.copy(commits(root, "silver")[later], path)
    assert path in [Path(line.partition(": ")[0]) for line in wrong(root)]
    assert [line for line in wrong(root) if "place" in line] == [
        f"{path}: it is of batch {later - 1}, and the commit after it is of batch 1: another "
        "commit has taken its place"]  # fmt: skip
    assert not [line for line in wrong(root) if "already" in line or "elsewhere" in line]


@pytest.mark.parametrize("gone", ["_state/intents", "_gold/intents"])
def test_the_intents_of_another_folder(root, gone):
    tables, other = Tables(root, {}), {"_state/intents": "_gold/intents"}
    held = intents.Intents(tables, "_gold/intents", ["gold_minute"], intents.NONE, "gold")
    rows = written(tables.storage, "gold_minute", 0, "2026-01-01", pa.table({"minute": [1]}))
    held.decide("gold", {"gold_minute": ([rows], [])})
    shutil.rmtree(root / gone)
    shutil.copytree(root / other.get(gone, "_state/intents"), root / gone)
    path = commits(root, gone)[1]
    name = "gold_minute" if gone == "_state/intents" else "bronze"
    assert f"{path}: it is an intent on {name}, and this log is of other tables: another folder " \
        "has taken its place" in wrong(root)
    if gone == "_state/intents":
        with pytest.raises(SpoolError, match="its last intent is that of another folder"):
            ready(root)


def test_intents_of_another_version(root):
    """Whatever these say, nobody reads them by what this version knows."""
    for path in commits(root, "_state/intents"):
        path.write_text(path.read_text().replace('"format":1', '"format":2'))
    path = commits(root, "_state/intents")[1]
    assert f"{path}: another version of umqtt-pipeline has written it" in wrong(root)
    with pytest.raises(SpoolError, match="another version of umqtt-pipeline has written it: put"):
        ready(root)


def test_a_lost_commit_whose_files_are_torn(root):
    """A power cut may take both; the commit made again would keep readers from all rows."""
    (data,) = (path for path in files(root) if path.name.startswith("000000000002-"))
    commits(root, "silver")[-1].unlink()
    data.write_bytes(data.read_bytes()[:-7])
    assert wrong(root) == [f"{root / 'silver'}: it has no commit after batch 1, and batch 2 has "
                           "changed it"]  # fmt: skip
    with pytest.raises(SpoolError, match="silver has the batches up to 1 only, and lacks batch 2"):
        ready(root)


def test_a_commit_that_gives_a_column_another_type(root, tmp_path):
    whole, path = as_read(root), commits(root, "silver")[-1]
    told = columns(root)
    schema = told["metaData"]["schemaString"]
    assert '"name":"sequence","type":"long"' in schema
    told["metaData"]["schemaString"] = schema.replace('"name":"sequence","type":"long"',
                                                      '"name":"sequence","type":"string"')
    path.write_text(f"{path.read_text()}\n{json.dumps(told)}")
    (line,) = wrong(root)
    assert line == f"{path}: it makes the column sequence of type 'long' one of 'string'{AGAIN}"
    path.rename(tmp_path / path.name)
    ready(root)
    assert wrong(root) == [] and as_read(root) == whole


def test_a_commit_that_asks_for_what_readers_here_cannot_do(root, tmp_path):
    whole, path = as_read(root), commits(root, "silver")[-1]
    first, *more = path.read_text().splitlines()
    asks = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                         "readerFeatures": ["deletionVectors", "timestampNtz"],
                         "writerFeatures": ["deletionVectors", "timestampNtz"]}}  # fmt: skip
    path.write_text("\n".join([first, json.dumps(asks), *more]))
    (line,) = wrong(root)
    assert line == f"{path}: no reader here knows deletionVectors, which its protocol asks for" \
        + AGAIN
    path.rename(tmp_path / path.name)
    ready(root)
    assert wrong(root) == [] and as_read(root) == whole


@pytest.mark.parametrize("old,new,said", [
    (None, b"\0" * 60, "a line of 60 zero bytes is no action of Delta Lake"),
    (b'"size"', b'"tags"', "an action of it is not whole (no size)")],
    ids=["zeros", "no size"])  # fmt: skip
def test_what_is_no_action_is_told_in_words(root, old, new, said):
    path = commits(root, "silver")[-1]
    path.write_bytes(new if old is None else path.read_bytes().replace(old, new))
    assert wrong(root) == [f"{path}: {said}{AGAIN}"]


def test_the_last_commits_of_a_table_are_lost_in_one_line(tmp_path):
    decided(tmp_path, 4)
    for path in commits(tmp_path, "silver")[-3:]:
        path.unlink()
    assert wrong(tmp_path) == [f"{tmp_path}/silver: it has no commit after batch 0, and batch 3 "
                               "has changed it"]  # fmt: skip
