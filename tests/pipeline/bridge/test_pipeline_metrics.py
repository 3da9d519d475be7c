"""The metrics of bridge and ingest: the page names all of them; an idle system has no lag."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import umqtt_pipeline
from pipeline_kit import fill, publish, senml
from pipeline_tables import ingest
from umqtt_pipeline.bridge.service import Bridge, Settings
from umqtt_pipeline.ingest import metrics
from umqtt_pipeline.spool import consumers, reader

PAGE = Path(umqtt_pipeline.__file__).with_name("OPERATIONS.md").read_text()
SECTION = re.search(r"\n## Metrics\n(.*?)\n## ", PAGE, re.DOTALL)[1]


def test_the_page_has_the_metrics_of_the_bridge(tmp_path):
    bridge = Bridge(Settings(host="h", port=1, spool=str(tmp_path / "spool")))
    bridge.shipper = SimpleNamespace(shipped=0, error=None)
    keys = set(bridge.state())
    bridge.spool.close()
    rows = re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE)
    named = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(keys)


def test_counters_begin_at_0_whatever_is_read_again(tmp_path):
    """What an earlier run, or another bridge, has received stands in its own counters."""
    for name in ("own", "peer"):
        fill(tmp_path / name, [publish(b"none"), publish(senml(3, device=name), name)])
    bridge = Bridge(Settings(host="h", port=1, spool=str(tmp_path / "own"),
                             peers=(str(tmp_path / "peer"),)))  # fmt: skip
    bridge._account()
    said = bridge.state()
    bridge.spool.close()
    assert (said["marks"], said["unreadable"], said["held_back"], said["unsigned"]) == (2, 0, 0, 0)


def test_the_page_has_the_metrics_of_ingest(tmp_path):
    spark_says = SimpleNamespace(name="q", numInputRows=1, timestamp="t", batchId=0,
                                 durationMs={"triggerExecution": 5})  # fmt: skip
    metrics.Progress(tmp_path, "q").onQueryProgress(SimpleNamespace(progress=spark_says))
    (line,) = metrics.path(tmp_path).read_text().splitlines()
    told = re.search(r"batches.jsonl`: (.*?), the milliseconds", SECTION, re.DOTALL)[1]
    assert re.findall(r"`(\w+)`", told) == list(json.loads(line))


def test_an_idle_system_has_no_lag(spark, tmp_path):
    """Spark says that a batch is done when the next one begins: without one the lag would stay."""
    spool, root, lags = tmp_path / "spool", tmp_path / "tables", []
    fill(spool, [publish(senml(n)) for n in range(1, 101)])

    def look(counts):
        end, key = reader.durable(spool), reader.spool_id(spool)
        lags.append(consumers.lag(spool, key, end))
        released = consumers.positions(spool)["ingest"]
        assert lags[-1] == {"ingest": 0} and released < end, "all is stored, and not released yet"
        assert consumers.lag(spool, "another id", end) == {"ingest": end - released}

    ingest(spark, spool, root, on_batch=look)
    assert len(lags) == 1


def test_what_is_stored_outlives_what_is_committed(tmp_path):
    spool = tmp_path / "spool"
    fill(spool, [publish(senml(n)) for n in range(1, 101)])
    key, end = reader.spool_id(spool), reader.durable(spool)
    consumers.register(spool, "r", 0, tables="/t")
    consumers.stored(spool, "r", {key: [end, 0]})
    consumers.stored(spool, "r", {"another": [end + 9, 0]})
    consumers.register(spool, "r", 40, committed={key: [40, 0]})
    assert consumers.positions(spool) == {"r": 40} and consumers.unreadable(spool) == []
    assert consumers.lag(spool, key, end) == {"r": 0}
    assert consumers.lag(spool, key, end + 7) == {"r": 7}
