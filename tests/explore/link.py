"""The connection between client and broker, held in the explorer's hand.

Knows: bytes, whole packets, what a stream may do. Must not know: what a packet means, but where it
ends.

What the client has written lies in `up` until somebody looks: a broker works unseen, so that it
is decided only with the next packet that comes back, or with the end of the connection, how far it
had come.
"""

from broker import packet

OPEN, BROKEN, CLOSED = 0, 1, 2
ECONNRESET = 104


class Stream:
    """A non-blocking stream as the client's `connector` gives it; one of each connection."""

    def __init__(self, world):
        self.world = world
        self.state = OPEN  # BROKEN: nothing can be written; what has arrived can be read
        self.up = bytearray()  # on its way to the broker
        self.down = bytearray()  # has arrived
        self.rest = b""  # of a packet of which a part has arrived
        self.stalled = False

    # What the client calls

    def write(self, buf, off, n):
        """As MicroPython's."""
        world = self.world
        world.enter("write")
        world.oracle.tries(bytes(memoryview(buf)[off : off + n]))
        if self.state != OPEN or world.board.dark():
            raise OSError(ECONNRESET)
        self.stalled = False
        if world.short and n > 1:
            taken = world.choose("stall", ("no", "nothing goes out", "one byte goes out"))
            if taken:
                world.short -= 1
                self.stalled = True
                if taken == 1:
                    return None
                n = 1
        data = bytes(memoryview(buf)[off : off + n])
        self.up += data
        world.oracle.wrote(data)
        world.enter("written")
        return n

    def readinto(self, buf, n):
        """As MicroPython's."""
        world = self.world
        world.enter("read")
        if world.board.dark():
            return 0
        if not self.down:
            return 0 if self.state == BROKEN else None
        data = bytes(self.down[: min(n, len(buf))])
        del self.down[: len(data)]
        memoryview(buf)[: len(data)] = data
        world.oracle.read(data)
        return len(data)

    def setblocking(self, flag):
        """Nothing to do."""

    def close(self):
        """The client ends it; what it has written may arrive or not."""
        if self.state != CLOSED:
            self.world.network.closed(self)
            self.state = CLOSED
            self.up.clear()
            self.down.clear()
            self.rest = b""

    def idle(self, event, timeout):
        """The client waits."""
        self.world.network.waits(event, timeout)

    def ready(self):
        """Whether something can be read now."""
        return bool(self.down)

    # What the explorer does

    def packets(self):
        """The whole packets on their way to the broker."""
        found = []
        at = 0
        while n := packet(self.up, at):
            found.append(bytes(self.up[at : at + n]))
            at += n
        return found

    def arrive(self, data, part=0):
        """A packet reaches the client, or, with `part`, so many bytes of it."""
        self.down += data[: part or len(data)]
        self.rest = data[part:] if part else b""

    def cut(self):
        """The network ends it."""
        self.state = BROKEN
        self.up.clear()
        self.rest = b""
