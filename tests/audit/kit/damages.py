"""What can happen to a capture: frames that are lost, moved or cut, clocks that are set."""

import audit_kit as kit


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
    return raw[: choice.randrange(min(100, len(raw) - 1), len(raw))]


FILES = [lambda raw, _: raw, cut_short]
