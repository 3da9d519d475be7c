"""The search path of the audit's tests; they start programs with the pipeline's kit."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "pipeline"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from brokers import broker  # noqa: E402, F401


@pytest.fixture(autouse=True)
def end_programs(none_left_running):
    """Every test's."""
