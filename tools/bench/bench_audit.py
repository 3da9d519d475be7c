"""The wire audit beside tshark: frames per second, growth with the input, what a second core is
worth.

Knows: the audit's steps, how to make a capture of many frames. Must not know: how it decodes.

tshark runs on a sample of the frames, before and after, and its time is scaled up, since it is
linear; the other figures are of all frames, the fastest of some rounds. Starting Spark and loading
the compiled loops is printed apart. CPU seconds stand beside the wall clock's: on a busy machine
only they can be compared.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

FILES = 16
CLIENTS = 50  #: of each file
PROPERTIES = b"\x0e\x02\0\0\0\x3c\x26\0\4site\0\0"
ROUND = 8  #: frames of one message: QoS 0; QoS 1 and PUBACK; QoS 2 and three; an empty ACK


def _frame(client, way, seq, ack, payload):
    a, b = (10 << 24 | 2 << 16 | client, 40_000), (10 << 24 | 1, 1883)
    (src, sport), (dst, dport) = ((a, b), (b, a))[way]
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, src, dst)
    tcp = struct.pack(">HHIIBBHHH", sport, dport, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, 0x50,
                      0x18 if payload else 0x10, 65535, 0, 0)  # fmt: skip
    return bytes(12) + b"\x08\x00" + ip + tcp + payload


def _packet(head, body):
    return bytes([head, len(body)]) + body


def _exchange(ident, topic, payload, five):
    """(way, bytes) of three messages, one of each QoS, and an empty segment; five: of MQTT 5, with
    a Message Expiry Interval and a User Property."""
    name, number = struct.pack(">H", len(topic)) + topic, struct.pack(">H", ident)
    payload = PROPERTIES + payload if five else payload
    return [
        (0, _packet(0x30, name + payload)),
        (0, _packet(0x32, name + number + payload)), (1, _packet(0x40, number)),
        (0, _packet(0x34, name + number + payload)), (1, _packet(0x50, number)),
        (0, _packet(0x62, number)), (1, _packet(0x70, number)), (0, b""),
    ]  # fmt: skip


def make(path, frames, first_client, start, five=0):
    """A capture of so many frames; returns how many there are. Time goes on by 20 us a frame.
    five: percent of the clients that speak MQTT 5."""
    seq = [[1000, 5000] for _ in range(CLIENTS)]
    now, n, ident = start, 0, 0
    with open(path, "wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))

        def put(k, way, payload):
            nonlocal now, n
            raw = _frame(first_client + k, way, seq[k][way], seq[k][1 - way], payload)
            out.write(struct.pack("<IIII", now // 10**6, now % 10**6, len(raw), len(raw)) + raw)
            seq[k][way] += len(payload)
            now += 20
            n += 1

        for k in range(CLIENTS):
            new = 100 * k < five * CLIENTS
            head = b"\x00\x04MQTT" + (b"\5\2\0\x3c\0" if new else b"\4\2\0\x3c") + b"\0\x09"
            put(k, 0, _packet(0x10, head + b"dev%06d" % k))
            put(k, 1, _packet(0x20, b"\0\0\0" if new else b"\0\0"))
        while n < frames:
            ident = ident % 65_000 + 1
            for k in range(CLIENTS):
                topic = b"fleet/g/dev%06d/telemetry" % (first_client + k)
                for way, payload in _exchange(ident, topic, b'{"temperature":21.5,"n":1}',
                                              100 * k < five * CLIENTS):  # fmt: skip
                    put(k, way, payload)
    return n


def cpu():
    """CPU seconds so far of this process and all that descend from it (Java, Python workers)."""
    mine, total = {os.getpid()}, 0
    rows = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue  # it has ended meanwhile
        fields = rest.split()
        # Of children that have ended only their parent knows.
        rows.append((int(folder.name), int(fields[1]), sum(map(int, fields[11:15]))))
    grown = True
    while grown:
        found = {pid for pid, parent, _ in rows if parent in mine} - mine
        mine |= found
        grown = bool(found)
    total = sum(ticks for pid, _, ticks in rows if pid in mine)
    return total / os.sysconf("SC_CLK_TCK")


def tshark_seconds(path):
    """(wall, CPU) seconds of one tshark that prints the fields of every MQTT packet."""
    argv = ["tshark", "-r", str(path), "-o", "tcp.reassemble_out_of_order:TRUE", "-Y", "mqtt",
            "-T", "fields", "-E", "aggregator=;"]  # fmt: skip
    for field in ("frame.number", "frame.time_epoch", "tcp.stream", "mqtt.msgtype", "mqtt.len",
                  "mqtt.msgid", "mqtt.dupflag", "mqtt.qos", "mqtt.retain", "mqtt.topic"):
        argv += ["-e", field]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def audited(spark, paths, folder):
    """One audit: wall and CPU seconds to the packet table, the same to everything."""
    from mqtt_audit.run import Audit

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    audit = Audit(spark, paths, folder)
    started, used = time.perf_counter(), cpu()
    audit.packets()
    middle, half = time.perf_counter(), cpu()
    audit.complete()
    return (middle - started, half - used, time.perf_counter() - started, cpu() - used)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--frames", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--five", type=int, default=0, help="percent of clients of MQTT 5")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-audit-"))
    try:
        bench(arguments, folder)
    finally:
        shutil.rmtree(folder)


def bench(arguments, folder):
    start = 1_767_268_800_000_000
    paths = [folder / f"{k}.pcap" for k in range(FILES)]
    frames = sum(make(p, arguments.frames // FILES, k * CLIENTS, start, arguments.five)
                 for k, p in enumerate(paths))  # fmt: skip
    sample = folder / "sample.pcap"
    sampled = make(sample, min(200_000, arguments.frames // FILES), 0, start,
                   arguments.five)  # fmt: skip
    size = sum(p.stat().st_size for p in paths)
    print(f"{frames:,} frames in {FILES} files, {size >> 20} MiB")
    tshark = []
    if shutil.which("tshark"):
        tshark.append(tshark_seconds(sample))
    sizes = [paths[: FILES // 4], paths[: FILES // 2], paths]
    one = apart(1, [paths], sample, folder, arguments.rounds)[0]
    whole = apart(2, sizes, sample, folder, arguments.rounds)
    if tshark:
        tshark.append(tshark_seconds(sample))
    say(one, whole, frames)
    if tshark:
        beside(whole[-1], np.min(tshark, axis=0) * frames / sampled, sampled)


def apart(cores, *more):
    """rounds() in a process of its own, which with all that it starts has so many cores."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _pin, (cores,)) as pool:
        return pool.submit(rounds, cores, *more).result()


def _pin(cores):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def rounds(cores, inputs, sample, folder, n):
    """The fastest of n audits of each of `inputs` (lists of files), in turn."""
    from mqtt_audit import run
    from umqtt_runtime.session import session

    started = time.perf_counter()
    run.warm()
    loaded = time.perf_counter() - started
    with run.sockets() as settings:
        spark = session("bench-audit", cores=cores, extra=settings)
        for _ in range(2):  # Java compiles what has run a few times
            audited(spark, [sample], folder / "out")
        print(f"{cores} core(s): start-up {time.perf_counter() - started:.1f} s "
              f"(compiled loops {loaded:.1f} s)", flush=True)  # fmt: skip
        found = [[audited(spark, paths, folder / "out") for paths in inputs] for _ in range(n)]
        spark.stop()
    return np.min(found, axis=0)


def say(one, whole, frames):
    """Print what one and two cores took, and what a frame costs in inputs of several sizes."""
    for cores, found in ((1, one), (2, whole[-1])):
        packet, packet_cpu, complete, complete_cpu = found
        print(f"{cores} core(s): packet table {packet:.2f} s ({packet_cpu:.2f} s CPU), complete "
              f"audit {complete:.2f} s ({complete_cpu:.2f} s CPU)")  # fmt: skip
    two = whole[-1]
    print(f"the second core is worth {one[0] / two[0]:.2f} for the packet table, "
          f"{one[2] / two[2]:.2f} for the complete audit")  # fmt: skip
    print("        frames   packet table: us/frame (CPU)   complete: us/frame (CPU)")
    for share, found in zip((4, 2, 1), whole):
        each = np.array(found) * 1e6 / (frames // share)
        print(f"    {frames // share:10,}   {each[0]:12.2f} ({each[1]:.2f}) "
              f"{each[2]:22.2f} ({each[3]:.2f})")  # fmt: skip
    more = (two - whole[0]) * 1e6 / (frames - frames // 4)
    print(f"    each more    {more[0]:12.2f} ({more[1]:.2f}) {more[2]:22.2f} ({more[3]:.2f})")


def beside(two, tshark, sampled):
    """Print the ratios to tshark."""
    print(f"one tshark: {tshark[0]:.1f} s ({tshark[1]:.1f} s CPU), scaled from {sampled:,} frames")
    print(f"packet table {tshark[0] / two[0]:.1f} times (CPU {tshark[1] / two[1]:.1f}), "
          f"complete audit {tshark[0] / two[2]:.1f} times (CPU {tshark[1] / two[3]:.1f})")


if __name__ == "__main__":
    main()
