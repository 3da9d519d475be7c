"""Marks: the highest number below which nothing is missing, whatever the order of arrival."""

import json

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import EPOCH, NOON, clock, flat, senml, senml_text
from umqtt_pipeline import wire
from umqtt_pipeline.bridge.marks import RANGE_LIMIT, Mark, Marks

TOPIC = b"fleet/g/dev1/telemetry"


def feed(marks, told, now=0):
    """Hand (topic, payload) pairs over as the bridge does: as the bytes of packets."""
    marks.feed(b"".join(wire.publish_packet(t, p, 1, False, 7) for t, p in told), now=now)


def expected(seen, settled):
    upto = settled
    while upto + 1 in seen:
        upto += 1
    return upto


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 59)), max_size=80))
def test_against_a_plain_set(arrivals):
    mark, seen, settled = Mark(), set(), 0
    for sequence, back in arrivals:
        low = max(1, sequence - back)
        mark.add(sequence, low)
        seen.add(sequence)
        settled = max(settled, low - 1, expected(seen, settled))
        settled = expected(seen, settled)
        assert mark.upto == settled
        above = sorted(s for s in seen if s > settled)
        held = [n for a, b in zip(mark.starts, mark.ends) for n in range(a, b + 1)]
        assert held == above
        missing = {n for a, b in mark.missing(100) for n in range(a, b + 1)}
        assert missing == set(range(settled + 1, max(above, default=0))) - seen
        assert all(a <= b for a, b in mark.missing(100))


def test_missing_is_limited_and_ranges_are_bounded():
    mark = Mark()
    for sequence in range(2, 100, 2):
        mark.add(sequence, 1)
    assert len(mark.missing()) == 16 and mark.missing()[0] == [1, 1]
    for sequence in range(2, 4 * RANGE_LIMIT, 2):
        mark.add(sequence, 1)
    assert len(mark.starts) == RANGE_LIMIT


@pytest.mark.parametrize("fault", [
    flat(2, t=None), flat(2, t="warm"), flat(2), senml_text(2, [("t", "Cel", "warm")]),
    senml_text(2).replace(b'"v"', b'"nv"'), senml_text(2).replace(b'"v"', b'"vs"'),
    senml(2, [("t", "Cel", "warm")]), senml(2, [("t", "Cel", float("nan"))]),
])  # fmt: skip
def test_what_goes_to_quarantine_with_its_identity_has_arrived(fault):
    marks = Marks()
    feed(marks, [(TOPIC, payload) for payload in (flat(1, t=1), fault, flat(3, t=1))])
    assert json.loads(marks.ack((TOPIC, EPOCH))[1])["upto"] == 3


def test_the_ack_names_epoch_mark_and_gaps():
    marks = Marks()
    feed(marks, [(TOPIC, senml(n)) for n in (1, 2, 5, 6, 9)])
    topic, payload = marks.ack((TOPIC, EPOCH))
    assert topic == b"fleet/g/dev1/ack"
    assert json.loads(payload) == {"epoch": EPOCH.hex(), "upto": 2, "missing": [[3, 4], [7, 8]]}


def test_what_is_below_low_is_settled():
    marks = Marks()
    feed(marks, [(TOPIC, senml(10, low=8)), (TOPIC, senml(8, low=8))])
    assert json.loads(marks.ack((TOPIC, EPOCH))[1])["upto"] == 8
    feed(marks, [(TOPIC, flat(11, low=10, x=1))])
    assert json.loads(marks.ack((TOPIC, EPOCH))[1])["upto"] == 11


@pytest.mark.parametrize("reading", [
    senml(500, low=500), senml_text(500, low=500), flat(500, low=500, x=1),
    flat(500, low=500, x="20.5"), clock(500, 1_767_268_800, low=500),
])  # fmt: skip
def test_low_of_a_reading_moves_the_mark(reading):
    feed(marks := Marks(), [(TOPIC, senml(1)), (TOPIC, reading)])
    assert json.loads(marks.ack((TOPIC, EPOCH))[1])["upto"] == 500


SECOND = 1_000_000


def upto(marks, epoch=EPOCH):
    return json.loads(marks.ack((TOPIC, epoch))[1])["upto"]


def test_what_a_device_made_while_no_bridge_ran_moves_the_mark():
    """Weeks away: it held a thousand and has given up the rest."""
    feed(marks := Marks(), [(TOPIC, senml(n)) for n in range(1, 11)], now=NOON)
    later = NOON + 14 * 86_400 * SECOND
    last = 14 * 86_400
    feed(marks, [(TOPIC, senml(n, low=last - 999)) for n in (last - 999, last)], now=later)
    assert (upto(marks), marks.held_back) == (last - 999, 0)
    # A backlog in its order passes as fast as it comes, however long it is.
    feed(marks, [(TOPIC, senml(n, low=last)) for n in range(last + 1, last + 9000)], now=later)
    assert (upto(marks), marks.held_back) == (last + 8999, 0)
    feed(marks, [(TOPIC, senml(500_000, low=500_000, epoch=bytes(8)))], now=later)  # flashed anew
    assert (upto(marks, bytes(8)), marks.held_back) == (500_000, 0)


def test_a_device_is_heeded_again_when_the_clock_was_wrong():
    feed(marks := Marks(), [(TOPIC, senml(1))], now=NOON)
    ahead = 100_000
    for seconds in (-3600, 1, 50, 95):
        feed(marks, [(TOPIC, senml(ahead, low=ahead))], now=NOON + seconds * SECOND)
    assert (upto(marks), marks.held_back) == (1, 4)
    feed(marks, [(TOPIC, senml(ahead, low=ahead))], now=NOON + 96 * SECOND)
    assert (upto(marks), marks.held_back) == (ahead, 4)


def test_a_device_is_heeded_when_the_clock_was_years_ahead_for_a_moment():
    """Without that its mark would stand still for thirty years."""
    later = NOON + 30 * 365 * 86_400 * SECOND
    feed(marks := Marks(), [(TOPIC, senml(1))], now=later)
    feed(marks, [(TOPIC, senml(100_000, low=100_000))], now=NOON)
    assert (upto(marks), marks.held_back) == (100_000, 0)
    feed(marks, [(TOPIC, senml(200_000, low=200_000))], now=NOON + SECOND)  # by the right clock
    assert (upto(marks), marks.held_back) == (100_000, 1)


def test_low_on_a_topic_that_carries_no_readings_moves_no_mark():
    feed(marks := Marks(), [(b"plant/telemetry", senml(500, device="plant", low=500))])
    assert json.loads(marks.ack((b"plant/telemetry", EPOCH))[1])["upto"] == 0


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([senml(3), senml_text(3), flat(3, x=1)]), st.data())
def test_no_payload_stops_the_marks(payload, data):
    """What a fault makes of a good payload, and whatever CBOR can say with its tags."""
    at = data.draw(st.integers(0, len(payload)))
    more = data.draw(st.binary(max_size=12))
    odd = payload[:at] + more + payload[data.draw(st.integers(at, len(payload))) :]
    feed(marks := Marks(), [(TOPIC, odd), (TOPIC, senml(1))])
    assert (TOPIC, EPOCH) in marks.marks


@pytest.mark.parametrize("tag", [*range(40), 100, 256, 258, 260, 261, 1004, 43000, 55799])
@pytest.mark.parametrize("value", [
    b"\x00", b"\x1b" + b"\xff" * 8, b"\xfb\x7f\xf0" + bytes(6), b"\x61(", b"\x62\xc3\x28",
    b"\x41x", b"\x80", b"\x82\x00\x00", b"\x82\x1b" + b"\x7f" * 8 + b"\x01", b"\xa1\x80\x00",
    b"\xf6", b"\x5b" + b"\x7f" * 8, b"\x9b" + b"\x7f" * 8, b"\xa1\xa0\xa0",
])  # fmt: skip
def test_no_tag_of_cbor_stops_the_marks(tag, value):
    head = bytes([0xC0 + tag]) if tag < 24 else b"\xd9" + tag.to_bytes(2, "big")
    good = senml(1)
    odd = good[:1] + bytes([good[1] + 1]) + b"\x61z" + head + value + good[2:]
    feed(marks := Marks(), [(TOPIC, odd), (TOPIC, b"\x81" + head + value), (TOPIC, senml(1))])
    assert json.loads(marks.ack((TOPIC, EPOCH))[1])["upto"] == 1


def test_epochs_and_devices_are_told_apart():
    marks = Marks()
    other = bytes(8)
    feed(marks, [(TOPIC, senml(1)), (TOPIC, senml(1, epoch=other)), (b"fleet/g/d2/telemetry",
                senml(3, device="d2"))])  # fmt: skip
    assert {k: m.upto for k, m in marks.marks.items()} == {
        (TOPIC, EPOCH): 1, (TOPIC, other): 1, (b"fleet/g/d2/telemetry", EPOCH): 0}  # fmt: skip


def test_what_a_peer_heard_is_known_and_not_due():
    marks = Marks()
    feed(marks, [(TOPIC, senml(2))])
    marks.due.clear()
    marks.feed(wire.publish_packet(TOPIC, senml(1), 1, False, 7), heard=False)
    assert marks.marks[TOPIC, EPOCH].upto == 2 and not marks.due


def test_a_duplicate_makes_the_mark_due_again():
    marks = Marks()
    feed(marks, [(TOPIC, senml(1))])
    marks.due.clear()
    feed(marks, [(TOPIC, senml(1))])
    assert list(marks.due) == [(TOPIC, EPOCH)]


@pytest.mark.parametrize("topic,payload", [
    (TOPIC, b""), (TOPIC, b"\xff"), (TOPIC, b"{}"), (TOPIC, b"hello"),
    (TOPIC, senml(0)), (b"fleet/g/dev1/status", senml(1)),
])  # fmt: skip
def test_what_names_no_reading_is_not_marked(topic, payload):
    marks = Marks()
    feed(marks, [(topic, payload)])
    assert not marks.marks and marks.unreadable == 1


@pytest.mark.parametrize("more", [
    b"\x00\x61t\x02\x15\x62sq\x09", b"\x00\x61t\x02\x15\x62ep\x48" + bytes(8),
    b"\x00\x61t\x61u\x61u\x62sq\x09",
])  # fmt: skip
def test_an_identity_that_comes_twice_in_cbor_is_not_marked(more):
    """Laid out as the firmware does up to there: ten pairs in the map, and no unit."""
    good = senml(1)
    start = good.index(b"\x00", good.index(b"\x62lo"))
    assert good[:2] == b"\x81\xaa" and good[start : start + 2] == b"\x00\x6b"
    feed(marks := Marks(), [(TOPIC, good[:start] + more)])
    assert not marks.marks and marks.unreadable == 1


def in_cbor(*pairs, kind=0xA0):
    """The bytes of a CBOR map of these pairs, keys twice and all; kind 0xBF: of no stated length,
    0xB8: its length in a byte of its own."""
    head = {0xA0: bytes([0xA0 + len(pairs)]), 0xB8: bytes([0xB8, len(pairs)]), 0xBF: b"\xbf"}
    return b"".join((head[kind], *(cbor2.dumps(x) for pair in pairs for x in pair),
                     b"\xff" if kind == 0xBF else b""))  # fmt: skip


def in_json(*pairs):
    named = {-2: "bn", 0: "n", 2: "v"}
    shown = (v.hex() if isinstance(v, bytes) else v for _, v in pairs)
    return ("{%s}" % ", ".join(f'"{named.get(k, k)}": {json.dumps(v)}'
                               for (k, _), v in zip(pairs, shown))).encode()  # fmt: skip


FIRST = ((-2, "dev1/"), ("ep", EPOCH), ("bo", 1), ("sq", 3), ("up", 5), ("ms", 6), ("lo", 1))
READING = ((0, "t"), (2, 1))


@pytest.mark.parametrize("first,then,upto", [
    (READING, [], 0), ((*READING, (2, 2)), [], 0), ((*READING, ("bo", 1), ("up", 9)), [], 0),
    (READING, [(*READING, (2, 2))], 0), (READING, [(*READING, ("x", 1), ("x", 2))], 0),
    ((*READING, ("sq", 3)), [], None), ((*READING, ("sq", 4), ("bo", 1)), [], None),
    (READING + FIRST[1:2], [], None), ((("sq", 2), *READING), [(*READING, (2, 2))], None),
    ((*READING, ("lo", 3)), [], 0), ((*READING, ("lo", 3), ("bo", 1)), [READING], 0),
    ((("lo", None), *READING), [], 0), ((*READING, ("x", "y"), ("x", "y")), [], 0),
])  # fmt: skip
def test_what_comes_twice_in_cbor_is_marked_as_in_json(first, then, upto):
    """Only sequence and epoch have to be clear; a low that is not counts as none. Number 3 has
    come, so that the mark stands at 0 and lacks 1 and 2; upto: None, nothing is marked."""
    maps = [FIRST + first, *then]
    text = b"[" + b", ".join(in_json(*pairs) for pairs in maps) + b"]"
    packs = [bytes([0x80 + len(maps)]) + b"".join(in_cbor(*pairs) for pairs in maps)]
    packs += [b"\x9f" + b"".join(in_cbor(*pairs, kind=kind) for pairs in maps) + b"\xff"
              for kind in (0xB8, 0xBF)]  # fmt: skip
    for payload in (text, *packs):
        feed(marks := Marks(), [(TOPIC, payload)])
        if upto is None:
            assert not marks.marks and marks.unreadable == 1
        else:
            ack = json.loads(marks.ack((TOPIC, EPOCH))[1])
            assert (ack["upto"], ack["missing"]) == (upto, [[upto + 1, 2]])
