"""Long work says how far it is; a wish to stop comes to the end that it asks for."""

import logging
import os
import re
import signal
import threading

import pytest
from pipeline_kit import QUICK, batch_done, end, fill, flat, publish, senml, spawn, wait_for
from pipeline_tables import ingest, numbers
from umqtt_pipeline.gold import build
from umqtt_pipeline.gold.schema import TABLES
from umqtt_pipeline.ingest import query as ingest_module
from umqtt_runtime import progress
from umqtt_runtime.progress import Watch

LINE = re.compile(r"[0-9:]{8} umqtt\.\w+: ")


def test_while_a_job_runs_it_says_how_much_is_done(spark, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    go_on = str(tmp_path / "go on")

    def wait(task):  # in a process of Spark's, which does not know these modules
        import os
        import time

        until = time.monotonic() + 120
        while task and not os.path.exists(go_on) and time.monotonic() < until:
            time.sleep(0.05)

    job = threading.Thread(target=spark.sparkContext.parallelize([0, 1], 2).foreach, args=(wait,))
    with Watch(spark, "batch 7", 0.05) as watch:
        watch.doing("decoding 5 of 9 messages")
        job.start()
        try:
            wait_for(lambda: "batch 7: decoding 5 of 9 messages, 1 of 2 tasks done, " in
                     caplog.text, 60, "how far it is")  # fmt: skip
        finally:
            (tmp_path / "go on").touch()
            job.join(60)
    lines = len(caplog.records)
    assert not watch._thread.is_alive() and lines == len(caplog.records)


def test_every_step_of_ingest_and_gold_says_what_it_does(spark, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(progress, "FIRST_S", 0)
    monkeypatch.setattr(progress, "LOOK_S", 0.002)
    fill(tmp_path / "spool", [publish(p) for p in (flat(1, x=1), senml(2))])
    ingest(spark, tmp_path / "spool", tmp_path / "tables")
    build.build(spark, tmp_path / "tables")
    for step in (f"ingest: looking for messages in {tmp_path / 'spool'}, ", "batch 0: receiving",
                 "batch 0: settling 2 readings", "gold: comparing silver",
                 *(f"gold: {name}, {number} of {len(TABLES)} tables"
                   for number, name in enumerate(TABLES, 1))):  # fmt: skip
        assert step in caplog.text


def test_who_waits_for_messages_says_so(spark, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    fill(tmp_path / "spool", [publish(senml(1))])
    ingest(spark, tmp_path / "spool", tmp_path / "tables")
    again = ingest_module.Runner(spark, str(tmp_path / "spool"), str(tmp_path / "tables"))
    running = threading.Thread(target=again.run)
    running.start()
    try:
        wait_for(lambda: "there is no new message in" in caplog.text, 60, "the line")
    finally:
        again.stop()
        running.join(60)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_its_processes_is_a_clean_end(tmp_path, how):
    """As `timeout`, a terminal and a service manager send it; and nothing else is on stderr."""
    folder, root, log = tmp_path / "spool", tmp_path / "tables", tmp_path / "log"
    fill(folder, [publish(senml(n)) for n in (1, 2, 3)])
    process = spawn("ingest", "--spool", folder, "--tables", root, "--interval", 0.2, *QUICK,
                    log=log, preexec_fn=os.setsid)  # fmt: skip
    wait_for(lambda: batch_done(log), 120, "a batch")
    java = int((root / "_state" / "lock").read_text().split()[-1])
    assert os.getpgid(java) == process.pid
    os.killpg(process.pid, how)
    assert process.wait(90) == 0
    assert numbers(root) == [1, 2, 3]
    said = log.read_text().splitlines()
    assert "umqtt.progress: Spark: starting, " in log.read_text()
    assert [line for line in said if not LINE.match(line)] == []
    assert f"umqtt.stop: {how.name}: ending after what is under way" in log.read_text()


def test_told_to_stop_before_there_is_a_spool(tmp_path):
    log = tmp_path / "log"
    process = spawn("ingest", "--spool", tmp_path / "none", "--tables", tmp_path / "tables",
                    log=log)  # fmt: skip
    wait_for(lambda: "waiting for it" in log.read_text(), 60, "the message")
    assert end(process) == 0
