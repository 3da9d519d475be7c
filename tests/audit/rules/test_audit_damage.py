"""A capture of correct clients and brokers, however damaged, accuses nobody.

Real traffic of MQTT 5, 3.1.1 and 3.1 (paho, mosquitto_pub; mosquitto), captured by a relay.
iotcore is no correct broker here: it answers UNSUBSCRIBE once for each filter.
Knows: audit_kit, what can happen to a capture. Must not know: how the audit judges.
"""

import random

import audit_kit as kit
import audit_traffic as traffic
import pytest
from damages import FILES, FRAMES
from real_traffic import captured


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
