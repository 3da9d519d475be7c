"""A network link between one client and the broker: a TCP proxy that can be cut.

Knows TCP and how MQTT packets are delimited (fixed header, remaining length: MQTT 3.1.1, section
2.2), so that it can cut in the middle of one. Must not know what the packets mean beyond their
type, nor anything about boards.
"""

import selectors
import socket
import struct
import threading

from .ports import free_port

PUBLISH, PUBACK, PUBREC = 3, 4, 5
# Packets that a cut inside a packet waits for: from the client, from the broker.
CUT_IN = ((PUBLISH,), (PUBACK, PUBREC))
CHUNK = 16384
# A direction stops reading while this much waits to be written.
BACKLOG = 65536
RESET = struct.pack("ii", 1, 0)


class Packets:
    """Finds where MQTT packets begin in a stream that arrives in pieces of any size.

    feed(data) gives one (type 1..15, position in data of the first byte, length of the whole
    packet in bytes) per packet whose fixed header ends in `data`; the position is negative if
    the packet began in an earlier piece. After a malformed remaining length it gives no more.
    """

    def __init__(self):
        self._header = bytearray()
        self._left = 0
        self._lost = False

    def feed(self, data):
        found = []
        at = 0
        while at < len(data) and not self._lost:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            self._header.append(data[at])
            at += 1
            if len(self._header) > 1 and not self._header[-1] & 0x80:
                found.append(self._begun(at))
            elif len(self._header) > 4:
                self._lost = True
        return found

    def _begun(self, at):
        size = len(self._header)
        self._left = sum((byte & 0x7F) << 7 * k for k, byte in enumerate(self._header[1:]))
        packet = (self._header[0] >> 4, at - size, size + self._left)
        self._header.clear()
        return packet


class _Pipe:
    """One accepted connection and its connection to the broker."""

    def __init__(self, client, server):
        self.ends = (client, server)
        self.to = {client: server, server: client}
        self.waiting = {client: bytearray(), server: bytearray()}
        self.finished = set()
        self.packets = {client: Packets(), server: Packets()}

    def close(self, reset=()):
        """Close both ends; those in `reset` with RST instead of FIN."""
        for end in self.ends:
            try:
                if end in reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.close()
            except OSError:
                pass


class Link:
    """A TCP proxy on 127.0.0.1 whose connections can be cut; one thread per link.

    Arguments:
        target_host, target_port: where the broker listens
        port: port to listen on, 0 for a free one

    Counters: connections, cuts, publishes (PUBLISH packets passed on whole to the broker),
    accepted (PUBACK and PUBREC passed on to the client: messages the broker took over).
    """

    def __init__(self, target_host, target_port, port=0):
        self.target = (target_host, target_port)
        self.port = port or free_port()
        self.connections = self.cuts = self.publishes = self.accepted = 0
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._pipes = {}
        self._up = False
        self._armed = None
        self._cut_done = threading.Event()
        self._listener = self._wake = self._thread = None

    # -- what the demo calls -------------------------------------------------------------

    def start(self):
        """Listen and pass bytes on. Raises OSError if the port is in use."""
        self._bind()
        self._wake, near = socket.socketpair()
        near.setblocking(False)
        self._selector.register(near, selectors.EVENT_READ, None)
        self._near = near
        self.up()
        self._thread = threading.Thread(target=self._run, name="link-%d" % self.port, daemon=True)
        self._thread.start()
        return self

    def stop(self):
        """Drop everything and end the thread. Safe to call twice."""
        if self._thread is None:
            return
        self._wake.close()
        self._thread.join(5)
        self._thread = None

    @property
    def is_up(self):
        return self._up

    def up(self):
        """Accept connections (again)."""
        with self._lock:
            if not self._up:
                self._listener.listen(16)
                self._selector.register(self._listener, selectors.EVENT_READ, "accept")
                self._up = True
                self._prod()

    def down(self):
        """Drop all connections and refuse new ones until up()."""
        with self._lock:
            self._drop_all()
            if self._up:
                self._up = False
                self._selector.unregister(self._listener)
                self._listener.close()
                self._bind()

    def cut(self, after_bytes=None, in_packet=None, answer=False, then_down=False):
        """Drop all connections: at once, or later in the middle of what is being sent.

        Arguments:
            after_bytes: pass exactly this many more bytes (0..) from a client to the broker,
                then cut; None: at once
            in_packet: 0.0 < share < 1.0: pass this share of the next PUBLISH that a client
                sends (at least one byte, never the whole), then cut
            answer: cut in the other direction: bytes from the broker, or the next PUBACK or
                PUBREC
            then_down: refuse connections from the cut on until up()

        A cut that is not at once is reported by wait_cut().
        """
        with self._lock:
            self._cut_done.clear()
            self._armed = None
            if after_bytes is None and in_packet is None:
                self._cut_now(then_down)
            else:
                self._armed = [after_bytes, in_packet, 1 if answer else 0, then_down]

    def disarm(self):
        """Forget a cut() that has not happened yet."""
        with self._lock:
            self._armed = None

    def wait_cut(self, timeout):
        """Wait `timeout` seconds at most for the armed cut; whether it has happened."""
        return self._cut_done.wait(timeout)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # -- inside ---------------------------------------------------------------------------

    def _bind(self):
        # Bound and not listening, a port refuses connections and nobody else can take it.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setblocking(False)
        self._listener.bind(("127.0.0.1", self.port))

    def _prod(self):
        if self._thread is not None:
            self._wake.send(b"!")

    def _run(self):
        try:
            while self._turn(self._selector.select(0.5)):
                pass
        finally:
            with self._lock:
                self._drop_all()
                self._listener.close()
                self._near.close()
                self._selector.close()

    def _turn(self, ready):
        with self._lock:
            for key, events in ready:
                if key.data is None:
                    if not self._near.recv(4096):
                        return False
                elif key.data == "accept":
                    self._accept()
                elif key.fileobj in self._pipes:
                    self._serve(key.fileobj, events)
        return True

    def _accept(self):
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            server = socket.create_connection(self.target, timeout=2)
        except OSError:
            # No broker: the client sees its connection reset.
            _Pipe(client, client).close(reset=(client,))
            return
        pipe = _Pipe(client, server)
        for end in pipe.ends:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pipes[end] = pipe
            self._selector.register(end, selectors.EVENT_READ, "pipe")
        self.connections += 1

    def _serve(self, end, events):
        pipe = self._pipes[end]
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(pipe, end)
            if events & selectors.EVENT_READ and end in self._pipes:
                self._take(pipe, end)
            if end in self._pipes:
                self._watch(pipe)
        except OSError:
            self._drop(pipe, reset=pipe.ends)

    def _take(self, pipe, source):
        try:
            data = source.recv(CHUNK)
        except BlockingIOError:
            return
        if not data:
            pipe.finished.add(source)
            return
        packets = pipe.packets[source].feed(data)
        length = self._cut_at(data, packets, pipe.ends.index(source))
        if length is not None:
            self._cut_inside(pipe, pipe.to[source], data[:length])
            return
        self._count(source is pipe.ends[0], packets)
        target = pipe.to[source]
        pipe.waiting[target] += data
        self._flush(pipe, target)

    def _count(self, upstream, packets):
        for kind, _, _ in packets:
            if upstream and kind == PUBLISH:
                self.publishes += 1
            elif not upstream and kind in (PUBACK, PUBREC):
                self.accepted += 1

    def _cut_at(self, data, packets, direction):
        """How many bytes of `data` still go through before an armed cut; None: no cut here."""
        if self._armed is None or self._armed[2] != direction:
            return None
        after, share = self._armed[:2]
        if after is None:
            wanted = CUT_IN[direction]
            for kind, at, length in packets:
                if kind in wanted:
                    after = max(0, at + min(length - 1, max(1, int(length * share))))
                    break
            else:
                return None
        if after > len(data):
            self._armed[0] = after - len(data)
            return None
        return after

    def _cut_inside(self, pipe, target, last):
        """Give the target the first half of a packet, then end every connection."""
        then_down, self._armed = self._armed[3], None
        pipe.waiting[target] += last
        target.setblocking(True)
        target.settimeout(2)
        try:
            target.sendall(pipe.waiting[target])
        except OSError:
            pass
        # FIN, not RST, towards the target: the half packet must arrive there.
        self._drop(pipe, reset=[pipe.to[target]])
        self._cut_now(then_down)
        self._cut_done.set()

    def _cut_now(self, then_down):
        self.cuts += 1
        if then_down:
            self.down()
        else:
            self._drop_all()

    def _flush(self, pipe, target):
        waiting = pipe.waiting[target]
        while waiting:
            try:
                del waiting[:target.send(waiting)]
            except BlockingIOError:
                return
        source = pipe.to[target]
        if source in pipe.finished:
            # What came before the end of the stream has been passed on: so may the end be.
            self._drop(pipe)

    def _watch(self, pipe):
        for end in pipe.ends:
            if end not in self._pipes:
                return
            if end in pipe.finished and not pipe.waiting[pipe.to[end]]:
                self._drop(pipe)
                return
        for end in pipe.ends:
            events = 0
            if end not in pipe.finished and len(pipe.waiting[pipe.to[end]]) < BACKLOG:
                events |= selectors.EVENT_READ
            if pipe.waiting[end]:
                events |= selectors.EVENT_WRITE
            self._set_events(end, events)

    def _set_events(self, end, events):
        registered = end in self._selector.get_map()
        if events and registered:
            self._selector.modify(end, events, "pipe")
        elif events:
            self._selector.register(end, events, "pipe")
        elif registered:
            self._selector.unregister(end)

    def _drop(self, pipe, reset=()):
        for end in pipe.ends:
            if self._pipes.pop(end, None) is not None and end in self._selector.get_map():
                self._selector.unregister(end)
        pipe.close(reset)

    def _drop_all(self):
        for pipe in set(self._pipes.values()):
            self._drop(pipe, reset=pipe.ends)
