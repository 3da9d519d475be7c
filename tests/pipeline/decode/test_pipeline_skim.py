"""The identity of payloads that are too long, or too damaged, to be decoded whole: it is the one
of their first record, and costs little memory."""

import json
import random
import tracemalloc

import cbor2
import numpy as np
import pytest
from pipeline_kit import EPOCH, base, clock, flat, senml, senml_text
from test_pipeline_agreement import one_fault, several_faults
from umqtt_pipeline.decode import firmware, payloads
from umqtt_pipeline.decode.payloads import identity
from umqtt_pipeline.decode.reading import LONGEST

PAD = "a,[{:\\\"\n" * (LONGEST // 8)  # what JSON has between values, within a text


def in_json(first, *others):
    return json.dumps([first, *others]).encode()


def named(*pairs):
    """Flat JSON of these pairs, in their order; a name may come twice."""
    text = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs)
    return ("{%s}" % text).encode()


IDS = (("epoch", EPOCH.hex()), ("sequence", 5), ("low", 2))
FIRST = {**base(5, low=2), "pad": PAD}
TEXT = {**FIRST, "ep": EPOCH.hex()}
NESTED = {"a": [{"b": [1.5] * 1000}, {}] * 500, "c": [PAD], "sequence": 7, "sq": 7, "d": {}}


@pytest.mark.parametrize("payload", [
    flat(5, low=2, pad=PAD), named(("pad", PAD), *IDS), named(*IDS, ("pad", PAD), ("end", [])),
    named(("pad", NESTED), *IDS), named(*IDS[::-1], ("pad", PAD)) + b" tail",
    named(*IDS, ("pad", PAD))[:-9], b"\r\n " + named(*IDS) + b" " * LONGEST,
    named(("pad", PAD), *IDS).replace(b"epoch", b"\\u0065poch"),
    in_json(TEXT), in_json({"pad": NESTED, "ring": [[[]]], **TEXT}), in_json(TEXT, *[{}] * 9),
    in_json({"n": "t", **TEXT}, {"sq": 9}),
    cbor2.dumps([FIRST]), cbor2.dumps([{"pad": NESTED, 1: [[[]]], **FIRST}, *[{}] * 9]),
    cbor2.dumps([{"pad": PAD.encode(), **base(5, low=2)}]) + b"x",
    cbor2.dumps([FIRST])[:-9], b"\x9f\xbf" + cbor2.dumps({**FIRST, 2: PAD})[1:],
    b"\x81\xa4\x7f\x62ep\xff\x5f\x44" + EPOCH[:4] + b"\x44" + EPOCH[4:] + b"\xff"
    b"\x62sq\xc2\x41\x05\x62lo\x02\x63pad" + cbor2.dumps(PAD),
])  # fmt: skip
def test_the_identity_of_a_long_payload(payload):
    assert len(payload) > LONGEST
    assert identity(payload) == (EPOCH, 5, 2)


@pytest.mark.parametrize("payload", [
    named(*IDS, ("pad", PAD), IDS[1]), named(("pad", PAD)), named(("pad", {}), ("x", [PAD])),
    named(IDS[0], ("sequence", 5.0), ("pad", PAD)), named(*IDS, ("pad", PAD)).replace(b":", b"="),
    named(IDS[0], ("sequence", [5]), ("pad", PAD)), named(("epoch", PAD), *IDS[1:]),
    named(("pad", PAD), *IDS).replace(b"a,", b'a",', 1), b"[" * (2 * LONGEST),
    in_json([], TEXT), in_json({**TEXT, "ep": 1234567890123456}), b"{" + b'\\"' * LONGEST,
    cbor2.dumps([PAD, FIRST]), cbor2.dumps([[FIRST]]), b"\x81" * (2 * LONGEST),
    b"\x81\xa2\x62sq\x05" + cbor2.dumps(FIRST)[1:], b"\x81\xba\xff\xff\xff\xff" + bytes(LONGEST),
    b"\x81\xa1\x7b" + b"\xff" * LONGEST, b"\x9f" + bytes(LONGEST),
])  # fmt: skip
def test_a_long_payload_without_one(payload):
    assert len(payload) > LONGEST
    assert identity(payload) is None


@pytest.mark.parametrize("payload", [
    b"\x9f" + b"\xa0" * (8 * LONGEST), b"\x81\xa1\x00\x9f" + b"\xa0" * (8 * LONGEST),
    b"[" + b"{}," * (3 * LONGEST), b'{"a":[' + b"{}," * (3 * LONGEST),
    b'{"a":"' + b"\\n" * (4 * LONGEST) + b'"}', b'{"a":' + b"[" * (8 * LONGEST),
])  # fmt: skip
def test_a_long_payload_takes_little_memory(payload):
    """64 MiB of empty maps took the bridge 5 GB, and again at each start."""
    tracemalloc.start()
    try:
        assert identity(payload) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_what_a_short_payload_says_as_a_whole(monkeypatch):
    """Both ways give the same where both can be gone."""
    given = [each for both in (*one_fault(), *several_faults(3, 200)) for each in both]
    given += [flat(5, low=2, t=value) for value in (1, "warm", None, [{}])]
    whole = [identity(payload) for payload in given]
    monkeypatch.setattr(payloads, "LONGEST", 0)
    assert [identity(payload) for payload in given] == whole
    assert len(set(whole)) > 5


def test_a_damaged_pack_of_the_firmware_has_the_identity_that_the_bridge_reads_by_column():
    """Or the mark would cover a number of which the tables say that it never came."""
    choose, known = random.Random(5), 0
    for _ in range(1500):
        payload = bytearray(choose.choice([senml(4), senml(9, low=3), clock(300, 1_767_268_800)]))
        for _ in range(choose.randint(0, 2)):
            payload[choose.randrange(len(payload))] = choose.choice([0, 0x41, 0x81, 0xFF])
        payload = bytes(payload[: choose.choice([len(payload), choose.randrange(len(payload))])])
        raw = np.frombuffer(payload + bytes(firmware.SPARE), np.uint8)
        ok, at, sequence, low = firmware.identities(raw, *(np.array([n]) for n in (
            0, len(payload))))  # fmt: skip
        if ok[0]:
            known += 1
            told = payload[at[0] : at[0] + 8], sequence[0], low[0]
            assert identity(payload) == told, payload
    assert known > 250
    assert identity(senml_text(5)[:-1]) is None  # nobody looks at JSON by column
