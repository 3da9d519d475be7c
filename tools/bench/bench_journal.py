"""Wear, time and space of the stores: `python tools/bench/bench_journal.py`.

Knows: what journal_device.py measures, the targets.  Must not know: flash, records.
Runs every measurement on MicroPython in a process of its own and prints them beside the limit
and beside what people do today. Exit status 0 even if a target is missed (it says so), 2 if
there is no MicroPython or a measurement failed.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import bench_world as world

HERE = Path(__file__).resolve().parent
LIB = HERE.parent.parent / "lib"
TOPIC, PAYLOAD = 24, 100
LIMIT = (TOPIC + PAYLOAD + 7) / 4096  # erases: packet overhead of 7 bytes, nothing else
RATED = 100_000
SPREAD = 1.1  # most-worn sector / mean

JOURNAL = [
    ("any", "any-byte programs (esp32)", 1.35),
    ("pages", "256-byte pages, programmed again (rp2)", 1.35),
    ("late", "any-byte, 16 messages in flight", 1.35),
    ("aligned", "16-byte pages, programmed once", None),
    ("once", "256-byte pages, programmed once", None),
    ("full", "any-byte, the journal full all the time", None),
]
FILES = [
    ("files", "FileStore"),
    ("each", "one file per message, removed when acknowledged"),
    ("rewritten", "one file, rewritten for each message"),
    ("appended", "one file, appended and synced"),
]


class Failed(Exception):
    """A measurement did not come to an end."""


def measure(micropython, case, count, lib=LIB):
    """The figures of one case."""
    done = subprocess.run(
        [micropython, "-X", "heapsize=4M", str(HERE / "journal_device.py"), str(lib), case,
         str(count)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Failed(f"{case}: {done.stdout}{done.stderr}")
    return {key: float(value) for key, value in map(str.split, done.stdout.splitlines())}


def journal_table(micropython, count):
    """Wear of the raw region."""
    print(f"A region of 64 KiB, {count} QoS 1 messages: topic {TOPIC}, payload {PAYLOAD} bytes.")
    print(f"The limit is {LIMIT:.4f} erases a message.\n")
    print(f"{'':42} {'erases':>7} {'/limit':>6} {'bytes':>6} {'ops':>5} {'spread':>6}  "
          f"messages a day for ten years")
    for case, name, target in JOURNAL:
        f = measure(micropython, case, count)
        ratio = f["erases"] / LIMIT
        uneven = f["spread"] > SPREAD and count >= 2000  # less is too few turns of the sectors
        missed = target and (ratio > target or uneven)
        verdict = "" if target is None else (
            f"  (limit {target}, spread {SPREAD}: {'MISSED' if missed else 'met'})")
        life = 16 * RATED / f["erases"] / 3652
        print(f"{name:42} {f['erases']:7.4f} {ratio:6.2f} {f['programmed']:6.0f} "
              f"{f['programs']:5.2f} {f['spread']:6.2f}  {life:,.0f}{verdict}")


def files_table(micropython, count):
    """Wear of littlefs."""
    print(f"\nlittlefs on 256 KiB of the same flash, {count} messages; erases a message:\n")
    print(f"{'':50} {'prog 32 (esp32)':>16} {'prog 256 (rp2)':>16}")
    for case, name in FILES:
        small, large = (measure(micropython, case + prog, count)["erases"]
                        for prog in ("32", "256"))
        print(f"{name:50} {small:16.3f} {large:16.3f}")


def time_and_space(micropython, count):
    """What a store costs besides wear."""
    f = measure(micropython, "times", count)
    print("\nMicroseconds on this computer, flash operations free:\n")
    for name, what in (("put", "store a message"), ("done", "its acknowledgement")):
        ram, flash = f["ram_" + name], f["flash_" + name]
        print(f"{what:42} FlashStore {flash:6.1f}  RAMStore {ram:6.1f}  ratio {flash / ram:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        world.compile_folder(LIB / "umqtt_min", Path(folder, "umqtt_min"))
        f = measure(micropython, "replay", 1, folder)
    print(f"\nMounting a full 64 KiB ({f['live']:.0f} live messages): {f['ms']:.0f} ms\n")
    print(f"{'bytes of heap, compiled':42} {'64-bit':>8} {'32-bit':>8}")
    small, why = heap32()
    for key, what in (("heap", "a store of 64 KiB: buffers, index, objects"),
                      ("churn", "its mount besides, garbage and code")):
        print(f"{what:42} {f[key]:8,.0f} {small.get(key, '-'):>8}")
    if why:
        print(f"no 32-bit figures: {why}")


def heap32():
    """The same on a 32-bit MicroPython; {} and why where there is none."""
    module, why = world.wasm_module(world.ROOT / "build" / "bench" / "peers")
    if why:
        return {}, why
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        world.compile_folder(LIB / "umqtt_min", files / "umqtt_min")
        for source in (HERE / "journal_device.py", *(world.DEVICE / "fake").glob("*.py")):
            shutil.copy(source, files)
        steps = ["import sys, fake_select; sys.modules['select'] = fake_select",
                 "sys.modules['os'] = type('os', (), {'urandom': staticmethod(bytes)})",
                 "import journal_device as d; s = d.Steps()", "s.show('')", "s.show('')",
                 "s.make()", "s.mount()", "s.show('heap')"]
        done = subprocess.run(["node", str(world.DEVICE / "wasm.mjs"), str(module), folder,
                               *steps], capture_output=True, text=True, timeout=120)
    words = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    if "heap" not in words:
        raise Failed(f"32-bit: {done.stdout}{done.stderr}")
    return {key: f"{int(value):,}" for key, value in words.items()}, None


def main(argv=None):
    """Print the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=5000, help="for each measurement")
    parser.add_argument("--micropython", default=str(Path(sys.executable).parent / "micropython"))
    args = parser.parse_args(argv)
    if args.messages < 100:
        parser.error("--messages must be at least 100")
    if not shutil.which(args.micropython):
        parser.error(f"no MicroPython at {args.micropython}: run `make venv`, or name one with "
                     f"--micropython")
    try:
        journal_table(args.micropython, args.messages)
        files_table(args.micropython, max(100, args.messages // 8))
        time_and_space(args.micropython, args.messages)
    except (Failed, world.BenchError) as e:
        print(f"bench_journal: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
