"""OUT of an audit: one audit at a time works there, it is replaced whole or not at all, and what
is a user's own stays. Also audits of captures without MQTT: every table is there, without rows.

Knows: the command, names in OUT. Must not know: how packets are found.
"""

import fcntl
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys

import audit_kit as kit
import pyarrow.parquet as pq
import pytest
from pipeline_kit import QUICK, spawn, wait_for
from pipeline_kit import run as command

FOLDERS = {"brokers", "connections", "devices", "findings", "flows", "latencies", "packets",
           "problems", "timeline", "violations"}  # fmt: skip
CONTENT = sorted(FOLDERS | {"audit.json", "report.html"})


def talk(folder, name, **more):
    """A capture in which the client `name` says something."""
    made = kit.Talk(**more).open().client(kit.connect(name)).broker(kit.connack())
    made.client(kit.publish("a", b"1", 1, 7)).broker(kit.ack(4, 7))
    return kit.pcap(folder / f"{name}.pcap", made.wrapped())


@pytest.fixture(scope="module")
def earlier(spark, tmp_path_factory):
    """An OUT, to be copied."""
    from mqtt_audit import run

    folder = tmp_path_factory.mktemp("earlier")
    run.build(spark, [talk(folder, "one")], folder / "out")
    return folder / "out"


@pytest.fixture
def out(earlier, tmp_path):
    return shutil.copytree(earlier, tmp_path / "out")


def state(folder):
    """All that lies in a folder: {path: hash}."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in folder.rglob("*") if p.is_file()}  # fmt: skip


def clients(out):
    found = pq.read_table(out / "packets", columns=["client_id"])["client_id"]
    return set(found.drop_null().to_pylist())


class TestOneAtATime:
    def test_of_two_audits_the_second_ends_and_changes_nothing(self, tmp_path):
        one, two = talk(tmp_path, "one"), talk(tmp_path, "two")
        with open(tmp_path / "log", "w+") as log:
            first = spawn("audit", one, "--out", tmp_path / "out", *QUICK, log=tmp_path / "log")
            lock = tmp_path / "out" / "_lock"
            wait_for(lambda: first.poll() is not None or lock.exists() and lock.read_text(),
                     120, "the lock")  # fmt: skip
            # Or it might be done before the other one looks.
            first.send_signal(signal.SIGSTOP)
            second = command("audit", two, "--out", tmp_path / "out", *QUICK)
            first.send_signal(signal.SIGCONT)
            assert second.returncode == 2 and second.stderr.count("\n") == 1, second.stderr
            assert f"another audit is being made here (process {first.pid} on " in second.stderr
            assert "wait for its end, or name another folder" in second.stderr
            assert first.wait(480) == 0, log.read()
        assert clients(tmp_path / "out") == {"one"}
        assert sorted(os.listdir(tmp_path / "out")) == CONTENT

    def test_a_killed_audit_leaves_no_lock(self, tmp_path, out):
        """Only its file, which stands in nobody's way and is removed, and a part of an audit."""
        from mqtt_audit import folder

        hold = ("import sys, time; from mqtt_audit import folder\n"
                "with folder.alone(sys.argv[1]):\n"
                "    folder.staged(sys.argv[1]); print(flush=True); time.sleep(60)\n")  # fmt: skip
        holder = subprocess.Popen([sys.executable, "-c", hold, out], stdout=subprocess.PIPE)
        holder.stdout.readline()
        with pytest.raises(folder.Refused, match=f"process {holder.pid} on"), folder.alone(out):
            pass
        holder.kill()
        holder.wait()
        holder.stdout.close()
        assert {"_lock", "_staging"} < set(os.listdir(out))
        folder.check(out)
        with folder.alone(out):
            folder.staged(out)
            assert len(os.listdir(out / "_staging")) == 1
            folder.discard(out)
        assert sorted(os.listdir(out)) == CONTENT

    def test_a_lock_file_that_is_removed_meanwhile_is_no_lock(self, out, monkeypatch):
        """The audit that had it ends between open() and flock() of the next one."""
        from mqtt_audit import folder

        real, gone = fcntl.flock, []

        def flock(handle, how):
            if not gone:
                gone.append(os.unlink(out / "_lock"))
            real(handle, how)

        monkeypatch.setattr(fcntl, "flock", flock)
        with folder.alone(out):
            monkeypatch.setattr(fcntl, "flock", real)
            with pytest.raises(folder.Refused, match="another audit"), folder.alone(out):
                pass

    def test_a_disk_without_locks_is_said(self, out, monkeypatch):
        from mqtt_audit import folder

        def flock(*_):
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(fcntl, "flock", flock)
        with pytest.raises(folder.Refused, match="cannot be locked"), folder.alone(out):
            pass


class TestWholeOrNot:
    STEPS = ("worker.sum_timeline", "run.Audit._summarise", "worker.find",
             "flows.joining.write_empty", "report.page.build",
             "report.page._summaries")  # fmt: skip

    @pytest.mark.parametrize("step", STEPS)
    def test_what_fails_before_the_end_leaves_the_earlier_audit(
        self, spark, tmp_path, out, monkeypatch, step
    ):
        from mqtt_audit import run

        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(f"mqtt_audit.{step}", fail)
        before = state(out)
        with pytest.raises(Exception, match="No space left"):
            run.build(spark, [talk(tmp_path, "two")], out)
        assert state(out) == before and sorted(os.listdir(out)) == CONTENT

    @pytest.mark.parametrize("room", [100, 100_000])
    def test_a_disk_that_takes_no_more_is_one_sentence(self, tmp_path, room):
        """A limit on the size of files stands for it; the smallest is too small for the keys."""
        made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
        for _ in range(3000):
            made.client(kit.publish("a", b"1"))
        capture = kit.pcap(tmp_path / "long.pcap", made.wrapped())
        done = subprocess.run(
            [sys.executable, "-m", "mqtt_audit", str(capture), "--out", str(tmp_path / "o")],
            capture_output=True, text=True, timeout=300,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        )  # fmt: skip
        assert done.returncode == 1 and "File too large" in done.stderr
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) < 4

    @pytest.mark.parametrize("new", [False, True])
    def test_a_rename_that_fails_takes_back_those_before_it(
        self, tmp_path, out, earlier, monkeypatch, new
    ):
        """At each of them in turn, into a folder with an audit and into an empty one."""
        from mqtt_audit import folder

        made = shutil.copytree(earlier, tmp_path / "made")
        (made / "packets" / "part-more.parquet").write_bytes(b"")
        if new:
            shutil.rmtree(out)
            out.mkdir()
        before, lying, real = state(out), state(made), folder._swap
        assert lying != before
        for at in range(len(CONTENT)):
            steps = iter(range(len(CONTENT) * 2))

            def swap(one, other, steps=steps, at=at):
                if next(steps) == at:
                    raise OSError(5, "Input/output error")
                real(one, other)

            monkeypatch.setattr(folder, "_swap", swap)
            with pytest.raises(OSError, match="Input/output"):
                folder.place(made, out)
            assert state(out) == before and state(made) == lying
        monkeypatch.setattr(folder, "_swap", real)
        folder.place(made, out)
        assert state(out) == lying and state(made) == before

    def test_a_signal_waits_until_all_is_in_place(self, tmp_path, out, earlier, monkeypatch):
        from mqtt_audit import folder

        made = shutil.copytree(earlier, tmp_path / "made")
        (made / "packets" / "part-more.parquet").write_bytes(b"")
        new, real, seen = state(made), folder._swap, []

        def swap(one, other):
            signal.raise_signal(signal.SIGTERM)
            real(one, other)

        monkeypatch.setattr(folder, "_swap", swap)
        before = signal.signal(signal.SIGTERM, lambda *_: seen.append(state(out)))
        try:
            folder.place(made, out)
        finally:
            signal.signal(signal.SIGTERM, before)
        assert seen and all(found == new for found in seen)


class TestWhatIsNoAudit:
    @pytest.mark.parametrize("name", ["notes.txt", "packets/notes.txt"])
    def test_other_things_in_an_earlier_audit_are_not_touched(self, tmp_path, out, name):
        from mqtt_audit import run

        (out / name).write_text("mine")
        before = state(out)
        with pytest.raises(run.Refused, match=f"holds other things than an audit .{name}"):
            run.check([talk(tmp_path, "two")], out)
        assert state(out) == before

    @pytest.mark.parametrize("inside", ["", "packets", "_staging", "link"])
    def test_a_capture_in_out_is_refused_and_stays(self, tmp_path, out, inside):
        from mqtt_audit import run

        if inside == "link":
            path = tmp_path / "link.pcap"
            path.symlink_to(talk(out, "two"))
        else:
            (out / inside).mkdir(exist_ok=True)
            path = talk(out / inside, "two")
        before = state(out)
        (tmp_path / "other").symlink_to(out)
        for name in (out, tmp_path / "other"):
            with pytest.raises(run.Refused, match=r"\.pcap: lies in .*, which is replaced"):
                run.check([path, talk(tmp_path, "three")], name)
        assert state(out) == before


@pytest.fixture(scope="module", params=["no frame", "ARP", "HTTP"])
def nothing(request, spark, earlier, tmp_path_factory):
    """An audit of a capture without MQTT, in the place of an earlier one."""
    from mqtt_audit import run

    folder = tmp_path_factory.mktemp("nothing")
    web = kit.Talk(("10.0.0.2", 4000), ("10.0.0.9", 80)).open()
    web.client(b"GET / HTTP/1.1\r\n\r\n").close()
    frames = {"no frame": [], "HTTP": web.wrapped(),
              "ARP": [(kit.START, b"\xff" * 12 + b"\x08\x06" + bytes(46))]}  # fmt: skip
    path = kit.pcap(folder / "t.pcap", frames[request.param])
    shutil.copytree(earlier, folder / "out")
    run.build(spark, [path], folder / "out")
    return folder / "out"


class TestNoMQTT:
    def test_the_report_says_so(self, nothing):
        text = (nothing / "report.html").read_text()
        assert "No MQTT was found" in text and "data:image" not in text and "t.pcap" in text
        assert sorted(os.listdir(nothing)) == CONTENT

    def test_every_reader_finds_the_columns_of_every_table(self, request, spark, nothing,
                                                           earlier):  # fmt: skip
        """The same as in an audit that has rows."""
        import duckdb
        import pandas

        for name in FOLDERS:
            full, none = pq.read_table(earlier / name), pq.read_table(nothing / name)
            # That there is no frame, or none that could be read, as ARP, is a problem.
            empty = request.node.callspec.params["nothing"] in ("no frame", "ARP")
            unread = empty and name == "problems"
            assert none.num_rows == unread and full.schema.equals(none.schema), name
            assert list(pandas.read_parquet(nothing / name)) == full.column_names
            files = nothing / name / "*.parquet"
            assert duckdb.read_parquet(str(files)).columns == full.column_names
            by_spark = [spark.read.parquet(str(f / name)) for f in (earlier, nothing)]
            assert by_spark[0].schema == by_spark[1].schema
            assert by_spark[1].count() == none.num_rows

    def test_the_command_ends_with_status_0(self, tmp_path):
        done = command("audit", kit.pcap(tmp_path / "t.pcap", []), "--out", tmp_path / "out",
                       *QUICK)  # fmt: skip
        assert done.returncode == 0 and "no MQTT was found" in done.stderr, done.stderr
