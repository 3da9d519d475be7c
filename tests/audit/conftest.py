"""The search path of the audit's tests; they start programs with the pipeline's kit."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE / "kit", HERE.parent / "pipeline"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import brokers  # noqa: E402
from brokers import broker  # noqa: E402, F401


@pytest.fixture(autouse=True)
def end_programs(none_left_running):
    """Every test's."""


@pytest.fixture
def web_listener():
    """Port of a listener for WebSockets, of a mosquitto of this test alone."""
    brokers.need_mosquitto()
    port = brokers.free_port()
    own = brokers.Broker("mosquitto", f"listener {port} 127.0.0.1\nprotocol websockets\n")
    brokers.wait_port(port, own.process)
    yield port
    own.stop()
