"""What stands in the place of a file is named: a pipe, a folder, a device, a link that leads
nowhere. One of them is one line."""

import os
import shutil

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pipeline_kit import fill, publish, senml
from pipeline_tables import files
from test_pipeline_verify import commits, decided, wrong
from umqtt_pipeline import commands
from umqtt_pipeline.spool import consumers


def pipe(path):
    os.mkfifo(path)
    return "it is no plain file, but a pipe"


def folder(path):
    path.mkdir()
    return "it is no plain file, but a folder"


def to_device(path):
    path.symlink_to(os.devnull)
    return f"it is no plain file, but a link to {os.devnull}, which is a device"


def to_nothing(path):
    path.symlink_to(path.parent / "unmounted")
    return f"it is a link that leads nowhere, to {path.parent}/unmounted"


def to_itself(path):
    path.symlink_to(path.name)
    return f"it is a link that leads nowhere, to {path.name}"


FIRST, LAST = f"_delta_log/{0:020d}.json", f"_delta_log/{2:020d}.json"


@pytest.mark.parametrize("name", [f"silver/{FIRST}", f"silver/{LAST}", f"_state/intents/{LAST}",
                                  "data"])  # fmt: skip
@pytest.mark.parametrize("odd", [pipe, folder, to_device, to_nothing, to_itself])
def test_what_is_in_the_place_of_a_file_is_named(tmp_path, name, odd):
    """Not that a log has lost its commit, nor that no such file is there."""
    decided(tmp_path, 2)
    path = files(tmp_path, "silver")[0] if name == "data" else tmp_path / name
    path.unlink()
    said = odd(path) + ("" if name == "data" else ": nothing else was looked at")
    assert wrong(tmp_path) == [f"{path}: {said}"]


@pytest.mark.parametrize("name", ["silver", "clock", "_state", "_state/intents",
                                  "silver/_delta_log", "silver/date=2026-01-01"])  # fmt: skip
def test_a_folder_that_is_a_link_to_nothing_is_one_line(tmp_path, name):
    """Not a line for each file below it."""
    decided(tmp_path, 2)
    shutil.rmtree(tmp_path / name)
    said = to_nothing(tmp_path / name)
    (line,) = wrong(tmp_path)
    assert line.removesuffix(": nothing else was looked at") == f"{tmp_path / name}: {said}"


def test_a_log_without_its_first_commit(tmp_path):
    decided(tmp_path, 2)
    first, second, _ = commits(tmp_path, "silver")
    first.unlink()
    assert wrong(tmp_path)[0] == f"{second}: the commit 0 before it is missing"
    DeltaTable(str(tmp_path / "bronze")).create_checkpoint()
    for path in commits(tmp_path, "bronze")[:2]:  # as Delta Lake does after a month
        path.unlink()
    assert not any("bronze" in line for line in wrong(tmp_path))


def test_a_spool_and_its_copy_are_looked_at_beside_tables(tmp_path):
    """They cannot be read as two, but verify reads nothing into tables."""
    decided(tmp_path / "tables", 1)
    fill(tmp_path / "spool", [publish(senml(1))])
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    done = CliRunner().invoke(commands.main, (
        "verify", "--tables", str(tmp_path / "tables"),
        "--spool", f"{tmp_path / 'spool'},{tmp_path / 'copy'}"))
    assert done.exit_code == 0 and "nothing damaged" in done.output, done.output


@pytest.mark.parametrize("name", ["deleted", "marks", "durable", f"{0:020d}.seg", "consumers"])
@pytest.mark.parametrize("odd", [pipe, to_nothing])
def test_the_rest_is_looked_at_when_a_file_of_a_spool_is_none(tmp_path, name, odd):
    """`verify` has ended without what it had found in the tables."""
    decided(tmp_path / "tables", 1)
    (data,) = files(tmp_path / "tables", "silver")
    data.write_bytes(b"x")
    for spool in (tmp_path / "spool", tmp_path / "other"):
        fill(spool, [publish(senml(1))])
        consumers.register(spool, "ingest", 0)
    path = tmp_path / "spool" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    said = odd(path)
    (tmp_path / "other" / "spool.json").unlink()
    done = CliRunner().invoke(commands.main, (
        "verify", "--tables", str(tmp_path / "tables"),
        "--spool", f"{tmp_path / 'spool'}, {tmp_path / 'other'}"))
    assert done.exit_code == 1 and f"{data}: 1 bytes" in done.output, done.output
    assert name == "consumers" and odd is pipe or f"{path}: {said}" in done.output, done.output
    assert f"{tmp_path}/other/spool.json is gone" in done.output, done.output
