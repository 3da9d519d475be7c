"""MicroPython's own image for the Pico W, run by the emulator rp2040py, gets region and files.

Needs `PICO_UF2=path` of an image (micropython.org/download/RPI_PICO_W) and `pip install rp2040py`.
It is slow: an emulated second takes many. Wi-Fi is left out.
"""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from umqtt_board import boards, device, flash, region, rp2

IMAGE = os.environ.get("PICO_UF2")
pytestmark = [
    pytest.mark.skipif(not IMAGE, reason="PICO_UF2= names no MicroPython image for the Pico W"),
    pytest.mark.skipif(not importlib.util.find_spec("rp2040py"), reason="no rp2040py installed"),
    pytest.mark.timeout(1800),
]
START_S = 120


@pytest.fixture
def port(tmp_path, monkeypatch):
    """Address of the emulated board's console."""
    monkeypatch.setattr(device, "ANSWER_S", 120)
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    command = [sys.executable, "-m", "rp2040py", "micropython", "--board", "pico_w", "--image",
               str(Path(IMAGE).resolve()), "--tcp-port", str(number)]  # fmt: skip
    with open(tmp_path / "log", "w") as log:
        emulator = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
    deadline = time.monotonic() + START_S
    while "listening on" not in (tmp_path / "log").read_text():
        assert emulator.poll() is None and time.monotonic() < deadline, "it did not start"
        time.sleep(0.2)
    yield f"socket://127.0.0.1:{number}"
    emulator.kill()
    emulator.wait()


def test_the_image_is_what_the_board_description_says():
    assert rp2.checked(Path(IMAGE), boards.load("rp2040"))


def test_the_region_survives_stock_boot_code(port):
    with device.Device(port) as one:
        assert region.arrange(one, 65536)
        mark = "import os\nwith open('/kept', 'w') as f:\n    f.write('x')\nprint(1)"
        assert one.value(mark) == 1
        one.hard_reset()
        where, holds = region.look(one)
        assert holds and where["size"] == 65536
        assert one.value("import os\nprint('kept' in os.listdir('/'))")


def test_library_and_firmware_are_installed(port):
    settings = {"device": "pico", "broker.host": "127.0.0.1", "wifi.ssid": "none"}
    report = flash.flash("rp2040", port, settings, firmware="skip")
    assert report.journal == 65536 and report.library and report.settings == "written"
