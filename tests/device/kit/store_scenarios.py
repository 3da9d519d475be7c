"""Scenarios that every store has to pass together with the client.

Knows: the client's API, the store's interface, the strict broker.
Must not know: which store it is; the caller gives open_store() -> the store on the same medium,
as after a reboot, and says with fresh() that a new medium begins.
"""

from harness import Bench, raises
from strict_broker import DROP
from strict_wire import PUBLISH
from umqtt_min import MQTTException

OPTIONS = {"buffer_size": 64, "window": 4}


def firsts(payloads):
    """Payloads without repetitions."""
    seen = []
    for p in payloads:
        if p not in seen:
            seen.append(p)
    return seen


def finish(b):
    """Connect if need be, wait for all acknowledgements, leave nothing behind."""
    if not b.client.connected:
        b.connect()
    assert b.client.flush(60)
    assert b.client.inflight() == 0
    assert not b.conn.session.incoming


def play(b, sent):
    """Publish a bit of everything; appends what was accepted."""
    b.connect()
    for i in range(6):
        m = b"%d" % i * (1 + 20 * i)
        qos = 1 + i % 2
        try:
            b.client.publish(b"t%d" % qos, m, qos=qos, wait=i == 3)
        except MQTTException as e:
            if e.stored:
                sent[qos].append(m)
            raise
        sent[qos].append(m)
    assert b.client.flush(20)


def check(b, sent):
    """All of it arrived, in order; QoS 2 once."""
    for qos in (1, 2):
        got = [m.payload for m in b.broker.messages if m.qos == qos]
        assert firsts(got) == sent[qos], (got, sent)
        assert qos == 1 or got == sent[2], got


def everything_once(open_store):
    """No faults: each message once, none with DUP, sizes around the buffer and beyond."""
    b = Bench(store=open_store(), **OPTIONS)
    b.connect()
    sizes = [0, 1, 40, 50, 55, 60, 64, 65, 127, 128, 200]
    for i, n in enumerate(sizes):
        b.client.publish(b"topic", b"x" * n, i % 4 > 1, 1 + i % 2, False)
    finish(b)
    assert [len(p) for p in b.broker.payloads()] == sizes
    assert not any(m.dup for m in b.broker.publishes)
    assert b.client.store.live == 0


def many(open_store, count=400):
    """Far more than the store holds at once passes through it."""
    b = Bench(store=open_store(), **OPTIONS)
    b.connect()
    for i in range(count):
        b.client.publish(b"t", b"message %d" % i, qos=1 + i % 2, wait=i % 8 == 7)
    finish(b)
    assert b.broker.payloads() == [b"message %d" % i for i in range(count)]
    assert b.client.store.live == 0


def offline_then_reboot(open_store, count=20):
    """Published without a connection, delivered by the next boot, in order, DUP 0."""
    b = Bench(store=open_store(), **OPTIONS)
    for i in range(count):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    b.make(store=open_store(), **OPTIONS)
    assert b.client.inflight() == count
    finish(b)
    assert b.broker.payloads() == [b"%d" % i for i in range(count)]
    assert not any(m.dup for m in b.broker.publishes)


def cuts(open_store, fresh, restart, step=1, start=0):
    """The link is cut at every step-th byte written, then at every step-th byte read."""
    fresh()
    b = Bench(store=open_store(), **OPTIONS)
    play(b, {1: [], 2: []})
    totals = (sum(b.net.stream.writes), b.conn.read)
    for which in (0, 1):
        for n in range(start, totals[which], step):
            fresh()
            b = Bench(store=open_store(), **OPTIONS)
            if which == 0:
                b.net.cut_after_write = n
            else:
                b.net.cut_after_read = n
            sent = {1: [], 2: []}
            try:
                play(b, sent)
            except (OSError, MQTTException):
                pass
            b.net.cut_after_write = b.net.cut_after_read = -1
            if restart:
                b.make(store=open_store(), **OPTIONS)
            finish(b)
            check(b, sent)


def incoming_once(open_store):
    """An incoming QoS 2 message is delivered once, though PUBREC was lost and power as well."""
    b = Bench(store=open_store(), **OPTIONS)
    b.connect()
    b.client.subscribe(b"t", 2)
    b.broker.publish(b"t", b"x", 2)
    b.net.cut_after_write = 2
    raises(OSError, b.pump)
    b.make(store=open_store(), **OPTIONS)
    b.connect()
    b.pump()
    assert b.got == [(b"t", b"x")]
    assert [m.payload for m in b.broker.acknowledged] == [b"x"]


def dup_only_on_what_may_have_been_sent(open_store):
    """After a reboot the first window carries DUP, what lies beyond it does not."""
    b = Bench(store=open_store(), **OPTIONS)
    b.connect()
    b.broker.when(PUBLISH, DROP, 0)
    for i in range(20):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    del b.broker._script[:]
    assert len(b.broker.publishes) == 4
    b.net.cut()
    b.make(store=open_store(), **OPTIONS)
    del b.broker.publishes[:]
    finish(b)
    dups = [m.dup for m in b.broker.publishes]
    assert all(dups[:4])
    assert not any(dups[8:])
    assert firsts(b.broker.payloads()) == [b"%d" % i for i in range(20)]
