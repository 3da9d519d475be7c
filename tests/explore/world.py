"""The world that is explored: the shipped client on its board, network, broker, application.

Knows: what may happen at each instant. Must not know: in which order the explorer tries it; what
is right and wrong (oracle.py).

`actions()` names what may happen now, `do()` makes it happen. Where something may go one way or
another inside of an action, `choose()` asks, and the explorer tries every answer.
"""

import traceback
from pathlib import Path

import device  # noqa: I001  first: it stands in for a board
from board import TIMEOUT, Board
from broker import Broker
from case import FILTER
from link import BROKEN
from network import Network, answered
from nor import PowerCut
from oracle import NO, PERHAPS, YES, Broken, Oracle
from umqtt_min import MQTTException
from umqtt_min.errors import BUSY, PROTOCOL, STORE_FULL

LONGEST = 3 * TIMEOUT * 1000 + 2000  # ms of one call: connect() and subscribe()
PLACES = 3  # of an exception that nobody expects, that are shown
LOOKS = 4  # of the application, though nothing comes
ROUNDS = 400  # of a kind world, until all must be where it belongs


class World:
    """A case from its beginning on. chooser: f(name, options) -> index of one of them."""

    NETWORK = Network
    BOARD = Board

    def __init__(self, case, chooser):
        self.case = case
        self.chooser = chooser
        self.clock = device.CLOCK
        self.clock.now = 1000
        self.crashes = case.crashes
        self.cuts = case.cuts
        self.amnesia = case.amnesia
        self.short = case.short
        self.parts = case.parts
        self.ticks = case.ticks
        self.jumps = case.jumps
        self.throws = case.throws
        self.grants = case.grants
        self.confirms = case.confirms
        self.asks = case.asks
        self.discards = case.discards
        self.rounds = case.rounds
        self.fails = case.fails
        self.replies = case.replies
        self.leaves = case.leaves
        self.renews = case.renews
        self.seqs = {}  # number of a message: what the store calls it
        self.plan = 0  # messages published so far
        self.subscribed = False  # the application knows that it is
        self.ticking = False
        self.doing = ""
        self.oracle = Oracle(self, case)
        self.broker = Broker(case, self.oracle)
        self.network = self.NETWORK(self, case)
        self.board = self.BOARD(self, case)
        self.kind = True  # nothing bad happens
        self.board.boot()
        self.oracle.booted(self.board.store)
        self.kind = False

    def choose(self, name, options):
        """The index of one of the options; the first where the world is kind."""
        if self.kind or len(options) == 1:
            return 0
        return self.chooser(name, options)

    # What may happen

    def actions(self):
        """What may happen now."""
        if self.board.client is None:
            return ["boot"]
        found = ["publish"] if self.plan < len(self.case.out) else []
        if self.board.client.sock is None:
            found += ["connect", "renew"] if self.renews else ["connect"]
        else:
            found += self._connected()
        if self.jumps:
            found.append("jump")
        if self.confirms and self.oracle.stock.confirmable():
            found.append("confirm")
        if self.asks and self.oracle.stock.held(self.board.view()[0]):
            found.append("republish")
        if self.discards:
            found.append("discard")
        if self.crashes:
            found.append("crash")
        return found

    def _connected(self):
        found = []
        link = self.network.link
        if self.network.offers():
            found.append("receive")
        if link.state == BROKEN or link.stalled or link.down:
            found.append("poll")
        elif self.cuts:
            found.append("lose")
        if self.ticks and self.case.keepalive:
            found.append("tick")
        if self.rounds and self._used():
            found.append("round")
        if self.leaves:
            found.append("leave")
        return found

    def do(self, action):
        """Make it happen. Raises Broken."""
        self.doing = action
        self.network.silent = False
        self.clock.waits = 0
        began = self.clock.now
        self.oracle.action()
        try:
            getattr(self, "_" + action)()
        except (PowerCut, OSError, MQTTException):
            pass  # the application tries again later
        except Broken:
            raise
        except Exception as e:
            raise _first(e) or Broken("%s raises %r\n%s" % (action, e, _places(e)))
        if self.board.client and self.board.client.counters.last_error == 1000 + PROTOCOL:
            raise Broken("%s ends the connection for what the broker has sent" % action)
        if self.board.dark():
            self._lose_power()
        elif self.case.watched and self.board.client:
            self.oracle.stock.look(self.board.view()[0])
        if self.case.alone and self.board.client:
            self.oracle.stuck(self.board.client.stuck())
        if self.clock.now - began > LONGEST and action != "jump":
            raise Broken("%s takes %d ms" % (action, self.clock.now - began))

    # The application

    def _boot(self):
        self.board.boot()
        self.oracle.stock.booted()
        self.oracle.booted(self.board.store)

    def _publish(self, inside=False):
        # inside: of the callback, where it must not wait.
        number = self.plan
        self.plan += 1
        topic, payload, retain = self.case.messages[number]
        accepted = PERHAPS
        self.oracle.accepted(number, accepted)
        self.seqs[number] = self.board.store.seq
        self.oracle.numbered(number)
        try:
            self.board.client.publish(topic, payload, retain, self.case.out[number],
                                      self.case.waits)  # fmt: skip
            accepted = YES
            if self.case.waits and not inside:
                self.oracle.waited(number)
        except PowerCut:
            raise
        except MQTTException as e:
            accepted = YES if e.stored else NO
            if e.reason == STORE_FULL:
                self.oracle.stock.refused(number)
        except OSError:
            accepted = NO
        self.oracle.accepted(number, accepted)

    def _connect(self, clean=None):
        # As reconnect.py does it: if CONNACK gets lost nobody hears that the session is new.
        client = self.board.client
        subscribed = self.subscribed
        self.subscribed = False
        self.subscribed = client.connect(clean) and subscribed
        if self.case.inbound and not self.subscribed:
            self.enter("a call's end")
            self._subscribe()

    def _renew(self):
        self.renews -= 1
        self._connect(True)

    def _subscribe(self):
        self.board.client.subscribe(FILTER, 2)
        self.oracle.subscribed()
        self.subscribed = True

    def _leave(self):
        self.leaves -= 1
        self.board.client.disconnect()
        if self.board.client.sock:
            raise Broken("disconnect() leaves the connection as it is")

    def _receive(self):
        self.network.next_packet()
        self._look()

    def _poll(self):
        self._look()

    def _look(self):
        link = self.network.link
        if self.case.wait_msg and (link.down or link.state == BROKEN):
            self.board.client.wait_msg()
        else:
            self.board.client.check_msg()

    def _tick(self):
        self.ticks -= 1
        if self.network.offers() and self.choose("with", ("nothing", "a packet")):
            self.network.next_packet()
        self.board.client.tick()

    def _jump(self):
        self.jumps -= 1
        self.clock.move(self.case.jump)
        if self.board.client.sock:
            alive = self.network.is_open()
            waits = bool(self.network.link.down)
            try:
                if self.case.sleeps:
                    self._fire()
                else:
                    self.board.client.check_msg()
            finally:
                if self.case.keepalive and alive and not self.board.client.sock:
                    self.oracle.gives_up(waits)
            if self.case.keepalive and self.board.client.sock:
                self.oracle.rests(waits)

    def _confirm(self):
        self.confirms -= 1
        stock = self.oracle.stock
        numbers = stock.confirmable()
        number = numbers[self.choose("up to", numbers)]
        seq = self.seqs[number]
        if self.case.beyond and number == self.plan - 1:
            seq += self.choose("and", ("no more", "what will come")) * self.case.beyond
        stock.covers(number, PERHAPS)
        self.board.client.confirm(seq)
        stock.covers(number, YES)

    def _republish(self):
        self.asks -= 1
        held = sorted(self.oracle.stock.held(self.board.view()[0]))
        if len(held) > 1:
            which = self.choose("asked for", ("all", "the newest", "the oldest"))
            held = (held, held[-1:], held[:1])[which]
        self.oracle.stock.asked(held)
        self.board.client.republish(self.seqs[min(held)], self.seqs[max(held)])

    def _discard(self):
        self.discards -= 1
        before = self.board.waiting()
        given = self.board.client.discard()
        if given and not self.board.dark():
            self.oracle.stock.given_up(*given, before, self.board.waiting())

    def _used(self):
        # An identifier that is in use, or may be once more.
        held = self.oracle.stock.held(self.board.view()[0]) if self.asks else []
        for message in self.oracle.on_its_way() + [self.oracle.sent[n] for n in held]:
            return message.pid
        return 0

    def _round(self):
        # As if 65533 subscriptions had come and gone: one more, and the next identifier is that.
        self.rounds -= 1
        self.board.client.pid = (self._used() - 3) % 65535 + 1
        self.board.client.subscribe(FILTER, 2)

    def got(self, topic, payload):
        """The client's callback."""
        if self.in_timer():
            raise Broken("the callback is called in the timer")
        self.oracle.got(topic, payload)
        if self.replies and self.plan < len(self.case.out):
            self.replies -= 1
            self._publish(True)
        if self.case.inside:
            self._inside()
        if self.throws and self.choose("callback", ("returns", "raises")):
            self.throws -= 1
            self.oracle.threw(payload)
            raise OSError(1)

    def _inside(self):
        # Whoever fires meanwhile: while the callback runs the connection is not to be ended.
        self.enter("callback")
        client = self.board.client
        if client.sock is None:
            return
        try:
            client.disconnect()
        except MQTTException as e:
            if e.reason == BUSY:
                return
            raise
        raise Broken("disconnect() ends the connection from inside of the callback")

    # What goes wrong

    def _lose(self):
        self.cuts -= 1
        self.network.cut()

    def _crash(self):
        self.board.off()  # do() sees to the rest

    def _lose_power(self):
        self.crashes -= 1
        sending = self.network.link is not None and self.doing != "crash"
        self.network.power_lost()
        self.board.off()
        self.subscribed = self.ticking = False
        self.oracle.crashed(self.board.view()[0], self.doing == "connect", sending)

    def in_timer(self):
        """Whether the client's timer fires right now."""
        return self.ticking or self.doing == "tick"

    def _fire(self):
        self.ticking = True
        try:
            self.board.client.tick()
        finally:
            self.ticking = False

    def enter(self, where):
        """The client is about to touch link or flash: its timer may fire there."""
        if self.ticks and self.case.keepalive and not (self.ticking or self.kind):
            names = ["no", "fires at " + where]
            if where.startswith("flash") and self.network.offers():
                names.append("fires at flash, when a packet has come")
            fires = self.board.client and self.choose("timer", names)
            if fires:
                self.ticks -= 1
                if fires == 2:
                    self.network.next_packet()
                self._fire()

    # The end

    def drain(self):
        """From here on the world is kind: all comes where it belongs. Raises Broken."""
        self.kind = True
        looks = 0
        for _ in range(ROUNDS):
            if not self._settled():
                self.do(self._kindest())
            elif looks < LOOKS and self._waiting():
                looks += 1
                self.do("poll")
            else:
                break
        self.network.handle_all()
        if self.case.watched:
            self.oracle.action()  # what the last one has read is done by now
            self.oracle.stock.look(self.board.view()[0])
        self._flush()
        if self.case.hold:
            self.board.client.confirm(self.board.store.seq - 1)
        self.oracle.drained(self.board.store.live, self.board.in_store())

    def _flush(self):
        try:
            done = self.board.client.flush()
        except (OSError, MQTTException) as e:
            raise Broken("flush() raises %r, in a kind world" % e)
        if not done:
            raise Broken("flush() waits for an acknowledgement, in a kind world")

    def _waiting(self):
        inbox = self.board.inbox  # a timer may have read what releases a message
        return self.board.store.live - self.board.store.held + (inbox.live if inbox else 0)

    def _settled(self):
        if self.board.client is None or self.board.client.sock is None:
            return False
        link = self.network.link
        if link.down or link.stalled or link.state == BROKEN or self.network.offers():
            return False
        return self.plan == len(self.case.out) and not [p for p in link.packets() if answered(p)]

    def _kindest(self):
        found = self.actions()
        for action in ("boot", "connect", "poll", "receive", "publish"):
            if action in found:
                return action
        return "poll"


def _first(error):
    # What was broken before the library had to clear up behind it, None if nothing was.
    while error and not isinstance(error, Broken):
        error = error.__context__
    return error


def _places(error):
    # The last lines that were run, the innermost last.
    stack = traceback.extract_tb(error.__traceback__)[-PLACES:]
    return "\n".join("#     %s, line %d, in %s: %s" % (
        "/".join(Path(at.filename).parts[-2:]), at.lineno, at.name, at.line) for at in stack)
