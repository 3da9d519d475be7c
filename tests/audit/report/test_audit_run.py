"""The whole audit in Spark: tables, exchanges over several connections, summaries, report, errors.

Knows: the command and the tables. Must not know: how packets are found.
"""

import base64
import gzip
import hashlib
import os
import random
import socket
import tempfile
import uuid
from html.parser import HTMLParser

import audit_kit as kit
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import run as command

PUB1 = kit.publish("a/b", b"1", 1, 7)
PUB1_DUP = kit.publish("a/b", b"1", 1, 7, dup=True)


@pytest.fixture(scope="module")
def audited(spark, tmp_path_factory):
    """One audit of two captures, one of them packed, and of a text: a device that comes back
    twice, one of another kind."""
    from mqtt_audit import run

    folder = tmp_path_factory.mktemp("audit")
    first = kit.Talk().open().client(kit.connect("back", flags=0)).broker(kit.connack())
    first.client(PUB1).client(kit.publish("a/c", b"2", 2, 8)).broker(kit.ack(5, 8))
    first.segment(0, flags=kit.RST)
    second = kit.Talk(("10.0.0.2", 40_001), start=first.now).wait(5).open()
    second.client(kit.connect("back", flags=0)).broker(kit.connack(0, 1))
    second.client(PUB1_DUP).broker(kit.ack(4, 7)).client(kit.ack(6, 8)).broker(kit.ack(7, 8))
    second.client(kit.DISCONNECT).close()
    bad = kit.Talk(("10.0.0.3", 50_000), start=second.now).open()
    bad.client(kit.connect("<b>bad</b>")).broker(kit.connack()).client(kit.connect("<b>bad</b>"))
    half = kit.pcap(folder / "1.pcap", first.wrapped())
    rest = kit.pcap(folder / "2.pcap", second.wrapped() + bad.wrapped())
    packed, notes = folder / "2.pcap.gz", folder / "notes.txt"
    packed.write_bytes(gzip.compress(rest.read_bytes()))
    notes.write_text("nothing captured")
    run.build(spark, [half, notes, packed], folder / "[out]")  # a pattern, to some readers
    return folder / "[out]"


def rows(folder, table):
    return pq.read_table(folder / table).to_pylist()


def test_messages_that_go_on_in_the_next_connection_are_one_row(audited):
    flows = {f["packet_id"]: f for f in rows(audited, "flows")}
    assert len(flows) == 2
    for ident, retransmissions in ((7, 1), (8, 0)):
        f = flows[ident]
        assert (f["outcome"], f["connections"], f["with_dup"], f["without_dup"]) == (
            "acknowledged", 2, retransmissions, 0)  # fmt: skip
        assert f["latency_ms"] > 5000 and f["client_id"] == "back"


def test_a_packed_capture_is_read_and_what_is_none_has_a_row(audited):
    files = {r["file"].rpartition("/")[2] for r in rows(audited, "packets")}
    assert files == {"1.pcap", "2.pcap.gz"}
    found = [(p["problem"], p["file"].rpartition("/")[2]) for p in rows(audited, "problems")]
    assert found == [("no capture", "notes.txt")]


def test_the_timeline_and_the_latencies_have_every_packet_and_message(audited):
    counted = {}
    for r in rows(audited, "timeline"):
        counted[r["sender"], r["type"]] = counted.get((r["sender"], r["type"]), 0) + r["packets"]
    every = {}
    for r in rows(audited, "packets"):
        every[r["sender"], r["type"]] = every.get((r["sender"], r["type"]), 0) + 1
    assert counted == every
    flows = rows(audited, "flows")
    assert sum(r["messages"] for r in rows(audited, "latencies")) == len(flows) == 2
    device = {d["client_id"]: d for d in rows(audited, "devices")}["back"]
    took = sorted(f["latency_ms"] for f in flows)
    assert device["client_latency_max_ms"] == pytest.approx(took[1])
    assert device["client_latency_p50_ms"] == pytest.approx(took[0], rel=0.011)


def _quantile(values, percent):
    """The smallest of the values that so many per cent of them at least do not exceed."""
    return min(v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values))


def test_latencies_in_the_summaries_are_those_of_the_messages(tmp_path):
    """From the steps counted by the workers, as from every message: right to 1 %."""
    from mqtt_audit.flows import joining
    from mqtt_audit.report import summaries
    from mqtt_audit.report.columns import FLOWS

    choice = random.Random(4)
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    for k in range(1, 200):
        made.client(kit.publish("a", bytes(k), 1, k)).wait(choice.lognormvariate(-3, 2))
        made.broker(kit.ack(4, k))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    took = sorted(f["latency_ms"] for f in found["flows"])
    assert len(took) == 199
    tables = {name: pa.Table.from_pylist(found[name], schema).select(summaries.NEEDED[name])
              for name, schema in summaries.TABLES.items()}  # fmt: skip
    flows = pa.Table.from_pylist([{**f, "outcome": "acknowledged"} for f in found["flows"]], FLOWS)
    for latencies in (tables["latencies"], joining.latencies(flows)):
        row = summaries.summary("brokers", {**tables, "latencies": latencies}).to_pylist()[0]
        assert [row[f"client_{n}"] for n in ("acknowledged", "unacknowledged")] == [199, 0]
        assert row["clients"] == 1 and row["broker_latency_p50_ms"] is None
        assert row["client_latency_p50_ms"] == pytest.approx(took[99], rel=0.011)
        assert row["client_latency_p99_ms"] == pytest.approx(took[197], rel=0.011)
        assert row["client_latency_max_ms"] == pytest.approx(took[-1])


def test_summaries_made_in_parts_are_those_made_at_once():
    """And both are right: sums by plain Python, quantiles by counting each value as often as it is
    there."""
    from mqtt_audit.report import summaries

    choice = random.Random(9)
    who = [(c, b) for c in (None, *(f"c{k}" for k in range(9))) for b in ("a:1", "b:1")]
    ends = [dict(zip(("client_id", "broker"), choice.choice(who))) for _ in range(300)]
    made = {
        "connections": [{**e, "connection": k, "client_lost": choice.randint(0, 9),
                         "ended": choice.choice(["open", "RST by client", "FIN by client"])}
                        for k, e in enumerate(ends[:100])],
        "latencies": [{**e, "sender": "client", "outcome": "acknowledged", "retransmissions": 1,
                       "latency_ms": choice.choice([1.0, 2.0, 5.0]),
                       "messages": choice.randint(1, 9)} for e in ends[100:]],
        "violations": [],
    }  # fmt: skip
    tables = {name: pa.Table.from_pylist(made[name], schema).select(summaries.NEEDED[name])
              for name, schema in summaries.TABLES.items()}  # fmt: skip
    shares = [{name: summaries.share(rows, part, 3) for name, rows in tables.items()}
              for part in range(3)]  # fmt: skip
    assert all(part["connections"].num_rows for part in shares)
    once = summaries.summary("devices", tables).to_pylist()
    parts = [row for part in shares for row in summaries.summary("devices", part).to_pylist()]
    assert sorted(map(repr, parts)) == sorted(map(repr, once))
    assert len(once) == len({tuple(e.items()) for e in ends})
    for row in once:
        mine = {name: [r for r in rows if all(r[n] == row[n] for n in ("client_id", "broker"))]
                for name, rows in made.items()}  # fmt: skip
        lost = [r["client_lost"] for r in mine["connections"]]
        assert row["client_lost"] == (sum(lost) if lost else None)
        assert row["reset"] == sum(r["ended"].startswith("RST") for r in mine["connections"])
        every = [r["latency_ms"] for r in mine["latencies"] for _ in range(r["messages"])]
        found = [row["client_latency_p50_ms"], row["client_latency_p99_ms"]]
        assert found == ([_quantile(every, p) for p in (50, 99)] if every else [None] * 2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(
    st.sampled_from(["one", "two", None]), st.sampled_from(["client", "broker"]),
    st.integers(1, 2), st.sampled_from([1.0, 2.0, 999.0, 1000.0, 1500.0]),
    st.sampled_from([1, 2, 49, 98, 99, 100, 198, 700])), max_size=12))  # fmt: skip
def test_tables_report_and_findings_have_one_quantile(made):
    """The smallest value that at least so many per cent do not exceed, counted here value by
    value."""
    from mqtt_audit.flows.quantiles import by_group
    from mqtt_audit.report import summaries
    from mqtt_audit.report.columns import CONNECTIONS
    from mqtt_audit.rules.findings import findings

    latencies = [{"client_id": who, "broker": "b:1", "sender": side, "qos": qos, "messages": n,
                  "outcome": "acknowledged", "latency_ms": ms, "longest_ms": ms,
                  "retransmissions": 0}
                 for who, side, qos, ms, n in made]  # fmt: skip
    kept = {"connections": [{"client_id": who, "broker": "b:1", "connection": k, "first": k,
                             "last": k} for k, who in enumerate(["one", "two", None])],
            "latencies": latencies, "violations": []}  # fmt: skip
    tables = {name: pa.Table.from_pylist(kept[name], schema)
              for name, schema in summaries.TABLES.items()}  # fmt: skip
    needed = {name: rows.select(summaries.NEEDED[name]) for name, rows in tables.items()}

    def every(**wanted):
        return [r["latency_ms"] for r in latencies for _ in range(r["messages"])
                if all(r[n] == wanted[n] for n in wanted)]  # fmt: skip

    rows = [row for part in range(2) for row in summaries.summary("devices", {
        name: summaries.share(table, part, 2) for name, table in needed.items()}).to_pylist()]
    rows += summaries.summary("brokers", needed).to_pylist()
    for row in rows:
        ends = {n: row[n] for n in ("client_id", "broker") if n in row}
        for side in ("client", "broker"):
            found = [row[f"{side}_latency_p{p}_ms"] for p in (50, 99)]
            values = every(**ends, sender=side)
            assert found == [_quantile(values, p) if values else None for p in (50, 99)]
    for row in by_group(tables["latencies"], "broker"):
        values = every(**{n: row[n] for n in ("broker", "sender", "qos")})
        assert row["messages"] == len(values) and row["longest_ms"] == max(values)
        assert [row[f"p{p}"] for p in (50, 90, 99)] == [
            _quantile(values, p) for p in (50, 90, 99)]  # fmt: skip
    slow = 0
    for who in ("one", "two", None):
        for side, qos in ((s, q) for s in ("client", "broker") for q in (1, 2)):
            values = every(client_id=who, sender=side, qos=qos)
            late = sum(ms > 1000 for ms in values)
            slow += len(values) >= 100 and 100 * late > len(values)
    told = findings(pa.Table.from_pylist(kept["connections"], CONNECTIONS), tables["latencies"])
    assert told["finding"].to_pylist() == ["slow acknowledgements"] * slow


def test_a_gzip_file_that_ends_early_gives_what_is_there(tmp_path):
    from mqtt_audit.capture import files as captures

    path, target = tmp_path / "t.pcap.gz", tmp_path / "t.pcap"
    sound = random.Random(1).randbytes(100_000)
    path.write_bytes(gzip.compress(sound)[:50_000])
    assert "end-of-stream" in captures.unpack(path, target)
    assert target.read_bytes() == sound[: target.stat().st_size] and target.stat().st_size > 1000


def test_a_damaged_gzip_file_is_a_row_and_the_rest_is_audited(spark, tmp_path):
    """Its beginning too. And the timeline, which several tasks have counted, has each row once."""
    from mqtt_audit import run

    made = kit.Talk().open().client(kit.connect("torn")).broker(kit.connack())
    for k in range(1, 300):
        made.client(kit.publish("a", random.Random(k).randbytes(200), 1, k)).broker(kit.ack(4, k))
    sound = kit.pcap(tmp_path / "torn.pcap", made.wrapped())
    raw = bytearray(gzip.compress(sound.read_bytes()))
    raw[len(raw) // 2 : len(raw) // 2 + 4] = b"\xff\xff\xff\xff"  # cuts a frame in two
    torn = tmp_path / "torn.pcap.gz"
    torn.write_bytes(raw)
    talks = [kit.Talk(("10.0.1.1", 40_000 + k), start=made.now) for k in range(8)]
    for k, talk in enumerate(talks):
        talk.open().client(kit.connect(f"d{k}")).broker(kit.connack())
    whole = kit.pcap(tmp_path / "whole.pcap", [f for t in talks for f in t.wrapped()])
    run.build(spark, [torn, whole], tmp_path / "out")
    problems = rows(tmp_path / "out", "problems")
    assert [p["file"] for p in problems if p["problem"] == "gzip"] == [str(torn)]
    files = [r["file"] for r in rows(tmp_path / "out", "packets")]
    assert files.count(str(whole)) == 16 and files.count(str(torn)) > 100
    counted = rows(tmp_path / "out", "timeline")
    assert len({(r["time"], r["sender"], r["type"]) for r in counted}) == len(counted)
    assert sum(r["packets"] for r in counted) == len(files)


def test_summaries(audited):
    devices = {d["client_id"]: d for d in rows(audited, "devices")}
    assert devices["back"]["connections"] == 2 and devices["back"]["reset"] == 1
    assert devices["back"]["client_acknowledged"] == 2
    assert devices["back"]["client_retransmissions"] == 1
    assert devices["<b>bad</b>"]["protocol_violations"] == 1
    broker = rows(audited, "brokers")
    assert [(b["broker"], b["clients"], b["connections"]) for b in broker] == [
        ("10.0.0.1:1883", 2, 3)]  # fmt: skip
    assert broker[0]["client_packets"] == sum(
        r["sender"] == "client" for r in rows(audited, "packets"))  # fmt: skip


def test_only_tables_are_left(audited):
    assert sorted(os.listdir(audited)) == [
        "audit.json", "brokers", "connections", "devices", "findings", "flows", "latencies",
        "packets", "problems", "report.html", "timeline", "violations"]  # fmt: skip
    names = [p.name for p in audited.rglob("*") if p.is_file() and p.parent != audited]
    assert all(n.endswith(".parquet") for n in names)


def test_the_report_escapes_what_came_from_the_wire(audited):
    text = (audited / "report.html").read_text()
    assert "&lt;b&gt;bad&lt;/b&gt;" in text and "<b>bad" not in text
    assert "MQTT-3.1.0-2" in text and text.count("data:image/png;base64,") == 4


class _Page(HTMLParser):
    """Scripts, handlers and the order of what a page has."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.handlers, self.policy, self.order = [], [], "", []
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        attrs = dict(attrs)
        self.handlers += [n for n in attrs if n.startswith("on")]
        self.handlers += [v for v in attrs.values() if (v or "").startswith("javascript:")]
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag == "img":
            assert attrs["src"].startswith("data:image/png;base64,")
            self.order.append(attrs["alt"])

    def handle_data(self, data):
        if self._open == "script" and data.strip():
            self.scripts.append(data)
        if self._open == "h2" and data.strip():
            self.order.append(data.strip())


def test_no_script_from_the_wire_runs_in_the_report(tmp_path):
    """Client id, topic and will are written by whom one audits."""
    from mqtt_audit import run

    bad = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    talks = [kit.Talk(("10.0.0.9", 40_000 + k), start=kit.START + k * 10**9).open()
             .client(kit.connect(bad)).broker(kit.connack(5)) for k in range(12)]  # fmt: skip
    talks[0].client(kit.publish(bad + "/#"))
    frames = [f for talk in talks for f in talk.wrapped()]
    run.build(None, [kit.pcap(tmp_path / f"{bad[8:20]}.pcap", frames)], tmp_path / "out")
    page = _Page((tmp_path / "out" / "report.html").read_text())
    (script,) = page.scripts
    assert "owned" not in script and page.handlers == []
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy and "default-src 'none'" in page.policy
    order = page.order
    assert order[:3] == ["Findings", "Time line", "packets over time"]
    assert order.index("Connections") < order.index("Devices") < order.index("Files")


def test_spark_reads_the_tables(spark, audited):
    frame = spark.read.parquet(str(audited / "packets").replace("[", r"\["))
    assert frame.filter("type = 'PUBLISH' and dup").select("topic").collect()[0].topic == "a/b"


def test_an_audit_is_replaced_by_the_next(spark, tmp_path):
    """The second one is of a client with a long id and of a broker's bytes that are missing."""
    from mqtt_audit import run

    for name in ("one", "y" * 300):
        talk = kit.Talk().open().client(kit.connect(name)).broker(kit.connack())
        talk.seq[1] += 7
        talk.broker(kit.publish("a", b"1")).wait(2).client(kit.PINGREQ)
        run.build(spark, [kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path / "out")
        assert [r["client_id"] for r in rows(tmp_path / "out", "packets")][0] == name
    text = (tmp_path / "out" / "report.html").read_text()
    assert "y … y" in text and "(300 characters)" in text and "y" * 99 not in text
    assert text.count('<td class="bad">7</td>') == 2  # of the broker and of the device


def test_sockets_of_the_session_have_a_short_path_or_are_not_used(tmp_path, monkeypatch):
    """A path of more bytes than fit is refused by the system; so it is tried with Spark's name."""
    from mqtt_audit import run

    for folder in ("/tmp", str(tmp_path / ("t" * 90))):
        os.makedirs(folder, exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with run.sockets() as settings:
            where = settings.get("spark.python.unix.domain.socket.dir")
            assert bool(where) == (folder == "/tmp")
            if where:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(f"{where}/.{uuid.uuid4()}.sock")
        assert os.listdir(folder) == [] if not where else not os.path.exists(where)


def test_a_capture_is_counted_once(tmp_path):
    from mqtt_audit import run

    path = kit.pcap(tmp_path / "t.pcap", kit.Talk().open().wrapped())
    (tmp_path / "link.pcap").symlink_to(path)
    other = kit.pcap(tmp_path / "other.pcap", kit.Talk().open().wrapped())
    for again, said in ((path, "given twice"), (tmp_path / "link.pcap", f"same file as {path}")):
        with pytest.raises(run.Refused, match=said):
            run.check([path, tmp_path / "none", other, again], tmp_path / "out")
    run.check([path, tmp_path / "none", other], tmp_path / "out")


def test_a_capture_that_cannot_be_read_is_left_out(tmp_path, monkeypatch):
    """One without permission (root has it, so open() is made to refuse) and a pipe that nobody
    writes into; the command line takes both, as there is one that can be read."""
    import builtins

    from mqtt_audit import run
    from mqtt_audit.commands import audit

    good = kit.pcap(tmp_path / "good.pcap", kit.Talk().open().wrapped())
    locked = kit.pcap(tmp_path / "locked.pcap", kit.Talk().open().wrapped())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    real_open, real_access = builtins.open, os.access

    def refuse(path, *rest, **more):
        if path == str(locked):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *rest, **more)

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != str(locked)
                        and real_access(path, mode))  # fmt: skip
    given = [str(p) for p in (locked, good, pipe)]
    with audit.make_context("mqtt-audit", [*given, "--out", str(tmp_path / "o")]) as c:
        assert c.params["captures"] == tuple(given)
    run.check(given, tmp_path / "out")
    readable, left = run.readable(given)
    assert readable == [str(good)]
    assert [(path, why.partition(": ")[2].partition(";")[0]) for path, why in left] == [
        (str(locked), "Permission denied"), (str(pipe), "is no regular file")]  # fmt: skip


def test_bad_input_is_said_with_status_2(tmp_path):
    good = kit.pcap(tmp_path / "good.pcap", kit.Talk().open().wrapped())
    text = tmp_path / "notes.txt"
    text.write_text("nothing captured")
    empty = tmp_path / "empty.pcap"
    empty.touch()
    packed = tmp_path / "t.pcap.gz"
    packed.write_bytes(b"\x1f\x8b\x08rest")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.tex").write_text("mine")
    for arguments, said in (
        ((tmp_path / "no.pcap",), "No such file"),
        ((empty, text), "neither pcap nor pcapng"),
        ((empty,), "it is empty"),
        ((packed,), "damaged gzip file"),
        ((tmp_path,), f"Is a directory; name the captures in it, as {tmp_path}/*.pcap"),
        ((pipe,), f"give - for it and redirect standard input: < {pipe}"),
    ):
        done = command("audit", *arguments, "--out", tmp_path / "out")
        assert done.returncode == 2 and said in done.stderr, done.stderr
        lines = command("audit", *arguments, "--json")
        assert lines.returncode == 2 and lines.stdout == ""
        assert lines.stderr == done.stderr and str(arguments[0]) in lines.stderr
    done = command("audit", good, "--out", taken)
    assert done.returncode == 2 and "thesis.tex" in done.stderr
    done = command("audit", good, "--out", text / "sub")
    assert done.returncode == 2 and "Not a directory" in done.stderr
    assert (taken / "thesis.tex").read_text() == "mine"


def test_the_largest_bucket_is_decoded_first(tmp_path, monkeypatch):
    """Or a core has nothing to do while another one has the largest left."""
    from mqtt_audit import run, scratch, worker

    frames, sizes, decode = [], [], worker.decode
    for k in range(6):
        made = kit.Talk(("10.0.0.9", 5000 + k)).open().client(kit.connect())
        for _ in range(4**k):
            made.client(kit.PINGREQ)
        frames += made.wrapped()

    def seen(bucket, buckets, plan, place, *more):
        sizes.append(len(scratch.segments(place, 0, 1, bucket)))
        return decode(bucket, buckets, plan, place, *more)

    monkeypatch.setattr(worker, "decode", seen)
    monkeypatch.setattr(run, "BUCKET_BYTES", 10_000)
    run.build(None, [kit.pcap(tmp_path / "t.pcap", sorted(frames))], tmp_path / "out")
    assert len(set(sizes)) > 3 and sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == len(frames)
