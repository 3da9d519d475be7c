"""One long message, or very many, in the session: it is received in one pass, and what is longer
than --max-packet stops nobody."""

import json
import socket
import struct
import threading
import time

import brokers
import pytest
from bridge_kit import sequences, start
from click.testing import CliRunner
from pipeline_kit import end, messages, senml, topic, wait_for
from umqtt_pipeline import commands, wire
from umqtt_pipeline.bridge.connection import READ_SIZE, Link, Settings
from umqtt_pipeline.bridge.service import Bridge
from umqtt_pipeline.spool import reader

LONG = 3 << 20


@pytest.fixture
def broker():
    """The embedded broker takes no message of this size."""
    return brokers.get("mosquitto")


@pytest.fixture
def served():
    """served(script): the address of a server that calls script(socket) for each connection."""
    sockets = []

    def serve(script):
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def run():
            while True:
                try:
                    peer = server.accept()[0]
                except OSError:
                    return
                sockets.append(peer)
                threading.Thread(target=script, args=(peer,), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        return server.getsockname()

    yield serve
    for each in sockets:
        each.close()


def test_a_long_packet_is_looked_at_once(served):
    packet = wire.publish_packet("a", bytes(24 << 20), 1, False, 7)
    address = served(lambda peer: peer.sendall(packet + b"\xd0\x00"))
    link = Link(Settings(*address, "nowhere"))
    looked, found = 0, wire.Scan()
    until = time.monotonic() + 120
    while not found.count:
        assert time.monotonic() < until
        link.wait(1)
        data = link.receive()
        looked += len(data)
        if data:
            found = wire.scan(data)
            link.keep(found.consumed, found.needs)
    assert found.body == packet
    assert looked < len(packet) + 4 * READ_SIZE  # twice 2.4 GB when each read looked at all of it
    while not found.others:
        assert time.monotonic() < until
        link.wait(1)
        found = wire.scan(link.receive())
    assert found.others == [(0xD0, b"")]
    link.close()


def test_a_connection_that_is_lost_is_seen_while_nothing_is_read(served):
    """A full spool reads nothing: poll would return at once, again and again."""
    connected = threading.Event()

    def reset(peer):
        assert connected.wait(30)  # a reset before connect() returns is another error
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    link = Link(Settings(*served(reset), "nowhere"))
    connected.set()
    try:
        with pytest.raises(wire.Closed, match="lost"):
            for _ in range(100):
                link.wait(1, read=False)
    finally:
        link.close()


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6, 8, 9])
def test_what_is_dropped_is_known_from_its_beginning(cut):
    packet = wire.publish_packet("abc", bytes(300), 1, False, 0x0102)
    read = wire.beginning(packet[:10])
    assert read == (b"abc", b"\x40\x02\x01\x02")
    assert wire.beginning(packet[:cut]) is None
    with pytest.raises(wire.ProtocolError, match="0x90"):
        wire.beginning(b"\x90" + packet[1:])


def test_a_message_that_is_too_large_is_dropped_and_nobody_waits(broker, device, tmp_path):
    folder = tmp_path / "spool"
    options = ("--max-packet", 1 << 20, "--topic", topic(), "--topic", "long/#", "--qos", 2)
    bridge = start(broker, folder, *options)
    metrics = tmp_path / "metrics.json"
    device.take(3)
    for qos in (0, 1, 2):
        device.client.publish(f"long/{qos}/x", bytes(LONG), qos)
        device.take(3)
    wait_for(lambda: device.upto == 12, 60, "the mark")
    wait_for(lambda: json.loads(metrics.read_text())["too_large"] == 3, what="the count")
    state = json.loads(metrics.read_text())
    assert state["connects"] == 1
    log = (tmp_path / "bridge.log").read_text()
    for qos in (0, 1, 2):
        assert f"'long/{qos}/x' is longer than --max-packet 1048576" in log
    assert end(bridge) == 0
    # They were acknowledged: the broker does not send them again.
    bridge = start(broker, folder, *options)
    device.take(1)
    wait_for(lambda: device.upto == 13, 60, "the mark")
    assert end(bridge) == 0
    assert json.loads(metrics.read_text())["too_large"] == 0
    assert sorted(set(sequences(folder))) == [*range(1, 14)]


def test_a_long_message_of_the_session_is_kept_whole(broker, device, tmp_path):
    """It waits at the broker before everybody else's."""
    folder = tmp_path / "spool"
    options = ("--client-id", "long-session", "--topic", "long/#")
    end(start(broker, folder, *options))
    long = bytes(range(256)) * (32 << 12)
    for payload in (long, senml(1)):
        device.client.publish("long/x", payload, 1).wait_for_publish(120)
    bridge = start(broker, folder, *options)
    state = tmp_path / "metrics.json"
    wait_for(lambda: json.loads(state.read_text())["received"] == 2, 120, "both")
    assert end(bridge) == 0
    bodies = [body for _, body in reader.walk(folder, 0, reader.durable(folder))]
    assert [p for body in bodies for _, p in messages(body)] == [long, senml(1)]


def test_bytes_that_come_are_life(served, tmp_path):
    """A backlog stands before SUBACK, for longer than connect_timeout."""
    pieces, pause = 12, 0.25
    answered, pinged = threading.Event(), []

    def script(peer):
        peer.recv(1000)
        peer.sendall(b"\x20\x02\x01\x00")
        packet = wire.publish_packet(topic(), senml(1) + bytes(3000), 1, False, 9)
        step = len(packet) // pieces + 1
        for at in range(0, len(packet), step):
            peer.sendall(packet[at : at + step])
            time.sleep(pause)
        said = peer.recv(1000)
        pinged.append(b"\xc0\x00" in said)
        peer.sendall(b"\xd0\x00\x90\x03\x00\x01\x01")
        while said:
            if b"\x40\x02\x00\x09" in said:
                answered.set()
            said = peer.recv(1000)
            if b"\xc0\x00" in said:
                peer.sendall(b"\xd0\x00")

    host, port = served(script)
    folder = str(tmp_path / "spool")
    bridge = Bridge(Settings(host, port, folder, connect_timeout=4 * pause, keepalive=4))
    thread = threading.Thread(target=bridge.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: bridge.state()["connected"], 60, "SUBACK")
        wait_for(answered.is_set, 60, "PUBACK")
        assert bridge.counts["connects"] == 1
        assert pinged == [True]  # or the broker's keep-alive would end it
    finally:
        bridge.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_more_than_the_spool_takes_is_refused():
    done = CliRunner().invoke(commands.main, [
        "bridge", "--broker", "127.0.0.1:1883", "--spool", "s", "--max-spool-bytes", "4096",
        "--max-packet", "4096"])  # fmt: skip
    assert done.exit_code != 0
    assert "at most half of --max-spool-bytes" in (done.output + str(done.exception))
