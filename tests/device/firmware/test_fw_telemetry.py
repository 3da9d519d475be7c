"""The telemetry record byte by byte, and what it takes from the heap. Both interpreters."""

import gc

import micropython
from commands import hmac_sha256
from signing import signer
from telemetry import Packer

EPOCH = b"\x01\x02\x03\x04\x05\x06\x07\x08"
FIELDS = (("temperature", "Cel", 2), ("reading", None, 0))


def refusal(function, *args):
    try:
        function(*args)
    except ValueError as error:
        return str(error)
    raise AssertionError("accepted")


def packed(packer, *args):
    return bytes(packer.view(packer.pack(*args)))


def test_record_byte_by_byte():
    packer = Packer("a", EPOCH, 3, FIELDS)
    assert packed(packer, 300, 7, 86400, 42, (-2150, 12)) == (
        b"\x82\xaa"
        b"\x21\x62a/"
        b"\x62ep\x48\x01\x02\x03\x04\x05\x06\x07\x08"
        b"\x62bo\x03"
        b"\x62sq\x19\x01\x2c"
        b"\x62up\x1a\x00\x01\x51\x80"
        b"\x62ms\x18\x2a"
        b"\x62lo\x07"
        b"\x00\x6btemperature\x01\x63Cel\x02\xc4\x82\x21\x39\x08\x65"
        b"\xa2\x00\x67reading\x02\x0c"
    )


def test_heads_of_integers_at_their_limits():
    packer = Packer("a", EPOCH, 0, (("v", None, 0),))
    for value, tail in (
        (0, b"\x00"), (23, b"\x17"), (24, b"\x18\x18"), (255, b"\x18\xff"),
        (256, b"\x19\x01\x00"), (65535, b"\x19\xff\xff"), (65536, b"\x1a\x00\x01\x00\x00"),
        (2**32 - 1, b"\x1a\xff\xff\xff\xff"), (2**32, b"\x1b\x00\x00\x00\x01\x00\x00\x00\x00"),
        (2**64 - 1, b"\x1b" + b"\xff" * 8),
        (-1, b"\x20"), (-24, b"\x37"), (-25, b"\x38\x18"), (-(2**64), b"\x3b" + b"\xff" * 8),
    ):
        data = packed(packer, 1, 1, 0, 0, (value,))
        assert data.endswith(b"\x61v\x02" + tail), (value, data)


def test_number_too_large_is_refused():
    packer = Packer("a", EPOCH, 0, (("v", None, 0),))
    assert "64 bits" in refusal(packer.pack, 1, 1, 0, 0, (2**64,))


def test_missing_value_leaves_its_field_out():
    packer = Packer("a", EPOCH, 3, FIELDS)
    whole = packed(packer, 1, 1, 0, 0, (1, 2))
    data = packed(packer, 1, 1, 0, 0, (None, 2))
    assert data[0] == 0x81 and data[1] == 0xA9
    assert b"temperature" not in data
    assert packed(packer, 1, 1, 0, 0, (1, 2)) == whole


def test_record_without_any_value_is_refused():
    packer = Packer("a", EPOCH, 3, FIELDS)
    assert "without a value" in refusal(packer.pack, 1, 1, 0, 0, (None, None))


def test_largest_record_fits():
    fields = [("measurement-%02d" % i, "unit", 9) for i in range(23)]
    packer = Packer("d" * 32, EPOCH, 2**64 - 1, fields)
    big = 2**64 - 1
    assert packer.pack(big, big, big, big, [-big] * 23) <= len(packer.buffer)


def test_wrong_epoch_and_fields_are_refused():
    for epoch, fields, word in ((b"1234", FIELDS, "epoch"), (EPOCH, (), "fields"),
                                (EPOCH, FIELDS * 12, "fields")):
        assert word in refusal(Packer, "a", epoch, 0, fields)


SIGNED = {"telemetry": "signed", "command_key": "ab" * 32, "group": "g", "device": "a"}


def test_a_signed_record_ends_with_its_code():
    sign = signer(SIGNED)
    for fields, values in ((FIELDS, (-2150, 12)), (FIELDS, (None, 12)), (FIELDS, (1, None)),
                           (FIELDS[:1], (1,)), (FIELDS[1:], (7,))):
        plain = packed(Packer("a", EPOCH, 3, fields), 300, 7, 86400, 42, values)
        packer = Packer("a", EPOCH, 3, fields, sign)
        data = packed(packer, 300, 7, 86400, 42, values)
        assert data == packed(packer, 300, 7, 86400, 42, values)
        key = hmac_sha256(b"\xab" * 32, b"umqtt telemetry")
        code = hmac_sha256(key, b"fleet/g/a/telemetry\n" + data[:-8])
        assert data[-12:] == b"\x62mc\x48" + code[:8]
        # The last map has one pair more; all else is as it was.
        body, last = bytearray(data[:-12]), 1 if data[0] == 0x81 else data.rindex(b"\x00\x67") - 1
        body[last] -= 1
        assert bytes(body) == plain, (data, plain)


def test_no_signer_without_a_key():
    settings = dict(SIGNED)
    settings["command_key"] = ""
    assert "needs a command_key" in refusal(signer, settings)


def test_largest_signed_record_fits():
    fields = [("measurement-%02d" % i, "unit", 9) for i in range(23)]
    packer = Packer("d" * 32, EPOCH, 2**64 - 1, fields, signer(SIGNED))
    big = 2**64 - 1
    assert packer.pack(big, big, big, big, [-big] * 23) <= len(packer.buffer)


def test_nothing_of_a_code_stays_on_the_heap():
    packer = Packer("oven", EPOCH, 3, FIELDS, signer(SIGNED))
    values = [2150, 1]
    work(packer, values)
    if hasattr(gc, "mem_alloc"):
        gc.collect()
        before = gc.mem_alloc()
        gc.disable()
        work(packer, values)
        taken = gc.mem_alloc() - before
        gc.enable()
        gc.collect()
        # Two hashes and two digests a reading, of 64-bit sizes here.
        assert taken <= 100 * 640, taken
        assert gc.mem_alloc() <= before + 64, gc.mem_alloc() - before


def work(packer, values):
    for seq in range(70000, 70100):
        values[1] = seq
        packer.view(packer.pack(seq, seq, 70000, 999, values))


def test_packing_allocates_nothing():
    packer = Packer("oven", EPOCH, 3, FIELDS)
    values = [2150, 1]
    work(packer, values)
    micropython.heap_lock()
    try:
        work(packer, values)
    finally:
        micropython.heap_unlock()
    if hasattr(gc, "mem_alloc"):
        gc.collect()
        gc.disable()
        before = gc.mem_alloc()
        work(packer, values)
        after = gc.mem_alloc()
        gc.enable()
        assert after == before, after - before
