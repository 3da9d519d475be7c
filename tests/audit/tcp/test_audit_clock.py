"""An hour without a frame: TCP's time stamps tell whether it was one, or a step of the clock.

Knows: the kit. Must not know: the code under test except by its tables and lines.
"""

import audit_kit as kit
import pytest
from devices import as_lines, told

HOUR = 3600
PUB = kit.publish("a", b"x")


def running(ns):
    """The clock of an end, which counts milliseconds."""
    return ns // 1_000_000 + 0xFFFF_F000


def stepped(ns):
    """The same if the capture's clock was put forward by an hour in every pause of that length."""
    return running(ns - (ns - kit.START) // (HOUR * 10**9) * HOUR * 10**9)


def coarse(ns):
    """The clock of an end that counts in steps of 10 ms, so that nobody can tell."""
    return ns // 10_000_000


def begun(keep_alive, stamps):
    made = kit.Talk()
    made.stamps = stamps
    return made.open().client(kit.connect(keep_alive=keep_alive)).broker(kit.connack())


def ended(made):
    return made.segment(0).client(kit.DISCONNECT).close()


def ping(keep_alive, stamps):
    """A PINGREQ that has no answer, and a PUBLISH of the broker an hour later."""
    made = begun(keep_alive, stamps).client(kit.PINGREQ).segment(1).wait(HOUR)
    return ended(made.broker(PUB))


def silent(keep_alive, stamps):
    """A client that says nothing for an hour, and stays connected."""
    made = begun(keep_alive, stamps).segment(0).wait(HOUR).client(PUB).segment(1)
    return ended(made)


NONE, SILENT = [], ["MQTT-3.1.2-23", "MQTT-3.1.2-24"]
UNANSWERED = ["MQTT-3.12.4-1"]


@pytest.mark.parametrize("said,keep_alive,stamps,expected", [
    (ping, 0, None, UNANSWERED), (ping, 0, running, UNANSWERED), (ping, 0, stepped, NONE),
    (silent, 60, None, NONE), (silent, 60, running, SILENT), (silent, 60, stepped, NONE),
    (silent, 60, coarse, NONE), (silent, 0, running, NONE),
    (silent, 1000, stepped, NONE), (silent, 1000, None, SILENT)])  # fmt: skip
def test_an_hour_without_a_frame(said, keep_alive, stamps, expected, tmp_path):
    """The tables say the same as an audit that gets the capture in pieces."""
    from mqtt_audit.following import Following

    path = kit.pcap(tmp_path / "t.pcap", said(keep_alive, stamps).wrapped())
    found = [v["statement"] for v in kit.read([path], tmp_path)["violations"]]
    assert sorted(found) == expected
    raw, told = path.read_bytes(), {"violations": []}
    following = Following(lambda table, rows: told.setdefault(table, []).extend(rows.to_pylist()))
    following.capture("t", [raw[k : k + 50] for k in range(0, len(raw), 50)])
    following.finish()
    assert sorted(v["statement"] for v in told["violations"]) == expected


def pings(step, stamps, others=()):
    """A client that pings in time, whose capture has its clock put forward before the fourth; and
    others beside it. stamps: whether it has time stamps."""
    made, off = kit.Talk(), [0]
    made.stamps = stamps and (lambda ns: running(ns - off[0]))
    made.open().client(kit.connect(keep_alive=5)).broker(kit.connack()).segment(0, flags=kit.ACK)
    for k in range(6):
        made.wait(4.8 + step * (k == 3))
        off[0] += int(step * (k == 3) * 10**9)
        made.client(kit.PINGREQ).broker(kit.PINGRESP).segment(0, flags=kit.ACK)
    return made.client(kit.DISCONNECT).close()


@pytest.mark.parametrize("step", [0.8, 1, 9, 30, 99])
def test_a_step_of_the_clock_is_no_silence_if_time_stamps_deny_it(step, tmp_path):
    """Those of the client itself, or of other connections; without any nobody can tell a step
    from a silence."""
    own = pings(step, True).wrapped()
    bare = [(t, f.replace(b"\x0a\0\0\2", b"\x0a\0\0\3")) for t, f in pings(
        step, False).wrapped()]  # fmt: skip
    for frames, times in ((own, 0), (own + bare, 0), (bare, 1)):
        path = kit.pcap(tmp_path / "t.pcap", sorted(frames, key=lambda f: f[0]))
        found = kit.read([path], tmp_path)["violations"]
        assert min(1, len(found)) == times * (step < 99), found


def test_a_client_that_slept_is_silent_if_the_broker_confirms_the_time(tmp_path):
    """The time stamps of an end that sleeps stand still, those of the other one do not."""
    made = begun(5, running).segment(0).wait(30)
    made.client(PUB, stamp=running(made.now - 29 * 10**9)).segment(1).segment(0)
    path = kit.pcap(tmp_path / "t.pcap", ended(made).wrapped())
    found = [v["statement"] for v in kit.read([path], tmp_path)["violations"]]
    assert sorted(found) == SILENT


@pytest.mark.parametrize("ahead,pause,told", [
    (0, 3.9, 0), (1.5, 3.9, 0), (0.01, 3.9, 0), (0, 5, 5), (0.01, 5, 4), (1.5, 5, 0)])  # fmt: skip
def test_two_clocks_in_one_capture_make_nobody_silent(ahead, pause, told, tmp_path):
    """Every second PINGREQ went another way, past a computer whose clock is ahead (mergecap): it
    is there long after its acknowledgement. What comes behind FIN is never judged."""
    made = kit.Talk().open().client(kit.connect(keep_alive=4)).broker(kit.connack())
    for _ in range(5):
        made.segment(0, flags=kit.ACK).wait(pause).client(kit.PINGREQ).broker(kit.PINGRESP)
    frames, count = [], 0
    for t, frame in made.close().wrapped():
        ping = frame[54:56] == kit.PINGREQ
        count += ping
        frames.append((t + int(ahead * 10**9) * (ping and count % 2), frame))
    path = kit.pcap(tmp_path / "t.pcap", sorted(frames, key=lambda f: f[0]))
    found = kit.read([path], tmp_path)["violations"]
    assert [v["sender"] for v in found] == ["client"] * told


def acknowledged(slow, step, stamps):
    """110 messages, two of which are acknowledged after `slow` seconds; the clock of the capture
    is put forward by `step` seconds meanwhile."""
    off, made = [0], kit.Talk()
    made.stamps = stamps and (lambda ns: running(ns - off[0]))
    made.open().client(kit.connect(keep_alive=60)).broker(kit.connack())
    for ident in range(1, 111):
        made.client(kit.publish("a", qos=1, ident=ident)).segment(1, flags=kit.ACK)
        if ident in (40, 80):
            made.wait(slow + step)
            off[0] += step * 10**9
        made.broker(kit.ack(4, ident)).segment(0, flags=kit.ACK)
    return ended(made)


@pytest.mark.parametrize("slow,step,stamps,told", [
    (0, 2, True, False), (0, HOUR, True, False), (0, HOUR, False, False), (2, 0, True, True),
    (2, 0, False, True)])  # fmt: skip
def test_a_step_of_the_clock_makes_no_acknowledgement_slow(slow, step, stamps, told, tmp_path):
    frames = acknowledged(slow, step, stamps).wrapped()
    found = kit.findings(frames, tmp_path)
    assert [f["finding"] for f in found] == ["slow acknowledgements"] * told
    tables = kit.read([tmp_path / "t.pcap"], tmp_path)
    assert [f["latency_ms"] for f in tables["flows"]].count(None) == 2 * (step > 0)
    assert [p["problem"] for p in tables["problems"]] == ["clock"] * (step > 0 and stamps)
    assert {f["outcome"] for f in tables["flows"]} == {"acknowledged"}


def test_a_step_of_the_clock_is_no_slow_handshake_and_makes_no_burst(tmp_path):
    """Five clients that connect while the clock is put forward; one of them sends 110 messages
    within a second, on a connection that lasts half a minute."""
    frames, off = [], HOUR * 10**9
    for k in range(5):
        made = kit.Talk(("10.0.0.2", 40_000 + k), start=kit.START + k * 1000)
        made.stamps = lambda ns: running(ns - (ns > kit.START + off) * off)
        made.open().wait(HOUR).client(kit.connect(f"dev{k}")).broker(kit.connack())
        for _ in range(110 * (k == 0)):
            made.client(PUB)
        frames += ended(made.wait(30)).wrapped()
    assert kit.findings(sorted(frames), tmp_path) == []
    (told,) = kit.read([tmp_path / "t.pcap"], tmp_path)["problems"]
    assert told["problem"] == "clock"


@pytest.mark.parametrize("back", [0.05, 2, 3600])
def test_a_clock_set_back_before_the_connect_leaves_the_handshake_without_a_time(back, tmp_path):
    made = kit.Talk().open().wait(-back).client(kit.connect()).broker(kit.connack()).close()
    (one,) = kit.read([kit.pcap(tmp_path / "t", made.wrapped())], tmp_path)["connections"]
    assert one["handshake_ms"] is None and one["connack_ms"] > 0


@pytest.mark.parametrize("asked", [b"", b"\2\4\5\xb4", b"\2\4\5\xb4\1\3\3\6"])
@pytest.mark.parametrize("at", [1, 2, None])
@pytest.mark.parametrize("step", [0.4, 60])
def test_a_clock_put_forward_within_a_handshake_gives_it_no_time(step, at, asked, tmp_path):
    """The maximum segment size stands before the time stamp of a SYN, in lwIP, and in macOS the
    window's scale, too."""
    made, off = kit.Talk(), [0]
    made.stamps = lambda ns: running(ns - off[0])
    for k, flags in enumerate((kit.SYN, kit.SYN | kit.ACK, kit.ACK)):
        made.wait(step * (k == at))
        off[0] += int(step * (k == at) * 10**9)
        made.segment(k % 2, flags=flags, asked=asked * (k < 2))
    made.client(kit.connect()).broker(kit.connack()).close()
    tables = kit.read([kit.pcap(tmp_path / "t", made.wrapped())], tmp_path)
    assert tables["connections"][0]["handshake_ms"] == (None if at else 3)
    assert [p["problem"] for p in tables["problems"]] == ["clock"] * (at is not None)


@pytest.mark.parametrize("why", ["late", "belated"])
def test_a_step_of_the_clock_elsewhere_lets_no_silence_be_told(why):
    """Of a connection whose times do not fit together."""
    import numpy as np
    from mqtt_audit.compiled.layout import CONN, LATE_FAR, SECOND, VIOLATION
    from mqtt_audit.rules import clock

    conns, rows = np.zeros(1, CONN), np.zeros(1, VIOLATION)
    rows["code"], rows["time"], rows["value"] = 47, 10 * SECOND, 3000
    gateways = clock.Gateways()
    for steps in (clock.NONE, np.array([[90 * SECOND, 80 * SECOND, 1, 0]])):
        conns[why] = 0
        assert clock.believed(rows, conns, steps, gateways).all()
        conns[why] = LATE_FAR if why == "late" else 1
        assert not clock.believed(rows, conns, steps, gateways).any()


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("late", [0.05, 0.2, 1.5])
def test_one_direction_that_is_late_in_a_file_gives_no_latency_below_0(late, resumed, tmp_path):
    """As a capture has it that was merged of two places, with clocks apart."""
    made = kit.Talk().open().client(kit.connect(flags=0 if resumed else 2))
    made.broker(kit.connack(0, resumed))
    for ident in range(1, 6):
        made.client(kit.publish("a/b", b"x", 1, ident)).broker(kit.ack(4, ident))
    frames = sorted((t + int(late * 1e9) if f[26:30] == b"\x0a\0\0\2" else t, f)
                    for t, f in made.wrapped())  # fmt: skip
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert len(found["flows"]) == 5 and found["violations"] == []
    assert not [f for f in found["flows"] if (f["latency_ms"] or 0) < 0]
    told = [f["latency_ms"] for f in found["flows"] if f["done"] and f["done"] < f["first"]]
    assert told == [None] * len(told) and len(told) == 5


@pytest.mark.parametrize("elsewhere", [(5,), (-101, 120), (-3600, 3600), (-300, 3, 130)])
def test_what_another_capture_lacks_hides_no_silence(elsewhere, tmp_path):
    """Of another gateway: when that had no frame, and what its clock did, tells nothing here."""
    made = kit.Talk().open().client(kit.connect(keep_alive=10)).broker(kit.connack()).wait(20)
    made.client(kit.PINGREQ).broker(kit.PINGRESP).client(kit.PINGREQ).segment(1, flags=kit.ACK)
    for _ in range(5):
        made.wait(6).client(kit.publish("a")).segment(1, flags=kit.ACK)
    paths = [kit.pcap(tmp_path / "one.pcap", made.close().wrapped())]
    alone = told(kit.read(paths, tmp_path / "alone")["violations"])
    assert {v[2] for v in alone} == {"MQTT-3.1.2-23", "MQTT-3.12.4-1"}
    frames = [f for at in elsewhere for f in kit.Talk(
        ("10.9.9.9", 1), ("10.9.9.1", 1883), start=kit.START + at * 10**9).open().client(
        kit.connect("other")).broker(kit.connack()).client(kit.DISCONNECT).close().wrapped()]
    paths.append(kit.pcap(tmp_path / "other.pcap", frames))
    assert told(kit.read(paths, tmp_path / "both")["violations"]) == alone
    assert told(as_lines(tmp_path / "both")) == alone


def in_two(frames, at, tmp_path):
    """The captures of one gateway, the second of which begins with the frame at that index."""
    return [kit.pcap(tmp_path / "one.pcap", frames[:at]),
            kit.pcap(tmp_path / "two.pcap", frames[at:])]  # fmt: skip


def both(paths, tmp_path):
    """The statements that are told with tables, and those in lines; the problems of clocks."""
    found = kit.read(paths, tmp_path / "t")
    tables, lines = (sorted(v["statement"] for v in rows)
                     for rows in (found["violations"], as_lines(tmp_path / "t")))  # fmt: skip
    return tables, lines, [p["what"] for p in found["problems"] if p["problem"] == "clock"]


def pinging(clock, pause, put=0):
    """A client that sends PINGREQ each five seconds, but for one pause, behind which the clock of
    the capture is `put` seconds ahead; where that ends."""
    def stamp(made, behind=0):
        return clock and clock(made.now - behind * 10**9)

    made = kit.Talk().open()
    made.client(kit.connect(keep_alive=10), stamp=stamp(made)).broker(
        kit.connack(), stamp=stamp(made))  # fmt: skip
    for turn in range(8):
        made.wait(5 if turn != 4 else pause + put)
        behind = put if turn >= 4 else 0
        if turn == 4:
            at = len(made.frames)
        made.client(kit.PINGREQ, stamp=stamp(made, behind))
        made.broker(kit.PINGRESP, stamp=stamp(made, behind))
    return made.wrapped(), at


@pytest.mark.parametrize("put", [30, 300])
def test_a_clock_put_forward_between_two_captures_makes_no_silence(put, tmp_path):
    tables, lines, problems = both(in_two(*pinging(running, 5, put), tmp_path), tmp_path)
    assert tables == lines == []
    assert len(problems) == 1 and "was put forward between" in problems[0]


@pytest.mark.parametrize("pause", [20, 150])
def test_a_silence_over_the_seam_of_two_captures_is_told(pause, tmp_path):
    frames, at = pinging(running, pause)
    (tmp_path / "whole").mkdir()
    whole = kit.read([kit.pcap(tmp_path / "whole" / "t.pcap", frames)], tmp_path / "t")
    whole = whole["violations"]
    tables, lines, problems = both(in_two(frames, at, tmp_path), tmp_path)
    assert tables == lines == sorted(v["statement"] for v in whole) and problems == []
    assert "MQTT-3.1.2-23" in tables


def test_the_clock_of_a_capture_between_two_of_another_gateway_hides_no_silence(tmp_path):
    """It begins behind the first piece and before the second one, and has a long pause."""
    frames, at = pinging(running, 40)
    paths = in_two(frames, at - 4, tmp_path)
    alone = both(paths, tmp_path)
    assert alone[0] == alone[1] == ["MQTT-3.1.2-23", "MQTT-3.1.2-24"]
    other = [f for late in (5, 205) for f in kit.Talk(
        ("10.9.9.9", late), ("10.9.9.1", 1883), start=kit.START + late * 10**9).open().client(
        kit.connect("other")).broker(kit.connack()).client(kit.DISCONNECT).close().wrapped()]
    paths.append(kit.pcap(tmp_path / "other.pcap", other))
    assert both(paths, tmp_path) == alone


@pytest.mark.parametrize("clock", [running, None])
def test_a_clock_put_forward_at_a_seam_that_another_gateway_covers(clock, tmp_path):
    """By more than a hundred seconds, which needs no time stamps to be doubted."""
    frames, at = pinging(clock, 5, 150)
    paths = in_two(frames, at, tmp_path)
    made = kit.Talk(("10.9.9.9", 1), ("10.9.9.1", 1883)).open().client(kit.connect("other"))
    made.broker(kit.connack())
    for _ in range(80):
        made.wait(3).client(kit.publish("a"))
    paths.append(kit.pcap(tmp_path / "other.pcap", made.close().wrapped()))
    tables, lines, _ = both(paths, tmp_path)
    assert tables == lines == []


def test_a_step_in_a_middle_capture_without_a_frame_of_a_calm_client(tmp_path):
    """Another client of the same gateway shows that it is one."""
    calm = kit.Talk().open().client(kit.connect("calm")).broker(kit.connack()).wait(10)
    calm.client(kit.PINGREQ).broker(kit.PINGRESP).wait(50).client(kit.PINGREQ).broker(kit.PINGRESP)
    busy = kit.Talk(("10.0.0.3", 7))
    busy.stamps = running
    busy.open().client(kit.connect("busy")).broker(kit.connack())
    for _ in range(70):
        busy.wait(1).client(kit.publish("a"))
    frames = sorted(calm.close().wrapped() + busy.close().wrapped())
    step = kit.START + 35 * 10**9
    frames = [(time + 50 * 10**9 * (time > step), raw) for time, raw in frames]
    cuts = [kit.START + s * 10**9 for s in (0, 20, 110, 999)]
    paths = [kit.pcap(tmp_path / f"{k}.pcap", [f for f in frames if low <= f[0] < high])
             for k, (low, high) in enumerate(zip(cuts, cuts[1:]))]  # fmt: skip
    tables, lines, _ = both(paths, tmp_path)
    assert tables == lines == []
