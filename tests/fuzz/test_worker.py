"""The workers of make fuzz and make fuzz-firmware start, and find nothing in a few cases.

Knows: a worker's command line. Must not know: what is sent (tests/device/kit).
"""

import subprocess
from pathlib import Path

import device_plugin
import pytest

WORKER = Path(__file__).with_name("worker.py")


@pytest.mark.parametrize("interpreter", ["cpython", "micropython"])
@pytest.mark.parametrize("of", ["client", "firmware"])
def test_a_worker_runs(of, interpreter):
    command = [*device_plugin.command(interpreter, "2M"), str(WORKER), of, "1", "1", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("SEED 1 ")
