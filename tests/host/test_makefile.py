"""What make refuses before it does anything.

Knows: the Makefile's text, and GNU make with --dry-run.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Makefile").read_text()
RECIPES = dict(re.findall(r"^([a-z-]+):[^=\n]*##.*\n((?:\t.*\n)*)", TEXT, re.M))
KNOWN = re.search(r"^KNOWN := ((?:.*\\\n)*.*)", TEXT, re.M)[1].replace("\\", "").split()
ALWAYS = {"PYTHON", "VENV", "PIP_FLAGS", "BIN"}


def uses(target):
    found = re.search(rf"^USES_{target} :=(.*)$", TEXT, re.M)
    return set(found[1].split()) if found else set()


def make(*arguments):
    # Not what the make that runs these tests was given: `make test TESTS=...`.
    environment = {name: value for name, value in os.environ.items()
                   if name not in (*KNOWN, "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}
    return subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True,
                          text=True, timeout=60, env=environment)


@pytest.mark.parametrize("target", sorted(RECIPES))
def test_a_target_takes_what_it_uses_and_no_more(target):
    named = set(re.findall(r"\b[A-Z_]{2,}\b", RECIPES[target])) & set(KNOWN) - ALWAYS
    used = {name for name in named if re.search(rf"\$\(({name}\)|(if|or|filter 1,)[^)]*{name})",
                                                RECIPES[target])
            or f"$({name})" in RECIPES[target]}
    assert used == uses(target)


def test_a_folder_of_the_report_may_have_spaces():
    done = make("report", "REPORT=build/a b/r.html")
    assert 'mkdir -p "$(dirname "build/a b/r.html")"' in done.stdout


@pytest.mark.parametrize("arguments, words", [
    (["flash", "BOARDS=unix"], "make flash does not use BOARDS. It takes: BOARD PORT"),
    (["demo", "BOARD=esp32"], "make demo does not use BOARD. It takes: BOARDS"),
    (["boards", "SEED=1"], "make boards does not use SEED. It takes: nothing"),
    (["test", "BORAD=unix"], "there is no BORAD"),
])
def test_a_variable_that_is_not_used_is_refused(arguments, words):
    done = make(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_what_is_used_is_taken():
    assert make("flash", "BOARD=unix", "YES=1").returncode == 0
    assert make("logs", "demo", "BOARD=unix", "SEED=3").returncode == 0
