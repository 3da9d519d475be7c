"""Which room of the pipeline may import what, so that each can stand where it has to."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import umqtt_pipeline

PACKAGE = Path(umqtt_pipeline.__file__).parent
#: a Raspberry Pi that runs the bridge has neither
HEAVY = ("pyspark", "pandas", "numba", "matplotlib", "mqtt_audit")


def modules(room):
    return [f"umqtt_pipeline.{room}.{path.stem}" for path in sorted((PACKAGE / room).glob("*.py"))
            if path.stem != "__init__"]  # fmt: skip


@pytest.mark.parametrize("room", ["bridge", "spool", "decode"])
def test_no_spark_where_only_the_bridge_runs(room):
    names = modules(room)
    assert names
    program = (f"import sys, {', '.join(names)}\n"
               f"print([name for name in {HEAVY} if name in sys.modules])")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120)  # fmt: skip
    assert done.stdout == "[]\n", done.stdout + done.stderr


def imported(path):
    """The packages that a module imports by their absolute names, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
    return found


@pytest.mark.parametrize("package,never", [
    ("mqtt_audit", {"umqtt_pipeline", "umqtt_min", "umqtt_board"}),
    ("umqtt_runtime", {"umqtt_pipeline", "mqtt_audit", "umqtt_min", "umqtt_board"}),
    ("umqtt_pipeline", {"mqtt_audit", "umqtt_min", "umqtt_board"}),
])  # fmt: skip
def test_what_a_package_must_not_know(package, never):
    paths = list((PACKAGE.parent / package).rglob("*.py"))
    assert len(paths) > 5
    assert {str(path): imported(path) & never for path in paths if imported(path) & never} == {}


def test_no_room_has_more_than_twenty_modules():
    for package in ("mqtt_audit", "umqtt_runtime", "umqtt_pipeline"):
        for folder in (PACKAGE.parent / package).rglob("__init__.py"):
            assert len(list(folder.parent.glob("*.py"))) <= 20, folder.parent
