"""Replays what record.py has written, on MicroPython: the client must do the same, byte by byte,
and must not take from the heap.

Knows: what passes between a client and the world; how the explorer sets up the library (board.py).
Must not know: what it means; brokers.

    micropython replay.py LIB KIT FILE

Each schedule is replayed twice: what is loaded on demand is there when the heap is looked at.
After a call the heap must be as before. A call that raises nothing and calls no callback must not
take a byte even for a moment. What makes a connection, a subscription or a boot may.
"""

import gc
import sys

HERE = __file__.rsplit("/", 1)[0]
sys.path[:] = [HERE, sys.argv[2], sys.argv[1]]

from time import CLOCK  # noqa: E402

from quiet_flash import Flash  # noqa: E402
from umqtt_min import MQTTClient, MQTTException  # noqa: E402
from umqtt_min.store.flash import FlashStore  # noqa: E402
from umqtt_min.store.ram import RAMStore  # noqa: E402

INBOUND = 2  # as in board.py
FREE = ("connect", "subscribe")  # calls that may take from the heap


class PowerCut(Exception):
    """The power is gone."""


class Differs(Exception):
    """The client does something else than it did on the tape."""


class Tape:
    """What happened, event by event."""

    def __init__(self, head, events):
        self.head = head
        self.events = events
        self.at = 0
        self.client = None
        self.wrong = ""  # some calls let no exception through
        self.noisy = False  # the callback was called, or the link is lost: both take objects
        self.given = None  # the topic that it was called with
        self.topics = {}  # those that this client has published to, or heard of: it keeps one

    def take(self, kind):
        """The next event, which must be of that kind."""
        event = self.events[self.at]
        if event[0] != kind:
            self.differs("%s, and on the tape is %r" % (kind, event))
        self.at += 1
        return event

    def new_topic(self, event):
        """Whether a topic came up for the first time since the boot: the client keeps it."""
        topic = self.given or (event[2][0] if event[1] == "publish" else None)
        self.given = None
        new = topic is not None and topic not in self.topics
        if new:
            self.topics[topic] = True
        return new

    def differs(self, why):
        """Raises Differs."""
        self.wrong = "%s, seed %d, event %d: %s" % (
            self.head["name"], self.head["seed"], self.at, why)  # fmt: skip
        raise Differs(self.wrong)

    def ticks(self, where, end):
        """The timer fires, if it did there."""
        while True:
            event = self.events[self.at]
            if event[0] != "tick" or event[1] != where and event[1] != end:
                return
            self.at += 1
            self.client.tick()

    def connect(self, host, port, timeout_ms):
        """The client's connector."""
        return Stream(self)

    def got(self, topic, payload):
        """The callback."""
        self.noisy = True
        event = self.take("got")
        self.given = event[1]  # what is on the tape takes nothing from the heap
        if event[1] != topic or event[2] != payload:
            self.differs("the application is given %r of %r" % (payload, topic))


class Stream:
    """A connection."""

    def __init__(self, tape):
        self._tape = tape

    def write(self, buf, off, n):
        """As MicroPython's."""
        self._tape.ticks("write", "written")
        event = self._tape.take("write")
        data = event[1]
        i = 0
        while i < n and i < len(data) and buf[off + i] == data[i]:
            i += 1
        if i < n or n != len(data):
            self._tape.differs("%r is written, and on the tape is %r"
                               % (bytes(memoryview(buf)[off : off + n]), data))
        if event[2] == -1:
            self._tape.noisy = True
            raise OSError(104)
        return event[2]

    def readinto(self, buf, n):
        """As MicroPython's."""
        self._tape.ticks("read", "read")
        data = self._tape.take("read")[1]
        if data is None:
            return None
        if not data:
            self._tape.noisy = True
        n = 0
        while n < len(data):
            buf[n] = data[n]
            n += 1
        return n

    def idle(self):
        """The client waits."""
        CLOCK.now = self._tape.take("wait")[1]

    def ready(self):
        """Whether something can be read now."""
        return self._tape.take("ready")[1]

    def setblocking(self, flag):
        """Nothing to do."""

    def close(self):
        """Nothing to do."""


class Chip(Flash):
    """A flash that loses its power where it did on the tape."""

    def __init__(self, tape, image):
        Flash.__init__(self, 1, tape.head["blocks"], tape.head["block"])
        self._data[:] = image
        self._tape = tape
        self._dead = False

    def _operation(self):
        if self._dead:
            raise PowerCut()
        self._tape.ticks("flash", "flash")
        if self._tape.take("flash")[1] >= 0:
            self._dead = True
            raise PowerCut()

    def ioctl(self, op, arg):
        """As a block device's."""
        if op == 6:
            self._operation()
        return Flash.ioctl(self, op, arg)

    def readblocks(self, n, buf, off):
        """As a block device's."""
        if self._dead:
            raise PowerCut()
        Flash.readblocks(self, n, buf, off)
        if self._tape.client and self._tape.head["ticks"]:
            self._tape.ticks("flash is read", "flash is read")
            self._tape.take("looked")
        return 0

    def writeblocks(self, n, buf, off):
        """As a block device's."""
        self._operation()
        return Flash.writeblocks(self, n, buf, off)


def boot(tape, image):
    """A client, as board.py makes it."""
    head = tape.head
    options = {"policy": head["policy"], "hold": head["hold"], "messages": head["room"]}
    tape.client = None
    if head["store"] == "ram":
        store = RAMStore(512, **options)
    else:
        store = FlashStore(Chip(tape, image), page=1, inbound=INBOUND, **options)
    tape.client = MQTTClient(
        b"c", "broker", keepalive=head["keepalive"], store=store, timer=False, buffer_size=64,
        timeout=5, window=head["window"], connector=tape.connect)  # fmt: skip
    tape.client.set_callback(tape.got)
    tape.topics.clear()


def call(client, name, args, options):
    """A call of the application; whether it has raised nothing."""
    try:
        if name == "check_msg":
            client.check_msg()
        elif name == "tick":
            client.tick()
        elif name == "publish":
            client.publish(args[0], args[1], args[2], args[3], args[4])
        else:
            getattr(client, name)(*args, **options)
    except (OSError, MQTTException, PowerCut):
        return False
    return True


def measured(tape, event):
    """A call; (bytes taken meanwhile, if that may be asked; bytes kept)."""
    client = tape.client
    name = event[1]
    args = event[2]
    options = event[3]
    tape.noisy = False
    gc.collect()
    before = gc.mem_alloc()
    quiet = call(client, name, args, options)
    taken = gc.mem_alloc() - before
    gc.collect()
    kept = gc.mem_alloc() - before
    if not quiet or tape.noisy or name not in ("check_msg", "tick", "publish"):
        taken = 0
    return taken, kept


def replay(head, events, strict):
    """One schedule; how many calls were measured."""
    tape = Tape(head, events)
    CLOCK.now = 1000
    count = 0
    while tape.at < len(events):
        event = events[tape.at]
        tape.at += 1
        if event[0] == "boot":
            try:
                boot(tape, event[1])
            except PowerCut:
                pass
        elif event[0] == "call":
            taken, kept = measured(tape, event)
            if strict and event[1] not in FREE and not tape.new_topic(event):
                count += 1
                if taken or kept > 0:
                    tape.differs("%s() takes %d bytes and keeps %d" % (event[1], taken, kept))
        elif event[0] == "tick":  # between two calls
            tape.client.tick()
        elif event[0] != "off":
            tape.differs("it comes to its end, and on the tape is %r" % (event,))
        if tape.wrong:
            raise Differs(tape.wrong)
    return count


def counted(head, events):
    """Replay a schedule with a look at the heap. What a call keeps is kept each time: a collection
    that takes a number on the stack for a pointer keeps something once."""
    for _ in range(2):
        try:
            return replay(head, events, True)
        except Differs:
            pass
    return replay(head, events, True)


def main(path):
    """Replay a file."""
    tapes = []
    topics = {}
    with open(path) as file:
        for line in file:
            event = eval(line)
            if event[0] == "call" and event[1] == "publish":
                topic = event[2][0]  # an application has one object for it
                topic = topics.setdefault(topic, topic)
                event = event[0], event[1], (topic,) + event[2][1:], event[3]
            if event[0] == "case":
                tapes.append((event[1], []))
            else:
                tapes[-1][1].append(event)
    gc.disable()
    count = 0
    for head, events in tapes:
        replay(head, events, False)
        count += counted(head, events)
    print("%d schedules, %d calls" % (len(tapes), count))


main(sys.argv[3])
