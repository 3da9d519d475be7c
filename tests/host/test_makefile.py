"""What make refuses before it does anything.

Knows: the Makefile's text, and GNU make with --dry-run.
"""

import fcntl
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Makefile").read_text()
RECIPES = dict(re.findall(r"^([a-z-]+):[^=\n]*##.*\n((?:\t.*\n)*)", TEXT, re.M))
# What has a default, and what a target takes without one.
KNOWN = {*re.findall(r"^([A-Z_]+) \?=", TEXT, re.M),
         *" ".join(re.findall(r"^USES_\S+ := (.*)", TEXT, re.M)).split()}  # fmt: skip
ALWAYS = {"PYTHON", "VENV", "PIP_FLAGS", "BIN"}


def uses(target):
    found = re.search(rf"^USES_{target} :=(.*)$", TEXT, re.M)
    return set(found[1].split()) if found else set()


def without_make():
    """The environment, but for what the make that runs these tests was given (TESTS=...)."""
    return {name: value for name, value in os.environ.items()
            if name not in (*KNOWN, "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}


def make(*arguments):
    return subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True,
                          text=True, timeout=60, env=without_make())


@pytest.mark.parametrize("target", sorted(RECIPES))
def test_a_target_takes_what_it_uses_and_no_more(target):
    named = set(re.findall(r"\b[A-Z_]{2,}\b", RECIPES[target])) & KNOWN - ALWAYS
    used = {name for name in named if re.search(rf"\$\(({name}\)|(if|or|filter 1,)[^)]*{name})",
                                                RECIPES[target])
            or f"$({name})" in RECIPES[target]}
    assert used == uses(target)


def test_a_folder_of_the_report_may_have_spaces():
    done = make("report", "REPORT=build/a b/r.html")
    assert 'mkdir -p "$(dirname "build/a b/r.html")"' in done.stdout


@pytest.mark.parametrize("arguments, words", [
    (["flash", "BOARDS=unix"], "make flash takes no BOARDS. It takes: BOARD PORT"),
    (["demo", "BOARD=esp32"], "make demo takes no BOARD. It takes: BOARDS"),
    (["boards", "SEED=1"], "make boards takes no SEED. It takes: nothing"),
    (["test", "BORAD=unix"], "make test takes no BORAD. It takes: JOBS TESTS"),
])
def test_a_variable_that_is_not_used_is_refused(arguments, words):
    done = make(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_clean_leaves_a_demo_that_runs_alone(tmp_path):
    (tmp_path / "build/demo").mkdir(parents=True)
    (tmp_path / "Makefile").write_text(TEXT)
    with open(tmp_path / "build/demo/.umqtt-demo", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the demo does
        done = make_clean(tmp_path)
        assert done.returncode and "a demo is running in build/demo" in done.stderr
        assert (tmp_path / "build/demo").is_dir()
    assert make_clean(tmp_path).returncode == 0
    assert not (tmp_path / "build").exists()


def make_clean(folder):
    return subprocess.run(["make", "clean"], cwd=folder, capture_output=True, text=True,
                          timeout=60, env=without_make())


def test_what_is_used_is_taken():
    assert make("flash", "BOARD=unix", "YES=1").returncode == 0
    assert make("logs", "demo", "BOARD=unix", "SEED=3").returncode == 0
