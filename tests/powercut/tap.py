"""A wire tap between one client and a broker: what the client published, connection by connection.

Knows: TCP, the fixed header and PUBLISH (MQTT 3.1.1, 2.2 and 3.3).
Must not know: what the messages mean.
"""

import socket
import threading
from collections import namedtuple

Publish = namedtuple("Publish", "dup qos pid topic payload")


class Tap:
    """Listens on a port of its own; on_connect() is called when the client comes.

    connections: for each one a list of the Publish packets that the client sent.
    """

    def __init__(self, host, port, on_connect):
        self.connections = []
        self._target = host, port
        self._on_connect = on_connect
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Take no more connections."""
        self._server.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return  # closed
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()  # as without a tap: there is no broker
                continue
            self._on_connect()
            self.connections.append([])
            for s in (client, broker):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for pump in ((client, broker, Parser(self.connections[-1])), (broker, client, None)):
                threading.Thread(target=self._pump, args=pump, daemon=True).start()

    @staticmethod
    def _pump(source, sink, parser):
        try:
            while data := source.recv(65536):
                if parser:
                    parser.feed(data)
                sink.sendall(data)
        except OSError:
            pass  # the other side went away: so does this one
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is gone already


class Parser:
    """Finds PUBLISH packets in a stream."""

    def __init__(self, found):
        self._found = found
        self._data = b""

    def feed(self, data):
        """Take some bytes."""
        self._data += data
        while len(self._data) >= 2:
            length, at = 0, 1
            while at < len(self._data) and self._data[at] & 0x80:
                length |= (self._data[at] & 0x7F) << 7 * (at - 1)
                at += 1
            if at == len(self._data):
                return
            length |= self._data[at] << 7 * (at - 1)
            end = at + 1 + length
            if len(self._data) < end:
                return
            if self._data[0] >> 4 == 3:
                self._found.append(publish(self._data[0], self._data[at + 1 : end]))
            self._data = self._data[end:]


def publish(first, body):
    """A PUBLISH packet of QoS 1 or 2."""
    n = int.from_bytes(body[:2], "big")
    pid = int.from_bytes(body[2 + n : 4 + n], "big")
    return Publish(first >> 3 & 1, first >> 1 & 3, pid, body[2 : 2 + n], body[4 + n :])
