"""A checkpoint that says something twice, and a stray file that readers take for the newest one:
`verify` names that file and no sound one, and what it says to do mends it."""


import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_pipeline_checkpoints
from test_pipeline_checkpoints import NEW, OLD, THERE, checkpoint, hint, wrong

made, root = test_pipeline_checkpoints.made, test_pipeline_checkpoints.root


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


def number_twice(rows):
    return [*rows, row_of(rows, "txn")]


def log_of(root, name):
    return root / "silver" / "_delta_log" / name


@pytest.mark.parametrize("change,said", [
    (file_twice, ".parquet' twice"), (other_file_first, ".parquet' twice"),
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
