"""Every split and truncation of every packet of a broker, all beginnings of packets, and a short
run of what `make fuzz` does at length.

Knows: the fuzzer.  Must not know: what it checks (fuzz.py says it).
"""
# heap: 4M
# deadline: 240

import fuzz
from fuzz import Fuzzer
from fuzz_traffic import publish, short

# Beside the answers to CONNECT, PUBLISH, SUBSCRIBE and UNSUBSCRIBE, which come by themselves.
PACKETS = (
    publish(0x30, b"t", 0, b""),
    publish(0x31, b"a/topic", 0, b"some payload"),
    publish(0x32, b"t", 0x0102, b"x"),
    publish(0x3D, b"t", 0xFFFF, b"x"),
    publish(0x32, b"a/topic", 3, b"l" * 90),
    publish(0x34, b"\xc3\xa4", 4, b"l" * 90),
    publish(0x30, b"t" * 70, 0, b""),
    publish(0x32, b"t", 5, b"m" * 250),
    short(0x62, 7),
    short(0x40, 8),
    short(0x50, 9),
    short(0x70, 10),
    short(0xB0, 11),
    b"\x90\x05\x00\x0c\x00\x01\x80",
    b"\xd0\x00",
)


def fuzzers():
    """One for each protocol version, with and without store, with bytes and with views."""
    found = {}
    seed = 0
    while len(found) < 12:
        f = Fuzzer(seed)
        key = (f.session.level.level, f.store is None, f.session.views)
        if key not in found:
            found[key] = f
        seed += 1
    return found.values()


def scenes(f):
    """(state, packets) for everything that a broker may send; f: a fuzzer."""
    for state in range(7):
        f.exact(state, [])
        yield state, []
    for one in PACKETS:
        yield fuzz.IDLE, [one]
    yield fuzz.CONNECTING, [PACKETS[2], PACKETS[4]]


def test_every_split():
    tried = 0
    for f in fuzzers():
        for state, packets in scenes(f):
            n = f.exact(state, packets)
            for i in range(1, n):
                f.exact(state, packets, pause=i)
                tried += 1
    assert tried > 10000, tried


def test_every_truncation():
    tried = 0
    for f in fuzzers():
        for state, packets in scenes(f):
            n = f.exact(state, packets)
            for i in range(n):
                f.exact(state, packets, cut=i)
                tried += 1
    assert tried > 10000, tried


def test_every_first_byte_and_short_prefix():
    edges = [bytes((n,)) for n in range(8)] + [b"\x7f", b"\x80", b"\x80\x00", b"\x80\x01"]
    edges += [b"\xff\xff\x7f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\x80", b"\xff\xff\xff\xff\x01"]
    bodies = (b"", b"\x00", b"\x00\x01", b"\x00\x00", b"\x00\x01t", b"\x00\x01t\x00\x07")
    f = Fuzzer(1)
    for first in range(256):
        for i, length in enumerate(edges):
            data = bytes((first,)) + length + bodies[(first + i) % 6]
            f.exact(fuzz.IDLE, [data])
            if i % 4 == first % 4:
                f.exact(fuzz.CONNECTING, [data])


def test_spoiled_traffic():
    states = [0] * 7
    mutated = closings = 0
    for seed in range(60):
        f = Fuzzer(seed)
        mutated += f.run(50)
        closings += f.closings
        states = [a + b for a, b in zip(states, f.states)]
    assert mutated > 2000 and closings > 500 and min(states) > 300, (mutated, closings, states)


def test_the_same_seed_is_the_same_traffic():
    streams = []
    for _ in range(2):
        f = Fuzzer(5)
        for _ in range(40):
            f.case()
            streams.append(bytes(f.data))
    assert streams[:40] == streams[40:] and len(set(streams)) > 30
