"""Commands and updates on their way: what is sent to the boards of a group, what they say to it.

Knows topics, commands and the reports of the firmware (firmware/commands.py, ota.py, status.py).
It must not know the terminal nor where keys lie. What counts is what a board says with its code,
after it has obeyed a command of this session: all else at the broker may be anybody's. One thread
of paho's receives; all else is called from one other thread.
"""

import contextlib
import json
import os
import ssl
import time
from dataclasses import dataclass, field
from threading import Condition

import paho.mqtt.client as mqtt

from umqtt_board.errors import BoardError, reason
from umqtt_board.ota import counters, reports, trust
from umqtt_board.ota.fileset import CHAIN, HEAD

ALL = "-all"
CONNECT_S = 10
_TIMES = 9, 10  # OpenSSL's codes of a certificate that is not valid yet, or no more
VALID_S = 86400
HEAR_S = 1.0  # time that the last reports of the boards get to come from the broker
LATE_MOST = 3  # times that a command which a board refused as late, or as repeated, is sent again
# What fits a board's buffer beside a topic: a command for a group goes out in messages of so many.
PAYLOAD = 400
CODE = 65
# Pieces on the way to one board before it must have said that it got some of them.
WINDOW = 24
QUIET_S = 2.0  # without a word from a board for so long, its pieces are sent again
QUIET_MOST_S = 30.0  # ... and after each fruitless time twice as long, up to
COMMAND_AGAIN_S = 30.0  # the signed command is sent again to a board that says nothing of it
RESTART_S = 8.0  # time that a board gets to start before it is asked again
FINAL = ("done", "refused", "taken back")
BEFORE = 4  # counters of earlier commands that a report names (firmware/remote.py)
SAID = ("receiving", "checking", "restarting", "making room", "refused")  # firmware/ota.py


@dataclass
class Member:
    """One board in a session.

    count  of the first command that it was sent in this session, 0: none yet; after one that was
           not above its own counter, of the next
    own    counters of its commands from `count` on
    obeyed  the first of these that it has said to have obeyed, 0: none
    seen   the highest counter that it has ever said
    lost   whether so many commands of others have a higher counter that its reports do not say
           whether it obeyed the last
    overtaken  times that a command was not above that, and was sent again
    state  waiting, sent, receiving, checking, restarting, on trial, done, refused, taken back
    why    what the board said to it
    before  why it took the set back when it had it before; "": it did not
    have   bytes that it has of the set
    trial  when it was first heard to be on trial with the set, by time.monotonic(); 0: never
    start  name of its present start, by the last report that was heard of it; "": none was
    up     its uptime in that report, seconds
    told   the start for which it was sent the last command; "": for any
    last   counter of the last command that it was sent
    foreign  whether something in its name came with a code of no key that this computer ever had:
             its own, flashed elsewhere, or anybody's
    void     whether something in its name came with a key that this computer has replaced: from
             the board, which has it still, or from whoever has kept what it once said
    late   commands that it has refused as late; `refused`: counter of the last of these
    tries  the set that was on trial by the last status before its answer, whenever it said that;
           "": none was. failed: which set it took back, by that status
    """

    record: object
    state: str = "waiting"
    why: str = ""
    have: int = 0
    status: dict = field(default_factory=dict)
    before: str = ""
    sent: int = 0  # offset of the next piece for it
    heard: float = 0.0
    asked: float = 0.0
    quiet: float = QUIET_S
    count: int = 0
    trial: float = 0.0
    start: str = ""
    up: int = 0
    told: str = ""
    last: int = 0
    late: int = 0
    refused: int = 0
    foreign: bool = False
    void: bool = False
    own: set = field(default_factory=set)
    obeyed: int = 0
    seen: int = 0
    lost: bool = False
    overtaken: int = 0
    tries: str = ""
    failed: dict = field(default_factory=dict)

    @property
    def device(self):
        return self.record.device

    @property
    def final(self):
        return self.state in FINAL

    @property
    def again(self):
        """True when the last command is to be sent anew: for the start that the board now says, or
        above the counter that it says."""
        late = self.refused == self.last and 0 < self.late <= LATE_MOST
        return late or self.behind and self.overtaken < LATE_MOST

    @property
    def behind(self):
        """True when the board has refused what it was sent: its counter is above that, and it does
        not say that it obeyed it before."""
        return not self.obeyed and not self.lost and self.seen > self.last > 0

    @property
    def unknown(self):
        """True when nobody can tell any more whether the board has obeyed what it was sent."""
        return self.lost and not self.obeyed

    @property
    def under_way(self):
        """True when it has taken what it was sent, and may come to an end without anybody who
        watches."""
        return not self.final and self.state not in ("waiting", "sent")

    @property
    def silent(self):
        """True when the board has said nothing of what it was sent: it may have obeyed it."""
        refused = self.behind or 0 < self.refused == self.last
        return self.state == "sent" and not (self.obeyed or self.unknown or refused)

    def hear_counts(self, said):
        """Take note of the commands that a report says were obeyed: the last one, and those
        before it, which other senders may have given at the same time."""
        before = [count for count in said.get("before") or () if type(count) is int]
        self.seen = max(self.seen, said["count"])
        mine = self.own.intersection([said["count"], *before])
        if mine and not self.obeyed:
            self.obeyed = min(mine)
        if said["count"] == self.seen > self.last > 0:
            self.lost = len(before) >= BEFORE and min(before) > self.last


def sign(key, topic, body):
    """The code (65 bytes) of one board for a body on a topic; firmware/commands.py checks it."""
    return b"." + reports.code(key, topic, body)


def messages(records, group, name, body):
    """Return [(topic, payload)] that carry one command to these boards.

    One board gets it on its own topic, several on the group's: one body with a code for each.
    """
    text = json.dumps(body, separators=(",", ":")).encode()
    if len(records) == 1:
        topic = f"fleet/{group}/{records[0].device}/cmd/{name}"
        return [(topic, text + sign(records[0].key, topic, text))]
    topic = f"fleet/{group}/{ALL}/cmd/{name}"
    codes = [sign(record.key, topic, text) for record in records]
    room = max(1, (PAYLOAD - len(text)) // CODE)
    return [(topic, text + b"".join(codes[at : at + room])) for at in range(0, len(codes), room)]


def _obeyed(member, name, body):
    """(state, why) of a board that has taken a command: it commits no set but the one it runs."""
    if name == "report":
        return "done", _waiting(member.status)
    ms = member.status.get("interval_ms")
    # It takes a command before it acts, and may have failed in that. Another may have come since.
    if member.status["count"] in member.own and ms != body.get("interval_ms", ms):
        return "sent", f"it measures every {ms} ms" if ms else "it is in safe mode"
    runs = member.status.get("set")
    if "set" in body and runs != body["set"]:
        return "refused", f"it runs {runs or 'what the cable put'}, not that set"
    return "done", ""


def _waiting(status):
    """What a report says of the messages that the board holds, in words."""
    store = status.get("store")
    live = store.get("live") if isinstance(store, dict) else None
    found = [f"{live} messages wait in its store"] if type(live) is int else []
    failed = status.get("failed")
    if isinstance(failed, dict):
        found.append(f"it took the set {failed.get('id')} back: {failed.get('why')}")
    return "; ".join(found)


class Session:
    """A connection to the broker of a group's boards.

    group    name of the group
    records  keys.Record of each board that is meant; their keys are used, nothing is saved
    broker   dict: host, port, tls, ca (PEM or None), user, password; cert and key: files
    count    function(records, above=0) -> a counter above all that they were ever sent, and above
             that one, durable
    valid    seconds after which a board obeys a command no more
    """

    def __init__(self, group, records, broker, count, valid=VALID_S):
        self.group = group
        self.members = {record.device: Member(record) for record in records}
        self.changed = Condition()
        self._count = count
        self.valid = valid
        self.broker = broker
        self._ready = False
        self._failure = None
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2,
                                   client_id=f"umqtt-board-{os.urandom(4).hex()}")  # fmt: skip
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        if broker.get("user"):
            self._client.username_pw_set(broker["user"], broker.get("password"))
        if broker.get("tls"):
            self._client.tls_set_context(trust.context(broker))
        self._set = None
        self._over = False

    def __enter__(self):
        where = f"{self.broker['host']}:{self.broker['port']}"
        try:
            self._client.connect(self.broker["host"], self.broker["port"], keepalive=30)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message.rstrip(".")
            if error.verify_code in _TIMES:
                raise BoardError(f"The broker at {where} is not trusted: {why}. By this "
                                 f"computer's clock it is {time.strftime('%Y-%m-%d')}. If that is "
                                 "right, `umqtt-board identity` makes another certificate.")
            raise BoardError(f"The broker at {where} is not trusted: {why}. Its "
                             "certificate must be signed by the one of --ca, and name that host: "
                             "--broker says which.")  # fmt: skip
        except (OSError, ValueError) as error:
            raise BoardError(f"The broker at {where} cannot be reached: {reason(error)}."
                             f"{self._hint()}")  # fmt: skip
        self._client.loop_start()
        with self.changed:
            self.changed.wait_for(lambda: self._ready or self._failure, CONNECT_S)
        if not self._ready:
            self.__exit__()
            raise BoardError(f"The broker at {where} does not let us in: "
                             f"{self._failure or f'no answer within {CONNECT_S} s'}."
                             f"{self._hint()}")  # fmt: skip
        return self

    def _hint(self):
        if not self.broker.get("tls") or self.broker.get("cert"):
            return ""
        return (" If it asks for certificates, give --cert and --key: the operator's, which "
                "`umqtt-board identity` has made.")  # fmt: skip

    def __exit__(self, *_):
        with contextlib.suppress(OSError):  # the broker has ended it at the same instant
            self._client.disconnect()
        self._client.loop_stop()

    # ---- paho's thread

    def _on_connect(self, client, _userdata, _flags, reason, _properties):
        if reason.is_failure:
            with self.changed:
                self._failure = str(reason)
                self.changed.notify_all()
            return
        topics = [(f"fleet/{self.group}/{name}/{level}", 1)
                  for name in self.members for level in ("status", "ota")]  # fmt: skip
        client.subscribe(topics)

    def _on_subscribe(self, *_):
        with self.changed:
            self._ready = True
            self.changed.notify_all()

    def _on_message(self, _client, _userdata, message):
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # a broker that sends this may send anything
        device, _, level = topic.removeprefix(f"fleet/{self.group}/").partition("/")
        member = self.members.get(device)
        said = member and reports.read(member.record.key, topic, message.payload)
        if not said:
            if member and reports.sealed(message.payload):
                former = any(reports.read(key, topic, message.payload)
                             for key in member.record.former)  # fmt: skip
                member.void |= former
                member.foreign |= not former
            return
        with self.changed:
            if self._over:
                return
            member.hear_counts(said)
            self._hear_start(member, said)
            # Of another time: whoever has kept it may send it now. Or of another computer's
            # command, after which the board may have refused ours.
            if not member.obeyed or said["count"] < member.obeyed:
                self.changed.notify_all()
                return
            if level == "status":
                self._hear_status(member, said)
            elif self._set and said.get("id") == self._set.id:
                self._hear_update(member, said)
            self.changed.notify_all()

    def _hear_start(self, member, said):
        if said.get("online") and member.state in ("waiting", "sent"):
            member.tries = str(said.get("set")) if said.get("trial") else ""
            member.failed = said.get("failed") or {}
        late = said.get("refused_late") or 0
        # The first command may be for the start of an old report that somebody has brought back.
        # The board refuses that with a report of now; only such a one names a start from then on.
        if not said.get("start") or max(said["count"], late) < member.count:
            return
        member.start, member.up = said["start"], said.get("up") or 0
        if late == member.last and late > member.refused:
            member.refused = late
            member.late += 1
            member.why = "refused as late: sent again"
            if member.late > 1:
                member.why = (f"{member.late} times refused as late: is the time right, here and "
                              "there?")  # fmt: skip
        self.changed.notify_all()

    def _hear_status(self, member, said):
        if not said.get("online"):
            return
        member.status = said
        made = self._set
        if made is None or member.final:
            return
        if said.get("set") == made.id:
            if made.envelope and member.state in ("waiting", "sent"):
                member.why = ("it has this set on trial already, with the signature of then"
                              if said.get("trial") else
                              "it ran this set already: it has looked at no signature, and its "
                              "lowest security version stays")  # fmt: skip
            member.state = "on trial" if said.get("trial") else "done"
            member.trial = member.trial or time.monotonic()
            member.have = made.size
        elif (said.get("failed") or {}).get("id") == made.id:
            # Until the board has taken the command this is about an earlier try.
            why = str(said["failed"].get("why", ""))
            if member.state not in ("waiting", "sent"):
                member.state, member.why = "taken back", why
            else:
                member.before = why

    def _hear_update(self, member, said):
        member.heard, member.quiet = time.monotonic(), QUIET_S
        if member.final or said.get("state") not in SAID:
            return
        member.state, member.why = said["state"], said.get("why") or ""
        if member.state == "making room":
            # It starts anew, with an older set, and is asked again then.
            member.state, member.why = "sent", "making room in its flash"
            member.asked = time.monotonic() - COMMAND_AGAIN_S + RESTART_S
            return
        have = min(max(0, said.get("have") or 0), self._set.size)
        if member.state == "receiving":
            # What the board does not have by its own word is sent again, from there.
            if have < member.have or have == 0 or member.sent < have:
                member.sent = have
            member.have = have

    # ---- commands

    def send(self, name, body, members=None):
        """Send a signed command to members (default: all).

        A board of which a report is there gets it for its present start alone. The others get it
        for any start within `valid`: one that does not know the time refuses that.
        """
        members = list(members or self.members.values())
        with self.changed:
            if self._ready and not all(member.count for member in members):
                self.changed.wait_for(lambda: all(member.start for member in members), HEAR_S)
        counts = self._counts(members)
        with self.changed:
            members = [member for member in members if self._goes_out(member, counts)]
        bunches = {}
        for member in members:
            own = {"start": member.told, "up": member.up + self.valid} if member.told else {}
            one = (counts[member.device], member.device if own else "")
            bunches.setdefault(one, (own, []))[1].append(member.record)
        until = int(time.time() + self.valid)
        for (count, _), (own, records) in bunches.items():
            full = body | {"count": count, "until": until} | own
            for topic, payload in messages(records, self.group, name, full):
                self._client.publish(topic, payload, qos=1)

    def _counts(self, members):
        """{name: the counter of its next command}. A board whose counter is ahead of this
        computer's clock has one of its own: what one board says raises no other's."""
        now = counters.now()
        ahead = [member for member in members if max(member.seen, member.record.count) >= now]
        rest = [member for member in members if member not in ahead]
        common = self._count([member.record for member in rest]) if rest else 0
        found = {member.device: common for member in rest}
        for member in ahead:
            above = {} if counters.ahead(member.seen) else {"above": member.seen}
            found[member.device] = self._count([member.record], **above)
        return found

    def _goes_out(self, member, counts):
        """Take note of a command before it is sent; False: the board cannot obey it."""
        count = counts[member.device]
        if counters.ahead(member.seen) and count <= member.seen:
            member.state = "refused"
            what = ("if the clock is right: umqtt-board keys revoke --device "
                    f"{member.device} --group {self.group}, and flash it")
            if member.record.revoked:
                what = "its key is revoked: flash it, and it gets another one"
            member.why = ("its counter of commands is a month ahead of this computer's clock, and "
                          f"it obeys none below it; {what}")  # fmt: skip
            return False
        if member.behind:
            member.overtaken += 1
            member.count, member.own = 0, set()
            member.why = "its counter is ahead of this computer's: sent again"
        member.count = member.count or count
        member.own.add(count)
        member.last, member.told = count, member.start
        return True

    def command(self, name, body, timeout, show=lambda: None):
        """Send a command; return when every board has obeyed it or `timeout` seconds are over."""
        for member in self.members.values():
            member.state = "sent"
        self.send(name, body)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with self.changed:
                for member in self.members.values():
                    if member.status and not member.final:
                        member.state, member.why = _obeyed(member, name, body)
                # What was lost sight of never shows again, and a second one could be obeyed, too.
                if all(member.final or member.unknown for member in self.members.values()):
                    break
                again = [member for member in self.members.values() if member.again]
                if not again:
                    self.changed.wait(0.2)
            if again:
                self.send(name, body, again)
            show()
        self._end()
        show()

    def _end(self):
        """Hear nothing more, so that all that is told of a board is of one instant; and keep the
        counters of boards that are ahead and did not obey, so that the next command goes above
        them."""
        with self.changed:
            self._over = True
        for member in self.members.values():
            if (member.behind or member.unknown) and not counters.ahead(member.seen):
                with contextlib.suppress(BoardError):  # its key has just been forgotten here
                    self._count([member.record], above=member.seen)

    # ---- updates

    def update(self, made, boots, seconds, timeout, show=lambda: None):
        """Send a set; return when every board has it in force or has said no, or time is over.

        made            ota_set.Set
        boots, seconds  see Set.command
        timeout         seconds
        show            called a few times a second
        """
        body = made.command(boots, seconds)
        self._set = made
        self._command(body, list(self.members.values()))
        for member in self.members.values():
            if member.failed.get("id") == made.id:  # the board forgets it with the command
                member.before = member.before or str(member.failed.get("why", ""))
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with self.changed:
                open_ = [m for m in self.members.values() if not m.final]
                if not open_:
                    break
            self._push(open_, body)
            show()
            with self.changed:
                self.changed.wait(0.1)
        self._end()
        show()

    def _command(self, body, members):
        if not members:
            return
        now = time.monotonic()
        for member in members:
            member.asked = member.heard = now
            member.state = "sent"
        self.send("ota", body, members)

    def _push(self, members, body):
        now = time.monotonic()
        silent = [m for m in members if m.state == "sent"
                  and (m.again or now - m.asked > COMMAND_AGAIN_S)]  # fmt: skip
        # One that lost its power before it had looked at the signature knows nothing of the set.
        silent += [m for m in members if m.state == "receiving" and m.told != m.start
                   and now - m.heard > QUIET_S]  # fmt: skip
        self._command(body, silent)
        for member in members:
            if member.state != "receiving":
                continue
            if now - member.heard > member.quiet:
                member.sent = member.have
                member.heard, member.quiet = now, min(QUIET_MOST_S, 2 * member.quiet)
            self._pieces(member)

    def _pieces(self, member):
        topic = f"fleet/{self.group}/{member.device}/cmd/piece"
        made = self._set
        end = made.window(member.have, WINDOW)
        while member.sent < end:
            piece = made.pieces.get(member.sent)
            if piece is None:  # it has an offset that no piece begins at: begin anew
                member.sent = 0
                return
            # QoS 0: what a broker would keep for a board that is away comes out of turn.
            self._client.publish(topic, piece, qos=0)
            member.sent += len(piece) - HEAD - CHAIN
