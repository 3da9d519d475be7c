"""What Java has loaded once is mapped by each later start."""

from pathlib import Path

import pytest
from umqtt_runtime import class_archive, java


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A Java of version 21 in a folder of its own; give it another one by `monkeypatch`."""
    monkeypatch.delenv("UMQTT_JDK", raising=False)
    monkeypatch.setattr(java.sys, "prefix", str(tmp_path))

    def has(version):
        program = tmp_path / version / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / version))

    return has


def test_each_java_has_a_file_of_its_own(home, tmp_path):
    home("21.0.1")
    first = class_archive.place()
    assert class_archive.options() == ""
    new = tmp_path / "new"
    assert f"-XX:ArchiveClassesAtExit={new}" in class_archive.recording(new)
    assert "-XX:+DisplayVMOutputToStderr" in class_archive.recording(new)  # warm-up hushes that
    new.write_bytes(b"classes")
    class_archive.keep(new)
    assert f"-XX:SharedArchiveFile={first}" in class_archive.options()
    home("25.0.1")
    assert class_archive.place() != first and class_archive.options() == ""
    assert f"-XX:AOTCacheOutput={new}" in class_archive.recording(new)
    new.write_bytes(b"classes")
    class_archive.keep(new)
    assert f"-XX:AOTCache={class_archive.place()}" in class_archive.options()
    assert not first.exists()


def test_a_java_that_has_written_nothing(home, tmp_path):
    home("21.0.1")
    with pytest.raises(FileNotFoundError):
        class_archive.keep(tmp_path / "new")
    assert class_archive.options() == ""


def test_the_java_of_these_tests_has_mapped_it(spark):
    archive = class_archive.place()
    if not archive.is_file():
        pytest.skip("this environment was not made by `make`: umqtt-pipeline warm-up")
    process = spark.sparkContext._gateway.proc
    assert str(archive) in Path(f"/proc/{process.pid}/maps").read_text()
