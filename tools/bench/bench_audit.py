"""The wire audit beside tshark: frames per second, growth with the input, what a second core is
worth.

Knows: the audit's steps, how to make a capture of many frames. Must not know: how it decodes.

tshark runs on a sample of the frames and its time is scaled up, since it is linear; the other
figures are of all frames. Starting Spark and loading the compiled loops is printed apart. CPU
seconds stand beside the wall clock's: on a busy machine only they can be compared.
"""

import argparse
import os
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

CLIENTS = 200
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


def _exchange(ident, topic, payload):
    """(way, bytes) of three messages, one of each QoS, and an empty segment."""
    name, number = struct.pack(">H", len(topic)) + topic, struct.pack(">H", ident)
    return [
        (0, _packet(0x30, name + payload)),
        (0, _packet(0x32, name + number + payload)), (1, _packet(0x40, number)),
        (0, _packet(0x34, name + number + payload)), (1, _packet(0x50, number)),
        (0, _packet(0x62, number)), (1, _packet(0x70, number)), (0, b""),
    ]  # fmt: skip


def make(path, frames, first_client, start):
    """A capture of so many frames; returns how many there are. Time goes on by 20 us a frame."""
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
            put(k, 0, b"\x10\x15\x00\x04MQTT\x04\x02\x00\x3c\x00\x09" + b"dev%06d" % k)
            put(k, 1, b"\x20\x02\x00\x00")
        while n < frames:
            ident = ident % 65_000 + 1
            for k in range(CLIENTS):
                topic = b"fleet/g/dev%06d/telemetry" % (first_client + k)
                for way, payload in _exchange(ident, topic, b'{"temperature":21.5,"n":1}'):
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
    """One audit: wall and CPU seconds to the packet table, the same to everything, packets."""
    from umqtt_pipeline.audit import report
    from umqtt_pipeline.audit.run import Audit

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    audit = Audit(spark, paths, folder)
    started, used = time.perf_counter(), cpu()
    audit.packets()
    middle, half = time.perf_counter(), cpu()
    audit.complete()
    report.build(folder, folder / "report.html")
    return (middle - started, half - used, time.perf_counter() - started, cpu() - used,
            audit.rows["packets"])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--frames", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-audit-"))
    try:
        bench(arguments, folder)
    finally:
        shutil.rmtree(folder)


def bench(arguments, folder):
    from umqtt_pipeline.audit import run
    from umqtt_pipeline.session import session

    each = arguments.frames // 4
    paths = [folder / f"{k}.pcap" for k in range(4)]
    frames = [make(p, each, k * CLIENTS, 1_767_268_800_000_000) for k, p in enumerate(paths)]
    sample = folder / "sample.pcap"
    tshark = []
    n = make(sample, min(200_000, each), 0, 1_767_268_800_000_000)
    total = sum(frames)
    print(f"{total:,} frames in 4 files, {sum(p.stat().st_size for p in paths) >> 20} MiB")
    results = {}
    for cores in (1, 2):
        started = time.perf_counter()
        run.warm()
        loaded = time.perf_counter() - started
        spark = session("bench-audit", cores=cores)
        audited(spark, [sample], folder / "out")
        print(f"{cores} core(s): start-up {time.perf_counter() - started:.1f} s "
              f"(compiled loops {loaded:.1f} s)", flush=True)  # fmt: skip
        if cores == 2 and shutil.which("tshark"):
            tshark.append(tshark_seconds(sample))
        times = [audited(spark, paths, folder / "out") for _ in range(arguments.rounds)]
        results[cores] = np.min(times, axis=0)
        if cores == 2:
            half = np.min([audited(spark, paths[:2], folder / "out") for _ in range(2)], axis=0)
            if tshark:
                tshark.append(tshark_seconds(sample))
            say(results, half, total, np.min(tshark, axis=0) * total / n if tshark else None, n)
        spark.stop()


def say(results, half, total, tshark, n):
    """Print what the rounds gave (the fastest of each)."""
    for cores, (packet, packet_cpu, whole, whole_cpu, packets) in results.items():
        print(f"{cores} core(s): packet table {packet:.2f} s ({packet_cpu:.2f} s CPU), complete "
              f"audit {whole:.2f} s ({whole_cpu:.2f} s CPU); {packets:,.0f} packets, "
              f"{total / packet:,.0f} frames/s")  # fmt: skip
    one, two = results[1], results[2]
    print(f"the second core is worth {one[0] / two[0]:.2f}, {one[2] / two[2]:.2f} in all")
    print(f"half of the frames: {half[2]:.2f} s ({half[3]:.2f} s CPU)")
    if tshark is not None:
        print(f"one tshark: {tshark[0]:.1f} s ({tshark[1]:.1f} s CPU), scaled from {n:,} frames; "
              f"packet table {tshark[0] / two[0]:.1f} times (CPU {tshark[1] / two[1]:.1f}), "
              f"complete audit {tshark[0] / two[2]:.1f} times (CPU {tshark[1] / two[3]:.1f})")


if __name__ == "__main__":
    main()
