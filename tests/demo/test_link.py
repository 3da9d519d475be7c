"""The link between a board and the broker: what passes, and where a cut falls."""

import socket
import threading

import pytest
from umqtt_demo.link import Link, Packets

PUBLISH = bytes([0x32, 14, 0, 3]) + b"a/b" + b"\0\7" + b"payload"
CONNACK = bytes([0x20, 2, 0, 0])
PUBACK = bytes([0x40, 2, 0, 7])


class Sink:
    """A server that keeps what each connection sends and how it ended."""

    def __init__(self, answer=b""):
        self.answer = answer
        self.got = []
        self.ends = []
        self.changed = threading.Condition()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            with self.changed:
                self.got.append(bytearray())
                self.ends.append(None)
                self.changed.notify_all()
            threading.Thread(target=self._read, args=(peer, len(self.got) - 1),
                             daemon=True).start()

    def _read(self, peer, n):
        if self.answer:
            peer.sendall(self.answer)
        while self.ends[n] is None:
            try:
                data = peer.recv(65536)
                end = None if data else "end"
            except OSError:
                data, end = b"", "reset"
            with self.changed:
                self.got[n] += data
                self.ends[n] = end
                self.changed.notify_all()

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, timeout=60), (self.got, self.ends)


@pytest.fixture
def sink():
    sink = Sink()
    yield sink
    sink.server.close()


@pytest.fixture
def link(sink):
    with Link("127.0.0.1", sink.port) as link:
        yield link


def client(link):
    sock = socket.create_connection(("127.0.0.1", link.port), timeout=10)
    return sock


def ended(sock):
    """Wait for the end of the stream; "reset" or "end"."""
    try:
        while sock.recv(1000):
            pass
    except ConnectionError:
        return "reset"
    return "end"


def test_bytes_pass_in_both_directions(sink, link):
    sink.answer = b"x" * 300000
    sock = client(link)
    sock.sendall(b"y" * 300000)
    got = b""
    while len(got) < 300000:
        got += sock.recv(65536)
    sink.wait(lambda: sink.got and len(sink.got[0]) == 300000)
    assert set(got) == {ord("x")} and set(sink.got[0]) == {ord("y")}


def test_the_end_of_a_stream_passes_after_its_last_byte(sink, link):
    sock = client(link)
    sock.sendall(PUBLISH)
    sock.close()
    sink.wait(lambda: sink.ends and sink.ends[0])
    assert sink.ends == ["end"] and bytes(sink.got[0]) == PUBLISH


@pytest.mark.parametrize("after", [0, 1, 7, 15])
def test_a_cut_after_n_bytes_passes_exactly_n(sink, link, after):
    sock = client(link)
    sock.sendall(b"before")
    sink.wait(lambda: sink.got and sink.got[0] == b"before")
    link.cut(after_bytes=after)
    sock.sendall(PUBLISH)
    assert link.wait_cut(10)
    sink.wait(lambda: sink.ends[0])
    assert bytes(sink.got[0]) == b"before" + PUBLISH[:after]
    assert sink.ends[0] == "end", "the broker must get the half packet, not a reset"
    assert ended(sock) == "reset"


def test_a_cut_after_n_bytes_counts_over_several_pieces(sink, link):
    sock = client(link)
    link.cut(after_bytes=10)
    for n in range(10):
        sock.sendall(bytes([n]))
        assert n == 9 or not link.wait_cut(0)
        sink.wait(lambda: sink.got and len(sink.got[0]) > n)  # noqa: B023
    assert link.wait_cut(10)
    with pytest.raises(OSError):
        for _ in range(100):
            sock.sendall(b"z")
    assert bytes(sink.got[0]) == bytes(range(10))


@pytest.mark.parametrize("share, kept", [(0.0001, 1), (0.5, 8), (0.9999, 15)])
def test_a_cut_in_a_packet_falls_inside_the_next_publish(sink, link, share, kept):
    sock = client(link)
    link.cut(in_packet=share)
    other = bytes([0xC0, 0])
    sock.sendall(other)
    sink.wait(lambda: sink.got and sink.got[0] == other)
    sock.sendall(other + PUBLISH + PUBLISH)
    assert link.wait_cut(10)
    sink.wait(lambda: sink.ends[0])
    assert bytes(sink.got[0]) == other + other + PUBLISH[:kept]
    assert link.cuts == 1 and link.publishes == 0


@pytest.mark.parametrize("share, kept", [(0.01, 1), (0.5, 2), (0.99, 3)])
@pytest.mark.parametrize("puback", [PUBACK, bytes([0x50, 2, 0, 7])])
def test_a_cut_in_an_answer_falls_inside_the_next_acknowledgement(sink, link, puback, share, kept):
    sink.answer = CONNACK + puback + puback
    link.cut(in_packet=share, answer=True)
    # The client sends nothing: what would meet a closed end is answered by a reset.
    sock = client(link)
    got = b""
    while True:
        data = sock.recv(100)
        if not data:
            break
        got += data
    assert got == CONNACK + puback[:kept]
    assert link.wait_cut(10) and link.accepted == 0
    sink.wait(lambda: sink.ends[0])


def test_a_cut_in_a_packet_that_comes_byte_by_byte(sink, link):
    sock = client(link)
    link.cut(in_packet=0.5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for n in range(8):
        sock.sendall(PUBLISH[n:n + 1])
        sink.wait(lambda: sink.got and len(sink.got[0]) > n)  # noqa: B023
    assert link.wait_cut(10)
    sink.wait(lambda: sink.ends[0])
    assert bytes(sink.got[0]) == PUBLISH[:8]


def test_a_new_connection_passes_after_a_cut(sink, link):
    first = client(link)
    sink.wait(lambda: len(sink.got) == 1)
    link.cut()
    assert ended(first) == "reset"
    second = client(link)
    second.sendall(b"again")
    sink.wait(lambda: len(sink.got) == 2 and sink.got[1] == b"again")
    assert link.connections == 2 and link.cuts == 1


def test_down_refuses_until_up(sink, link):
    sock = client(link)
    sink.wait(lambda: len(sink.got) == 1)
    link.down()
    assert ended(sock) == "reset"
    with pytest.raises(ConnectionError):
        client(link)
    link.up()
    client(link).sendall(b"back")
    sink.wait(lambda: len(sink.got) == 2 and sink.got[1] == b"back")


def test_then_down_refuses_from_the_cut_on(sink, link):
    sock = client(link)
    link.cut(in_packet=0.5, then_down=True)
    sock.sendall(PUBLISH)
    assert link.wait_cut(10) and not link.is_up
    with pytest.raises(ConnectionError):
        client(link)


def test_without_a_broker_the_client_is_reset_and_the_link_lives(link, sink):
    sink.server.close()
    port = link.target[1]
    # The listening thread may still hold one accept(): take it away.
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        pass
    with pytest.raises(ConnectionError):
        # The reset may come while connecting or after it.
        client(link).recv(1)
    with socket.create_server(("127.0.0.1", port)) as server:
        sock = client(link)
        peer, _ = server.accept()
        sock.sendall(b"hello")
        assert peer.recv(5) == b"hello"


def test_it_counts_what_the_broker_took_over(sink, link):
    sink.answer = CONNACK + PUBACK + PUBACK
    sock = client(link)
    sock.sendall(PUBLISH * 3)
    got = b""
    while len(got) < len(sink.answer):
        got += sock.recv(100)
    sink.wait(lambda: sink.got and len(sink.got[0]) == 3 * len(PUBLISH))
    assert (link.publishes, link.accepted) == (3, 2)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384])
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_packets_are_found_whatever_the_pieces(size, step):
    length = size
    head = bytearray([0x30])
    while True:
        length, low = divmod(length, 128)
        head.append(low | (0x80 if length else 0))
        if not length:
            break
    stream = (bytes(head) + b"\xff" * size) * 3
    packets = Packets()
    found = []
    for start in range(0, len(stream), step):
        found += [(kind, start + at, length)
                  for kind, at, length in packets.feed(stream[start:start + step])]
    whole = len(head) + size
    assert found == [(3, n * whole, whole) for n in range(3)]


def test_a_malformed_length_finds_nothing_more():
    packets = Packets()
    assert packets.feed(b"\x30\xff\xff\xff\xff\xff\x30\x00") == []
    assert packets.feed(b"\x30\x00") == []


def test_stop_is_safe_to_call_twice(sink):
    link = Link("127.0.0.1", sink.port).start()
    link.stop()
    link.stop()
    with pytest.raises(ConnectionError):
        client(link)
