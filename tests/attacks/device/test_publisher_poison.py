"""A publisher: what anybody may publish to a board, spoiled. A short run of what
`make fuzz-firmware` does at length, and each poison that a mark or a command can hold.

Knows: the fuzzer.  Must not know: what it checks (fw_fuzz.py says it).
"""
# heap: 4M
# deadline: 240

from fw_fuzz import BASE, POISON, FirmwareFuzzer, text

# Deeper than CPython's parser goes.
DEEP = b"[" * 1900


def test_spoiled_messages():
    mutated = refused = 0
    kinds = {}
    for seed in range(8):
        f = FirmwareFuzzer(seed)
        mutated += f.run(60)
        refused += f.refused
        for kind, times in f.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + times
    assert mutated > 250 and refused > 100 and len(kinds) == 5, (mutated, refused, kinds)
    assert min(kinds.values()) > 30, kinds


def test_every_poison_in_every_place_of_a_mark():
    def marks(f):
        for poison in POISON + (DEEP, None):
            for key in ("epoch", "upto", "missing"):
                mark = {"epoch": f.app.epoch, "upto": 1, "missing": []}
                mark[key] = poison
                if poison is None:
                    del mark[key]
                yield BASE + b"ack", text(mark)

    f = FirmwareFuzzer(1)
    f.play(marks)
    # Six texts are epochs of another journal, 0 and 1 are numbers, and "missing" may be empty,
    # reach too far or not be there: all else is refused.
    assert f.cases == 3 * (len(POISON) + 2) and f.refused == f.cases - 11, f.refused


def test_every_poison_in_every_place_of_an_update_and_of_a_setting():
    def signed(f):
        for poison in POISON:
            for key in sorted(f.made.body) + ["count"]:
                body = dict(f.made.body)
                # Each is another update: none goes on with the one before.
                body["chain"] = "%032x" % f.cases
                yield f.command(b"ota", body, key, poison)
            yield f.command(b"interval", {"interval_ms": 1000}, "interval_ms", poison)

    f = FirmwareFuzzer(2)
    f.play(signed)
    assert f.cases == 14 * len(POISON), f.cases
