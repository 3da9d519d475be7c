"""Spark's Python workers take pyspark as it is installed, not out of Spark's archive."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from umqtt_runtime.worker_python import worker_python

LIB = Path(pyspark.__file__).resolve().parent / "python" / "lib"
ASKED = "import sys, pyspark; print(pyspark.__file__, *sys.path, sep='\\n')"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """What is made for this Python goes into a folder whose name is hard to quote."""
    prefix = tmp_path / "it's $HOME"
    monkeypatch.setattr(sys, "prefix", str(prefix))
    return prefix


@pytest.mark.parametrize("linked", [False, True])
def test_the_archives_of_spark_are_left_out_and_all_else_stays(
    elsewhere, tmp_path, monkeypatch, linked
):
    """Also where all lies behind a link: Spark names its archives by where they are."""
    if linked:
        (tmp_path / "link").symlink_to(LIB.parent.parent.parent)
        file = str(tmp_path / "link" / "pyspark" / "__init__.py")
        monkeypatch.setattr(pyspark, "__file__", file)
    archives = [str(path) for path in LIB.glob("*.zip")]
    archives.append(str(LIB.parent.parent / "jars" / "spark-core_2.13.jar"))
    assert len(archives) == 3
    others = [str(tmp_path / name) for name in ("a b", "*", "mine.zip", "it's")]
    path = [archives[0], others[0], *archives[1:], *others[1:], archives[0]]
    done = subprocess.run([worker_python("local[2]"), "-c", ASKED], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": ":".join(path)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    taken, *entries = done.stdout.splitlines()
    assert Path(taken).samefile(pyspark.__file__) and ".zip" not in taken
    assert [entry for entry in entries if entry in path] == others


def test_a_worker_of_a_query_has_the_installed_one(spark):
    def where(batches):
        import pyarrow
        import pyspark

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"path": [pyspark.__file__]})

    assert {row.path for row in spark.range(1).mapInArrow(where, "path string").collect()} == {
        pyspark.__file__}  # fmt: skip


def test_other_machines_get_this_python(elsewhere):
    assert worker_python("spark://there:7077") == sys.executable
    assert not elsewhere.exists()


def test_so_does_a_pyspark_that_is_an_archive_itself(elsewhere, monkeypatch):
    monkeypatch.setattr(pyspark, "__file__", str(LIB / "pyspark.zip" / "pyspark" / "__init__.py"))
    assert worker_python("local[2]") == sys.executable
    assert not elsewhere.exists()
