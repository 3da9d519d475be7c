"""One version number in one place: lib/umqtt_min/__init__.py.

Knows: where it is written and who reads it.  Must not know: anything else.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
INIT = ROOT / "lib" / "umqtt_min" / "__init__.py"
PACKAGE = INIT.parent / "package.json"  # JSON cannot look it up; test_package.py compares it


def version():
    """The number as written in the library."""
    return re.search(r'^__version__ = "([^"]+)"$', INIT.read_text(), re.M).group(1)


def test_version_is_three_numbers():
    assert re.fullmatch(r"\d+\.\d+\.\d+", version())


def test_host_package_takes_the_version_from_the_library():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "lib/umqtt_min/__init__.py"}
    assert metadata.version("umqtt-min") == version()


def test_changelog_has_an_entry_for_the_version():
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[?{re.escape(version())}\b", changes, re.M)


def test_no_other_file_repeats_the_version():
    repeated = []
    for folder in ("lib", "firmware", "tools", "boards"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".json", ".md") and path not in (INIT, PACKAGE):
                if re.search(rf"\bversion\W+{re.escape(version())}\b", path.read_text(), re.I):
                    repeated.append(str(path.relative_to(ROOT)))
    assert repeated == []
