"""Serves a StrictBroker over TCP, for tests with real sockets on the host.

Knows: sockets and one thread.  Must not know: packets (tests/device/kit/strict_broker.py does).

    with StrictServer() as server:
        ... connect to server.host, server.port; look at server.broker
Leaving the block raises ProtocolError if a client broke the protocol.
"""

import select
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "device" / "kit"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "shim"))

import mpclock  # noqa: E402, F401  (time.ticks_ms for strict_broker)
from strict_broker import StrictBroker  # noqa: E402
from strict_wire import ProtocolError  # noqa: E402

HANDSHAKE = 20.0  # seconds that the one thread waits for a client in its TLS handshake
# Seconds for a client to close its connection after DISCONNECT: its end may lie unread while
# another client lets its handshake wait.
GRACE = HANDSHAKE + 15
PATIENCE = 2000  # ms that a busy machine may hold a client up, which the broker cannot see


class StrictServer:
    """A strict broker on 127.0.0.1; port 0 takes a free one; tls: an ssl.SSLContext or None."""

    def __init__(self, level=None, port=0, broker=None, tls=None):
        self.tls = tls
        self.broker = broker or StrictBroker(level)
        self.broker.unread_acks = True
        self.broker.patience = PATIENCE
        self.lock = threading.Lock()  # hold it to look at or to script the broker
        self._listener = socket.create_server(("127.0.0.1", port))
        self.host, self.port = self._listener.getsockname()
        self._wake, self._woken = socket.socketpair()
        self._connections = {}
        self._running = True
        self.handshake_errors = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.stop()
        if kind is None:
            self.broker.check()

    def stop(self):
        """Read what was sent up to now, then close everything."""
        self._running = False
        self._wake.send(b"x")
        self._thread.join(GRACE + 10)
        for sock in [*self._connections, self._listener, self._wake, self._woken]:
            sock.close()

    def publish(self, topic, payload, qos=0, retain=False):
        """Publish to the clients that subscribed."""
        with self.lock:
            self.broker.publish(topic, payload, qos, retain)
        self._wake.send(b"x")

    def settle(self):
        """Wait for the end of each connection whose DISCONNECT was read: it comes a moment later.

        One that the client really leaves open fails check() afterwards.
        """
        until = time.monotonic() + GRACE
        while self.broker.closing() and time.monotonic() < until:
            time.sleep(0.01)

    def _serve(self):
        # Once more after stop(): what a client sent before it lies in the socket.
        until = None
        while until is None or (self.broker.closing() and time.monotonic() < until):
            if not self._running:
                until = until or time.monotonic() + GRACE
            sockets = [self._listener, self._woken, *self._connections]
            readable, _, _ = select.select(sockets, [], [], 1.0)
            with self.lock:
                for sock in readable:
                    self._ready(sock)
                for sock in list(self._connections):
                    self._flush(sock)

    def _ready(self, sock):
        if sock is self._listener:
            accepted, _ = sock.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted = self._handshake(accepted)
            if accepted:
                self._connections[accepted] = self.broker.accept()
        elif sock is self._woken:
            sock.recv(100)
        else:
            self._receive(sock)

    def _handshake(self, accepted):
        # In the one thread: a client that does not go on stops the others for some seconds.
        accepted.settimeout(HANDSHAKE)
        if not self.tls:
            return accepted
        try:
            return self.tls.wrap_socket(accepted, server_side=True)
        except OSError as e:
            self.handshake_errors.append(str(e))
            accepted.close()
            return None

    def _receive(self, sock):
        try:
            data = sock.recv(65536)
            while data and self.tls and sock.pending():
                data += sock.recv(65536)
        except OSError:
            data = b""
        conn = self._connections[sock]
        if not data:
            self._drop(sock)
            return
        try:
            conn.feed(data)
        except ProtocolError:
            pass  # kept in broker.errors; the connection is closed once flushed

    def _flush(self, sock):
        conn = self._connections[sock]
        data = conn.take(len(conn.out))
        try:
            sock.sendall(data)
        except OSError:
            self._drop(sock)
            return
        if not conn.open:
            self._drop(sock)

    def _drop(self, sock):
        self._connections.pop(sock).gone()
        sock.close()
