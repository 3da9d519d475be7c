"""Confirmation by the pipeline: when a reading that the broker has acknowledged may be forgotten.

Knows the marks on .../ack and the store's held readings. Must not know sensors or connections.

No common broker makes a message durable before it acknowledges it, so a reading is held until the
bridge says, per epoch, up to which number it has everything on disk. Readings that a broker lost
with its memory are published again: those the bridge names as missing at once, and everything
held when the mark stands still. Each fruitless round doubles the wait, up to eight times, so that
a pipeline that is down for a day does not find a hundred copies of each reading; a sign of life
from it ends that.

With marks = "signed" no mark is heeded but one with a code (commands.seal) of a key that the
bridge has too: HMAC-SHA256(command_key, "umqtt marks"); who has that one can command nothing. The
counter that keeps recorded marks out is `upto` itself: what the store has let go of is gone
durably, and a mark that stands below it is not heeded.
"""

from binascii import hexlify, unhexlify
from time import ticks_diff, ticks_ms

from console import log_rarely
from shape import parse, whole
from umqtt_min.port import const

_PURPOSE = b"umqtt marks"
_ROUNDS = const(3)
_MAX_RANGES = const(16)
# Largest number that every JSON reader knows exactly.
_MOST = (1 << 53) - 1


def unsealer(settings):
    """Return what checks the code of a mark: function(payload) that returns the mark and raises
    ValueError; None where any mark is heeded.

    settings  flat dict as settings.complete() gives it, with the device's name
    Raises ValueError when there is no key to check with.
    """
    if settings["marks"] != "signed":
        return None
    if not settings["command_key"]:
        raise ValueError('marks: "signed" needs a command_key; flash the board again')
    from commands import hmac_sha256, unseal

    key = hmac_sha256(unhexlify(settings["command_key"]), _PURPOSE)
    topic = ("fleet/%s/%s/ack" % (settings["group"], settings["device"])).encode()
    return lambda payload: unseal(key, topic, bytes(payload))


class Confirm:
    """Holds one store's readings for the pipeline.

    client      its confirm() and republish() are used, and `connected`
    store       the client's, opened, made with hold=True
    stall_s     seconds that the mark may stand still
    retention   most readings held; beyond it the oldest are given up, and counted
    log         function(text)
    unseal      as unsealer() gives it
    """

    def __init__(self, client, store, stall_s, retention, log, unseal=None):
        self._client = client
        self._store = store
        self._stall_ms = stall_s * 1000
        self._retention = retention
        self._log = log
        self._unseal = unseal
        self._epoch = hexlify(store.epoch).decode()
        self._upto = 0
        self._missing = None
        self._gap = (0, 0)
        self._gap_at = self._since = ticks_ms()
        self._round = 0
        self.mark = 0
        self.acks = 0
        self.malformed = 0
        self.given_up = 0
        self.republished = 0

    def received(self, payload):
        """Take a message of the ack topic; for use in the callback: acts only in step().

        Raises nothing, whatever the message is: with QoS 1 it would come again for ever.
        """
        try:
            mark = self._read(payload)
        except ValueError as error:
            self.malformed += 1
            log_rarely("mark refused: %s" % error, self.malformed, self._log)
            return
        if mark:
            self._upto = max(self._upto, mark[0])
            self._missing = mark[1][:_MAX_RANGES]
            self.acks += 1
            self._round = 0

    def _read(self, payload):
        # Return (upto, missing), or None for a mark of a journal that is no more.
        ack = parse(self._unseal(payload) if self._unseal else payload)
        if not isinstance(ack, dict) or not isinstance(ack.get("epoch"), str):
            raise ValueError('no object with an "epoch"')
        if ack["epoch"] != self._epoch:
            return None
        # A mark beyond what was ever put would release readings that are yet to come.
        last = self._store.seq - 1
        upto, missing = ack.get("upto"), ack.get("missing", [])
        if not whole(upto, 0, last):
            raise ValueError('"upto" is no whole number from 0 to %d' % last)
        if not isinstance(missing, list):
            raise ValueError('"missing" is no list')
        for pair in missing:
            if not isinstance(pair, list) or len(pair) != 2:
                raise ValueError('"missing" has what is no pair of numbers')
            if not whole(pair[0], 1, _MOST) or not whole(pair[1], pair[0], _MOST):
                raise ValueError('"missing" has what is no range of numbers')
            # Somebody's forgery has the bridge miss what is yet to come. The rest is true.
            pair[1] = min(pair[1], last)
        if self._unseal and upto < self._store.low - 1:
            return None  # of an earlier time, whoever sends it now
        return self._sent(upto), missing

    def _sent(self, upto):
        # Nobody has on disk what was never sent: a mark that covers it follows from somebody's
        # forgery, be it of a reading that the bridge has believed.
        unsent = self._store.next(self._store.sent)
        return min(upto, unsent - 1) if unsent else upto

    def connected(self):
        """A new connection stands: the mark gets its whole time anew."""
        self._since = ticks_ms()

    def step(self):
        """Release what is confirmed, keep the bound, publish again what got lost."""
        if self._upto > self.mark:
            self._advance()
        if self._store.held > self._retention:
            # In lumps: one durable mark for many readings.
            self.give_up(self._store.held - self._retention + self._retention // 16)
        if not self._store.held:
            self._since = ticks_ms()
        elif self._client.connected:
            if self._missing:
                self._fill_gaps()
            self._look_for_stall()

    def give_up(self, count):
        """Release the oldest `count` held readings unconfirmed; return how many it were.

        Released by number: readings still under way among them go when the broker acknowledges
        them.
        """
        given = self._client.confirm(self._store.low + count - 1)
        self.given_up += given
        self._log("%d readings given up unconfirmed, %d in all" % (given, self.given_up))
        return given

    def _advance(self):
        self._client.confirm(self._upto)
        self.mark = self._upto
        self._since = ticks_ms()

    def _fill_gaps(self):
        now = ticks_ms()
        missing, self._missing = self._missing, None
        first, last = missing[0][0], missing[-1][1]
        done_first, done_last = self._gap
        # The bridge repeats what it misses with each mark, until it has come.
        recent = ticks_diff(now, self._gap_at) < self._stall_ms
        if recent and done_first <= first and last <= done_last:
            return
        count = 0
        for first_, last_ in missing:
            count += self._client.republish(first_, last_)
        if count:
            self._gap = (first, last)
            self._gap_at = now
            self.republished += count
            self._log("%d readings missing at the pipeline: published again" % count)

    def _look_for_stall(self):
        now = ticks_ms()
        if ticks_diff(now, self._since) < self._stall_ms << self._round:
            return
        self._since = now
        self._round = min(self._round + 1, _ROUNDS)
        count = self._client.republish(self._store.low, self._store.seq - 1)
        self.republished += count
        self._log("mark stands at %d: %d readings published again" % (self.mark, count))
