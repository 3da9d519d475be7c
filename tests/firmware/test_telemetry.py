"""The telemetry record read by an independent decoder (cbor2) and by the rules of RFC 8428."""

import io
from decimal import Decimal

import cbor2
from hypothesis import given
from hypothesis import strategies as st
from telemetry import Packer

EPOCH = bytes(range(8))
FIELDS = (("temperature", "Cel", 2), ("humidity", "%RH", 1), ("reading", None, 0))
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**64), 2**64 - 1)


def decode(packer, length):
    stream = io.BytesIO(bytes(packer.view(length)))
    pack = cbor2.CBORDecoder(stream).decode()
    assert stream.tell() == length, "bytes after the pack"
    return pack


def resolve(pack):
    """RFC 8428 section 4.6: base name put before each name, one plain record each."""
    base = ""
    out = []
    for record in pack:
        base = record.get(-2, base)
        out.append((base + record.get(0, ""), record.get(1), record[2]))
    return out


def test_resolved_records():
    packer = Packer("oven-1", EPOCH, 3, FIELDS)
    pack = decode(packer, packer.pack(17, 5, 3600, 250, (-1234, 555, 16)))
    assert resolve(pack) == [
        ("oven-1/temperature", "Cel", Decimal("-12.34")),
        ("oven-1/humidity", "%RH", Decimal("55.5")),
        ("oven-1/reading", None, 16),
    ]
    first = pack[0]
    assert list(first)[0] == -2
    assert (first["ep"], first["bo"], first["sq"]) == (EPOCH, 3, 17)
    assert (first["up"], first["ms"], first["lo"]) == (3600, 250, 5)
    for record in pack[1:]:
        assert set(record) <= {0, 1, 2}


def test_extension_labels_may_be_ignored():
    # RFC 8428 section 4.4: a label that ends in "_" must be understood; ours need not be.
    packer = Packer("a", EPOCH, 0, FIELDS)
    labels = [k for k in decode(packer, packer.pack(1, 1, 0, 0, (1, 2, 3)))[0] if type(k) is str]
    assert labels and not [label for label in labels if label.endswith("_")]


def test_clock_record():
    packer = Packer("oven-1", EPOCH, 3, (("clock", "s", 3),))
    pack = decode(packer, packer.pack(1, 1, 2, 7, (1795233479986,)))
    assert resolve(pack) == [("oven-1/clock", "s", Decimal("1795233479.986"))]


@given(seq=u64, low=u64, up=u64, ms=u64, boot=u64, t=i64, h=i64, k=i64)
def test_every_number_survives(seq, low, up, ms, boot, t, h, k):
    packer = Packer("oven-1", EPOCH, boot, FIELDS)
    pack = decode(packer, packer.pack(seq, low, up, ms, (t, h, k)))
    first = pack[0]
    assert [first[x] for x in ("bo", "sq", "up", "ms", "lo")] == [boot, seq, up, ms, low]
    assert [r[2] for r in pack] == [Decimal(t).scaleb(-2), Decimal(h).scaleb(-1), k]


@given(st.lists(st.tuples(u64, st.one_of(st.none(), i64), st.one_of(st.none(), i64)), min_size=1))
def test_a_record_owes_nothing_to_the_one_before(readings):
    used = Packer("a", EPOCH, 1, FIELDS)
    for seq, t, h in readings:
        length = used.pack(seq, seq, 1, 1, (t, h, 5))
        fresh = Packer("a", EPOCH, 1, FIELDS)
        assert fresh.pack(seq, seq, 1, 1, (t, h, 5)) == length
        assert bytes(fresh.view(length)) == bytes(used.view(length))
