"""A made-up run for the tests of the report, shaped like a real one."""

import random
from dataclasses import asdict

from umqtt_demo import sensorlog
from umqtt_demo.report import ranges
from umqtt_demo.verdict import Row, judge

T0 = 1_800_000_000.0


def device(name, readings, cuts, dice, lose=()):
    epoch = "%016x" % dice.getrandbits(64)
    rows, samples, lines = [Row(name, epoch, 1)], [], []
    moment = T0 + dice.random()
    for k in range(1, readings + 1):
        moment += 0.75
        for start, end in cuts:
            if start <= moment < end:
                moment = end
        table = (moment // 4 + 1) * 4 + dice.random()
        copies = 1 + (dice.random() < 0.04) * dice.randrange(1, 4)
        lines.append("take %d %s %d %d %d\n" % (k, epoch, k + 1, 2100 + k, moment * 1000))
        lines.append("done %d %s %d\n" % (k, epoch, k + 1))
        if k not in lose:
            rows.append(Row(name, epoch, k + 1, ordinal=k, copies=copies,
                            value={"temperature": 21 + k / 100}))
        samples.append({"ordinal": k, "taken": moment, "bridge": moment + 0.05, "copies": copies,
                        "table": None if k in lose else table, "value": 21 + k / 100})
    verdict = judge(name, readings, sensorlog.parse("".join(lines)), rows)
    numbers = {row.sequence: row.copies for row in rows}
    return {
        "name": name, "samples": samples,
        "verdict": {**asdict(verdict), "ok": verdict.ok, "faults": verdict.faults()},
        "epochs": [{"epoch": epoch,
                    "once": ranges(n for n, copies in numbers.items() if copies == 1),
                    "again": ranges(n for n, copies in numbers.items() if copies > 1),
                    "missing": ranges(set(range(1, readings + 2)) - set(numbers))}],
    }


def run(boards=3, readings=120, lose=()):
    dice = random.Random(5)
    outages = [("board", "board-1", 11, 14), ("broker", "", 25, 27), ("spark", "", 36, 41),
               ("link", "board-2", 50, 53), ("board", "board-1", 58, 60), ("bridge", "", 62, 66),
               ("broker", "", 63, 65)]
    # As in a real run, the bridge and the broker are away for one fault together.
    outages = [{"fault": min(n, 6), "kind": kind, "target": target, "start": T0 + start,
                "end": T0 + end, "text": "%s <away>" % kind}
               for n, (kind, target, start, end) in enumerate(outages, 1)]
    devices = [device("board-%d" % (n + 1), readings,
                      [(o["start"], o["end"]) for o in outages if o["kind"] == "board" and n == 0],
                      dice, lose if n == 0 else ()) for n in range(boards)]
    return {
        "meta": {"seed": 5, "boards": boards, "readings": readings, "interval_ms": 750,
                 "command": "make demo SEED=5", "broker": "embedded", "seconds": 170,
                 "agreement": "Spark's own result (gold) agrees with what pyarrow reads."},
        "started": T0 - 9, "boards_on": T0, "ended": T0 + readings * 0.75 + 10, "devices": devices,
        "outages": outages, "events": [{"time": T0 - 6, "kind": "info", "text": "begin"}],
        "problems": [],
    }
