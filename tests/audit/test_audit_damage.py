"""A capture of correct clients and brokers, however damaged, accuses nobody.

Real traffic of MQTT 5, 3.1.1 and 3.1 (paho, mosquitto_pub; mosquitto), captured by a relay.
iotcore is no correct broker here: it answers UNSUBSCRIBE once for each filter.
Knows: audit_kit, what can happen to a capture. Must not know: how the audit judges.
"""

import random
import shutil
import subprocess

import audit_kit as kit
import audit_traffic as traffic
import paho.mqtt.client as mqtt
import pytest
import test_audit_tshark as real
from pipeline_kit import wait_for


def drop(frames, choice):
    share = choice.choice((0.02, 0.1, 0.4))
    return [f for f in frames if choice.random() > share]


def drop_a_run(frames, choice):
    at = choice.randrange(len(frames))
    return frames[:at] + frames[at + choice.randrange(1, 40) :]


def begin_late(frames, choice):
    return frames[choice.randrange(len(frames)) :]


def end_early(frames, choice):
    return frames[: choice.randrange(5, max(6, len(frames)))]  # few may be left of others


def twice(frames, choice):
    return [f for f in frames for _ in range(1 + (choice.random() < 0.2))]


def out_of_order(frames, choice):
    """Each up to some places from its own, with the time that it has there."""
    order = sorted(range(len(frames)), key=lambda k: k + choice.random() * 4)
    return [(frames[k][0], frames[j][1]) for k, j in enumerate(order)]


def one_side(frames, choice):
    way = choice.choice((b"\x0a\0\0\1", b"\x0a\0\0\2"))
    return [f for f in frames if f[1][26:30] == way]


def one_connection_stops(frames, choice):
    """All the frames of a client from some place on are missing."""
    port = choice.choice([f[1][34:38] for f in frames])
    mine = [k for k, f in enumerate(frames) if port in (f[1][34:38], f[1][36:38] + f[1][34:36])]
    gone = set(mine[choice.randrange(len(mine)) :])
    return [f for k, f in enumerate(frames) if k not in gone]


def clock(frames, choice):
    at, step = choice.randrange(len(frames)), choice.choice((-3600, -5, -0.6, 300, 86_400, 10**9))
    step = int(step * 10**9)
    return [(t if k < at else max(0, t + step), f) for k, (t, f) in enumerate(frames)]


def no_clock(frames, _choice):
    return [(0, f) for _, f in frames]


def fragments(frames, choice):
    """Long frames as fragments, some of them lost, in any order."""
    out = []
    for number, (t, frame) in enumerate(frames):
        if len(frame) < 200 or choice.random() < 0.5:
            out.append((t, frame))
            continue
        total = int.from_bytes(frame[16:18], "big")
        packet = frame[14:18] + number.to_bytes(2, "big") + frame[20 : 14 + total]
        parts = list(_fragments(packet, choice.randrange(100, 800)))
        choice.shuffle(parts)
        out += [(t, kit.ethernet(p)) for p in parts if choice.random() > 0.05]
    return out


def _fragments(packet, size):
    size -= size % 8
    for at in range(0, len(packet) - 20, size):
        part = packet[20 + at : 20 + at + size]
        mark = (at // 8 | (0x2000 if at + size < len(packet) - 20 else 0)).to_bytes(2, "big")
        length = (20 + len(part)).to_bytes(2, "big")
        yield packet[:2] + length + packet[4:6] + mark + packet[8:20] + part


FRAMES = [drop, drop_a_run, begin_late, end_early, twice, out_of_order, one_side,
          one_connection_stops, clock, no_clock, fragments]  # fmt: skip


def cut_short(raw, choice):
    return raw[: choice.randrange(100, len(raw))]


FILES = [lambda raw, _: raw, cut_short]


def captured(broker):
    """Frames of what passes when clients of each version talk."""
    tap = kit.Tap(broker.port)
    for version in (mqtt.MQTTv311, mqtt.MQTTv5, mqtt.MQTTv31):
        real._traffic(tap.port, version)
    real._with_properties(tap.port)
    if shutil.which("mosquitto_pub"):
        argv = ["mosquitto_pub", "-p", str(tap.port), "-t", "x", "-q", "2", "-l"]
        subprocess.run(argv, input="line\n" * 40, text=True, timeout=60, check=True)
    wait_for(tap.idle, what="the end of all connections")
    tap.stop()
    return tap.frames()


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_no_damage_accuses_anybody(broker, tmp_path):
    """Each kind by itself, then several at once."""
    frames = captured(broker)
    choice = random.Random(19)
    kinds = [[kind] for kind in FRAMES] + [choice.sample(FRAMES, 3) for _ in range(30)]
    for number, several in enumerate(kinds):
        made = frames
        for kind in several:
            made = kind(made, choice) or frames[:3]
        path = kit.pcap(tmp_path / "t.pcap", made, snap=choice.choice((65_535,) * 3 + (90, 300)))
        path.write_bytes(FILES[number % 2 if number >= len(FRAMES) else 0](
            path.read_bytes(), choice))  # fmt: skip
        found = kit.read([path], tmp_path, ports=(broker.port,))
        told = [(v["frame"], v["sender"], v["type"], v["statement"], v["what"])
                for v in found["violations"]]  # fmt: skip
        assert told == [], (number, [kind.__name__ for kind in several])


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_no_damage_accuses_made_up_traffic(first, tmp_path):
    """Versions 3.1, 3.1.1 and 5, identifiers that are soon used again, packets in pieces, payloads
    that look like packets; on a port that is named and on one that is not."""
    for seed in range(first, first + 8):
        choice = random.Random(seed)
        port = choice.choice((1883, 1883, 17501))
        frames = traffic.sound(choice, port)
        for trial in range(6):
            kinds = choice.sample(traffic.DAMAGE, choice.choice((1, 1, 2, 3))) if trial else []
            made = frames
            for kind in kinds:
                made = kind(made, choice) or frames[:3]
            path = kit.pcap(tmp_path / "t.pcap", made, snap=choice.choice((65_535,) * 4 + (90,)))
            if trial == 5:
                path.write_bytes(traffic.hole_in_file(path.read_bytes(), choice))
            found = kit.read([path], tmp_path)["violations"]
            told = [(v["frame"], v["sender"], v["type"], v["statement"]) for v in found]
            assert told == [], (seed, trial, [kind.__name__ for kind in kinds])
