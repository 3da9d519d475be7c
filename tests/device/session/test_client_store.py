"""Store and forward: what was accepted is delivered, in order, with its id, whatever breaks.

Knows: the client's API, the store's interface, the strict broker, which checks ids, order and DUP.
Must not know: how a store keeps its records (ModelStore stands in for them here).
"""
# heap: 4M
# deadline: 120

import machine
import softtimer
from harness import Bench, raises, reason
from model_store import Disk, ModelStore
from store_scenarios import play
from strict_broker import DROP, HOLD, StrictBroker, publish
from strict_wire import CONNECT, PUBACK, PUBLISH, PUBREC, PUBREL
from umqtt_min import MQIPDP_2, MQTT_3_1, MQTTException
from umqtt_min.errors import LOST, NOT_CONNECTED, STORE_FULL, TIMEOUT


class Stored(Bench):
    """A bench whose client has a store on a disk."""

    def __init__(self, disk=None, **options):
        self.disk = disk or Disk()
        Bench.__init__(self, store=ModelStore(self.disk), **options)

    def reboot(self, **options):
        """The power comes back: a new client, a new store on the same disk."""
        self.net.hook = self.disk.on_program = None
        for stream in self.net.streams:
            if not stream.ended and not stream.closed:
                stream.end()
        softtimer.timers.clear()
        return self.make(store=ModelStore(self.disk), **options)


class Cut(Exception):
    """The power fails here."""


def firsts(payloads):
    """Payloads without repetitions."""
    seen = []
    for p in payloads:
        if p not in seen:
            seen.append(p)
    return seen


def delivered(b, sent, qos):
    """All of sent arrived, in order; at QoS 2 once."""
    got = [m.payload for m in b.broker.messages if m.qos == qos]
    assert firsts(got) == sent, (got, sent)
    if qos == 2:
        assert got == sent, got


def finish(b):
    """Connect if need be, and wait for all acknowledgements."""
    if not b.client.connected:
        b.connect()
    assert b.client.flush(60)
    assert b.client.inflight() == 0
    assert b.client.store.live == 0
    assert not b.conn.session.incoming


def test_wait_and_no_wait():
    b = Stored()
    b.connect()
    ids = []
    for qos in (1, 2):
        for wait in (True, False):
            ids.append(b.client.publish(b"t", b"%d%d" % (qos, wait), qos=qos, wait=wait))
    finish(b)
    assert len(set(ids)) == 4 and 0 not in ids
    assert b.broker.payloads() == [b"11", b"10", b"21", b"20"]
    assert [m.dup for m in b.broker.publishes] == [False] * 4


def test_retain_and_sizes():
    b = Stored()
    b.connect()
    sizes = [0, 1, 100, 240, 250, 256, 300, 1000, 5000]
    for i, n in enumerate(sizes):
        b.client.publish(b"t", b"x" * n, retain=i % 2 == 1, qos=1 + i % 2, wait=False)
    finish(b)
    assert [len(p) for p in b.broker.payloads()] == sizes
    assert [m.retain for m in b.broker.messages] == [i % 2 == 1 for i in range(len(sizes))]


def test_offline_messages_are_sent_when_connected_with_dup_0():
    b = Stored()
    sent = [b"%d" % i for i in range(50)]
    for m in sent:
        b.client.publish(b"t", m, qos=2, wait=False)
    assert b.client.inflight() == 50
    finish(b)
    delivered(b, sent, 2)
    assert not any(m.dup for m in b.broker.publishes)


def test_offline_and_waiting_says_that_it_is_stored():
    b = Stored()
    e = raises(MQTTException, b.client.publish, b"t", b"x", qos=1)
    assert (e.reason, e.stored) == (NOT_CONNECTED, True)
    finish(b)
    assert [(m.pid, m.payload) for m in b.broker.messages] == [(e.pid, b"x")]


def test_no_acknowledgement_in_time_says_that_it_is_stored():
    b = Stored(timeout=2, window=1)
    b.connect()
    b.broker.when(PUBLISH, HOLD)
    for payload, missed in ((b"x", "no PUBACK"), (b"y", "it did not go out")):
        e = raises(MQTTException, b.client.publish, b"t", payload, qos=1)
        assert (e.reason, e.stored) == (TIMEOUT, True)
        assert missed in str(e)
    b.broker.release()
    finish(b)
    assert b.broker.payloads() == [b"x", b"y"]


def test_the_acknowledgement_that_did_not_come_is_named():
    for kind, missed in ((PUBLISH, "no PUBREC"), (PUBREL, "no PUBCOMP")):
        b = Stored(timeout=2)
        b.connect()
        b.broker.when(kind, HOLD)
        assert missed in str(raises(MQTTException, b.client.publish, b"t", b"x", qos=2))


def test_a_cut_while_waiting_says_that_it_is_stored_and_it_comes_with_dup_and_its_id():
    """[MQTT-2.3.1-3] [MQTT-3.3.1-1] [MQTT-4.4.0-1]"""
    for qos in (1, 2):
        b = Stored()
        b.connect()
        b.broker.when(PUBLISH, DROP)
        b.net.cut_after_write = 8
        e = raises(MQTTException, b.client.publish, b"t", b"x", qos=qos)
        assert (e.reason, e.stored) == (LOST, True)
        finish(b)
        assert [(m.pid, m.dup) for m in b.broker.publishes][-1] == (e.pid, True)
        assert b.client.counters.redelivered == 1


def test_the_window_bounds_what_is_in_flight_and_keeps_the_order():
    for window in (1, 2, 16, 255):
        b = Stored(window=window)
        b.connect()
        b.broker.when(PUBLISH, HOLD, 0)
        for i in range(40):
            b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
        assert len(b.broker.publishes) == min(window, 40)
        del b.broker._script[:]
        b.broker.release()
        finish(b)
        delivered(b, [b"%d" % i for i in range(40)], 1)


def test_the_window_goes_on_behind_a_message_that_ended_before_an_older_one():
    b = Stored(window=3)
    b.connect()
    b.broker.when(PUBLISH, HOLD, 0)
    for i in range(7):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    held = b.broker.held
    for i, sent in ((1, 3), (0, 5), (0, 6)):  # the second one ends, the first, the third
        b.broker.held = [held.pop(i)]
        b.broker.release()
        b.client.check_msg()
        held += b.broker.held
        assert len(b.broker.publishes) == sent, (sent, b.broker.publishes)
    b.broker.behave()
    b.broker.held = held
    b.broker.release()
    finish(b)


def test_redelivery_in_the_original_order():
    """[MQTT-4.6.0-1] [MQTT-4.6.0-4]"""
    b = Stored()
    b.connect()
    b.broker.when(PUBLISH, DROP, 0)
    for i in range(10):
        b.client.publish(b"t", b"%d" % i, qos=1 + i % 2, wait=False)
    del b.broker._script[:]
    b.net.cut()
    raises(OSError, b.pump)
    del b.broker.publishes[:]
    finish(b)
    assert [(m.payload, m.dup) for m in b.broker.publishes] == [
        (b"%d" % i, True) for i in range(10)
    ]


def test_what_never_left_goes_out_with_dup_0():
    b = Stored(window=4)
    b.connect()
    b.broker.when(PUBLISH, DROP, 0)
    for i in range(10):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    del b.broker._script[:]
    b.net.cut()
    raises(OSError, b.pump)
    del b.broker.publishes[:]
    finish(b)
    assert [m.dup for m in b.broker.publishes] == [i < 4 for i in range(10)]


def test_after_pubrec_pubrel_is_sent_again_and_never_the_publish():
    """[MQTT-4.3.3-1] [MQTT-4.4.0-1]; MQTT 3.1 sets DUP on it, 3.1.1 and the draft do not."""
    for level, options in ((4, {}), (3, {"protocol": MQTT_3_1}), (2, {"protocol": MQIPDP_2})):
        for restart in (False, True):
            b = Stored(broker=StrictBroker(level), **options)
            b.connect()
            b.broker.when(PUBREL, DROP, 0)
            for i in range(3):
                b.client.publish(b"t", b"%d" % i, qos=2, wait=False)
            b.pump()
            assert b.broker.count(PUBREL) == 3
            del b.broker._script[:]
            b.net.cut()
            if restart:
                b.reboot(**options)
            else:
                raises(OSError, b.pump)
            finish(b)
            assert len(b.broker.publishes) == 3
            assert [p.pid for p in b.broker.packets if p.type == PUBREL][3:] == [
                m.pid for m in b.broker.publishes
            ]
            assert [p.dup for p in b.broker.packets if p.type == PUBREL] == [False] * 3 + [
                level == 3
            ] * 3


def test_ids_skip_what_is_in_flight_and_go_on_after_a_reboot():
    """[MQTT-2.3.1-2]"""
    b = Stored()
    b.connect()
    b.broker.when(PUBLISH, HOLD, 0)
    b.client.pid = 65533
    ids = [b.client.publish(b"t", b"%d" % i, qos=1, wait=False) for i in range(5)]
    assert ids == [65534, 65535, 1, 2, 3]
    b.client.pid = 65533
    assert b.client.publish(b"t", b"5", qos=1, wait=False) == 4
    b.reboot()
    assert b.client.publish(b"t", b"6", qos=1, wait=False) == 5
    del b.broker._script[:]
    finish(b)
    delivered(b, [b"%d" % i for i in range(7)], 1)


def test_an_id_that_comes_round_is_seen_where_it_is_in_flight_and_nowhere_else():
    """[MQTT-2.3.1-2]"""
    b = Stored()
    b.connect()
    b.broker.when(PUBLISH, HOLD, 0)
    flying = []
    for _ in range(3):
        flying.append(b.client.publish(b"t", b"x", qos=1, wait=False))
        pid = flying[-1]
        seen = []
        for _ in range(65535):
            pid = pid % 65535 + 1
            if b.client._session.uses(pid):
                seen.append(pid)
        assert seen == flying


def test_ids_skip_what_has_waited_in_the_store_for_65535_messages():
    """[MQTT-2.3.1-2]"""
    disk = Disk()
    b = Stored(disk)
    old = b.client.publish(b"t", b"old", qos=1, wait=False)
    disk.seq = 65530  # what came between has been acknowledged
    b.client.pid = old - 2 if old > 2 else 65535 + old - 2
    ids = [b.client.publish(b"t", b"new", qos=1, wait=False) for _ in range(3)]
    assert old not in ids and len(set(ids)) == 3
    finish(b)


def length_of_scenario():
    b = Stored(buffer_size=64, window=4)
    play(b, {1: [], 2: []})
    return sum(b.net.stream.writes), b.conn.read


def cut_and_recover(b, restart):
    """Play the scenario until the cut that was set up, then recover and check."""
    sent = {1: [], 2: []}
    try:
        play(b, sent)
    except (OSError, MQTTException):
        pass
    if restart:
        b.reboot(buffer_size=64, window=4)
    b.net.cut_after_write = b.net.cut_after_read = -1
    finish(b)
    delivered(b, sent[1], 1)
    delivered(b, sent[2], 2)


def test_a_cut_at_every_byte_written():
    total, _ = length_of_scenario()
    for restart in (False, True):
        for n in range(total):
            b = Stored(buffer_size=64, window=4)
            b.net.cut_after_write = n
            cut_and_recover(b, restart)


def test_a_cut_at_every_byte_read():
    _, total = length_of_scenario()
    for restart in (False, True):
        for n in range(total):
            b = Stored(buffer_size=64, window=4)
            b.net.cut_after_read = n
            cut_and_recover(b, restart)


def test_two_cuts():
    total, _ = length_of_scenario()
    for n in range(30, total, 7):
        for k in range(1, 90, 11):
            b = Stored(buffer_size=64, window=4)
            sent = {1: [], 2: []}
            b.net.cut_after_write = n
            try:
                play(b, sent)
            except (OSError, MQTTException):
                pass
            b.net.cut_after_write = k
            try:
                finish(b)
            except (OSError, MQTTException):
                pass
            b.net.cut_after_write = -1
            finish(b)
            delivered(b, sent[1], 1)
            delivered(b, sent[2], 2)


def test_power_cut_at_every_program():
    n = [0]
    for target in range(1, 100):
        b = Stored(buffer_size=64, window=4)
        n[0] = 0

        def program(n=n, target=target):
            n[0] += 1
            if n[0] == target:
                raise Cut()

        b.disk.on_program = program
        sent = {1: [], 2: []}
        try:
            play(b, sent)
        except Cut:
            pass
        else:
            assert target > 6
            return
        b.reboot(buffer_size=64, window=4)
        finish(b)
        for qos in (1, 2):
            got = firsts([m.payload for m in b.broker.messages if m.qos == qos])
            # The message that was being accepted may have made it or not.
            assert got[: len(sent[qos])] == sent[qos]
            assert len(got) <= len(sent[qos]) + 1
    raise AssertionError("too many programs")


def test_a_lost_session_publishes_anew_with_dup_0_and_counts():
    b = Stored()
    b.connect()
    b.broker.when(PUBREL, DROP, 0)
    b.broker.when(PUBLISH, HOLD, 6)
    for i in range(6):
        b.client.publish(b"t", b"%d" % i, qos=2, wait=False)
    b.pump()
    b.broker.lose_sessions()
    del b.broker._script[:]
    raises(OSError, b.pump)
    del b.broker.publishes[:]
    finish(b)
    assert [(m.payload, m.dup) for m in b.broker.publishes] == [
        (b"%d" % i, False) for i in range(6)
    ]
    assert b.client.counters.lost_sessions == 1


def test_the_first_connection_of_a_device_has_lost_no_session():
    b = Stored()
    b.client.publish(b"t", b"0", qos=1, wait=False)
    finish(b)
    assert b.client.counters.lost_sessions == 0


def test_an_explicit_clean_session_publishes_anew():
    """[MQTT-3.1.2-6]"""
    b = Stored()
    b.connect()
    b.broker.when(PUBLISH, DROP, 0)
    b.client.publish(b"t", b"x", qos=2, wait=False)
    del b.broker._script[:]
    b.net.cut()
    raises(OSError, b.pump)
    del b.broker.publishes[:]
    b.connect(True)
    finish(b)
    assert [(m.payload, m.dup) for m in b.broker.publishes] == [(b"x", False)]


def test_with_a_store_the_session_is_kept_by_default():
    b = Stored()
    b.connect()
    assert b.broker.packets[0].clean is False
    assert Bench().connect() is False


def test_another_broker_is_another_session():
    """Also one that has a session of its own for this client identifier, and says so."""
    for present in (False, True):
        b = Stored()
        b.connect()
        b.broker.when(PUBLISH, DROP, 0)
        b.client.publish(b"t", b"x", qos=2, wait=False)
        del b.broker._script[:]
        b.broker.lose_sessions()
        if present:
            plain = Bench(b.broker, client_id=b.client.client_id)
            plain.connect(False)
            plain.client.disconnect()
        b.reboot(server="other")
        finish(b)
        assert b.client.session_present is present
        assert b.broker.publishes[-1].dup is False
        assert b.client.counters.lost_sessions == 1


def test_incoming_qos_2_is_delivered_once_also_after_a_reboot():
    """[MQTT-4.3.3-2]"""
    b = Stored()
    b.connect()
    b.client.subscribe(b"t", 2)
    b.broker.when(PUBREC, DROP)
    b.broker.publish(b"t", b"x", 2)
    b.pump()
    assert b.got == [(b"t", b"x")]
    for o in b.conn.session.outgoing:
        o.state = PUBLISH  # the broker says it never saw PUBREC
    b.reboot()
    b.connect()
    b.pump()
    assert b.got == [(b"t", b"x")]
    assert b.client.counters.duplicates == 1
    assert b.disk.inbox == []


def test_incoming_ids_are_cleared_with_a_lost_session():
    b = Stored()
    b.connect()
    b.conn.send(publish(4, b"t", b"old", 2, pid=9))
    b.pump()
    b.broker.lose_sessions()
    raises(OSError, b.pump)
    b.connect()
    b.conn.send(publish(4, b"t", b"new", 2, pid=9))
    b.pump()
    assert [m for _, m in b.got] == [b"old", b"new"]


def test_from_the_callback_qos_1_and_2_go_through_the_store():
    b = Stored()
    b.connect()
    b.client.subscribe(b"t", 2)

    def callback(topic, msg):
        b.client.publish(b"answer", msg, qos=1)
        b.client.publish(b"answer", msg + b"!", qos=2)

    b.client.set_callback(callback)
    for i in range(5):
        b.broker.publish(b"t", b"%d" % i, i % 3)
    b.pump()
    finish(b)
    want = []
    for i in range(5):
        want += [b"%d" % i, b"%d!" % i]
    assert b.broker.payloads() == want


def test_publish_returns_its_own_identifier_though_a_callback_publishes_while_it_waits():
    b = Stored()
    b.connect()
    b.client.subscribe(b"t", 0)
    answers = []
    b.client.set_callback(
        lambda topic, msg: answers.append(b.client.publish(b"answer", msg, qos=1))
    )
    b.broker.publish(b"t", b"question", 0)
    pid = b.client.publish(b"own", b"x", qos=2)
    sent = {}
    for p in b.broker.packets:
        if p.type == PUBLISH:
            sent[p.topic] = p.pid
    assert sent == {b"own": pid, b"answer": answers[0]}, (sent, pid, answers)
    finish(b)


def half_a_pubrel(window=2):
    """A bench whose PUBREL a tick could not send, and which cannot be sent yet; a third message
    waits for its turn."""
    b = Stored(window=window)
    b.connect()
    b.client.subscribe(b"down", 2)
    for i in range(3):
        if i < 2:
            b.broker.when(PUBLISH, HOLD)
        b.client.publish(b"t", b"%d" % i, qos=1 + i % 2, wait=False)
    b.broker.release()
    b.net.write_stalls = 2
    b.client.tick()  # it has read PUBACK and PUBREC
    assert b.client._tx.waiting == 4
    return b


def test_an_acknowledgement_that_waits_for_room_is_out_before_a_stored_message():
    b = half_a_pubrel()
    b.client.check_msg()  # there is room for the third message
    finish(b)
    assert b.broker.payloads() == [b"0", b"1", b"2"]
    assert b.broker.count(CONNECT) == 1


def test_it_is_out_before_any_other_packet():
    for qos in (0, 1, 2):
        b = half_a_pubrel()
        b.broker.publish(b"down", b"x", qos)
        b.client.check_msg()  # PUBACK, PUBREC
        finish(b)
        b.pump()
        assert b.got == [(b"down", b"x")] and b.broker.count(CONNECT) == 1
        b = half_a_pubrel(window=4)
        b.client.publish(b"t", b"new", qos=qos, wait=False)
        finish(b)
        assert b.broker.payloads() == [b"0", b"1", b"2", b"new"]
        assert b.broker.count(CONNECT) == 1


def test_a_full_store_is_an_error_with_a_reason():
    b = Stored(Disk(limit=3))
    for i in range(3):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    e = raises(MQTTException, b.client.publish, b"t", b"3", qos=1, wait=False)
    assert (e.reason, e.stored) == (STORE_FULL, False)
    assert reason(b.client.publish, b"t", b"3", qos=1) == STORE_FULL
    finish(b)
    b.client.publish(b"t", b"4", qos=1)
    assert b.broker.payloads() == [b"0", b"1", b"2", b"4"]


def test_a_timer_at_every_write_read_and_program():
    timer = machine.Timer(-1)
    b = Stored(keepalive=4, buffer_size=64, timer=timer, window=4)
    b.connect()
    b.client.subscribe(b"down", 2)

    def hook(where="program"):
        softtimer.jump(30)
        timer.fire()

    b.net.max_write = 7
    b.net.hook = hook
    b.disk.on_program = hook
    for i in range(12):
        b.client.publish(b"t", b"%d" % i * 10, qos=1 + i % 2, wait=i % 4 == 3)
        b.broker.publish(b"down", b"%d" % i, i % 3)
    b.client.flush(60)
    b.net.hook = b.disk.on_program = None
    finish(b)
    b.pump()
    assert b.broker.payloads() == [b"%d" % i * 10 for i in range(12)]
    assert [m for _, m in b.got] == [b"%d" % i for i in range(12)]


def test_stray_and_duplicate_acknowledgements_change_nothing():
    b = Stored()
    b.connect()
    b.conn.send(b"\x40\x02\x77\x77\x70\x02\x77\x77")
    b.broker.when(PUBLISH, lambda a: a + a, 0)
    b.broker.when(PUBREL, lambda a: a + a, 0)
    for i in range(8):
        b.client.publish(b"t", b"%d" % i, qos=1 + i % 2, wait=False)
    finish(b)
    b.pump()
    assert b.broker.payloads() == [b"%d" % i for i in range(8)]
    assert b.client.counters.unexpected >= 2


def test_an_acknowledgement_of_the_wrong_qos_ends_the_connection_and_loses_nothing():
    for qos, wrong in ((1, 0x50), (1, 0x70), (2, 0x40)):
        b = Stored()
        b.connect()
        b.broker.when(PUBLISH, lambda a, wrong=wrong: bytes((wrong,)) + a[1:])
        b.client.publish(b"t", b"x", qos=qos, wait=False)
        b.broker._owe = None
        try:
            b.pump()
        except (OSError, MQTTException):
            pass
        b.broker.errors[:] = [e for e in b.broker.errors if "PUBREL" not in e]
        finish(b)
        assert firsts(b.broker.payloads()) == [b"x"]


def test_held_readings_wait_for_the_mark_and_can_be_published_again():
    disk = Disk()
    b = Bench(store=ModelStore(disk, hold=True))
    b.connect()
    store = b.client.store
    for i in range(6):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    assert b.client.flush(10)
    assert (store.live, store.held, b.client.inflight()) == (6, 6, 0)
    assert b.client.confirm(2) == 2
    assert b.client.republish(3, 4) == 2
    b.pump()
    assert b.client.flush(10)
    assert b.broker.payloads() == [b"0", b"1", b"2", b"3", b"4", b"5", b"2", b"3"]
    assert not any(m.dup for m in b.broker.publishes)
    assert b.client.confirm(6) == 4
    assert store.live == 0


def test_what_is_asked_for_later_leaves_nothing_out_that_was_asked_for_before():
    b = Bench(store=ModelStore(Disk(), hold=True), window=1)
    b.connect()
    for i in range(4):
        b.client.publish(b"t", b"%d" % i, qos=1, wait=False)
    assert b.client.flush(10)
    assert b.client.republish(1, 3) == 3  # the first one goes out, the others wait
    b.client.check_msg()
    assert b.client.inflight() == 1
    assert b.client.republish(4, 4) == 1
    assert b.client.flush(10)
    assert b.broker.payloads()[4:] == [b"0", b"1", b"2", b"3"]


def test_what_is_asked_for_may_begin_before_the_first_message():
    b = Bench(store=ModelStore(Disk(), hold=True))
    b.connect()
    b.client.publish(b"t", b"x", qos=1, wait=False)
    assert b.client.flush(10)
    assert b.client.republish(0, 9) == 1
    b.pump()
    assert b.client.flush(10)
    assert b.broker.payloads() == [b"x", b"x"]


def test_qos_0_does_not_touch_the_store():
    b = Stored()
    b.connect()
    before = b.client.store.programs
    b.client.publish(b"t", b"x")
    assert b.client.store.programs == before
    assert b.broker.count(PUBACK) == 0
