"""SIGTERM and SIGINT end the bridge in good order at any moment: also before it is ready."""

import signal

import brokers
import pytest
from pipeline_kit import NOON, end, publish, senml, spawn, wait_for
from umqtt_pipeline.spool import lock, reader
from umqtt_pipeline.spool.writer import SpoolWriter

BLOCKS = 100_000


@pytest.fixture
def long(tmp_path):
    """A spool without marks that takes a bridge many seconds to read again."""
    folder = tmp_path / "spool"
    writer = SpoolWriter(folder)
    writer.append(publish(senml(1)), 1, NOON)
    writer.close()
    path = reader.segments(folder)[0].path
    raw = path.read_bytes()
    path.write_bytes(raw + raw[reader.HEADER.size :] * (BLOCKS - 1))
    position = path.stat().st_size
    check = reader.zlib.crc32(position.to_bytes(8, "little"))
    (folder / "durable").write_bytes(reader.DURABLE.pack(position, check))
    return folder


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_while_the_spool_is_read_again(long, tmp_path, how):
    log = tmp_path / "log"
    before = {path.name: path.stat().st_mtime_ns for path in long.iterdir()}
    bridge = spawn("bridge", "--broker", f"127.0.0.1:{brokers.free_port()}", "--spool", long,
                   log=log)  # fmt: skip
    wait_for(lambda: bridge.poll() is not None or lock.held(long), what="the bridge")
    assert end(bridge, how) == 0
    assert log.read_text() == ""
    assert {path.name: path.stat().st_mtime_ns for path in long.iterdir()} == before
