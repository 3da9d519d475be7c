"""What the audit's tests share: captures made by hand and from real traffic, tshark's reading.

Knows: pcap, pcapng, TCP/IP headers, tshark's PDML. Must not know: what a test asserts, and none
of the code under test except to call it.

A capture needs privileges, so real traffic goes through a relay (Tap) that writes down what passes
and when; the TCP/IP headers around it are made here.
"""

import functools
import ipaddress
import selectors
import shutil
import socket
import struct
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa

MASK = 0xFFFFFFFF
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
START = 1_767_268_800_000_000_000  #: 2026-01-01 12:00 UTC in ns
CLIENT, BROKER = ("10.0.0.2", 40_000), ("10.0.0.1", 1883)


def tcp_ip(source, target, seq, ack, flags, payload=b"", options=b"", extension=b"", stamp=None,
           asked=b""):  # fmt: skip
    """An IPv4 or IPv6 packet with a TCP segment. options: of IPv4; extension: IPv6 headers, the
    first byte of which is the type of the first one; stamp: TCP's time stamp; asked: its options
    in front of that."""
    more = asked if stamp is None else asked + struct.pack(
        ">BBBBII", 1, 1, 8, 10, stamp & MASK, 0)
    head = struct.pack(">HHIIBBHHH", source[1], target[1], seq & MASK, ack & MASK,
                       0x50 + (len(more) << 2), flags, 65_535, 0, 0) + more  # fmt: skip
    a, b = ipaddress.ip_address(source[0]), ipaddress.ip_address(target[0])
    body = head + payload
    if a.version == 6:
        kind, extension = (extension[0], extension[1:]) if extension else (6, b"")
        size = len(extension) + len(body)
        start = struct.pack(">IHBB", 6 << 28, size, kind, 64)
        return start + a.packed + b.packed + extension + body
    ihl = 5 + len(options) // 4
    start = struct.pack(">BBHHHBBH", 0x40 | ihl, 0, ihl * 4 + len(body), 1, 0, 64, 6, 0)
    return start + a.packed + b.packed + options + body


def _sum(raw):
    raw += bytes(len(raw) % 2)
    found = sum(struct.unpack(f">{len(raw) // 2}H", raw))
    while found >> 16:
        found = (found & 0xFFFF) + (found >> 16)
    return found


def tcp_at(frame):
    """Places of the addresses and of the TCP header of an IP packet."""
    return (12, 20) if frame[0] >> 4 == 4 else (8, 40)


def summed(frame, wrong=0):
    """An IP packet with TCP's checksum; wrong: something else is there instead, as a computer
    leaves it that has its network card put it in."""
    ends, tcp = tcp_at(frame)
    pseudo = frame[ends:tcp] + struct.pack(">II", len(frame) - tcp, 6)
    found = ~_sum(pseudo + frame[tcp:]) & 0xFFFF
    return frame[: tcp + 16] + struct.pack(">H", found ^ wrong) + frame[tcp + 18 :]


def identified(frame, number):
    """An IPv4 packet with its identification."""
    return frame[:4] + struct.pack(">H", number & 0xFFFF) + frame[6:]


def ethernet(packet, tags=()):
    """An Ethernet frame; tags: (EtherType, VLAN id) from the outside in."""
    kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    marks = b"".join(struct.pack(">HH", t, v) for t, v in tags)
    frame = b"\x02\0\0\0\0\1\x02\0\0\0\0\2" + marks + kind + packet
    return frame + bytes(max(0, 60 - len(frame)))  # padding is no data


def cooked(packet):
    """Linux cooked v1."""
    kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    return struct.pack(">HHH8s", 0, 1, 6, bytes(8)) + kind + packet


def cooked2(packet):
    """Linux cooked v2."""
    kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    return kind + struct.pack(">HIHBB8s", 0, 1, 1, 0, 6, bytes(8)) + packet


def null(packet):
    """BSD loopback."""
    return struct.pack("<I", 30 if packet[0] >> 4 == 6 else 2) + packet


#: Link types and how a packet is wrapped in them.
LINKS = {1: ethernet, 101: lambda p: p, 113: cooked, 276: cooked2, 0: null}


def pcap(path, frames, order="<", nano=False, link=1, snap=65_535):
    """Write (ns, bytes) as a pcap file; (ns, bytes, n) for a frame of which n bytes are kept."""
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    with open(path, "wb") as out:
        out.write(struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, link))
        for ns, frame, *most in frames:
            part = ns % 1_000_000_000 // (1 if nano else 1000)
            kept = frame[: min(snap, *most)] if most else frame[:snap]
            out.write(struct.pack(order + "IIII", ns // 1_000_000_000, part, len(kept),
                                  len(frame)) + kept)  # fmt: skip
    return path


def _block(order, kind, body):
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order="<"):
    """A Section Header Block."""
    return _block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order="<", link=1, resolution=None, offset=None):
    """An Interface Description Block; resolution: the byte of if_tsresol."""
    options = b""
    if resolution is not None:
        options += struct.pack(order + "HHB3x", 9, 1, resolution)
    if offset is not None:
        options += struct.pack(order + "HHq", 14, 8, offset)
    return _block(order, 1, struct.pack(order + "HHI", link, 0, 0) + options)


def enhanced(order, number, units, frame):
    """An Enhanced Packet Block; units: the time in the interface's resolution."""
    head = struct.pack(order + "IIIII", number, units >> 32, units & MASK, len(frame), len(frame))
    return _block(order, 6, head + frame)


class Talk:
    """TCP segments of one connection, written by hand: sequence numbers are kept here.
    `frames` are (ns, IP packet). stamps: what makes a time stamp of the ns, or None."""

    stamps = None

    def __init__(self, client=CLIENT, broker=BROKER, isn=(1000, 5000), start=START, step=10**6):
        self.ends = [client, broker]
        self.seq = list(isn)
        self.now, self.step = start, step
        self.frames = []

    def segment(self, way, payload=b"", flags=ACK | PSH, seq=None, **more):
        """Append a segment of the client (way 0) or the broker (way 1)."""
        at = self.seq[way] if seq is None else seq
        here, there = self.ends[way], self.ends[1 - way]
        if self.stamps:
            more.setdefault("stamp", self.stamps(self.now))
        packet = tcp_ip(here, there, at, self.seq[1 - way], flags, payload, **more)
        self.frames.append((self.now, packet))
        self.now += self.step
        if seq is None:
            self.seq[way] += len(payload) + (flags & (SYN | FIN) > 0)
        return self

    def open(self):
        """The three-way handshake."""
        return self.segment(0, flags=SYN).segment(1, flags=SYN | ACK).segment(0, flags=ACK)

    def close(self):
        """FIN by the client, then by the broker."""
        return self.segment(0, flags=FIN | ACK).segment(1, flags=FIN | ACK).segment(0, flags=ACK)

    def client(self, payload, **more):
        """Bytes of the client."""
        return self.segment(0, payload, **more)

    def broker(self, payload, **more):
        """Bytes of the broker."""
        return self.segment(1, payload, **more)

    def wait(self, seconds):
        """Let time pass."""
        self.now += int(seconds * 1e9)
        return self

    def wrapped(self, link=1):
        """The frames for a link type."""
        return [(ns, LINKS[link](packet)) for ns, packet in self.frames]


# Packets, written as the specification has them.


def length(n):
    """Remaining Length."""
    out = bytearray()
    while True:
        n, digit = n >> 7, n & 127
        out.append(digit | (128 if n else 0))
        if not n:
            return bytes(out)


def string(text):
    """A length and the text."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(raw)) + raw


def packet(head, body=b""):
    """Fixed header and body."""
    return bytes([head]) + length(len(body)) + body


def connect(client_id="dev1", keep_alive=60, flags=2, name="MQTT", level=4, rest=b""):
    """CONNECT."""
    return packet(0x10, string(name) + bytes([level, flags]) + struct.pack(">H", keep_alive)
                  + string(client_id) + rest)  # fmt: skip


def connack(code=0, present=0):
    """CONNACK."""
    return packet(0x20, bytes([present, code]))


def publish(topic, payload=b"x", qos=0, ident=None, dup=False, retain=False):
    """PUBLISH."""
    head = 0x30 | dup << 3 | qos << 1 | retain
    return packet(head, string(topic) + (struct.pack(">H", ident) if qos else b"") + payload)


def ack(kind, ident):
    """PUBACK (4), PUBREC (5), PUBREL (6), PUBCOMP (7), UNSUBACK (11)."""
    return packet(kind << 4 | (2 if kind == 6 else 0), struct.pack(">H", ident))


def subscribe(ident, *wanted):
    """SUBSCRIBE; wanted: (filter, qos)."""
    return packet(0x82, struct.pack(">H", ident) + b"".join(
        string(f) + bytes([q]) for f, q in wanted))  # fmt: skip


def suback(ident, *codes):
    """SUBACK."""
    return packet(0x90, struct.pack(">H", ident) + bytes(codes))


PINGREQ, PINGRESP, DISCONNECT = packet(0xC0), packet(0xD0), packet(0xE0)


# Reading.


def _split(number, path, buckets, scratch, out, part_size):
    """First pass of a file, in parts if there is a size for them."""
    from mqtt_audit import worker

    parts = [None]
    if part_size:
        parts = worker.cut(number, path, path, part_size, out)["parts"]
    return worker.whole([worker.split(number, path, path, buckets, scratch, out, place, part)
                       for place, part in enumerate(parts)])  # fmt: skip


@functools.cache
def _warm():
    """The inner loops are compiled by one of the processes that tests run in."""
    from mqtt_audit.warming import warm

    warm()


def read(paths, folder, ports=(1883,), buckets=1, part_size=None):
    """Both passes without Spark: {table: [rows as dicts]}, `flows` with `_pieces`. part_size:
    files are cut into parts of so many bytes."""
    return _read(paths, folder, ports, buckets, part_size)[0]


def _read(paths, folder, ports=(1883,), buckets=1, part_size=None):
    """As read(); beside it where the clock is not to be believed."""
    from mqtt_audit import run, worker
    from mqtt_audit.report import columns

    _warm()
    folder = Path(folder)
    scratch, out = folder / "scratch", folder / "tables"
    for made in (scratch, out):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    paths = [str(p) for p in paths]
    split = run.in_order(
        [_split(k, p, buckets, scratch, out, part_size) for k, p in enumerate(paths)])  # fmt: skip
    found = worker.together(split, ports, scratch, buckets)
    worker.note(list(worker.put_forward(split, paths)), [(paths[s["number"]], s) for s in split],
                out)  # fmt: skip
    plan = worker.plan(found, paths, paths, ports)
    for k in range(buckets):
        worker.decode(k, buckets, plan, scratch, out)
    import pyarrow.parquet as pq

    found = {}
    for name in (*columns.TABLES, "_pieces"):
        parts = [pq.read_table(p) for p in sorted((out / name).glob("*.parquet"))]
        found[name] = pa.concat_tables(parts).to_pylist() if parts else []
    found["packets"].sort(key=lambda r: (r["file"], r["frame"] or 1 << 40))
    found["flows"] += found.pop("_pieces")
    return found, plan["steps"]


def findings(frames, folder, **more):
    """The findings in frames, as dicts."""
    from mqtt_audit.report import columns
    from mqtt_audit.rules import findings

    tables, steps = _read([pcap(folder / "t.pcap", frames)], folder, **more)
    return findings.findings(*(pa.Table.from_pylist(tables[name], columns.TABLES[name])
                               for name in ("connections", "latencies")), steps).to_pylist()


_TSHARK = ["-o", "tcp.reassemble_out_of_order:TRUE"]


def tshark(path, port):
    """tshark's reading of a capture: one dict per MQTT packet, {field: [values]}."""
    argv = ["tshark", "-r", str(path), *_TSHARK, "-d", f"tcp.port=={port},mqtt", "-Y", "mqtt",
            "-T", "pdml"]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    out = []
    for shown in ET.fromstring(done.stdout).iter("packet"):
        frame = int(shown.find(".//field[@name='frame.number']").get("show"))
        for proto in shown.iter("proto"):
            if proto.get("name") != "mqtt":
                continue
            fields = {"frame": [frame]}
            for item in proto.iter("field"):
                fields.setdefault(item.get("name"), []).append(item.get("show"))
            out.append(fields)
    return out


class Tap(threading.Thread):
    """A relay in front of a broker that writes down what passes; `capture` makes a file of it."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.talks = []
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.over = threading.Event()
        self.start()

    def _accept(self):
        near, _ = self.listener.accept()
        far = socket.create_connection(self.target, 10)
        talk = Talk(("10.0.0.2", 40_000 + len(self.talks)), ("10.0.0.1", self.target[1]))
        talk.now = time.time_ns()
        talk.step = 0
        talk.open()
        self.talks.append(talk)
        for way, here, there in ((0, near, far), (1, far, near)):
            self.selector.register(here, selectors.EVENT_READ, (way, here, there, talk))

    def _pass(self, way, here, there, talk):
        try:
            raw = here.recv(1400)
            if raw:
                there.sendall(raw)
        except OSError:
            raw = b""
        talk.now = time.time_ns()
        if raw:
            talk.segment(way, raw)
            return
        talk.segment(way, flags=FIN | ACK)
        self.selector.unregister(here)
        try:
            there.shutdown(socket.SHUT_WR)
        except OSError:
            here.close()  # the other side was the first to go

    def run(self):
        while not self.over.is_set():
            for key, _ in self.selector.select(0.1):
                if key.data is None:
                    self._accept()
                else:
                    self._pass(*key.data)

    def frames(self):
        """What passed, in the order of time, as Ethernet."""
        return sorted((f for t in self.talks for f in t.wrapped(1)), key=lambda f: f[0])

    def idle(self):
        """Whether every connection has ended on both sides."""
        return all(sum(f[1][33] & FIN for f in t.frames) == 2 for t in self.talks)

    def stop(self):
        """End the relay."""
        self.over.set()
        self.join(10)
        self.listener.close()
