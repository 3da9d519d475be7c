"""Commands: whether a message on .../cmd/NAME comes from who holds this board's key, and is new;
and the code by which that one knows that a report is this board's.

Knows HMAC-SHA256 (RFC 2104) and a durable counter. Must not know how a command is carried out,
nor MQTT. A message is BODY "." CODE: BODY is a JSON object with "count", CODE 64 hexadecimal
digits of HMAC-SHA256(key, TOPIC newline BODY). One for several boards has more times "." CODE, one
for each board's own key. The topic is under the code, so that a command for one board or of one
name is none for another. The counter is durable before the command acts: a command is never
carried out twice, whoever records and repeats it, and at most once if the power goes in between.
"until", Unix seconds, is when a command expires: one that was withheld for months does not act.
"start" names the one start of the board that a command is for, as its reports do, and "up" the
uptime in seconds at which it expires there. A board that does not know the time obeys no command
that has only "until": it could not tell how late that comes.

A report is a JSON object whose last member is "code": that of the object without it, with the
topic that it is published on. It has "count", the counter of the last command that was obeyed, so
that nobody can pass an old report off as the answer to a new command.
"""

import hashlib
import os
from binascii import hexlify

from shape import parse, whole

MAX_BODY = 1024
# Whole numbers up to here are the same in every JSON reader. A counter without a bound would let
# one command of a careless sender be the last.
MAX_COUNT = (1 << 53) - 1
_BLOCK = 64
_CODE = 65  # bytes of "." and a code
_SEAL = 75  # ... and of what seal() adds to an object, with its brace


class Refused(ValueError):
    """The message is not a command that this board obeys; str() says why, without the key."""


def hmac_sha256(key, message, more=b""):
    """Return HMAC-SHA256 (RFC 2104, RFC 4231) of message and more, 32 bytes. All bytes."""
    if len(key) > _BLOCK:
        key = hashlib.sha256(key).digest()
    key = key + bytes(_BLOCK - len(key))
    inner = hashlib.sha256(bytes([b ^ 0x36 for b in key]))
    inner.update(message)
    inner.update(more)
    outer = hashlib.sha256(bytes([b ^ 0x5C for b in key]))
    outer.update(inner.digest())
    return outer.digest()


def same(a, b):
    """Compare two byte strings in a time that does not tell where they differ."""
    if len(a) != len(b):
        return False
    wrong = 0
    for i in range(len(a)):
        wrong |= a[i] ^ b[i]
    return wrong == 0


def sign(key, topic, body):
    """Return the payload of a command: what a host sends. All bytes; body is a JSON object.

    For a group: BODY with the parts from the last "." on of what this gives for each key.
    """
    return body + b"." + hexlify(hmac_sha256(key, topic + b"\n" + body))


def seal(key, topic, body):
    """Return a report with its code. All bytes; body is a JSON object that is not empty."""
    # A report is nearly a kilobyte, and there may be little heap: no more copies than it takes.
    code = hexlify(hmac_sha256(key, topic + b"\n", body))
    return body[:-1] + (b',"code":"' + code + b'"}')


def unseal(key, topic, message):
    """Return the JSON object in a message that seal() has made, bytes; raise Refused."""
    body = message[:-_SEAL] + b"}"
    if len(message) <= _SEAL or not same(seal(key, topic, body), message):
        raise Refused("wrong code")
    return body


class Commands:
    """Checks commands for one board.

    key    bytes, 16 or more
    count  highest counter obeyed so far
    keep   function(count): makes the new counter durable, raises OSError; called before check()
           returns
    now    function() -> Unix time in seconds, 0 while it is not known
    uptime object whose `s` is the time since the start in seconds; None: no command ends by it
    """

    def __init__(self, key, count, keep, now=None, uptime=None):
        if len(key) < 16:
            raise ValueError("command key: expected 16 bytes or more, got %d" % len(key))
        self._key = key
        self._keep = keep
        self._now = now
        self._uptime = uptime
        self.start = hexlify(os.urandom(4)).decode()  # a name that no other start has
        self.late = 0  # counter of the last command, if it came too late
        self.count = count
        self.refused = 0
        self.meant = False  # whether the last message had a code of this board's key
        self.below = False  # ... and was refused for its count

    def seal(self, topic, body):
        """As the function of this name, with this board's key."""
        return seal(self._key, topic, body)

    def check(self, topic, payload):
        """Return the command's body, a dict, after its counter has been made durable.

        topic, payload  bytes as received
        Raises Refused. An OSError of `keep` passes: nothing was obeyed, the counter stands.
        """
        try:
            body = self._verify(bytes(topic), bytes(payload))
        except Refused:
            self.refused += 1
            raise
        self._keep(body["count"])
        self.count = body["count"]
        return body

    def _verify(self, topic, payload):
        # The body is a JSON object, and no code has a brace.
        self.meant = self.below = False
        split = payload.rfind(b"}") + 1
        codes = len(payload) - split
        if split < 2 or not codes or codes % _CODE or payload[split] != 0x2E:
            raise Refused("not BODY.CODE with a code of 64 hexadecimal digits")
        if split > MAX_BODY:
            raise Refused("body of %d bytes, at most %d are read" % (split, MAX_BODY))
        text = payload[:split]
        mine = b"." + hexlify(hmac_sha256(self._key, topic + b"\n" + text))
        for at in range(split, len(payload), _CODE):
            if same(payload[at : at + _CODE].lower(), mine):
                self.meant = True
        if not self.meant:
            raise Refused("wrong code")
        return self._body(text)

    def _body(self, text):
        # From here on the sender holds the key, and may still have sent nonsense.
        try:
            body = parse(text)
        except ValueError as error:
            raise Refused("body is %s" % error)
        count = body.get("count") if isinstance(body, dict) else None
        if not whole(count, 1, MAX_COUNT):
            raise Refused('body has no whole number "count"')
        self.below = count <= self.count
        if self.below:
            raise Refused("count %d is not above %d: repeated or late" % (count, self.count))
        self.late = count
        self._fresh(body)
        self.late = 0
        return body

    def _fresh(self, body):
        start, now = body.get("start"), self._now() if self._now else 0
        self._ends(body, "until", now)
        if start is not None:
            if start != self.start:
                raise Refused("it is for another start of this board")
            self._ends(body, "up", self._uptime.s if self._uptime else 0)
        elif not now and body.get("until") is not None:
            raise Refused("it is for no start of this board, which does not know the time")

    def _ends(self, body, name, now):
        end = body.get(name)
        if end is None:
            return
        if not whole(end, 1, MAX_COUNT):
            raise Refused('"%s" is no whole number' % name)
        if now > end:
            raise Refused("expired %d s ago" % (now - end))
