"""What a client sends again on the next connection has the order of before [MQTT-4.6.0-1]: told
when it is sure, and only then.

Knows: audit_kit, the tables. Must not know: how exchanges are joined.
"""

import audit_kit as kit
import pyarrow.parquet as pq
import pytest
from devices import Device, as_lines, rows, told

RULE = "MQTT-4.6.0-1"
OTHER = kit.publish("a/b", b"z", 1, 7, dup=True)


def pub(ident, dup=True, qos=1):
    return kit.publish("a/b", b"%d" % ident, qos, ident, dup=dup)


def new(*idents, qos=1):
    """Those that are sent for the first time."""
    return [pub(k, False, qos) for k in idents]


def again(*idents, qos=1):
    return [pub(k, True, qos) for k in idents]


def _send(talk, packets):
    for raw in packets:
        talk.client(raw)
    return talk


def _two(d, first, second, **more):
    """Two connections; the broker answers nothing on the first one."""
    d.over(_send(d.open(0), first))
    talk = _send(d.open(**more), second)
    d.over(talk)
    return talk


def _turned(d):
    d.over(_send(d.open(0), new(7, 8)))
    talk = _send(d.open(), again(8, 7))
    d.blame(talk, RULE)
    d.over(talk.broker(kit.ack(4, 8)).broker(kit.ack(4, 7)))


def _of_both_qos(d):
    d.over(_send(d.open(0), new(7, qos=2) + new(8)))
    talk = _send(d.open(), again(8) + again(7, qos=2))
    d.blame(talk, RULE)
    d.over(talk)


def _last_first(d):
    """Two come after one that was sent last."""
    d.over(_send(d.open(0), new(7, 8, 9)))
    talk = _send(d.open(), again(9, 7))
    d.blame(talk, RULE)
    d.blame(_send(talk, again(8)), RULE)
    d.over(talk)


def _answered_between(d):
    """One of them was answered before, in a later connection it is a new message."""
    d.over(_send(d.open(0), new(7, 8)).broker(kit.ack(4, 7)))
    d.over(_send(d.open(), again(8) + new(7)))


def _only_one_at_first(d):
    """The second connection has one of them, the third one both."""
    d.over(_send(d.open(0), new(7, 8)))
    d.over(_send(d.open(), again(8)))
    d.over(_send(d.open(), again(8, 7)))


def _order_is_mended(d):
    """Again in the right order, after a connection that had the wrong one."""
    _turned_without_answer(d)
    d.over(_send(d.open(), again(7, 8)))


def _turned_without_answer(d):
    d.over(_send(d.open(0), new(7, 8)))
    talk = _send(d.open(), again(8, 7))
    d.blame(talk, RULE)
    d.over(talk)


def _received(d):
    """QoS 2 that PUBREC answered goes on with PUBREL; nothing is wrong with a resend behind."""
    d.over(_send(d.open(0), new(7, qos=2) + new(8)).broker(kit.ack(5, 7)))
    d.over(_send(d.open(), again(8)).client(kit.ack(6, 7)))


def _hole(d, number, way):
    """A packet of one side is not in the capture: a PUBACK, or a PUBLISH."""
    for k, packets in enumerate((new(7, 8), again(8, 7))):
        talk = d.open(k)
        if k == number:
            talk.seq[way] += 4
        d.over(_send(talk, packets).segment(way, kit.PINGREQ if way == 0 else kit.PINGRESP))


def _captured_out_of_order(d, number):
    """The segments are in order, the frames of the capture are not."""
    for k in range(2):
        talk = _send(d.open(k), again(7, 8) if k else new(7, 8))
        if k == number:
            (t, a), (u, b) = talk.frames[-2:]
            talk.frames[-2:] = [(t, b), (u, a)]
        d.over(talk)


SOUND = {
    "in order": lambda d: _two(d, new(7, 8), again(7, 8)),
    "one frame": lambda d: _two(d, new(7, 8), [b"".join(again(8, 7))]),
    "one frame at first": lambda d: _two(d, [b"".join(new(7, 8))], again(8, 7)),
    "no session": lambda d: _two(d, new(7, 8), again(8, 7), present=0),
    "clean": lambda d: _two(d, new(7, 8), again(8, 7), present=0, flags=2),
    "other message": lambda d: _two(d, new(7, 8), again(8) + [OTHER]),
    "answered between": _answered_between, "only one at first": _only_one_at_first,
    "received": _received,
    **{f"hole {k}{way}": lambda d, k=k, way=way: _hole(d, k, way) for k, way in (
        (0, 0), (0, 1), (1, 0))},
    **{f"captured out of order {k}": lambda d, k=k: _captured_out_of_order(d, k)
       for k in range(2)},
}  # fmt: skip
WRONG = {"turned": _turned, "of both QoS": _of_both_qos, "last first": _last_first,
         "mended": _order_is_mended}  # fmt: skip


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """(violations of each client, those that are right): {client: {(statement, frame)}}; and the
    folder of the tables."""
    from mqtt_audit import run

    folder, now, devices = tmp_path_factory.mktemp("overtaken"), kit.START, []
    for name, make in (SOUND | WRONG).items():
        devices.append(Device(name, now))
        make(devices[-1])
        now = devices[-1].now + 10**9
    frames = sorted((f for d in devices for t in d.talks for f in t.frames), key=lambda f: f[0])
    place = {f: n for n, f in enumerate(frames, 1)}
    path = kit.pcap(folder / "t.pcap", [(t, kit.ethernet(p)) for t, p in frames])
    run.build(None, [path], folder / "out")
    found = {d.name: set() for d in devices}
    for v in pq.read_table(folder / "out" / "violations").to_pylist():
        found[v["client_id"]].add((v["statement"], v["frame"]))
    wanted = {d.name: {(s, place[at]) for _, at, s, _ in d.accused} for d in devices}
    return found, wanted, folder / "out"


@pytest.mark.parametrize("name", SOUND)
def test_nobody_is_accused_where_the_order_is_right_or_not_known(name, audited):
    found, _, _ = audited
    assert RULE not in {statement for statement, _ in found[name]}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_order_is_told_at_each_that_comes_too_late(name, audited):
    found, wanted, _ = audited
    assert found[name] == wanted[name] and wanted[name]


def test_lines_of_json_tell_the_same(audited):
    *_, folder = audited
    assert told(as_lines(folder)) == told(rows(folder, "violations"))
