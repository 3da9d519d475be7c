"""One connection of the bridge to a broker: TCP or TLS, non-blocking, with a buffer each way.

Knows sockets and certificates. Must not know packets beyond their bytes, spools or marks.
"""

import select
import socket
import ssl
import time
from dataclasses import dataclass

from .. import wire
from ..decode.own import NO_DECODERS, Decoders
from ..decode.signed import NO_KEYS, TelemetryKeys
from .faults import Refused, Untrusted

READ_SIZE = 1 << 18  #: bytes taken by one read, and so about the longest block of small packets


@dataclass
class Settings:
    """What `umqtt-pipeline bridge` is told. Times in seconds, sizes in bytes."""

    host: str
    port: int
    spool: str
    topics: tuple = ("fleet/+/+/telemetry",)
    client_id: str = "umqtt-bridge"
    qos: int = 1
    keepalive: int = 30
    username: str | None = None
    password: str | None = None
    ca: str | None = None  #: certificate file; with `tls` the system's are used if None
    tls: bool = False
    cert: str | None = None  #: this client's certificate, and its key (None: in the same file)
    key: str | None = None
    peers: tuple = ()  #: spools of the other bridges of a shared subscription
    ship: str | None = None  #: s3://BUCKET/PREFIX, where the marks' readings must be as well
    ship_interval: float = 1.0  #: between two objects
    metrics: str | None = None
    segment_bytes: int = 64 << 20
    max_spool_bytes: int | None = None
    max_packet: int = 64 << 20  #: a longer one is acknowledged, told and dropped
    mark_interval: float = 0.25
    decoders: Decoders = NO_DECODERS  #: of one's own
    mark_keys: str | None = None  #: file with the keys that marks are signed with
    telemetry_keys: TelemetryKeys = NO_KEYS  #: of the devices that sign their readings
    backoff_max: float = 15.0
    connect_timeout: float = 10.0
    wait: bool = False  #: go on trying also when the broker's name is not known

    @property
    def secured(self):
        """Whether it speaks TLS."""
        return bool(self.tls or self.ca or self.cert)


def _no_passphrase():
    """In place of OpenSSL's, which would wait for somebody to type one."""
    raise ValueError("the key has a passphrase, and nobody is there to type it: take it off")


def certificates(settings):
    """An ssl.SSLContext with the files that `settings` name, read anew: they may be replaced
    while a bridge runs. Raises Refused for one that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or error.strerror or error
        raise Refused(f"--ca {settings.ca}: no certificate in PEM can be read ({why}): name the "
                      "file of the CA that signed the broker's certificate")  # fmt: skip
    if settings.cert:
        try:
            context.load_cert_chain(settings.cert, settings.key, _no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as error:
            files = f"--cert {settings.cert}" + (f", --key {settings.key}" if settings.key else "")
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise Refused(f"{files}: not a client's certificate and its key in PEM ({why}); "
                          "without --key both are in the file of --cert")  # fmt: skip
    return context


def _secured(sock, settings):
    """The socket with TLS on it, the broker's certificate and name verified.

    Raises Refused where another try would end the same: files, certificates, names.
    """
    where = f"{settings.host}:{settings.port}"
    try:
        return certificates(settings).wrap_socket(sock, server_hostname=settings.host)
    except ssl.SSLCertVerificationError as error:
        raise Refused(
            f"{where} is not trusted: {error.verify_message}; --ca FILE names the CA that signed "
            "its certificate, and --broker its name as the certificate has it"
        )
    except (ssl.SSLError, ConnectionError) as error:
        raise Untrusted(f"no TLS handshake ({error}): if the port has no TLS: no --tls, --ca")


LOST = select.POLLERR | select.POLLHUP


class Link:
    """One connection: a non-blocking socket with a buffer each way."""

    def __init__(self, settings):
        where = (settings.host, settings.port)
        self.sock = socket.create_connection(where, timeout=settings.connect_timeout)
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.secured:
                self.sock = _secured(self.sock, settings)
            self.sock.setblocking(False)
        except BaseException:
            self.sock.close()
            raise
        self.poll = select.poll()
        self._tls = isinstance(self.sock, ssl.SSLSocket)
        self._events = None
        self._buffer = bytearray(READ_SIZE * 2)
        self._held = 0
        self._needs = 0  # bytes to be held before it is worth while to look at them
        self.dropping = 0  # bytes still to come of a packet that nobody takes
        self._out = bytearray()
        self.last_in = self.last_out = time.monotonic()

    def wait(self, seconds, read=True):
        """Wait for something to read (unless told not to) or for room to write what is left.
        Raises Closed if nothing is to be read and the connection is lost: nobody would see it."""
        wanted = (select.POLLIN if read else 0) | (select.POLLOUT if self._out else 0)
        if wanted != self._events:
            self.poll.register(self.sock, wanted)
            self._events = wanted
        if read and self._tls and self.sock.pending():
            return
        found = self.poll.poll(max(0, seconds) * 1000)
        if not read and any(events & LOST for _, events in found):
            raise wire.Closed("the connection was lost")
        if self._out:
            self.send(b"")

    def receive(self):
        """Read what is there, up to about READ_SIZE; returns the bytes held, or none while the
        packet at their head is not whole: a long one is looked at once."""
        if self.dropping:
            self._drop_some()
            return b""
        before, goal = self._held, self._held + READ_SIZE
        if len(self._buffer) < goal:  # doubled: what is copied stays in proportion
            self._buffer += bytes(max(goal, 2 * len(self._buffer)) - len(self._buffer))
        view = memoryview(self._buffer)
        try:
            while self._held < goal:
                got = self.sock.recv_into(view[self._held : goal])
                if not got:
                    if self._held > before:
                        break  # the last words first, a refusal for instance
                    raise wire.Closed("the broker closed the connection")
                asked = goal - self._held
                self._held += got
                self.last_in = time.monotonic()
                if got < asked and not self._tls:
                    break  # that was all
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ConnectionResetError as error:
            if self._held == before:
                raise wire.Closed(str(error))
        return bytes(view[: self._held]) if self._held >= self._needs else b""

    def _drop_some(self):
        read, view = 0, memoryview(self._buffer)
        try:
            while self.dropping and read < READ_SIZE:
                got = self.sock.recv_into(view[: min(self.dropping, READ_SIZE)])
                if not got:
                    raise wire.Closed("the broker closed the connection")
                self.last_in = time.monotonic()
                self.dropping -= got
                read += got
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ConnectionResetError as error:
            raise wire.Closed(str(error))

    def keep(self, consumed, needs=0):
        """Drop the first `consumed` bytes that `receive` returned; look again when there are
        `needs` behind them."""
        rest = self._held - consumed
        if len(self._buffer) > READ_SIZE * 4 and rest + needs <= READ_SIZE:
            self._buffer = self._buffer[consumed : self._held] + bytes(READ_SIZE * 2 - rest)
        else:
            self._buffer[:rest] = self._buffer[consumed : self._held]
        self._held, self._needs = rest, needs

    def drop(self, size):
        """Drop the packet of `size` bytes at the head, which has only begun to come."""
        self.dropping = size - self._held
        self._held = self._needs = 0

    def send(self, data):
        """Send, or hold what the socket does not take now."""
        self._out += data
        try:
            while self._out:
                del self._out[: self.sock.send(self._out)]
                self.last_out = time.monotonic()
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass

    @property
    def within(self):
        """Whether a long packet has begun to come and is not whole."""
        return self._needs > 0 or self.dropping > 0

    @property
    def unsent(self):
        """Bytes that wait for room in the socket."""
        return len(self._out)

    def close(self):
        self.sock.close()
