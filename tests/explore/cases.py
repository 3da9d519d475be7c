"""The cases: QUICK ones run with every `make test`, all of them with `make explore`.

Knows: Case. Must not know: how they are explored.
"""

from case import Case

QUICK = [
    Case("ram-window", out=[1, 1, 2], store="ram", keepalive=60, ticks=1, cuts=1),
    Case("ram-waits", out=[1, 2], store="ram", waits=True, cuts=2),
    Case("ram-out", out=[1, 2], store="ram", window=2, cuts=1, amnesia=1, free=True),
    Case("ram-in", inbound=[1, 2], store="ram", cuts=1, amnesia=1, burst=2, throws=1, parts=1),
    Case("ram-both", out=[2], inbound=[2], store="ram", cuts=1),
    Case("ram-pieces", out=[1, 2], store="ram", window=2, cuts=1, short=1, parts=1),
    Case("ram-timer", out=[1, 2], inbound=[1], store="ram", cuts=1, keepalive=60, ticks=1),
    Case("flash-out", out=[1, 2], window=2, cuts=1, crashes=1),
    Case("flash-window", out=[1, 1, 1], window=2, crashes=1),
    Case("flash-in", inbound=[1, 2, 2], cuts=1, crashes=1),
    Case("flash-amnesia", out=[2], inbound=[2, 2], amnesia=1, crashes=1),
    Case("inbox", inbound=[2, 2], inbox=True, cuts=1, crashes=1),
    Case("torn", out=[2], crashes=1, torn="words"),
    Case("twice", out=[2], crashes=2),
]
FULL = [
    Case("flash-free", out=[2, 2], window=2, cuts=1, crashes=1, free=True),
    Case("flash-twice", out=[1], inbound=[2], crashes=2),
    Case("flash-latest", out=[1, 1], policy=2, cuts=1, crashes=1),
]
CASES = {case.name: case for case in QUICK + FULL}
