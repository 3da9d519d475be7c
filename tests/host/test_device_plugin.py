"""The plugin that runs device tests: it must not pass what failed, hung, crashed or never ran.

Knows: device_plugin's comments, names and messages.  Must not know: the device library.
"""

import os
import subprocess
import sys
from pathlib import Path

import brokers
import pytest

TESTS = Path(__file__).resolve().parent.parent


def run_pytest(folder, text, *args, **env):
    """Run pytest on one device test file of its own; (status, output)."""
    device = folder / "device"
    device.mkdir(exist_ok=True)
    (device / "test_x.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "device_plugin", "-rA", "-v", "--color=no", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout


def test_each_function_runs_on_both_interpreters(tmp_path):
    status, out = run_pytest(
        tmp_path,
        "import sys\n"
        "def test_a():\n    print('I am', sys.implementation.name)\n    assert 0\n"
        "def test_b():\n    pass\n"
        "def helper():\n    assert 0\n",
    )
    assert status == 1
    assert "2 failed, 2 passed" in out
    assert "I am cpython" in out and "I am micropython" in out
    assert "test_x.py::test_b[cpython] PASSED" in out
    assert "test_x.py::test_b[micropython] PASSED" in out


@pytest.mark.parametrize(
    "args, names",
    [
        (("device/test_x.py::test_a[micropython]",), {"test_a[micropython]"}),
        (("device/test_x.py::test_b",), {"test_b[cpython]", "test_b[micropython]"}),
        (("-k", "test_a and cpython and not micropython"), {"test_a[cpython]"}),
        (("-m", "micropython"), {"test_a[micropython]", "test_b[micropython]"}),
    ],
)
def test_only_what_is_selected_runs(tmp_path, args, names):
    marker = tmp_path / "ran"
    body = "    with open(%r, 'a') as f:\n        f.write('%s ')\n"
    text = "".join(f"def test_{c}():\n" + body % (str(marker), c) for c in "ab")
    status, out = run_pytest(tmp_path, text, *args)
    assert status == 0
    assert all(f"::{name} PASSED" in out for name in names)
    assert out.count(" PASSED") == len(names)
    assert sorted(marker.read_text().split()) == sorted(n[5] for n in names)


def test_a_hang_fails_its_function_and_the_rest_still_runs(tmp_path):
    status, out = run_pytest(
        tmp_path,
        "# deadline: 0.5\n"
        "def test_a():\n    pass\n"
        "def test_hangs():\n    print('before')\n    while True:\n        pass\n"
        "def test_c():\n    pass\n",
    )
    assert status == 1
    assert "2 failed, 4 passed" in out
    assert out.count("test_hangs did not end within 2 s: killed") >= 2


def test_a_crash_fails_its_function_and_the_rest_still_runs(tmp_path):
    status, out = run_pytest(
        tmp_path,
        "import sys\n"
        "def test_a():\n    pass\n"
        "def test_dies():\n    sys.exit(3)\n"
        "def test_c():\n    pass\n",
    )
    assert status == 1
    assert "2 failed, 4 passed" in out
    assert "the interpreter ended (status 3) during test_dies" in out


def test_exit_status_zero_is_not_a_pass(tmp_path):
    status, out = run_pytest(tmp_path, "import sys\ndef test_a():\n    sys.exit(0)\n")
    assert status == 1
    assert "2 failed" in out


def test_a_file_that_cannot_be_loaded_fails_all_of_it(tmp_path):
    status, out = run_pytest(
        tmp_path, "import no_such_module\ndef test_a():\n    pass\ndef test_b():\n    pass\n"
    )
    assert status == 1
    assert "4 failed" in out
    assert "no_such_module" in out


def test_printing_the_words_of_the_protocol_passes_nothing(tmp_path):
    status, out = run_pytest(
        tmp_path,
        "def test_a():\n    print('PASS test_b')\n    print('PASS')\n"
        "def test_b():\n    assert 0\n",
    )
    assert status == 1
    assert "2 failed, 2 passed" in out


def test_heap_comment_bounds_micropython(tmp_path):
    body = "def test_a():\n    x = bytearray(100000)\n"
    assert run_pytest(tmp_path, body, "-k", "micropython")[0] == 0
    status, out = run_pytest(tmp_path, "# heap: 64K\n" + body, "-k", "micropython")
    assert status == 1
    assert "MemoryError" in out


def test_only_comment_leaves_the_other_interpreter_out(tmp_path):
    status, out = run_pytest(
        tmp_path,
        "# only: micropython\nimport micropython\n"
        "def test_a():\n    assert micropython.mem_total() > 0\n",
    )
    assert status == 0
    assert "1 passed" in out


def test_missing_micropython_is_an_error_and_says_what_to_do(tmp_path):
    code = (
        "import sys, device_plugin, pytest; device_plugin.find_micropython = lambda: None;"
        "sys.exit(pytest.main(['-p', 'device_plugin', '--color=no']))"
    )
    run_pytest(tmp_path, "def test_a():\n    pass\n", "--collect-only")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "no MicroPython found: run `make`" in done.stdout


def test_unknown_broker_is_an_error(tmp_path):
    status, out = run_pytest(tmp_path, "# needs: nosuch\ndef test_a():\n    pass\n")
    assert status == 1
    assert "nosuch: unknown" in out


def test_a_needed_broker_is_started_and_its_address_given(tmp_path):
    status, out = run_pytest(
        tmp_path,
        "# needs: iotcore\nimport os, socket\n"
        "def test_a():\n"
        "    s = socket.socket()\n"
        "    host, port = os.getenv('BROKER_HOST'), int(os.getenv('BROKER_PORT'))\n"
        "    s.connect(socket.getaddrinfo(host, port)[0][-1])\n"
        "    s.close()\n",
    )
    assert status == 0, out
    assert "2 passed" in out


def test_without_mosquitto_its_tests_are_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(brokers, "find_mosquitto", lambda: None)
    with pytest.raises(pytest.skip.Exception, match="mosquitto is not installed"):
        brokers.environment("mosquitto")
