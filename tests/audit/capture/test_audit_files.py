"""Captures given to one audit: in any order, a copy among them, very many.

Knows: the audit's tables. Must not know: how packets are found.
"""

import itertools
import os
import shutil

import audit_kit as kit
import pyarrow.parquet as pq
import pytest


def taps(folder):
    """Captures of four gateways at the same time: each client goes from one to the next, and two
    of the captures begin in the same nanosecond."""
    for number in range(4):
        frames = []
        for who in range(4):
            start = kit.START + who * 10**9 + min(number, 2) * 3 * 10**8
            talk = kit.Talk((f"10.0.{number}.{who + 1}", 40_000), start=start).open()
            talk.client(kit.connect(f"dev{who}", flags=0)).broker(kit.connack(0, int(number > 0)))
            talk.client(kit.publish("a", b"%d" % who, 1, 7, dup=number > 0)).wait(0.1 * who)
            if number == 3:
                talk.broker(kit.ack(4, 7))
            frames += talk.wrapped()
        yield kit.pcap(folder / f"{number}.pcap", sorted(frames))


def tables(out):
    return {name: sorted(map(repr, pq.read_table(out / name).to_pylist()))
            for name in os.listdir(out) if (out / name).is_dir()}  # fmt: skip


def test_captures_of_the_same_time_may_be_given_in_any_order(spark, tmp_path):
    from mqtt_audit import run

    found = []
    for order in itertools.islice(itertools.permutations(taps(tmp_path)), 0, None, 5):
        run.build(spark, order, tmp_path / "out")
        found.append(tables(tmp_path / "out"))
    assert len(found[0]["connections"]) == 16 and found[0]["flows"]
    for other in found[1:]:
        for name, rows in other.items():
            assert rows == found[0][name], name


def test_a_copy_under_another_name_is_refused(spark, tmp_path):
    """OUT stays as it is. Two captures without a frame are the same, and no copies."""
    from mqtt_audit import run

    first, other, *_ = taps(tmp_path)
    copy = tmp_path / "copy.pcap"
    copy.write_bytes(first.read_bytes())
    none = [kit.pcap(tmp_path / f"none{k}.pcap", []) for k in range(2)]
    with pytest.raises(run.Refused, match=r"copy.pcap.*copy of|copy of .*copy.pcap"):
        run.build(spark, [first, other, copy, *none], tmp_path / "out")
    assert not os.listdir(tmp_path / "out")
    run.build(spark, [first, other, *none], tmp_path / "out")
    shutil.copy(first, tmp_path / "changed.pcap")
    with open(tmp_path / "changed.pcap", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    run.build(spark, [first, tmp_path / "changed.pcap"], tmp_path / "out")


def test_a_thousand_captures(spark, tmp_path, monkeypatch):
    """Many of them have the same size, but none is compared with another; and their rows are
    written together, for a few rows cost as much as many."""
    from mqtt_audit import run

    compared = []
    monkeypatch.setattr(run.filecmp, "cmp", lambda *paths, **_: compared.append(paths))

    paths = []
    for k in range(1000):
        talk = kit.Talk((f"10.1.{k >> 8}.{k & 255}", 40_000), start=kit.START + k * 10**7).open()
        talk.client(kit.connect(f"c{k}")).broker(kit.connack()).client(kit.DISCONNECT).close()
        paths.append(kit.pcap(tmp_path / f"{k}.pcap", talk.wrapped()))
    run.build(spark, paths, tmp_path / "out")
    packets = pq.read_table(tmp_path / "out" / "packets")
    assert packets.num_rows == 3000 and len(packets["file"].unique()) == 1000
    assert not compared
    groups = [pq.read_metadata(p).num_row_groups for p in (tmp_path / "out/packets").iterdir()]
    assert sum(groups) == len(groups)
    assert pq.read_table(tmp_path / "out" / "devices").num_rows == 1000


def test_a_capture_without_frames_is_told(tmp_path):
    from mqtt_audit.following import Following

    path = kit.pcap(tmp_path / "none.pcap", [])
    (told,) = kit.read([path], tmp_path)["problems"]
    assert (told["problem"], told["file"]) == ("empty", str(path))
    tables = {}
    following = Following(lambda name, rows: tables.setdefault(name, []).extend(rows.to_pylist()))
    following.capture("none", [path.read_bytes()])
    following.finish()
    assert [p["problem"] for p in tables["problems"]] == ["empty"]
