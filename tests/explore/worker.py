"""One case, or one hunt for a planted fault, in a process of its own: device.py changes it.

Knows: explorer and cases. Must not know: processes. Its last line is a dictionary.
"""

import sys
import time

import device  # noqa: F401, I001  first: it stands in for a board
from cases import CASES, QUICK
from explorer import Explorer, Found, script, smaller

BEGINNING = 250  # states of each case that a hunt looks at first


def explore(name, limit, seconds):
    """A case to its end."""
    case = CASES[name]
    began = time.process_time()
    text = ""
    try:
        explorer = Explorer(case, limit=limit, seconds=seconds).run()
        stopped = explorer.stopped
    except Found as e:
        explorer = e.explorer
        stopped = "BROKEN: " + e.why
        text = script(case, smaller(case, e.steps))
    return {"states": explorer.states, "transitions": explorer.transitions,
            "depth": explorer.depth, "ends": explorer.ends, "stopped": stopped, "script": text,
            "seconds": round(time.process_time() - began)}  # fmt: skip


def hunt(limit):
    """The quick cases until one breaks: first the beginning of each, then more of it."""
    states = 0
    began = time.process_time()
    for bound in sorted({min(BEGINNING, limit), limit}):
        for case in QUICK:
            explorer = Explorer(case, limit=bound)
            try:
                explorer.run()
                states += explorer.states
            except Found as e:
                states += e.explorer.states
                steps = smaller(case, e.steps)
                return {"case": case.name, "why": e.why, "states": states, "steps": len(steps),
                        "seconds": round(time.process_time() - began)}  # fmt: skip
    return {"case": "", "why": "", "states": states, "steps": 0,
            "seconds": round(time.process_time() - began)}  # fmt: skip


def main(words):
    """case NAME LIMIT SECONDS, or hunt LIMIT."""
    if words[0] == "case":
        print(explore(words[1], int(words[2]), int(words[3])))
    else:
        print(hunt(int(words[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
