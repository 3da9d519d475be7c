"""A PUBLISH sent again without DUP on the next connection: told when it is sure, and only then.

Knows: audit_kit, the tables. Must not know: how exchanges are joined.
"""

import audit_kit as kit
import mqtt5 as five
import pytest
from devices import DUP, PUB, PUB2, PUBACK, Device, as_lines, rows, told


def _pairs():
    """{name: arguments of pair()}."""
    told = "MQTT-3.3.1-1"
    return {
        "again": {"blamed": told},
        "broker": {"way": 1, "blamed": told},
        "3.1": {"level": 3, "present": 0, "blamed": "MQTT 3.1, 2.1"},
        "draft": {"level": 2, "present": 0, "blamed": "MQTT 3.1, 2.1"},
        "dup": {"again": DUP},
        "no session": {"present": 0},
        "clean": {"present": 0, "flags": 2},
        "acknowledged": {"answer": PUBACK},
        "lost": {"lost": PUBACK},
        "lost by broker": {"lost": PUBACK, "way": 1},
        "received": {"first": PUB2, "again": PUB2, "answer": kit.ack(5, 7)},
        "other": {"again": kit.publish("a", b"y", 1, 7)},
    }


def _hole(d):
    talk = d.open(0).client(PUB)
    talk.seq[1] += len(PUBACK)
    d.over(talk.broker(kit.publish("b")))
    d.over(d.open().client(PUB))


def _hole_after(d):
    """The answer may be what is missing of the next connection."""
    d.over(d.open(0).client(PUB))
    talk = d.open()
    talk.seq[1] += len(PUBACK)
    d.over(talk.client(PUB))


def _between(d, named):
    d.over(d.open(0).client(PUB))
    d.over(d.open(named=named))
    d.over(d.open().client(PUB))


def _thrice(d):
    d.over(d.open(0).client(PUB))
    for _ in range(2):
        talk = d.open().client(PUB)
        d.blame(talk)
        d.over(talk)


MORE = {
    "hole": _hole, "hole after": _hole_after, "thrice": _thrice,
    "between": lambda d: _between(d, True), "between, unnamed": lambda d: _between(d, False),
}  # fmt: skip


@pytest.fixture(scope="module")
def audited(spark, tmp_path_factory):
    """(folder of the tables, what is expected: {(client, statement, sender, file, frame)})."""
    from mqtt_audit import run

    folder, now, devices = tmp_path_factory.mktemp("again"), kit.START, []
    for name in (*_pairs(), *MORE):
        devices.append(Device(name, now))
        if name in MORE:
            MORE[name](devices[-1])
        else:
            devices[-1].pair(**_pairs()[name])
        now = devices[-1].now + 10**9
    # Two connections in two files: the first one's end is in the capture, or it is not.
    ended, left = Device("ended", now), Device("left", now)
    for device in (ended, left):
        device.over(device.open(0).client(PUB), close=device is ended)
    first = [f for d in (*devices, ended, left) for t in d.talks for f in t.frames]
    for device in (ended, left):
        device.now = max(ended.now, left.now) + 10**9
        talk = device.open().client(PUB)
        if device is ended:
            device.blame(talk)
        device.over(talk)
    second = [f for d in (ended, left) for f in d.talks[1].frames]
    paths, place = [], {}
    for k, frames in enumerate((first, second)):
        frames.sort(key=lambda f: f[0])
        place |= {f: (f"{k}.pcap", n) for n, f in enumerate(frames, 1)}
        paths.append(kit.pcap(folder / f"{k}.pcap", [(t, kit.ethernet(p)) for t, p in frames]))
    run.build(spark, paths, folder / "out")
    wanted = {(d.name, statement, sender, *place[at], place[syn][1])
              for d in (*devices, ended, left) for syn, at, statement, sender in d.accused}
    return folder / "out", wanted


def test_the_right_ones_are_told_at_the_right_frame(audited):
    folder, wanted = audited
    found = rows(folder, "violations")
    got = [(v["client_id"], v["statement"], v["sender"], v["file"].rpartition("/")[2], v["frame"],
            v["connection"] & 0xFFFFFFFF) for v in found]  # fmt: skip
    assert sorted(got) == sorted(wanted) and len(wanted) == 7
    packets = {(p["file"], p["frame"]): p for p in rows(folder, "packets")}
    for v in found:
        p = packets[v["file"], v["frame"]]
        assert all(v[n] == p[n] for n in ("time", "connection", "sender", "type")), v
        assert v["type"] == "PUBLISH" and v["broker"] == "10.0.0.1:1883"
        ident = 7 << 8 if v["client_id"] == "draft" else 7  # little-endian there
        assert v["what"] == f"PUBLISH with packet id {ident} sent again without DUP"
        assert not v["keep_alive"]


def test_the_summaries_and_the_report_count_them(audited):
    folder, wanted = audited
    devices = {d["client_id"]: d["protocol_violations"] for d in rows(folder, "devices")}
    for name in devices:
        assert devices[name] == sum(w[0] == name for w in wanted), name
    assert rows(folder, "brokers")[0]["protocol_violations"] == len(wanted)
    assert "MQTT 3.1, 2.1" in (folder / "report.html").read_text()
    joined = {f["client_id"]: f for f in rows(folder, "flows")}
    assert joined["again"]["without_dup"] == 1 and joined["again"]["connections"] == 2


def test_lines_of_json_tell_the_same(audited):
    folder, wanted = audited
    assert told(as_lines(folder)) == told(rows(folder, "violations"))
    assert {v["protocol"] for v in rows(folder, "violations")} == {"3.1.1", "3.1", "MQIpdp"}


@pytest.mark.parametrize("expiry, present, told", [(100, 1, 1), (100, 0, 0), (None, 0, 0)])
def test_a_session_of_mqtt_5_that_began_clean_is_kept_by_its_expiry_interval(
    expiry, present, told, tmp_path
):
    keep = [five.prop(0x11, five.number(4, expiry))] if expiry else []
    frames, now = [], kit.START
    for k in range(2):
        talk = kit.Talk((kit.CLIENT[0], 40_000 + k), start=now).open()
        talk.client(five.connect(*keep, flags=2 * (not k))).broker(
            five.connack(present=present * k))  # fmt: skip
        talk.client(five.publish("a", qos=1, ident=7))
        if k:
            talk.broker(five.ack(4, 7))
        frames += talk.close().wrapped()
        now = talk.now + 10**9
    kit.pcap(tmp_path / "t.pcap", frames)
    assert [v["statement"] for v in as_lines(tmp_path / "out")] == ["MQTT-3.3.1-1"] * told
