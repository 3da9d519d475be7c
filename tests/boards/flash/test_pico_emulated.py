"""MicroPython's own image for the Pico W, run by the emulator rp2040py, is flashed by the command.

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
from umqtt_board import boards, cli
from umqtt_board.flash import build, region, rp2, steps
from umqtt_board.paths import PROJECT
from umqtt_board.port import device

IMAGE = os.environ.get("PICO_UF2")
pytestmark = [
    pytest.mark.skipif(not IMAGE, reason="PICO_UF2= names no MicroPython image for the Pico W"),
    pytest.mark.skipif(not importlib.util.find_spec("rp2040py"), reason="no rp2040py installed"),
    pytest.mark.timeout(3600),
]
START_S = 120
SETTINGS = {"device": "pico", "broker.host": "127.0.0.1", "wifi.ssid": "none"}
DEVICE = PROJECT / "tests" / "device"
# Tests of the library for which there is heap beside them, the client and a strict broker, and
# what they import. Half a minute each.
TESTS = {
    "client/test_client_views": (
        "test_topic_payload_retain_qos_and_dup",
        "test_a_repeated_qos_2_message_is_not_handed_out_again",
        "test_an_exception_passes_on_and_nothing_is_acknowledged",
        "test_publish_from_the_view_callback",
    ),
    "interop/test_client_robust": (
        "test_names_and_defaults_of_umqtt_robust",
        "test_publish_goes_on_over_a_lost_connection",
        "test_an_answer_that_never_comes_makes_a_new_connection",
        "test_what_is_stored_is_not_published_twice",
        "test_stored_while_offline",
    ),
}
HELPERS = (
    *(DEVICE / "kit" / f"{name}.py" for name in ("harness", "broker_stream", "strict_broker",
                                         "strict_wire")),
    *(PROJECT / "boards" / "unix" / "shim" / f"{name}.py" for name in ("softtimer", "time",
                                                                      "select")),
)  # fmt: skip


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


def test_the_region_survives_stock_boot_code_and_an_erase_takes_all(port):
    with device.Device(port) as one:
        assert region.arrange(one, 65536)
        mark = "import os\nwith open('/kept', 'w') as f:\n    f.write('x')\n_say(1)"
        assert one.value(mark, int) == 1
        one.hard_reset()
        where, holds = region.look(one)
        assert holds and where["size"] == 65536
        assert one.value("import os\n_say('kept' in os.listdir('/'))", bool)
    cli.cli(["erase", "--board", "rp2040", "--port", port, "--yes"], standalone_mode=False)
    with device.Device(port) as one:
        assert region.look(one) == (None, False)
        assert one.value("import os\n_say(os.listdir('/'))", [str]) == []


def test_library_and_firmware_are_installed_and_the_second_time_only_verified(port):
    report = steps.flash("rp2040", port, SETTINGS, firmware="skip")
    assert report.journal == 65536 and report.library and report.settings == "written"
    again = steps.flash("rp2040", port, SETTINGS, firmware="skip")
    assert again.written == [] and again.settings == "same" and again.journal == 65536


@pytest.mark.parametrize("name", TESTS)
def test_the_librarys_device_tests(port, tmp_path, name):
    module = name.rpartition("/")[2]
    (tmp_path / "fw").mkdir()
    items = build.build(firmware=tmp_path / "fw", out=tmp_path / "out")
    for source in (*HELPERS, DEVICE / f"{name}.py"):
        items.append(build.compiled(source, f"tests/{source.name}", tmp_path / "out"))
    with device.Device(port) as one:
        one.run("import os\nfor _n in ('lib', 'lib/umqtt_min', 'lib/umqtt_min/aio',"
                " 'lib/umqtt_min/store', 'tests'): os.mkdir(_n)")
        for item in items:
            one.write_file(item.path, item.data)
        one.run(f"import gc, sys\nsys.path[:0] = ['/tests']\nimport softtimer, {module}")
        failed = []
        for test in TESTS[name]:
            try:
                one.run(f"gc.collect()\nsofttimer.set_virtual(False)\n{module}.{test}()")
            except device.DeviceError as error:
                failed.append(f"{test}: {error.traceback}")
    assert not failed, "\n".join(failed)
