"""The bridge with a disk or a spool that is full, for real: it stops acknowledging, says so, and
goes on as soon as the readers of the spool are done with a part of it; nobody else has to make
room."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from bridge_kit import BOTH, Device, sequences, start
from patience import PATIENCE
from pipeline_kit import PROGRAM, QUICK, end, publish, senml, spawn, topic, wait_for
from pipeline_tables import numbers
from umqtt_pipeline import wire
from umqtt_pipeline.bridge import disk_reserve
from umqtt_pipeline.bridge.connection import Settings
from umqtt_pipeline.bridge.service import Bridge
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.writer import SpoolFull

DISK = 2 << 20  #: bytes; half of it is the reserve
SENT = 2500  #: messages of 1 KB, so more than the disk holds
TMPFS = ["unshare", "--mount", "--map-root-user", "sh", "-c",
         f'mount -t tmpfs -o size={DISK} none "$0" && exec "$@"']  # fmt: skip
WIDE = [(f"measurement-{n:02d}", "Cel", n) for n in range(40)]


class Sender(Device):
    """A device with large readings."""

    def publish(self, first, last):
        for sequence in range(first, last + 1):
            low = min(self.upto + 1, sequence)
            info = self.client.publish(topic(self.name), senml(sequence, WIDE, low=low), 1)
        return info


@pytest.fixture
def sender(broker):
    made = Sender(broker)
    yield made
    made.close()


@pytest.fixture
def bridge(broker, tmp_path):
    """Start a bridge by way of another command; ends it after the test."""
    started = []

    def start(*before, metrics="metrics.json", **popen):
        with open(tmp_path / "log", "ab") as log:
            started.append(subprocess.Popen(
                [*before, PROGRAM, "bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool",
                 tmp_path / "disk" / "spool", "--mark-interval", "0.05", "--metrics",
                 tmp_path / metrics], stdout=log, stderr=log, **popen))  # fmt: skip
        wait_for(lambda: started[0].poll() is not None or "subscribed" in said(tmp_path),
                 60, "subscription")  # fmt: skip
        assert started[0].poll() is None, said(tmp_path)
        return started[0]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def said(folder):
    return (folder / "log").read_text()


def state(folder):
    path = folder / "metrics.json"
    return json.loads(path.read_text()) if path.exists() else {"spool_full": None}


def fill_up(path):
    """Write into a file until the disk takes no byte more."""
    with open(path, "ab", buffering=0) as file:
        for size in (4096, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def own_disk(folder):
    """The words before a command that give it a small disk of its own."""
    (folder / "disk").mkdir()
    words = [*TMPFS, folder / "disk"]
    if subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this system gives no file system of one's own (unshare --mount)")
    return words


def test_no_space_left_on_device(broker, sender, bridge, tmp_path):
    process = bridge(*own_disk(tmp_path))
    folder = Path(f"/proc/{process.pid}/root{tmp_path}/disk/spool")  # only it sees the disk
    consumers.register(folder, "ingest", 0)
    sender.take(SENT).wait_for_publish(60)
    wait_for(lambda: state(tmp_path)["spool_full"], 60, "a full disk")
    assert "No space left on device" in said(tmp_path) and "unacknowledged" in said(tmp_path)
    held = sequences(folder)
    assert held == [*range(1, len(held) + 1)] and 0 < sender.upto <= len(held) < SENT
    assert state(tmp_path)["acknowledged"] == len(held)

    def read():  # as ingest does, on the same disk
        consumers.register(folder, "ingest", reader.durable(folder))
        return sender.upto == SENT

    wait_for(read, 60, "the rest of the messages")
    last = wait_for(lambda: (s := state(tmp_path))["received"] == SENT and s, 30, "metrics")
    assert not last["spool_full"] and last["connects"] == 1 and last["segments_deleted"] > 0
    assert last["last_error"] is None and "going on" in said(tmp_path)
    assert (folder / "reserve").stat().st_blocks * 512 >= disk_reserve.LEAST
    assert end(process) == 0


def test_an_ingest_that_has_all_of_a_full_spool_makes_room(broker, sender, tmp_path):
    """In one batch: there is no next one, with which it would say so, until the bridge goes on."""
    log, metrics, spool = (tmp_path / name for name in ("log", "metrics.json", "spool"))
    spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", spool, "--metrics", metrics,
          "--segment-bytes", 1 << 18, "--max-spool-bytes", 1 << 20, log=log)  # fmt: skip
    wait_for(lambda: "subscribed to" in said(tmp_path), 60, "subscription")
    ingest = tmp_path / "ingest.log"
    consumers.register(spool, "ingest", 0)
    for last in range(100, SENT + 1, 100):  # one block of all of them would never fill a spool
        sender.publish(last - 99, last).wait_for_publish(60)
        if state(tmp_path)["spool_full"]:
            break
        wait_for(lambda last=last: len(sequences(spool)) >= last or state(tmp_path)["spool_full"],
                 60, "a block")  # fmt: skip
    wait_for(lambda: state(tmp_path)["spool_full"], 60, "a full spool")
    spawn("ingest", "--spool", spool, "--tables", tmp_path / "tables", "--interval", 0.5, *QUICK,
          log=ingest)  # fmt: skip
    wait_for(lambda: sender.upto == last, 120, "the mark of the last one")
    assert state(tmp_path)["connects"] == 1
    wait_for(lambda: numbers(tmp_path / "tables") == [*range(1, last + 1)], 60, "the last row")


FULL = '''
import sys
from umqtt_pipeline.spool import consumers
from test_pipeline_full_disk import fill_up
folder = sys.argv[1] + "/spool"
consumers.register(folder, "ingest", 5, tables="t" * 200)
fill_up(sys.argv[1] + "/other")
consumers.register(folder, "ingest", 7, committed={"a": [1, 2]})
print(consumers.positions(folder), consumers.unreadable(folder))
try:
    consumers.register(folder, "later", 0)
except OSError as error:
    print(error)
'''


def test_a_reader_releases_on_a_disk_that_others_have_filled(tmp_path):
    """Nobody else can make room: what the reader is done with may go."""
    done = subprocess.run([*own_disk(tmp_path), sys.executable, "-c", FULL, tmp_path / "disk"],
                          capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    told, refused = done.stdout.splitlines()
    assert told == "{'ingest': 7} []", done.stderr
    assert "No space left on device" in refused and "/spool/consumers/later.json" in refused


def test_a_disk_that_stays_full_is_told_once(broker, sender, bridge, tmp_path):
    """The metrics are on it as well, and cannot be written each second."""
    process = bridge(*own_disk(tmp_path), metrics="disk/metrics.json")
    disk = Path(f"/proc/{process.pid}/root{tmp_path}/disk")
    sender.take(SENT)
    wait_for(lambda: "unacknowledged" in said(tmp_path), 60, "a full disk")

    def told():  # somebody else takes what the bridge had kept for itself
        fill_up(disk / "other")
        return "metrics" in said(tmp_path)

    wait_for(told, 30, "the word on the metrics")
    time.sleep(5)  # five more tries; a page may become free for one of them
    lines = Counter(line.partition(" ")[2] for line in said(tmp_path).splitlines())
    assert max(lines.values()) <= 2, lines.most_common(1)
    (disk / "other").unlink()
    wait_for(lambda: (disk / "metrics.json").exists(), 30, "the metrics")
    consumers.register(disk / "spool", "ingest", reader.durable(disk / "spool"))
    wait_for(lambda: "going on" in said(tmp_path), 60, "room")


def test_a_file_that_may_not_grow_is_followed_by_another(broker, sender, bridge, tmp_path):
    """EFBIG; ENOSPC is the same to the bridge, but here a new segment is all it takes."""
    limit = (DISK // 2, resource.RLIM_INFINITY)
    bridge(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    sender.take(SENT)
    wait_for(lambda: sender.upto == SENT, 60, "every message")
    folder = tmp_path / "disk" / "spool"
    assert sorted(set(sequences(folder))) == [*range(1, SENT + 1)]
    assert len(reader.segments(folder)) > 1 and "File too large" in said(tmp_path)


def take_in_blocks(device, folder, hundreds):
    """Take readings, a hundred a block: one block with all of them would never fill a spool."""
    metrics = folder.parent / "metrics.json"
    for n in range(1, hundreds + 1):
        device.take(100).wait_for_publish(80)
        wait_for(lambda n=n: len(sequences(folder)) >= 100 * n
                 or json.loads(metrics.read_text())["spool_full"], what="a block")


@BOTH
def test_a_full_spool_stops_acknowledging_and_goes_on(broker, device, tmp_path):
    folder = tmp_path / "spool"
    options = ("--segment-bytes", 4096, "--max-spool-bytes", 20_000, "--keepalive", 4)
    bridge = start(broker, folder, *options)
    metrics = tmp_path / "metrics.json"
    take_in_blocks(device, folder, 6)
    wait_for(lambda: json.loads(metrics.read_text())["spool_full"], what="a full spool")
    time.sleep(5)  # longer than the keep alive: the connection must live
    held = len(sequences(folder))
    assert device.upto <= held < 600
    assert "unacknowledged" in (tmp_path / "bridge.log").read_text()
    seen, at = set(), 0
    until = time.monotonic() + PATIENCE * 60
    while len(seen) < 600:
        assert time.monotonic() < until, f"{len(seen)} of 600"
        end_of_it = reader.durable(folder)
        seen.update(sequences(folder, at, end_of_it))
        consumers.register(folder, "ingest", end_of_it)  # from now on what was read may go
        at = end_of_it
        time.sleep(0.3)
    wait_for(lambda: device.upto == 600, what="the mark")
    state = wait_for(
        lambda: (s := json.loads(metrics.read_text()))["spool_full"] is False and s, what="room"
    )
    assert state["connects"] == 1 and state["segments_deleted"] > 0
    assert end(bridge) == 0


def test_what_is_in_the_spool_counts_if_the_connection_is_lost_before_its_puback(tmp_path):
    """It is shipped, else a spool that is full with it would stay so."""
    bridge = Bridge(Settings("127.0.0.1", 1, str(tmp_path / "spool")))

    class Lost:
        def send(self, _):
            raise ConnectionResetError

    bridge._link = Lost()
    with pytest.raises(ConnectionResetError):
        bridge._store(wire.scan(b"".join(publish(senml(n), packet_id=n) for n in range(1, 6))))
    assert bridge.state()["received"] == 5
    bridge._finish()
    assert [mark.upto for mark in bridge.marks.marks.values()] == [5]


@BOTH
def test_killed_while_the_spool_is_full(broker, device, tmp_path):
    """What it holds in memory for want of room is not acknowledged: the broker sends it again."""
    folder = tmp_path / "spool"
    bridge = start(broker, folder, "--max-spool-bytes", 4096)
    take_in_blocks(device, folder, 4)
    metrics = tmp_path / "metrics.json"
    wait_for(lambda: json.loads(metrics.read_text())["refused_by_disk"] > 1, what="a full spool")
    end(bridge, signal.SIGKILL)
    assert len(set(sequences(folder))) < 400
    bridge = start(broker, folder)
    wait_for(lambda: device.upto == 400, what="the mark")
    assert set(sequences(folder)) == set(range(1, 401))
    end(bridge)


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_started_with_a_full_spool(broker, device, tmp_path):
    """The broker sends what it holds before SUBACK: a bridge that cannot take it does not hear
    SUBACK. It keeps the connection all the same."""
    folder, metrics = tmp_path / "spool", tmp_path / "metrics.json"
    bridge = start(broker, folder, "--max-spool-bytes", 4096)
    take_in_blocks(device, folder, 4)
    wait_for(lambda: json.loads(metrics.read_text())["spool_full"], what="a full spool")
    end(bridge, signal.SIGKILL)
    log = tmp_path / "again.log"
    bridge = spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", folder,
                   "--metrics", metrics, "--mark-interval", "0.05", "--max-spool-bytes", 4096,
                   log=log)  # fmt: skip
    wait_for(lambda: "takes nothing" in log.read_text(), what="a full spool again")
    begun = json.loads(metrics.read_text())["started"]
    # Longer than the bridge waits for an answer to SUBSCRIBE.
    wait_for(lambda: json.loads(metrics.read_text())["time"] > begun + 13, what="some time")
    state = json.loads(metrics.read_text())
    assert (state["connects"], state["spool_full"], state["connected"]) == (1, True, False)

    def read():
        consumers.register(folder, "ingest", reader.durable(folder))
        return device.upto == 400

    wait_for(read, 60, "the mark")
    assert end(bridge) == 0
    said = log.read_text()
    assert "no SUBACK" not in said and said.count("subscribed to") == 1


def test_a_disk_that_refuses_and_is_not_full_ends_the_bridge(broker, sender, bridge, tmp_path):
    """No wait mends it, and it is no fault of the broker."""
    (tmp_path / "disk" / "spool" / "reserve").mkdir(parents=True)  # as little a file as on a disk
    process = bridge()  # that may only be read
    sender.publish(1, 1)
    wait_for(lambda: process.poll() is not None, 30, "the end")
    assert process.returncode == 1
    assert "spool/reserve: Is a directory" in said(tmp_path)
    assert "connection lost" not in said(tmp_path)


def test_the_reserve_is_room_and_not_a_hole(tmp_path, monkeypatch):
    kept = disk_reserve.Reserve(tmp_path)
    kept.take()
    assert kept.path.stat().st_blocks * 512 >= disk_reserve.LEAST
    kept.size *= 2
    kept.take()
    assert kept.path.stat().st_size == 2 * disk_reserve.LEAST
    kept.give()
    kept.give()
    assert not kept.path.exists()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SpoolFull, match="reserve"):
        kept.take()
    assert not kept.path.exists()  # half of it would be nothing but harm
