"""An interface that is followed while its traffic passes.

Knows: the command, interfaces and sockets. Must not know: how what dumpcap writes is read.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading

import audit_kit as kit
import pytest
from patience import wait_until
from pipeline_kit import AUDIT

SECONDS = 60  #: that a command may take on a machine with much else to do


def _may_capture():
    if not shutil.which("dumpcap"):
        return False
    done = subprocess.run(["dumpcap", "-q", "-i", "lo", "-a", "duration:1", "-w", os.devnull],
                          capture_output=True, timeout=SECONDS)  # fmt: skip
    return done.returncode == 0


@pytest.fixture
def server():
    """A TCP server that answers CONNECT; returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            near.recv(1000)
            near.sendall(kit.connack())
            near.recv(1000)
            near.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(SECONDS)


@pytest.mark.parametrize("as_json", [True, False])
def test_an_interface_is_followed(as_json, server):
    """A client on a port that nobody named, from its SYN on."""
    if not _may_capture():
        pytest.skip("nothing can be captured here")
    more = ["--json"] if as_json else []
    program = subprocess.Popen(
        [AUDIT, "live", "-i", "lo", "-f", f"tcp port {server}", *more],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(program.stdout), daemon=True)
    reader.start()

    def told():
        with socket.create_connection(("127.0.0.1", server), SECONDS) as client:
            client.sendall(kit.connect("on-the-wire"))
            client.recv(1000)
            client.sendall(kit.DISCONNECT)
            client.recv(1000)
        return [line for line in lines if b"client sent DISCONNECT" in line]

    try:
        wait_until(told, SECONDS, "a connection that has ended")
        program.send_signal(signal.SIGINT)
        assert program.wait(SECONDS) == 0
        reader.join(SECONDS)
    finally:
        program.kill()
        program.wait()
    if not as_json:
        assert any(b"on-the-wire > CONNECT on-the-wire 3.1.1 keep alive 60 s" in x for x in lines)
        return
    found = [json.loads(line) for line in lines]
    # Of the first one there may be only the end. It is told last if its FIN is not there.
    ends = sorted((e for e in found if e["event"] == "connection"), key=lambda e: e["first"])
    assert ends and all(e["begun"] for e in ends[1:]), found


@pytest.fixture
def link():
    """Two interfaces, each of which has what is sent on the other one; returns their names."""
    names = [f"umqtt{k}{os.getpid() % 1_000_000}" for k in (0, 1)]
    made = shutil.which("ip") and subprocess.run(
        ["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]],
        capture_output=True, timeout=SECONDS).returncode == 0  # fmt: skip
    if not made or not _may_capture():
        pytest.skip("no interface can be made or captured here")
    for name in names:
        subprocess.run(["ip", "link", "set", name, "up"], check=True, timeout=SECONDS)
    yield names
    subprocess.run(["ip", "link", "del", names[0]], capture_output=True, timeout=SECONDS)


#: What stands between the addresses of a frame and its IP packet of so many bytes.
TAGS = {
    "plain": lambda n: b"\x08\0",
    "one VLAN": lambda n: b"\x81\0\0\5\x08\0",
    "two VLANs": lambda n: b"\x88\xa8\0\5\x81\0\0\6\x08\0",
    "PPPoE": lambda n: b"\x88\x64\x11\0\0\7" + (n + 2).to_bytes(2, "big") + b"\0\x21",
}
#: TCP behind an extension header of IPv6, the options for each hop.
EXTENDED = kit.Talk(("fd00::2", 2000), ("fd00::1", 1883))
for way, flags, payload in ((0, kit.SYN, b""), (1, kit.SYN | kit.ACK, b""),
                            (0, kit.ACK, kit.connect("extended"))):  # fmt: skip
    EXTENDED.segment(way, payload, flags, extension=b"\0" + bytes([6, 0, 1, 4, 0, 0, 0, 0]))


def test_without_a_filter_live_has_tags_and_pppoe_and_it_says_when_the_interface_goes(link):
    """What was read until then is told: the connections were open."""
    program = subprocess.Popen([AUDIT, "live", "-i", link[0], "--json"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(program.stdout), daemon=True)
    reader.start()
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((link[1], 0))

    def told():
        for k, (name, tag) in enumerate(TAGS.items()):
            talk = kit.Talk((f"10.0.1.{k}", 1000 + k)).open().client(kit.connect(name))
            for _, frame in talk.wrapped():
                sender.send(frame[:12] + tag(len(frame) - 14) + frame[14:])
        for _, frame in EXTENDED.wrapped():
            sender.send(frame)
        seen = {event.get("client_id") for event in map(json.loads, list(lines))}
        return {"extended", *TAGS} <= seen

    try:
        wait_until(told, SECONDS, "a CONNECT of each kind")
        subprocess.run(["ip", "link", "del", link[0]], check=True, timeout=SECONDS)
        assert program.wait(SECONDS) == 1
        reader.join(SECONDS)
        said = program.stderr.read().decode()
    finally:
        sender.close()
        program.kill()
        program.wait()
    assert "dumpcap ended" in said and "no longer attached" in said
    assert "Packets captured" not in said and "Traceback" not in said
    ends = {e["client_id"]: e["ended"] for e in map(json.loads, lines)
            if e["event"] == "connection"}  # fmt: skip
    assert {ends[name] for name in ("extended", *TAGS)} == {"open"}
