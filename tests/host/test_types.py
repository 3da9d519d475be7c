"""mypy passes on library and firmware with the stubs of both ports, and would say so if not.

Knows: tools/check_types.py.  Must not know: what the stubs hold.
"""

import importlib.util

import pytest
from device_plugin import ROOT

_spec = importlib.util.spec_from_file_location("check_types", ROOT / "tools" / "check_types.py")
check_types = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_types)

WRONG = """
import time
from umqtt_min import MQTTClient


def main():
    client = MQTTClient("id", "server")
    client.pubblish("t", "x")
    client.connect(timeot=3)
    time.ticks_diff("a", 1)
"""


@pytest.mark.parametrize("port", check_types.PORTS)
def test_library_and_firmware(port):
    for what in (["-p", "umqtt_min"], ["firmware"]):
        status, output = check_types.check(port, *what)
        assert status == 0, output


def test_a_mistake_is_found(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    status, output = check_types.check("rp2", str(wrong))
    assert status == 1
    for line in (8, 9, 10):
        assert f"wrong.py:{line}: error" in output
