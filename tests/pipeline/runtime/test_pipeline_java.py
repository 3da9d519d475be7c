"""A Java is found, or the one from PyPI is made fit for Spark."""

import subprocess

import pytest
from umqtt_runtime import java


def fake(folder, text):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{text}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_the_wheel_without_the_module_that_spark_asks_for(tmp_path, monkeypatch):
    monkeypatch.setenv("UMQTT_JDK", "pypi")
    monkeypatch.setattr(java.sys, "prefix", str(tmp_path))
    home = java.java_home()
    assert tmp_path in home.parents
    program = str(home / "bin" / "java")
    assert java.version(program) >= java.OLDEST
    asked = [program, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    assert subprocess.run(asked, capture_output=True).returncode == 0
    assert java.java_home() == home


def test_java_home_is_used_if_new_enough(tmp_path, monkeypatch):
    monkeypatch.delenv("UMQTT_JDK", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "new", "21.0.1")))
    assert java.java_home() == tmp_path / "new"
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", "11.0.9")))
    monkeypatch.setenv("PATH", str(fake(tmp_path / "older", "1.8.0_392") / "bin"))
    monkeypatch.setattr(java.sys, "prefix", str(tmp_path))
    assert java.java_home().parent == tmp_path / "share" / "umqtt_pipeline"
    # outside of a virtual environment
    monkeypatch.setattr(java.sys, "prefix", java.sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java.java_home().parent == tmp_path / "umqtt_pipeline"


def test_a_java_is_asked_once_for_its_version(tmp_path, monkeypatch):
    """Each question is the start of a Java, before the one that does the work."""
    home, asked = fake(tmp_path / "jdk", "21.0.1"), tmp_path / "asked"
    with open(home / "bin" / "java", "a") as program:
        program.write(f"echo >> '{asked}'\n")
    monkeypatch.delenv("UMQTT_JDK", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(java.sys, "prefix", str(tmp_path))
    assert java.for_spark(java.java_home()) != home
    assert asked.read_text() == "\n"


def test_another_choice_is_an_error(monkeypatch):
    monkeypatch.setenv("UMQTT_JDK", "mine")
    with pytest.raises(java.NoJava, match="mine"):
        java.java_home()
