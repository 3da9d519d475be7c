"""Correct sessions, simulated and told as short stories, accuse nobody, whole or damaged; a sender
that takes an identifier too early is told, and nobody else.

Knows: conversations, what can happen to a capture. Must not know: how exchanges are put together.
"""

import random

import audit_kit as kit
import audit_traffic as traffic
import pytest
from conversations import (
    APART,
    BROKER,
    CLIENT,
    FIRST_PORT,
    MS,
    PAUSE,
    PUBACK,
    PUBCOMP,
    PUBREC,
    SUBACK,
    UNSUBACK,
    Conversation,
    Line,
    address,
    answer,
    connack,
    connect,
    question,
)  # fmt: skip
from devices import rows

SIDES = ("client", "broker")
BLOCK = 200  #: so many conversations go into one capture
STEP = 10 * MS  #: between two packets of a story


def _told(frames, tmp_path):
    """What is said of each client: {address: {(statement, sender)}}."""
    from mqtt_audit import run

    path = kit.pcap(tmp_path / "t.pcap", sorted(frames, key=lambda frame: frame[0]))
    out = tmp_path / "out"
    run.build(None, [path], out)
    clients = {c["connection"]: c["client"].split(":")[0] for c in rows(out, "connections")}
    told = {}
    for v in rows(out, "violations"):
        told.setdefault(clients[v["connection"]], set()).add((v["statement"], v["sender"]))
    return told


def _nobody(made, tmp_path):
    """made: {what it is: (number of its client, frames)}; only what is accused is left."""
    told = _told([frame for _, frames in made.values() for frame in frames], tmp_path)
    names = {address(number): name for name, (number, _) in made.items()}
    return {names[client]: said for client, said in told.items()}


def _seeds(block):
    return range(block * BLOCK, (block + 1) * BLOCK)


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize("block", range(2))
def test_no_conversation_accuses_anybody(block, level, tmp_path):
    made = {seed: (seed, Conversation(seed, level).frames()) for seed in _seeds(block)}
    assert _nobody(made, tmp_path) == {}


def _damaged(frames, choice):
    """The capture begins later, or some frames are missing, or some runs of them; or two of it."""
    late = choice.random() < 0.5
    frames = frames[choice.randrange(len(frames)) if late else 0 :]
    lacking = [traffic.dropped, traffic.gone] + [lambda whole, _: whole] * late
    return choice.choice(lacking)(frames, choice)


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize("block", range(10, 13))
def test_no_damaged_conversation_accuses_anybody(block, level, tmp_path):
    made = {}
    for seed in _seeds(block):
        frames = Conversation(seed, level).frames()
        made[seed] = seed, _damaged(frames, random.Random(seed))
    assert _nobody(made, tmp_path) == {}


#: By version: what an identifier taken too early breaks, of the client and of the broker.
TOO_EARLY = {3: ("MQTT 3.1, 2.4",) * 2, 4: ("MQTT-2.3.1-2", "MQTT-2.3.1-4"),
             5: ("MQTT-2.2.1-3", "MQTT-2.2.1-4")}  # fmt: skip


@pytest.mark.parametrize("level", TOO_EARLY)
@pytest.mark.parametrize("side", [CLIENT, BROKER], ids=SIDES)
def test_who_does_not_wait_for_an_answer_is_told(side, level, tmp_path):
    """And nothing else is: the other side answers all that it reads."""
    seeds = _seeds(side)
    frames = [f for seed in seeds for f in Conversation(seed, level, side).frames()]
    wanted = {(TOO_EARLY[level][side], SIDES[side])}
    assert _told(frames, tmp_path) == {address(seed): wanted for seed in seeds}


# Stories: a sender asks and its receiver answers, all with one identifier. (0 the sender, what its
# packet wants, text, whether it is sent again, whether it was on its way before the answer came)
# or (1 the receiver, type of the answer).

NEXT = None  #: the connection is cut, and another one goes on with the session


def _asks(wants, text=b"A", again=False, early=False):
    return 0, wants, text, again, early


A1, A2 = _asks(PUBACK), _asks(PUBREC)
B1, B2, C1, C2 = (_asks(wants, text) for text in (b"B", b"C") for wants in (PUBACK, PUBREC))
A1_DUP, A2_DUP, B1_DUP = (_asks(wants, text, True) for wants, text in (
    (PUBACK, b"A"), (PUBREC, b"A"), (PUBACK, b"B")))  # fmt: skip
A1_LATE, A2_LATE, B1_LATE = (_asks(wants, text, True, True) for wants, text in (
    (PUBACK, b"A"), (PUBREC, b"A"), (PUBACK, b"B")))  # fmt: skip
REL, REL_AGAIN = _asks(PUBCOMP), _asks(PUBCOMP, b"", True)
REL_LATE = _asks(PUBCOMP, b"", True, True)
ACK, REC, COMP, SUB_ACK, UNSUB_ACK = (
    (1, kind) for kind in (PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK))  # fmt: skip
SUB, UNSUB, SUB_DUP = _asks(SUBACK), _asks(UNSUBACK), _asks(SUBACK, b"", True)
REST = [REC, REL, COMP]  #: of QoS 2
OVER_2 = [A2, REC, REL, COMP, REL_LATE]  #: a message that is over, and its PUBREL once more

#: Of every version: nothing comes twice on a connection.
ONCE = {
    "QoS 1, then 2": [A1, ACK, B2, *REST, C1, ACK],
    "QoS 1 goes on": [A1, NEXT, A1_DUP, ACK, B1, ACK],
    "QoS 2 goes on": [A2, NEXT, A2_DUP, *REST, B2, *REST],
    "QoS 2 goes on, after PUBREC": [A2, REC, NEXT, A2_DUP, *REST, B1, ACK],
    "PUBREL goes on": [A2, REC, REL, NEXT, REL_AGAIN, COMP, B1, ACK],
    "PUBREL goes on twice": [A2, REC, REL, NEXT, REL_AGAIN, NEXT, REL_AGAIN, COMP, B2, *REST],
    "PUBREL goes on, and the next message": [A2, REC, REL, NEXT, REL_AGAIN, COMP, B1, NEXT,
                                             B1_DUP, ACK],
    "the next message is the same": [A1, ACK, A1, ACK, A2, *REST, A2, *REST],
}  # fmt: skip
#: Before MQTT 5.
AGAIN = {
    "twice twice": [A1, A1_DUP, ACK, ACK, B1, ACK],
    "PUBACK, then QoS 1": [A1, A1_DUP, ACK, B1, ACK, ACK],
    "PUBACK, then QoS 2": [A1, A1_DUP, ACK, B2, ACK, *REST],
    "PUBACK, late": [A1, ACK, A1_LATE, B1, ACK, ACK],
    "PUBACK, late, then QoS 2": [A1, ACK, A1_LATE, B2, ACK, *REST],
    "PUBACK, late, twice": [A1, ACK, A1_LATE, A1_LATE, B1, ACK, ACK, ACK],
    "PUBACK, late, is taken for that of the next": [A1, ACK, A1_LATE, B1, ACK, C1, ACK, ACK],
    "so, and each comes again": [A1, ACK, A1_LATE, B1, ACK, B1_LATE, C1, ACK, ACK, ACK],
    "PUBACK came before the next, and arrives behind it": [A1, A1_DUP, ACK, ACK, B1, C1, ACK, ACK],
    "so, QoS 2": [A1, A1_DUP, ACK, ACK, B1, C2, ACK, *REST],
    "PUBREC, late": [A2, REC, A2_LATE, REL, COMP, B1, REC, ACK],
    "PUBREC, late, and PUBREL": [A2, REC, A2_LATE, REL, COMP, B1, REC, REL, ACK, COMP],
    "PUBREC, late, then QoS 2": [A2, REC, A2_LATE, REL, COMP, B2, REC, REL, REC, COMP],
    "PUBREC, then QoS 1": [A2, A2_DUP, *REST, B1, REC, REL, ACK, COMP],
    "PUBCOMP": [A2, REC, REL, REL_AGAIN, COMP, B2, COMP, *REST],
    "PUBCOMP, late, then QoS 1": [*OVER_2, B1, COMP, ACK],
    "PUBCOMP, late, then QoS 2": [*OVER_2, B2, COMP, *REST],
    "PUBCOMP, late, twice": [*OVER_2, REL_LATE, B1, COMP, COMP, ACK],
    "PUBCOMP, late, is taken for that of the next": [*OVER_2, B2, REC, REL, COMP, C2, COMP, *REST],
    "the next message is the same, QoS 1": [A1, ACK, A1_LATE, A1, ACK, ACK],
    "the next message is the same, QoS 2": [*OVER_2, A2, COMP, *REST],
    "goes on, late": [A1, NEXT, A1_DUP, ACK, A1_LATE, B1, ACK, ACK],
    "goes on, late, QoS 2": [A2, NEXT, A2_DUP, REC, A2_LATE, REL, REC, COMP, B1, ACK],
    "PUBREL goes on, late, then QoS 1": [A2, REC, REL, NEXT, REL_AGAIN, COMP, REL_LATE, B1, COMP,
                                         ACK],
    "PUBREL goes on, late, then QoS 2": [A2, REC, REL, NEXT, REL_AGAIN, COMP, REL_LATE, B2, COMP,
                                         *REST],
    "nobody knows that it is over": [A1, ACK, A1_LATE, NEXT, A1_DUP, ACK, B1, ACK],
    "late, and another one on the next": [A1, ACK, A1_LATE, NEXT, B1, ACK],
    "PUBREL, late, and on the next": [*OVER_2, NEXT, REL_AGAIN, COMP, B1, ACK],
}  # fmt: skip
#: Of the client alone, before MQTT 5.
REQUESTS = {
    "PUBACK, then SUBSCRIBE": [A1, ACK, A1_LATE, SUB, ACK, SUB_ACK],
    "PUBACK came, then UNSUBSCRIBE": [A1, ACK, A1_LATE, ACK, UNSUB, UNSUB_ACK],
    "PUBACK arrives behind the next, then SUBSCRIBE": [A1, A1_DUP, ACK, ACK, B1, SUB, ACK,
                                                       SUB_ACK],
    "PUBCOMP, then SUBSCRIBE": [*OVER_2, SUB, COMP, SUB_ACK],
    "PUBREC, then UNSUBSCRIBE": [A2, REC, A2_LATE, REL, COMP, UNSUB, REC, UNSUB_ACK],
    "SUBSCRIBE, then QoS 1": [SUB, SUB_ACK, A1, ACK, UNSUB, UNSUB_ACK, B2, *REST],
}
#: Of the client alone, of MQTT 3.1.
OLD = {
    "SUBACK, then QoS 1": [SUB, SUB_DUP, SUB_ACK, A1, SUB_ACK, ACK],
    "SUBACK, then UNSUBSCRIBE": [SUB, SUB_DUP, SUB_ACK, UNSUB, SUB_ACK, UNSUB_ACK],
    "SUBACK is taken for that of the next": [SUB, SUB_DUP, SUB_ACK, SUB, SUB_ACK, A1, SUB_ACK,
                                             ACK],
}  # fmt: skip


def _connections(story):
    """The story, connection by connection."""
    found = [[]]
    for packet in story:
        if packet is NEXT:
            found.append([])
        else:
            found[-1].append(packet)
    return found


def _captured(story, level, sender, number):
    """The frames of a story that one side tells as the sender of the messages."""
    frames, now, parts = [], kit.START + number * APART, _connections(story)
    for k, part in enumerate(parts):
        line = Line(number, FIRST_PORT + k, STEP, 0, random.Random(number))
        hello = [(0, CLIENT, connect(level, f"c{number}", len(parts) == 1)),
                 (0, BROKER, connack(level, k > 0))]  # fmt: skip
        now = line.begin(now)
        for early, way, raw in hello + [_packet(packet, level, sender) for packet in part]:
            if not early:
                line.heard[way] = line.seq[1 - way]
            line.send(now, way, raw)
            now += STEP
        if k == len(parts) - 1:
            line.end(now)
        else:
            line.send(now, CLIENT, flags=kit.RST | kit.ACK)
        frames += line.captured()
        now += PAUSE
    return frames


def _packet(packet, level, sender):
    """(whether it was sent before the last answer came, way, packet)."""
    if packet[0]:
        return 0, 1 - sender, answer(level, packet[1], 1)
    _, wants, text, again, early = packet
    return early, sender, question(level, wants, 1, text, again)


def _stories(level, sender):
    found = dict(ONCE)
    if level < 5:
        found |= AGAIN
    if level < 5 and sender == CLIENT:
        found |= REQUESTS
    if level < 4 and sender == CLIENT:
        found |= OLD
    return found


def _lacking(size):
    """{what the capture lacks: the places of the frames that it has}."""
    found = {"nothing": range(size)}
    for k in range(size):
        found[f"frame {k}"] = [j for j in range(size) if j != k]
        found[f"all before frame {k}"] = range(k, size)
    return found


@pytest.mark.parametrize("sender", [CLIENT, BROKER], ids=SIDES)
@pytest.mark.parametrize("level", [3, 4, 5])
def test_no_story_accuses_anybody(level, sender, tmp_path):
    """Whole, without any one frame, and from any frame on."""
    made = {}
    for name, story in _stories(level, sender).items():
        for lacking, places in _lacking(len(_captured(story, level, sender, 0))).items():
            frames = _captured(story, level, sender, len(made))
            made[name, lacking] = len(made), [frames[k] for k in places]
    assert _nobody(made, tmp_path) == {}
