"""What becomes of held readings: marks, gaps, stalls, the bound. Both interpreters.

The store is a real one; the client only passes on to it what the real one does, so that the
acknowledgement of what is published again can be put off to the moment that a test is about.
"""

import json
from binascii import hexlify, unhexlify

import commands
import confirm
from confirm import Confirm, unsealer
from fw_board import Board
from umqtt_min.store.ram import RAMStore


class Client:
    """confirm() and republish() as the client has them."""

    def __init__(self, store):
        self.store = store
        self.connected = True
        self.again = []

    def confirm(self, seq):
        return self.store.confirm(seq)

    def republish(self, first, last):
        count = self.store.again(first, last)
        self.again.append((first, last, count))
        return count

    def deliver(self):
        """Send and have acknowledged what is to be sent."""
        seq = self.store.next(0)
        while seq:
            self.store.find(seq)
            self.store.sending(seq)
            self.store.done(seq)
            seq = self.store.next(seq)


class Bench:
    """`held` readings that the broker has acknowledged; a clock that moves by hand."""

    def __init__(self, held=10, stall_s=30, retention=1000, unseal=None):
        self.store = RAMStore(16384, hold=True)
        self.store.open()
        self.store.session(b"12345678")
        self.client = Client(self.store)
        self.lines = []
        self.now = (1 << 30) - 5000
        self._saved = confirm.ticks_ms
        confirm.ticks_ms = lambda: self.now
        self.confirm = Confirm(self.client, self.store, stall_s, retention, self.lines.append,
                               unseal)
        for _ in range(held):
            self.read()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        confirm.ticks_ms = self._saved

    def read(self):
        seq = self.store.seq
        self.store.put(seq, 2, b"t", b"reading")
        self.store.mark(seq)
        self.store.done(seq)

    def ack(self, upto, missing=(), epoch=None):
        epoch = epoch or hexlify(self.store.epoch).decode()
        message = {"epoch": epoch, "upto": upto, "missing": missing}
        self.confirm.received(json.dumps(message).encode())
        self.confirm.step()

    def say(self, payload):
        """Publish bytes on the ack topic."""
        self.confirm.received(payload)
        self.confirm.step()

    def wait(self, seconds):
        self.now = (self.now + seconds * 1000) % (1 << 30)
        self.confirm.step()


def test_mark_releases_what_it_covers():
    with Bench() as b:
        b.ack(4)
        assert (b.store.held, b.store.low) == (6, 5)
        b.ack(10)
        assert b.store.held == 0 and b.confirm.mark == 10


def test_mark_never_goes_back():
    with Bench() as b:
        b.ack(8)
        b.ack(3)
        assert b.store.held == 2 and b.confirm.mark == 8


def test_mark_of_another_epoch_is_ignored():
    with Bench() as b:
        b.ack(10, epoch="00" * 8)
        assert b.store.held == 10 and b.confirm.acks == 0


def test_mark_beyond_what_was_taken_is_nobodys():
    with Bench() as b:
        b.ack(11)
        assert b.store.held == 10 and b.confirm.malformed == 1
        b.read()
        b.ack(11)
        assert b.store.held == 0 and b.confirm.mark == 11


def test_nothing_happens_inside_the_callback():
    with Bench() as b:
        message = {"epoch": hexlify(b.store.epoch).decode(), "upto": 5, "missing": [[6, 7]]}
        b.confirm.received(json.dumps(message).encode())
        assert b.store.held == 10 and b.client.again == []


def test_malformed_acks_are_counted_and_do_nothing():
    with Bench() as b:
        epoch = hexlify(b.store.epoch).decode()
        for payload in (
            b"", b"{", b"[]", b"7", b"null", b"{}", b'{"epoch":1}',
            json.dumps({"epoch": epoch}).encode(),
            json.dumps({"epoch": epoch, "upto": None}).encode(),
            json.dumps({"epoch": epoch, "upto": [1]}).encode(),
            json.dumps({"epoch": epoch, "upto": 3, "missing": 7}).encode(),
            json.dumps({"epoch": epoch, "upto": 3, "missing": [7]}).encode(),
            json.dumps({"epoch": epoch, "upto": 3, "missing": [[5, 4]]}).encode(),
            json.dumps({"epoch": epoch, "upto": 3, "missing": [["a", 4]]}).encode(),
        ):
            b.confirm.received(payload)
            b.confirm.step()
        assert b.store.held == 10, b.store.held
        assert b.client.again == [] and b.confirm.acks == 0


def test_missing_readings_are_published_again_at_once():
    with Bench() as b:
        b.ack(2, [[3, 4], [7, 7]])
        assert b.client.again == [(3, 4, 2), (7, 7, 1)]
        assert b.confirm.republished == 3
        b.client.deliver()
        assert b.store.held == 8


def test_what_is_yet_to_come_is_not_missing_and_the_rest_of_the_mark_counts():
    # The bridge has taken a forged reading for one of this board.
    with Bench() as b:
        b.ack(2, [[3, 4], [6, 10**15]])
        assert b.client.again == [(3, 4, 2), (6, 10, 5)], b.client.again
        b.ack(4, [[500, 10**15]])
        b.client.deliver()
        assert b.confirm.mark == 4 and b.confirm.malformed == 0


def test_what_the_bridge_repeats_is_not_published_twice():
    with Bench() as b:
        b.ack(2, [[3, 4], [7, 7]])
        b.client.deliver()
        b.ack(2, [[3, 4], [7, 7]])
        b.ack(3, [[4, 4], [7, 7]])
        assert len(b.client.again) == 2
        b.ack(3, [[4, 4], [7, 9]])  # a new one
        assert b.client.again[2:] == [(4, 4, 1), (7, 9, 3)]


def test_what_stays_missing_is_published_again_after_the_stall():
    with Bench() as b:
        b.ack(2, [[3, 4]])
        b.client.deliver()
        b.wait(29)
        b.ack(2, [[3, 4]])
        assert len(b.client.again) == 1
        b.wait(1)
        b.client.deliver()
        b.ack(2, [[3, 4]])
        assert (3, 4, 2) in b.client.again[1:]


def test_mark_that_stands_still_brings_everything_again():
    with Bench() as b:
        b.wait(29)
        assert b.client.again == []
        b.wait(1)
        assert b.client.again == [(1, 10, 10)]
        assert "mark stands at 0" in b.lines[-1]


def test_mark_that_moves_puts_the_stall_off():
    with Bench() as b:
        for upto in (1, 2, 3):
            b.wait(20)
            b.ack(upto)
        assert b.client.again == []
        b.wait(30)
        assert b.client.again == [(4, 10, 7)]


def test_fruitless_rounds_wait_longer_up_to_eight_times():
    with Bench() as b:
        rounds = []
        for second in range(1, 1000):
            before = len(b.client.again)
            b.wait(1)
            if len(b.client.again) > before:
                rounds.append(second)
                b.client.deliver()
        assert rounds == [30, 90, 210, 450, 690, 930]


def test_sign_of_life_of_the_bridge_ends_the_longer_waits():
    with Bench() as b:
        for _ in range(91):
            b.wait(1)
            b.client.deliver()
        assert len(b.client.again) == 2
        b.ack(0)
        b.wait(30)
        assert len(b.client.again) == 3


def test_nothing_is_published_again_without_a_connection():
    with Bench() as b:
        b.client.connected = False
        b.wait(100)
        b.ack(2, [[3, 4]])
        assert b.client.again == []
        b.client.connected = True
        b.confirm.connected()
        b.confirm.step()
        assert b.client.again == [(3, 4, 2)]
        b.wait(29)
        assert len(b.client.again) == 1
        b.wait(1)
        assert len(b.client.again) == 2


def test_nothing_held_is_no_stall():
    with Bench(held=0) as b:
        b.wait(1000)
        b.read()
        b.wait(1)
        assert b.client.again == []


def test_bound_gives_up_the_oldest_and_counts_them():
    with Bench(held=0, retention=32) as b:
        for _ in range(32):
            b.read()
            b.confirm.step()
        assert b.store.held == 32 and b.confirm.given_up == 0
        b.read()
        b.confirm.step()
        assert b.store.held == 30 and b.store.low == 4 and b.confirm.given_up == 3
        for _ in range(100):
            b.read()
            b.confirm.step()
            assert b.store.held <= 32
        assert b.confirm.given_up + b.store.held == 133


def test_bound_of_one():
    with Bench(held=0, retention=1) as b:
        for _ in range(5):
            b.read()
            b.confirm.step()
        assert b.store.held == 1 and b.confirm.given_up == 4


def test_no_mark_releases_what_was_never_sent():
    """Of 10 readings the broker has 10, of the next 100 the client has sent 3: a forged reading
    with a high `lo` makes the bridge say, in good faith, that it has all of them."""
    with Bench() as b:
        for _ in range(100):
            b.store.put(b.store.seq, 2, b"t", b"reading")
        b.store.mark(13)
        b.ack(110)
        assert b.confirm.mark == 13
        # Those under way are gone with the broker's acknowledgement.
        assert b.store.next(b.store.sent) == 14 and b.store.live == 100 and b.store.held == 0
        for seq in (11, 12, 13):
            b.store.done(seq)
        assert b.store.live == 97
        b.client.deliver()
        b.store.mark(110)
        b.ack(110)
        assert b.store.live == 0 and b.confirm.mark == 110


def test_after_a_lost_session_marks_cover_what_the_broker_has_acknowledged():
    with Bench() as b:
        b.store.put(b.store.seq, 2, b"t", b"reading")
        b.store.session(b"another")
        assert b.store.sent == 0
        b.ack(11)
        assert b.confirm.mark == 10 and b.store.next(0) == 11


# Signed marks

KEY = "000102030405060708090a0b0c0d0e0f"
TOPIC = b"fleet/g/oven/ack"
SIGNED = {"marks": "signed", "command_key": KEY, "group": "g", "device": "oven"}


def mark(b, upto, missing=(), key=None, topic=TOPIC):
    """A mark as the bridge signs it."""
    text = {"epoch": hexlify(b.store.epoch).decode(), "upto": upto, "missing": missing}
    key = key or commands.hmac_sha256(unhexlify(KEY), b"umqtt marks")
    return commands.seal(key, topic, json.dumps(text).encode())


def test_the_key_of_marks_is_the_one_that_the_host_gives_to_the_bridge():
    key = commands.hmac_sha256(unhexlify(KEY), b"umqtt marks")
    assert hexlify(key) == b"cf887686166c282a979986e5fad218510cbfae5f78f758727a6c1458c9dd43f1"


def test_a_signed_mark_releases_and_fills_gaps():
    with Bench(unseal=unsealer(SIGNED)) as b:
        b.say(mark(b, 4))
        assert b.store.held == 6 and b.confirm.malformed == 0
        b.say(mark(b, 6, [[8, 9]]))
        assert b.confirm.mark == 6 and b.client.again == [(8, 9, 2)]


def test_no_other_mark_is_heeded_by_a_board_that_has_a_key():
    with Bench(unseal=unsealer(SIGNED)) as b:
        good = mark(b, 10, [[2, 3]])
        command_key = unhexlify(KEY)
        forged = [
            good[:-76] + b"}",  # without its code
            mark(b, 10, key=b"x" * 32), mark(b, 10, key=command_key),
            mark(b, 10, topic=b"fleet/g/other/ack"), mark(b, 10, topic=b"fleet/g/oven/status"),
            good.replace(b"10", b"09"), good + b" ", good[1:], b"", b"}", good.upper(),
            good[:-1] + b',}', mark(b, 9)[:-75] + good[-75:], b'{"epoch":"","upto":10}',
        ]  # fmt: skip
        for at in range(len(good)):
            forged.append(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            forged.append(good[:at])
        for payload in forged:
            b.say(payload)
        assert b.store.held == 10, b.store.held
        assert b.client.again == [] and b.confirm.acks == 0
        assert b.confirm.malformed == len(forged)
        assert "mark refused: wrong code" in b.lines[0]
        b.say(good)
        assert b.store.held == 0


def test_a_recorded_mark_asks_for_nothing_once_more():
    with Bench(unseal=unsealer(SIGNED)) as b:
        old, equal = mark(b, 2, [[4, 6]]), mark(b, 5, [[7, 8]])
        b.say(old)
        b.say(equal)
        b.client.deliver()
        before, acks = list(b.client.again), b.confirm.acks
        b.say(old)
        assert b.client.again == before and b.confirm.acks == acks and b.store.held == 5
        # Nor after a restart, of which nothing but the store is left.
        b.confirm = Confirm(b.client, b.store, 30, 1000, b.lines.append, unsealer(SIGNED))
        b.say(old)
        assert b.client.again == before and b.confirm.acks == 0 and b.confirm.mark == 0


def test_a_nonsense_mark_with_a_right_code_is_refused_as_any():
    with Bench(unseal=unsealer(SIGNED)) as b:
        key = commands.hmac_sha256(unhexlify(KEY), b"umqtt marks")
        for body in (b"{}", b"{x}", b'{"epoch":7}', b"[]"):
            b.say(commands.seal(key, TOPIC, body))
        assert b.confirm.malformed == 4 and b.store.held == 10


def test_signed_marks_need_a_key_and_any_need_none():
    assert unsealer({"marks": "any"}) is None
    try:
        unsealer({"marks": "signed", "command_key": ""})
        raise AssertionError("accepted")
    except ValueError as error:
        assert "needs a command_key" in str(error)


def test_what_was_held_for_a_mark_is_published_once_more_when_the_broker_shall_do():
    store = RAMStore(4096, hold=True)
    with Board(store, confirm="pipeline", readings=0) as board:
        board.run(lambda: board.app.full)
        held = store.held
        assert held and store.live == held, "full, all of it acknowledged"
        board.app.client.disconnect()
    store.hold = False
    with Board(store, confirm="broker", readings=0) as board:
        last = store.seq
        board.run(lambda: store.seq > last + 5 and not store.held)
        assert "%d readings were held for a mark" % held in "\n".join(board.lines)
        assert store.low >= last, "and their room is free"
        assert board.app.client.counters.acked >= held, "by being acknowledged once more"
