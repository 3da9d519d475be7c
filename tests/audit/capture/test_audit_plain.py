"""A few small captures are audited at once by an installation that has compiled nothing yet, and
the tables are those of compiled loops.

Knows: the command, the tables, where compiled loops are kept. Must not know: how loops run.
"""

import fcntl
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import audit_kit as kit
import audit_traffic as traffic
import pyarrow.parquet as pq
from mqtt_audit.report.columns import TABLES
from patience import wait_until
from pipeline_kit import AUDIT
from web_frames import AGREED, ASKED, frame

SCRIPT = ("import sys\nfrom mqtt_audit import cli\nsys.argv[0] = 'mqtt-audit'\n"
          "try:\n    cli.main()\nexcept SystemExit as end:\n"
          "    assert 'numba' not in sys.modules, end.code\n    raise\n")  # fmt: skip


def _web():
    """A WebSocket with masks, its packets in two frames each."""
    made = kit.Talk(("10.0.0.9", 9), ("10.0.0.1", 9001)).open().client(ASKED).broker(AGREED)
    talk = [(0, kit.connect("web")), (1, kit.connack()), (0, kit.publish("a", b"x" * 300, 1, 5)),
            (1, kit.ack(4, 5)), (0, kit.DISCONNECT)]  # fmt: skip
    for way, raw in talk:
        mask = None if way else b"\xfe\xdc\xba\x98"
        made.segment(way, frame(raw[:2], 2, False, mask) + frame(raw[2:], 0, True, mask))
    return made.close().wrapped()


def _captures(folder):
    """Correct traffic, whole and damaged, of IPv4 and IPv6, as pcap, pcapng and a torn file; two
    captures of the same connections; what breaks rules."""
    choice, files = random.Random(11), []

    def write(frames, **more):
        files.append(kit.pcap(folder / f"{len(files)}.pcap", frames, **more))

    for kind in (None, *traffic.DAMAGE):
        frames = traffic.sound(choice, choice.choice((1883, 17501)))
        write(kind(frames, choice) if kind else frames, snap=choice.choice((65_535, 300)))
    files[1].write_bytes(traffic.hole_in_file(files[1].read_bytes(), choice))
    files.append(folder / "ng.pcapng")
    blocks = [kit.enhanced("<", 0, t, f) for t, f in traffic.sound(choice)]
    files[-1].write_bytes(b"".join([kit.section(), kit.interface(resolution=9), *blocks]))
    both = kit.Talk(("2001:db8::2", 7), ("2001:db8::1", 1883)).open().client(kit.connect("six"))
    both.broker(kit.connack(1)).client(kit.publish("a/+", b"", 2, 0)).broker(kit.ack(7, 3))
    frames = both.wait(300).client(b"\xf0\0" + kit.PINGREQ).close().wrapped()
    write(frames[:-2])
    write(frames[3:])
    write(_web())
    return files


def _rows(folder, name):
    return sorted(map(repr, pq.read_table(folder / name).to_pylist()))


def test_the_tables_are_those_of_compiled_loops(tmp_path):
    from mqtt_audit import run

    files = _captures(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, files), "--out", str(tmp_path / "plain")],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "nothing")},
        capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    run.build(None, files, tmp_path / "compiled")
    for name in (*TABLES, "devices", "brokers"):
        assert _rows(tmp_path / "plain", name) == _rows(tmp_path / "compiled", name), name
    assert pq.read_table(tmp_path / "compiled" / "packets").num_rows > 300
    for name in ("violations", "flows", "problems"):
        assert pq.read_table(tmp_path / "compiled" / name).num_rows > 3, name


def test_a_change_of_what_loops_hold_has_them_compiled_anew():
    """ORDER is a constant of compiled code, and of a module without a loop."""
    from mqtt_audit.compiled import kept
    from mqtt_audit.rules import order

    assert Path(order.__file__) in kept._sources()


def test_large_captures_and_compiled_loops_are_not_left_to_python(tmp_path, monkeypatch):
    from mqtt_audit.compiled import kept

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept, "_plain", False)
    kept.choose(kept.PLAIN + 1)
    assert not kept.plain()
    kept.choose(kept.PLAIN)
    assert kept.plain()
    kept.folder().mkdir()
    kept.keep()
    kept.choose(10)
    assert not kept.plain()
    os.utime(kept.folder() / "whole", (1, 1))  # older than the modules: numba compiles anew
    kept.choose(10)
    assert kept.plain()


def test_one_process_compiles_and_another_one_waits_for_it(tmp_path, monkeypatch):
    """The other one begins when the first one is over, here without having compiled anything; the
    test does not wait for the end."""
    from mqtt_audit.compiled import kept

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    said = []
    with kept.alone(lambda: said.append("here")):
        program = subprocess.Popen([AUDIT, "warm-up"], stderr=subprocess.PIPE, text=True)
        reader = threading.Thread(target=lambda: said.extend(program.stderr), daemon=True)
        reader.start()
        try:
            wait_until(lambda: said, 120, "a line")
            assert "waiting: another process compiles the inner loops" in said[0]
            assert not list(tmp_path.rglob("*.nbi"))
        except BaseException:
            program.kill()
            raise
    try:
        wait_until(lambda: len(said) > 1, 120, "another line")
    finally:
        program.kill()
        program.wait(60)
        reader.join(60)
        program.stderr.close()
    assert "compiling the inner loops, once for this installation" in said[1]


def test_loops_that_an_earlier_run_has_compiled_count_as_compiled():
    """A run that goes on after one that was killed does not count from 0 again."""
    from mqtt_audit.compiled import jit, kept

    kit._warm()
    assert jit.LOOPS and 0.9 * len(jit.LOOPS) < kept.loops() <= len(jit.LOOPS)


def test_loops_that_are_kept_are_not_compiled_again():
    """The first call may compile them: it is the installation's own folder. The second one waits
    for nobody, though another process has the lock."""
    from mqtt_audit.compiled import kept

    def warm_up(seconds):
        done = subprocess.run([AUDIT, "warm-up"], capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, done.stderr
        return done.stderr

    warm_up(900)
    with kept.alone(lambda: None):
        assert warm_up(120) == ""


def test_loops_of_other_versions_are_removed(tmp_path, monkeypatch):
    """From a folder beside the modules at once, from a shared one when they are not used."""
    from mqtt_audit.compiled import kept

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    new, old, own = tmp_path / "kernels-new", tmp_path / "kernels-old", kept.folder()
    for made in (new, old, own, tmp_path / "other"):
        made.mkdir()
    (new / "whole").touch()
    (old / "whole").touch()
    os.utime(old / "whole", (1, 1))
    kept.keep()
    assert sorted(tmp_path.iterdir()) == sorted([new, own, tmp_path / "other"])
    monkeypatch.setattr(kept, "PACKAGE", tmp_path.parent)  # where the modules are
    monkeypatch.setattr(kept, "folder", lambda: own)
    kept.keep()
    assert sorted(tmp_path.iterdir()) == sorted([own, tmp_path / "other"])


def test_loops_that_another_process_compiles_are_not_removed(tmp_path, monkeypatch):
    from mqtt_audit.compiled import kept

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    old, own = tmp_path / "kernels-old", kept.folder()
    old.mkdir()
    own.mkdir()
    with open(old / "lock", "wb") as handle:
        os.utime(old, (1, 1))
        fcntl.flock(handle, fcntl.LOCK_EX)
        kept.keep()
        assert old.is_dir()
    kept.keep()
    assert not old.exists()


def test_where_nothing_can_be_kept_nobody_is_waited_for(tmp_path, monkeypatch):
    """As in a folder of another user, which the superuser of a test may write to all the same."""
    from mqtt_audit.compiled import kept

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kept.folder().write_text("in the way")
    said = []
    with kept.alone(lambda: said.append("waits")):
        said.append("inside")
    kept.keep()
    assert said == ["inside"] and kept.folder().read_text() == "in the way"
