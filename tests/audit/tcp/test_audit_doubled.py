"""A capture that has each frame twice, as of two taps, with any time between the two: nobody is
accused by that, and a link that loses segments is told all the same.

Knows: audit_kit, audit_traffic. Must not know: how copies are recognised.
"""

import random

import audit_kit as kit
import audit_traffic as traffic
import pytest

#: Seconds by which the second frame comes later; of two taps their clocks may be apart.
APART = [0, 1e-5, 3e-4, 5e-3, 0.05, 0.3, 0.6, 1.5, 2, 47, 3600]
#: What tells a frame from another one of the same bytes of TCP.
TELLS = ["identification", "stamps", "stamps of IPv6", "nothing", "nothing in IPv6"]
SIX = (("2001:db8::2", 40_000), ("2001:db8::1", 1883))


class Line(kit.Talk):
    """A conversation in which TCP acknowledges, and may lose what the capture has. Each frame has
    what `tells`."""

    def __init__(self, tells, choice, **more):
        ends = SIX if "IPv6" in tells else (kit.CLIENT, kit.BROKER)
        super().__init__(more.pop("client", ends[0]), ends[1], **more)
        self.tells, self.choice, self.number = tells, choice, [choice.randrange(1 << 16), 9]
        if "stamps" in tells:
            self.stamps = lambda now: now // 10**6

    def segment(self, way, payload=b"", flags=kit.ACK | kit.PSH, seq=None, **more):
        super().segment(way, payload, flags, seq, **more)
        time, frame = self.frames[-1]
        if frame[0] >> 4 == 4:
            self.number[way] += 1
            own = self.number[way] & 0xFFFF if self.tells == "identification" else 0
            own = self.choice.randrange(1, 1 << 16) if "random" in self.tells else own
            frame = kit.identified(frame, own)
        self.frames[-1] = time, kit.summed(frame)
        return self

    def said(self, way, payload, lost=False):
        """Bytes and TCP's acknowledgement of them; lost: only when they come once more."""
        self.wait(self.choice.uniform(0.0005, 0.03)).segment(way, payload)
        if lost:
            self.wait(0.3).segment(way, payload, seq=self.seq[way] - len(payload))
        return self.wait(0.0004).segment(1 - way, flags=kit.ACK)

    def met(self, quality, number, every=0, end=True):
        """CONNECT and so many messages, of which one in `every` is lost at first; the broker
        sends some, too, unless the quality is None."""
        self.open().said(0, kit.connect(f"dev{self.ends[0][1]}", 10)).said(1, kit.connack())
        for k in range(1, number + 1):
            lost = every and k % every == 0
            ident = k if quality else None
            self.said(0, kit.publish("a", b"%d" % k, quality or 0, ident), lost)
            if quality:
                self.said(1, kit.ack(4, k))
            elif k % 3 == 0 and quality is not None:
                self.said(1, kit.publish("b", b"%d" % k))
        return self.close() if end else self


def twice(frames, apart, times=2, tags=()):
    """Each frame so many times, one `apart` seconds after the other, in VLANs."""
    made = [(time + int(k * apart * 1e9), kit.ethernet(frame, tags[k] if tags else ()))
            for k in range(times) for time, frame in frames]  # fmt: skip
    return sorted(made, key=lambda f: f[0])


def seen(frames, folder, **more):
    """(findings, tables) of a capture."""
    told = kit.findings(frames, folder)
    return told, kit.read([folder / "t.pcap"], folder, **more)


def kinds(found):
    return {p["problem"] for p in found["problems"]}


def likely(tells, apart):
    """What is said of a capture: that frames come twice; that two clocks differ, if the frames
    come so late."""
    return {"doubled", "clock"} if apart > 0.25 else {"doubled"}


def told_of(found):
    return [(v["statement"], v["sender"], v["what"]) for v in found["violations"]]


@pytest.mark.parametrize("tells", TELLS)
@pytest.mark.parametrize("quality", [1, 0])
def test_what_a_capture_has_twice_was_not_sent_twice(tells, quality, tmp_path):
    """Whatever lies between the two, and whether the connection is seen to end."""
    choice = random.Random(tells + str(quality))
    for apart in APART:
        for end in (True, False):
            talk = Line(tells, choice).met(quality, 120, end=end)
            once = len(talk.frames)
            for times in (2, 3) if apart in (3e-4, 2) else (2,):
                told, found = seen(twice(talk.frames, apart, times), tmp_path)
                assert told == [] and told_of(found) == [], (apart, times)
                (conn,) = found["connections"]
                assert len(found["packets"]) == 2 + 120 * 2 - (0 if quality else 80)
                again = conn["client_resent"] + conn["broker_resent"]
                assert again <= once // 50, (apart, times, again)
                sent = conn["client_segments"] + conn["broker_segments"]
                assert sent <= 1.1 * once, (apart, times, sent)
                assert kinds(found) == likely(tells, apart), (apart, times)


@pytest.mark.parametrize("tells", TELLS)
def test_a_second_tap_that_begins_later_accuses_nobody(tells, tmp_path):
    """The capture has only the rest of the connection twice."""
    choice = random.Random(tells)
    for apart in APART[1:]:
        talk = Line(tells, choice).met(choice.randrange(2), 200)
        since = len(talk.frames) * choice.randrange(2, 9) // 10
        frames = talk.frames
        both = sorted(twice(frames, 0, 1) + [
            (t + int(apart * 1e9), f) for t, f in twice(frames[since:], 0, 1)], key=lambda f: f[0])
        told, found = seen(both, tmp_path)
        assert told == [] and told_of(found) == [], (apart, since)


@pytest.mark.parametrize("tells", TELLS)
def test_a_link_that_loses_segments_is_told(tells, tmp_path):
    """Also by a capture that has each frame twice, if something tells the two apart."""
    choice = random.Random(tells)
    for apart in [None, *APART]:
        talk = Line(tells, choice).met(choice.randrange(2), 150, every=7)
        frames = twice(talk.frames, 0, 1) if apart is None else twice(talk.frames, apart)
        told, found = seen(frames, tmp_path)
        if apart is None or "nothing" not in tells:
            assert [f["finding"] for f in told] == ["lossy link"], apart
            (conn,) = found["connections"]
            assert abs(conn["client_resent"] - 21) <= 2, apart
            assert conn["broker_resent"] <= 1, apart
        if apart is not None:
            # Where nothing tells, what was sent again late may be a copy that comes so late.
            unsure = {"clock"} if "nothing" in tells else set()
            assert kinds(found) | unsure == likely(tells, apart) | unsure, apart


def test_correct_traffic_doubled_is_correct(tmp_path):
    """Made-up traffic of all versions, in pieces and together."""
    for seed in range(6):
        choice = random.Random(seed)
        frames = traffic.sound(choice)
        told, found = seen(frames, tmp_path)
        packets = len(found["packets"])
        for apart in choice.sample(APART, 5):
            both = sorted(frames + [(t + int(apart * 1e9), f) for t, f in frames],
                          key=lambda f: f[0])
            again, found = seen(both, tmp_path)
            assert again == told == [] and told_of(found) == [], (seed, apart)
            assert len(found["packets"]) == packets, (seed, apart)


@pytest.mark.parametrize("tells", ["identification", "random identification"])
def test_many_busy_connections_between_a_frame_and_its_copy(tells, tmp_path):
    """Thousands of other frames lie between the two, and the acknowledgements of who only sends
    never change. Random identifications tell a copy by the latest frames only, ones that count
    at any time."""
    choice = random.Random(tells)
    for apart in (0.3, 1.5, 600) if tells == "identification" else (0.3,):
        frames = []
        for k in range(40):
            start = kit.START + choice.randrange(10**9)
            client = f"10.0.1.{k + 1}", 20_000 + k
            frames += Line(tells, choice, client=client, start=start).met(None, 80).frames
        told, found = seen(twice(frames, apart), tmp_path)
        assert told == [] and told_of(found) == [], apart
        assert len(found["packets"]) == 40 * (2 + 80)
        again = sum(c["client_resent"] + c["broker_resent"] for c in found["connections"])
        assert again < len(frames) // 500, (apart, again)


def test_a_lossy_link_among_many_connections_is_told(tmp_path):
    """The capture has each frame twice, with thousands of others between them."""
    choice = random.Random(3)
    for apart in (0.3, 1.5, 600):
        frames = []
        for k in range(40):
            start, every = kit.START + choice.randrange(10**9), 0 if k else 7
            client = f"10.0.1.{k + 1}", 20_000 + k
            talk = Line("identification", choice, client=client, start=start)
            frames += talk.met(None, 100, every=every).frames
        told, found = seen(twice(frames, apart), tmp_path)
        assert [f["finding"] for f in told] == ["lossy link"], apart
        (lossy,) = (c for c in found["connections"] if c["client_id"] == "dev20000")
        assert abs(lossy["client_resent"] - 14) <= 1, apart


TAGS = {"one VLAN": [(), [(0x8100, 7)]], "two": [(), [(0x8100, 7)], [(0x8100, 8)]],
        "other one": [[(0x8100, 7)], [(0x88A8, 2), (0x8100, 7)]]}  # fmt: skip


@pytest.mark.parametrize("tags", TAGS)
def test_what_comes_in_several_vlans_is_one_connection(tags, tmp_path):
    """A mirror port gives each frame once for each VLAN, some time apart."""
    choice, tags = random.Random(tags), TAGS[tags]
    for tells in TELLS:
        for apart in choice.sample(APART[:9], 3):
            talk = Line(tells, choice).met(1, 60)
            frames = twice(talk.frames, apart, len(tags), tags)
            told, found = seen(frames, tmp_path)
            assert told == [] and told_of(found) == [], (tells, apart)
            (conn,) = found["connections"]
            assert len(found["packets"]) == 122, (tells, apart)
            assert conn["client_resent"] + conn["broker_resent"] <= 8, (tells, apart)
            assert kinds(found) == likely(tells, apart), (tells, apart)


def test_a_busy_capture_of_two_vlans_has_each_connection_once(tmp_path):
    """The copies come seconds later, behind thousands of other frames."""
    choice = random.Random(5)
    for tells in ("identification", "random identification", "stamps"):
        frames = []
        for k in range(60):
            start = kit.START + choice.randrange(10**8)
            client, isn = (f"10.0.1.{k + 1}", 20_000 + k), (choice.randrange(1 << 31), 7 << k % 20)
            frames += Line(tells, choice, client=client, start=start, isn=isn).met(1, 60).frames
        both = twice(frames, 2.5, 2, [[(0x8100, 5)], [(0x8100, 6), (0x8100, 7)]])
        told, found = seen(both, tmp_path)
        assert told == [] and told_of(found) == [], tells
        assert len(found["connections"]) == 60, tells
        assert len(found["packets"]) == 60 * 122, tells


@pytest.mark.parametrize("tells", ["random identification", "stamps", "nothing"])
def test_a_vlan_that_shows_a_connection_again_behind_many_frames(tells, tmp_path):
    """So many that only what each side has sent first is still known."""
    talk = Line(tells, random.Random(2)).met(None, 40)
    tags = [[], [(0x8100, 5)], [(0x8100, 6), (0x8100, 7)]]
    start, end = talk.frames[0][0], talk.frames[-1][0] + 600_000_000
    other = kit.ethernet(kit.tcp_ip(("10.0.3.1", 9), ("10.0.3.2", 9), 0, 0, kit.ACK))
    many = [(start + k * (end - start) // 60_000,
             other[:38] + (1000 + k).to_bytes(4, "big") + other[42:]) for k in range(60_000)]
    frames = sorted(twice(talk.frames, 0.3, 3, tags) + many, key=lambda f: f[0])
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [c["client_packets"] for c in found["connections"]] == [41]
    assert told_of(found) == [] and kinds(found) <= {"doubled", "clock"}


def test_where_nothing_tells_whether_two_vlans_have_the_same_connection_it_is_said(tmp_path):
    """Their checksums differ, and there is no identification: both are counted, with a word on
    each pair of ports, which names one of its frames."""
    hosts = [(kit.CLIENT[0], port) for port in (40_000, 40_001)]
    talks = [Line("nothing", random.Random(7), client=client).met(1, 20) for client in hosts]
    frames = [(time + k * 5_000_000, kit.ethernet(f if not k else f[:36] + b"\x12\x34" + f[38:],
                                                 [(0x8100, 7)] * k))
              for talk in talks for time, f in talk.frames for k in (0, 1)]  # fmt: skip
    frames.sort(key=lambda f: f[0])
    told, found = seen(frames, tmp_path)
    assert told == [] and told_of(found) == [] and len(found["connections"]) == 4
    for (_, port), problem in zip(hosts, found["problems"], strict=True):
        assert problem["problem"] == "doubled" and "VLAN" in problem["what"]
        assert port.to_bytes(2, "big") in frames[problem["frame"] - 1][1][38:42]
        assert problem["count"] == 1 and "two ports of this frame" in problem["what"]


@pytest.mark.parametrize("tells", ["identification", "stamps", "nothing"])
@pytest.mark.parametrize("end", ["RST", "FIN"])
def test_an_end_of_which_only_the_second_frame_is_there_ends_no_longer_silence(
    end, tells, tmp_path
):
    """The client is silent for 0.7 s, with a keep alive of 2 s."""
    made = Line(tells, random.Random(1)).open()
    made.said(0, kit.connect("dev", 2)).said(1, kit.connack())
    made.said(0, kit.PINGREQ).said(1, kit.PINGRESP).wait(0.7)
    lost = len(made.frames)
    if end == "RST":
        made.segment(0, flags=kit.RST | kit.ACK)
    else:
        made.close()
    frames = twice(made.frames, 2)
    del frames[frames.index((made.frames[lost][0], kit.ethernet(made.frames[lost][1])))]
    _, found = seen(frames, tmp_path)
    (conn,) = found["connections"]
    assert found["violations"] == [] and len(found["packets"]) == 4
    assert conn["ended"] == f"{end} by client" and "silence" not in conn["why"]


@pytest.mark.parametrize("tells", ["identification", "stamps"])
@pytest.mark.parametrize("slow", [0, 1.3])
def test_acknowledgements_of_which_only_the_second_frame_is_there_are_not_slow(
    slow, tells, tmp_path
):
    """Three of 110 are acknowledged by frames that come two seconds later; others are slow."""
    made = Line(tells, random.Random(1)).open()
    made.said(0, kit.connect("dev", 60)).said(1, kit.connack())
    lost = []
    for ident in range(1, 111):
        made.said(0, kit.publish("a", b"%d" % ident, 1, ident)).wait(slow * (ident % 40 == 9))
        lost += [len(made.frames)] * (ident in (40, 70, 100))
        made.said(1, kit.ack(4, ident)).wait(3 * (ident in (40, 70, 100)))
    frames = twice(made.close().frames, 2)
    for k in lost:
        frames.remove((made.frames[k][0], kit.ethernet(made.frames[k][1])))
    told, found = seen(frames, tmp_path)
    assert [f["finding"] for f in told] == ["slow acknowledgements"] * (slow > 0)
    assert [f["latency_ms"] for f in found["flows"]].count(None) == 3
    assert kinds(found) == {"doubled", "clock", "order"} and told_of(found) == []


@pytest.mark.parametrize("tells", ["identification", "stamps", "nothing"])
@pytest.mark.parametrize("missing", ["both FIN", "PINGRESP"])
def test_of_a_capture_with_copies_that_come_late_no_silence_is_told(missing, tells, tmp_path):
    """The client pings in time, the broker answers at once, and the client leaves in time. The
    capture lacks the first frame of some, and the acknowledgement of it."""
    made = Line(tells, random.Random(1)).open()
    made.said(0, kit.connect("dev", 1)).said(1, kit.connack()).said(0, kit.PINGREQ)
    first = len(made.frames)
    made.said(1, kit.PINGRESP).wait(0.9).said(0, kit.PINGREQ).said(1, kit.PINGRESP).wait(0.7)
    fins = len(made.frames)
    made.close()
    lost = range(fins, fins + 3) if missing == "both FIN" else range(first, first + 2)
    frames = twice(made.frames, 2.5)
    for k in lost:
        frames.remove((made.frames[k][0], kit.ethernet(made.frames[k][1])))
    _, found = seen(frames, tmp_path)
    assert told_of(found) == []
    (conn,) = found["connections"]
    assert conn["longest_silence_s"] is None or conn["longest_silence_s"] < 1.1
    assert "silence" not in conn["why"]
