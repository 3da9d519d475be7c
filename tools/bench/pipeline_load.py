"""The load of the pipeline's benchmark: a fleet in one process, and the barest durable receiver.

    python tools/bench/pipeline_load.py send PORT FIRST COUNT DEVICES [FOLDER|json]
    python tools/bench/pipeline_load.py bare PORT COUNT FILE

`send` publishes readings FIRST..FIRST+COUNT-1 of DEVICES devices at QoS 1, as the firmware packs
them (SenML CBOR), or as flat JSON; with FOLDER, a spool, it keeps no more than AHEAD bytes ahead
of it. `bare`
receives COUNT messages: raw frames into one file, one fsync a read, one write of
acknowledgements. Each prints a JSON line.

Knows: sockets, the bytes of PUBLISH. Must not know: what is measured with it.
"""

import json
import os
import select
import socket
import struct
import sys
import time

import numpy as np

WINDOW = 16_000  #: messages sent and not yet acknowledged by the broker
CHUNK = 500
AHEAD = 64 << 20
SUBSCRIBE = b"\x82\x18\x00\x01\x00\x13fleet/+/+/telemetry\x01"
DEADLINE = 600


def login(port, name, clean=True):
    """A connected socket of a client called `name` (bytes)."""
    sock = socket.create_connection(("127.0.0.1", port), 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b"\x00\x04MQTT\x04" + (b"\x02" if clean else b"\x00") + b"\xff\xff"
    body += struct.pack(">H", len(name)) + name
    sock.sendall(b"\x10" + bytes([len(body)]) + body)
    answer = sock.recv(4)
    if answer[:1] != b"\x20" or answer[3:] != b"\x00":
        raise SystemExit(f"the broker refuses the connection: {answer!r}")
    return sock


class Packets:
    """Makes PUBLISH packets of equal length by the thousand: a template, its numbers replaced.
    Reading k (from 0) is of device k % devices, with sequence number k // devices + 1."""

    def __init__(self, devices):
        self.devices = devices
        name = b"d0000000"
        topic = b"fleet/g/" + name + b"/telemetry"
        payload = (b"\x82\xaa\x21\x69" + name + b"/" + b"\x62ep\x48" + bytes(8) + b"\x62bo\x01"
                   b"\x62sq\x1a" + bytes(4) + b"\x62up\x1a" + bytes(4) + b"\x62ms\x18\x64"
                   b"\x62lo\x1a" + bytes(4) + b"\x00\x6btemperature\x01\x63Cel\x02\xc4\x82\x21"
                   b"\x19\x08\x02\xa3\x00\x68humidity\x01\x63%RH\x02\x18\x32")  # fmt: skip
        body = struct.pack(">H", len(topic)) + topic + b"\x00\x00" + payload
        size = len(body)
        packet = bytes([0x32, size & 127 | 128, size >> 7]) + body
        self.template = np.frombuffer(packet, np.uint8)
        self.size = len(packet)
        at = packet.index(payload)
        self.names = [packet.index(name) + 1, at + payload.index(name) + 1]
        self.id_at = at - 2
        self.epoch_at = at + payload.index(b"ep\x48") + 3
        self.numbers = [at + payload.index(mark) + 3 for mark in (b"sq\x1a", b"up\x1a", b"lo\x1a")]

    def make(self, first, count, packet_id):
        """Bytes of `count` packets from reading `first`, packet ids from packet_id."""
        rows = np.tile(self.template, (count, 1))
        k = np.arange(first, first + count)
        device, sequence = k % self.devices, k // self.devices + 1
        digits = (device[:, None] // 10 ** np.arange(6, -1, -1) % 10 + 48).astype(np.uint8)
        for at in self.names:
            rows[:, at : at + 7] = digits
        ids = ((packet_id - 1 + np.arange(count)) % 65_535 + 1).astype(">u2")
        rows[:, self.id_at : self.id_at + 2] = ids.view(np.uint8).reshape(count, 2)
        rows[:, self.epoch_at : self.epoch_at + 8] = (
            (device + 1).astype(">u8").view(np.uint8).reshape(count, 8)
        )
        low = np.maximum(sequence - 50, 1)
        for at, value in zip(self.numbers, (sequence, sequence * 10, low)):
            rows[:, at : at + 4] = value.astype(">u4").view(np.uint8).reshape(count, 4)
        return rows.tobytes()


class JsonPackets:
    """The same as flat JSON. Numbers have seven digits in each of them: sequence and uptime count
    from a million, since JSON has no leading zeros."""

    FROM = 1_000_000

    def __init__(self, devices):
        self.devices = devices
        name, number = b"d0000000", b"%d" % self.FROM
        topic = b"fleet/g/" + name + b"/telemetry"
        payload = (b'{"device":"' + name + b'","epoch":"' + b"0" * 16 + b'","sequence":' + number +
                   b',"boot":1,"up":' + number + b',"ms":100,"low":' + number +
                   b',"temperature":20.5,"humidity":50}')  # fmt: skip
        body = struct.pack(">H", len(topic)) + topic + b"\x00\x00" + payload
        packet = bytes([0x32, len(body) & 127 | 128, len(body) >> 7]) + body
        self.template, self.size = np.frombuffer(packet, np.uint8), len(packet)
        at = packet.index(payload)
        self.id_at = at - 2
        self.names = [packet.index(name) + 1, at + payload.index(name) + 1]
        self.names.append(at + payload.index(b'"epoch":"') + 9 + 9)
        self.numbers = [at + payload.index(mark) + len(mark)
                        for mark in (b'"sequence":', b'"up":', b'"low":')]  # fmt: skip

    def make(self, first, count, packet_id):
        """Bytes of `count` packets from reading `first`, packet ids from packet_id."""
        rows = np.tile(self.template, (count, 1))
        k = np.arange(first, first + count)
        device, sequence = k % self.devices, k // self.devices + 1 + self.FROM
        ids = ((packet_id - 1 + np.arange(count)) % 65_535 + 1).astype(">u2")
        rows[:, self.id_at : self.id_at + 2] = ids.view(np.uint8).reshape(count, 2)
        values = [device] * 3 + [sequence, sequence, np.maximum(sequence - 50, self.FROM + 1)]
        for at, value in zip(self.names + self.numbers, values):
            digits = value[:, None] // 10 ** np.arange(6, -1, -1) % 10 + 48
            rows[:, at : at + 7] = digits.astype(np.uint8)
        return rows.tobytes()


def spooled(folder):
    """Bytes that a spool holds durably (umqtt_pipeline/spool/reader.py has the format)."""
    try:
        with open(os.path.join(folder, "durable"), "rb") as file:
            return int.from_bytes(file.read(8), "little")
    except OSError:
        return 0


def send(port, first, count, devices, folder=None, made_by=Packets):
    """Publish; returns when the broker has acknowledged everything."""
    packets = made_by(devices)
    sock = login(port, b"fleet")
    sock.setblocking(False)
    poll = select.poll()
    begun, base = time.monotonic(), spooled(folder) if folder else 0
    made = acked = 0
    out = memoryview(b"")
    answers = 0
    while acked < count:
        if not out and made < count and made - acked < WINDOW and (
            not folder or made * packets.size - (spooled(folder) - base) < AHEAD
        ):
            n = min(CHUNK, count - made)
            out = memoryview(packets.make(first + made, n, (first + made) % 65_535 + 1))
            made += n
        poll.register(sock, select.POLLIN | (select.POLLOUT if out else 0))
        if not poll.poll(20) and time.monotonic() - begun > DEADLINE * max(1, count / 1e6):
            raise SystemExit(f"{acked} of {count} acknowledged: too slow")
        try:
            if out:
                out = out[sock.send(out) :]
        except BlockingIOError:
            pass
        try:
            got = sock.recv(1 << 16)
            if not got:
                raise SystemExit("the broker closed the sender's connection")
            answers += len(got)
            acked = answers // 4
        except BlockingIOError:
            pass
    return begun


def bare(port, count, path):
    """Receive `count` messages durably; returns the times of the first and the last one."""
    sock = login(port, b"bare")
    sock.sendall(SUBSCRIBE)
    sock.recv(5)
    print("ready", flush=True)
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    got, seen, first = b"", 0, 0.0
    while seen < count:
        got += sock.recv(1 << 18)
        first = first or time.monotonic()
        pos, end, acks = 0, len(got), bytearray()
        while end - pos > 4:
            size, start = got[pos + 1], pos + 2
            if size > 127:
                size, start = size & 127 | got[pos + 2] << 7, pos + 3
            if start + size > end:
                break
            at = start + 2 + (got[start] << 8 | got[start + 1])
            acks += b"\x40\x02" + got[at : at + 2]
            pos = start + size
        os.write(out, got[:pos])
        os.fdatasync(out)
        sock.sendall(acks)
        seen += len(acks) // 4
        got = got[pos:]
    return first, time.monotonic()


def main(what, *arguments):
    if what == "send":
        *numbers, folder = (*arguments, None) if len(arguments) == 4 else arguments
        made_by, folder = (JsonPackets, None) if folder == "json" else (Packets, folder)
        begun = send(*map(int, numbers), folder, made_by)
        report = {"begun": begun, "ended": time.monotonic()}
    else:
        first, last = bare(int(arguments[0]), int(arguments[1]), arguments[2])
        report = {"begun": first, "ended": last}
    used = os.times()
    print(json.dumps({**report, "cpu": used.user + used.system}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
