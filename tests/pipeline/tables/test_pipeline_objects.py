"""Tables in an object store: the same as in a folder, to the row, over kills and a lost disk."""

import http.server
import re
import shutil
import threading
import zlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
import umqtt_pipeline
from object_store import BUCKET, KEYS, ports
from patience import PATIENCE
from pipeline_kit import QUICK, fill, flat, killed, publish, run, senml, spawn, wait_for
from umqtt_pipeline.ingest.ledger import Ledger
from umqtt_pipeline.tables import large
from umqtt_pipeline.tables.decisions import INGEST
from umqtt_pipeline.tables.lock import InUse
from umqtt_pipeline.tables.schema import ALL, BATCHES, arrow_schema
from umqtt_pipeline.tables.storage import are_there, parquet, storage_of
from umqtt_pipeline.tables.store import Tables, dataset, files_of, written


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_a_folder_and_an_object_store_do_the_same(kind, place, tmp_path):
    held = storage_of(place if kind == "store" else tmp_path / "here")
    held.check()
    assert not held.exists("a") and held.listed("a") == [] and held.children("a") == []
    for name in ("a/one-1", "a/date=x/one-2", "a/date=x/two-1", "a/b/c/one-3", "ab"):
        held.keep(name, name.encode())
    held.put("a/date=x/two-1", b"another")
    held.sync("a/one-1")
    assert held.read("a/date=x/two-1") == b"another" and held.exists("a") and held.exists("ab")
    assert not held.exists("a/one")
    assert held.listed("a") == ["a/b/c/one-3", "a/date=x/one-2", "a/date=x/two-1", "a/one-1"]
    assert sorted(held.children("a")) == ["a/b", "a/date=x", "a/one-1"]
    assert held.children("a", older_than=3600) == []
    assert sorted(held.children("")) == ["a", "ab"]
    held.remove_matching("a", "one-*", older_than=3600)
    assert len(held.listed("a")) == 4
    held.remove_matching("a", "one-*")
    assert held.listed("a") == ["a/b/c/one-3", "a/date=x/two-1"]
    held.remove("a/b")
    held.remove("a/gone")
    assert held.listed("a") == ["a/date=x/two-1"]
    with pytest.raises(FileNotFoundError):
        held.read("a/gone")
    rows = pa.table({"x": [1, 2]})
    held.keep("p.parquet", parquet(rows))
    assert held.read_parquet("p.parquet").equals(rows)
    with held.files.open_input_file(held.key("p.parquet")) as file:
        assert file.read() == held.read("p.parquet")


def test_of_two_writers_one_gets_the_number(place):
    """No lock keeps two machines apart; a batch of the one that loses changes nothing."""
    first, second = (Ledger(Tables(place, ALL)) for _ in range(2))
    batch = {"batch": [0], "rows": [1], "readings": [1], "committed_at": [None]}
    schema = arrow_schema({name: kind for name, kind in BATCHES.items() if name != "date"})
    file, other = (written(each.storage, "batches", 0, "2026-01-01", pa.table(batch, schema))
                   for each in (first, second))  # fmt: skip
    first.decide("batch", {"batches": ([file], [])})
    with pytest.raises(InUse):
        second.decide("batch", {"batches": ([other], [])})
    second.forget_undecided()
    first.finish()
    second.recover()
    assert second.last["number"] == 0 and second.next() == 1
    held = Tables(place, ALL)
    assert [each.path for each in held.files("batches")] == [file.path]
    assert held.storage.exists(f"batches/{other.path}"), "it may be one that is just written"


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_of_all_who_begin_tables_at_a_time_one_makes_each(kind, place, tmp_path):
    """Two machines start ingest for the first time, or two runs of gold begin, which has no
    lock."""
    begun, failed = threading.Barrier(4, timeout=PATIENCE * 10), []

    def begin(root):
        begun.wait()
        try:
            assert Ledger(Tables(root, ALL)).next() == 0
        except Exception as error:
            failed.append(repr(error))

    for turn in range(4):
        root = f"{place if kind == 'store' else tmp_path}/turn-{turn}"
        threads = [threading.Thread(target=begin, args=(root,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]
        held = storage_of(root)
        assert {name: len(held.listed(f"{name}/_delta_log")) for name in (*ALL, INGEST)} == (
            dict.fromkeys((*ALL, INGEST), 1))  # fmt: skip


@pytest.mark.parametrize("url,words", [
    ("s3://UPPER/x", "write s3://BUCKET/PREFIX"), ("s3://bucket/a b", "write s3://BUCKET/PREFIX"),
    ("s3://bk/x", "with 3 to 63 small letters, digits, - and . in BUCKET"),
    ("gs://bucket/x", "only s3:// is spoken here"), ("http://host/x", "only s3://"),
    (f"s3://{BUCKET}/nothing-yet", "has no tables: run `umqtt-pipeline ingest` first"),
    ("s3://no-such-bucket/x", "the object store cannot be used"),
])  # fmt: skip
def test_what_cannot_be_is_a_sentence(place, url, words):
    done = run("verify", "--tables", url)
    assert done.returncode == 2 and words in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_refused_in_an_object_store_is_a_sentence(place, tmp_path):
    fill(tmp_path / "spool", [publish(senml(1))])
    given = ("--tables", place, "--once")
    done = run("ingest", "--spool", tmp_path / "spool", *given, AWS_SECRET_ACCESS_KEY="wrong")
    assert done.returncode == 2 and "the object store cannot be used" in done.stderr, done.stderr
    kafka = ("ingest", "--once", "--kafka", "subscribe=x")
    for words, said in ((kafka, "name a folder of tables"),
                        (("clean", "--unused-days", 0), "another machine may be writing")):
        done = run(*words, "--tables", place)
        assert done.returncode == 2 and said in " ".join(done.stderr.split()), done.stderr


def test_the_readers_on_the_page_read_a_store_without_tls(place):
    """They refuse http:// unless they are told."""
    held, rows = Tables(place, {"silver": BATCHES}), [{"batch": 1}, {"batch": 2}]
    made = written(held.storage, "silver", 0, None, pa.Table.from_pylist(rows))
    held.replace("silver", [made])
    page = Path(umqtt_pipeline.__file__).with_name("TABLES.md").read_text()
    blocks = re.findall("```python\n(.*?)```", page, re.DOTALL)
    lines = [line for line in blocks[0].splitlines() if line.startswith(("import", "from"))]
    lines += blocks[1].replace("s3://readings/fleet", place).splitlines()
    absent = [name for module, name in (("polars", r"\bpl\b"), ("duckdb", r"duckdb|^count"))
              if find_spec(module) is None]  # fmt: skip
    code = "\n".join(line for line in lines if not any(re.search(n, line) for n in absent))
    with pytest.raises(Exception, match="URL scheme is not allowed"):
        exec(code.replace('"true"', '"false"'), {})
    names = {"count": [(2,)]}
    exec(code, names)
    assert len(names["rows"]) == 2 and names["count"] == [(2,)]


@pytest.fixture
def silent():
    """A server that answers each request with status 500; its address."""
    class Failing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 (the API's name)
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("words", [
    ("gold",), ("report", "--out", "r.html"), ("verify",), ("quarantine",), ("clean",),
    ("ingest", "--once", "--spool", "spool"), ("ingest", "--once", "--spool", "s3://umqtt/log")])
@pytest.mark.parametrize("answers", [False, True])
def test_a_store_that_is_away_can_be_asked_again(silent, answers, words, tmp_path, monkeypatch):
    """A service that ends with status 2 is not started again."""
    monkeypatch.chdir(tmp_path)
    fill("spool", [publish(senml(1))])
    url = silent if answers else f"http://127.0.0.1:{ports(1)[0]}"
    done = run(*words, "--tables", "s3://umqtt/fleet", AWS_ENDPOINT_URL=url, **KEYS)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert last.startswith("Error: s3://umqtt/") and "the object store cannot be used" in last
    assert "Debug" not in last and "RetryError" not in last


def arrow(root, name):
    return dataset(root, name).to_table()


def counted(root):
    """How often each number of the two devices is in silver."""
    rows = arrow(root, "silver").to_pylist()
    return Counter((row["device"], row["sequence"]) for row in rows)


def test_ingest_killed_and_its_disk_lost_then_gold_compact_and_verify(place, tmp_path):
    """The tables alone say how far ingest is: another machine goes on from the spool."""
    spool, log = tmp_path / "spool", tmp_path / "log"
    packets = [publish(senml(n)) for n in range(1, 121)]
    packets += [publish(flat(n, device="dev2", x=n), "dev2") for n in range(1, 121)]
    fill(spool, [*packets, *packets[60:180], publish(b"x")], per_block=20)
    whole = Counter((device, n) for device in ("dev1", "dev2") for n in range(1, 121))
    command = ("ingest", "--spool", spool, "--tables", place, "--max-rows", 100, *QUICK)
    process = spawn(*command, "--interval", 0.2, log=log)
    wait_for(lambda: "batch 0: 100 messages: 100 new" in log.read_text(), 300, "a batch")
    killed(process)
    assert are_there(place) and 100 <= sum(counted(place).values()) <= 240
    shutil.rmtree(tmp_path / "spool.ingest")
    done = run(*command, "--once")
    assert done.returncode == 0, done.stderr
    assert counted(place) == whole
    assert arrow(place, "bronze").num_rows == 361
    assert arrow(place, "duplicates").num_rows == 120
    for words in (("compact", "--files", 2), ("gold",), ("verify",)):
        done = run(*words, "--tables", place)
        assert done.returncode == 0, done.stderr
    assert "nothing damaged" in done.stdout
    held = Tables(place, ALL)
    assert [len(files_of(held.find(name))) for name in ("bronze", "silver")] == [1, 1]
    assert counted(place) == whole
    devices = arrow(place, "gold_device").to_pylist()
    assert {row["device"]: (row["readings"], row["duplicates"], row["missing"])
            for row in devices} == {"dev1": (120, 60, 0), "dev2": (120, 60, 0)}  # fmt: skip
    done = run("quarantine", "--tables", place)
    assert "1 message is in the quarantine" in done.stdout and "unknown encoding" in done.stdout


def test_payloads_that_are_too_large_for_a_row_are_read_one_by_one(place):
    """None of a file that is damaged, gone, or one of two: nobody knows whose it is."""
    storage, spool = storage_of(place), "0123456789abcdef"
    for offset, data, check in ((1, b"one", b"one"), (2, b"two", b"2"), (3, b"a", b"a"),
                                (3, b"b", b"b")):  # fmt: skip
        storage.keep(f"_large/{spool}-{offset}-{zlib.crc32(check):08x}.bin", data)
    held = large.Payloads(storage)
    assert [held.of(spool, offset) for offset in range(5)] == [None, b"one", None, None, None]
    assert held.of("kafka/t/0", 1) is None
