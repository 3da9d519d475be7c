"""After a power cut a file is there only if its folder was fsynced after it got its name, and so
is each folder on the way to it."""

import os
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from pipeline_kit import fill, publish, senml
from pipeline_tables import ingest, numbers
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables.storage import Storage


class Disk:
    """Which names a power cut would take: those whose folder was not fsynced since they came."""

    def __init__(self, monkeypatch):
        self.volatile, self.synced = set(), {}  # {folder: what was in it when it was fsynced}
        self.known = set()  # folders of Delta Lake
        mkdir, replace, link, fsync = os.mkdir, os.replace, os.link, os.fsync
        keep = Storage.keep

        def kept(storage, name, data):
            self.volatile.add(storage.path(name))
            keep(storage, name, data)

        monkeypatch.setattr(Storage, "keep", kept)
        for name in ("create_write_transaction", "create"):
            self._watch_log(monkeypatch, name)

        def made(path, *args, **kwargs):
            mkdir(path, *args, **kwargs)
            self.volatile.add(os.path.abspath(path))

        def linked(old, new, *args, **kwargs):
            link(old, new, *args, **kwargs)
            self.volatile.add(os.path.abspath(new))

        def renamed(old, new, *args, **kwargs):
            replace(old, new, *args, **kwargs)
            old, new = os.path.abspath(old), os.path.abspath(new)
            within = {name for name in self.volatile if name == old or name.startswith(old + "/")}
            self.volatile -= within
            self.volatile |= {new, *(new + name[len(old) :] for name in within)}

        def synced(handle):
            fsync(handle)
            path = os.readlink(f"/proc/self/fd/{handle}")
            if os.path.isdir(path):
                self.synced[path] = set(os.listdir(path))
                self.volatile -= {name for name in self.volatile if os.path.dirname(name) == path}

        for name, double in (("mkdir", made), ("link", linked), ("replace", renamed),
                             ("fsync", synced)):  # fmt: skip
            monkeypatch.setattr(os, name, double)

    def _watch_log(self, monkeypatch, name):
        """Delta Lake writes its log itself, and makes nothing of it durable."""
        real = getattr(DeltaTable, name)

        def watched(first, *args, **kwargs):
            made = real(first, *args, **kwargs)
            table = first if isinstance(first, str) else unquote(first.table_uri[len("file://") :])
            log = os.path.join(table, "_delta_log")
            held = self.synced.get(log, set())
            self.volatile |= {os.path.join(log, name) for name in os.listdir(log)} - {
                os.path.join(log, name) for name in held}  # fmt: skip
            self.volatile |= {log, table} - self.known
            self.known |= {log, table}
            return made

        monkeypatch.setattr(DeltaTable, name, watched)

    def lost(self, root):
        """What is there and a power cut would take, below `root`; not what nobody needs."""
        found = [name for name in self.volatile if name.startswith(f"{root}/")
                 and os.path.exists(name) and not set(name.split("/")) & {"_staging", "_metrics"}]
        return sorted(name[len(str(root)) + 1 :] for name in found)  # fmt: skip


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def test_a_new_spool(tmp_path, disk):
    """Its folder is in one that is not there, either."""
    writer = SpoolWriter(tmp_path / "site" / "spool")
    writer.append(publish(senml(1)), 1, 1)
    consumers.register(writer.folder, "ingest", 0)
    assert disk.lost(tmp_path) == []
    writer.close()


def test_what_is_in_the_tables_when_a_batch_is_done(spark, tmp_path, disk):
    fill(tmp_path / "spool", [publish(senml(n)) for n in range(1, 9)], per_block=4)
    disk.volatile.clear()
    root, lost = tmp_path / "new" / "tables", []
    runner = Runner(spark, str(tmp_path / "spool"), str(root), once=True, rows=4, patience=1,
                    on_batch=lambda counts: lost.append(disk.lost(tmp_path)))  # fmt: skip
    runner.run()
    assert numbers(root) == list(range(1, 9))
    assert lost == [[], []]


def test_what_a_release_of_the_spool_rests_on(spark, tmp_path, disk):
    """Spark fsyncs nothing of its checkpoint: ingest does, before segments may be deleted."""
    fill(tmp_path / "spool", [publish(senml(1))])
    ingest(spark, tmp_path / "spool", tmp_path / "tables")
    assert disk.lost(tmp_path) == []
    root = tmp_path / "tables"
    for folder, names in ((root, {"_checkpoint", "_state"}),
                          (root / "_checkpoint", {"metadata", "offsets", "commits"}),
                          (root / "_checkpoint" / "offsets", {"0"}),
                          (root / "_checkpoint" / "commits", {"0"})):  # fmt: skip
        assert names <= disk.synced[str(folder)]
