"""The client with FlashStore on a NOR flash that loses its power at every operation. What every
store does with the client is in test_client_stores.py.

Knows: the scenarios every store has to pass, the flash emulator.
Must not know: the journal's format.
"""
# heap: 4M
# deadline: 240

import store_scenarios as scenarios
from harness import Bench, raises
from nor import INVISIBLE, LOOKS_DONE, NOR, PREFIX, SUBSET, PowerCut
from strict_broker import HOLD
from strict_wire import PUBLISH
from umqtt_min import FlashStore, MQTTException
from umqtt_min.store import DROP_OLDEST, LATEST

PAGES = (1, 256)
flash = [None]


def fresh(page=1):
    """An erased flash of 8 sectors."""
    flash[0] = NOR(blocks=8, block=4096, page=page)


def open_store():
    """The store as it is after a reboot."""
    flash[0].boot()
    return FlashStore(flash[0])


def with_power_cut(page, operation, at, mode):
    """Play, die in that operation, boot, finish, check.  True if it died."""
    fresh(page)
    sent = {1: [], 2: []}
    died = False
    try:
        b = Bench(store=open_store(), **scenarios.OPTIONS)
        flash[0].cut_after(operation, at, mode)
        scenarios.play(b, sent)
    except PowerCut:
        died = True
    except (OSError, MQTTException):
        pass
    b.make(store=open_store(), **scenarios.OPTIONS)
    scenarios.finish(b)
    for qos in (1, 2):
        got = [m.payload for m in b.broker.messages if m.qos == qos]
        once = scenarios.firsts(got)
        # What was accepted came; the message that was being accepted may have come as well.
        assert once[: len(sent[qos])] == sent[qos], (operation, at, mode, got, sent)
        assert len(once) <= len(sent[qos]) + 1, (operation, at, mode, got, sent)
        assert qos == 1 or got == once, (operation, at, mode, got)
    return died


def sizes(page):
    """Bytes of each program of the scenario, 0 for an erase, as without a power cut."""
    fresh(page)
    b = Bench(store=open_store(), **scenarios.OPTIONS)
    flash[0].log = []
    scenarios.play(b, {1: [], 2: []})
    return [len(program) for program in flash[0].log]


def test_power_cuts_at_every_operation():
    for page in PAGES:
        programs = sizes(page)
        assert len(programs) > 15, "%d operations: nothing is shown" % len(programs)
        for mode in (PREFIX, SUBSET, INVISIBLE, LOOKS_DONE):
            for operation, size in enumerate(programs):
                at = (operation * 7 + mode * 3) % (size + 1)
                assert with_power_cut(page, operation + 1, at, mode)


def test_power_cuts_between_operations():
    operation = 1
    while with_power_cut(1, operation, 0, PREFIX):
        operation += 1
    assert operation > 10


def test_what_is_given_up_while_it_is_under_way():
    # Nothing is acknowledged until more was published than the store has numbers for.
    for policy, topics in ((DROP_OLDEST, (b"a",)), (LATEST, (b"seldom", b"often"))):
        fresh()
        b = Bench(store=FlashStore(flash[0], policy=policy, messages=32))
        b.connect()
        b.broker.resume_required = False  # what is given up is not sent again
        for _ in range(16):  # the window
            b.broker.when(PUBLISH, HOLD, 1)
        for i in range(200):
            b.client.publish(topics[i > 0 and len(topics) - 1], b"%d" % i, qos=1, wait=False)
        assert b.client.store.dropped > 100
        b.net.stream.end()
        raises(OSError, b.pump)
        b.connect()
        assert b.client.flush(60) and b.client.inflight() == 0
        assert b.broker.payloads()[-1] == b"199"
        assert b.client.publish(b"a", b"after", qos=1) and b.broker.payloads()[-1] == b"after"
