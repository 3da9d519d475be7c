"""What it means that a connection of the bridge was lost, or not made: what an operator should do,
and whether another try can end otherwise.

Knows errors of sockets, of TLS and of names. Must not know packets, spools or marks.

A broker that is down, or gone, is retried for ever: a service waits for it. What only a human can
mend ends the bridge as long as it has never been connected (`Refused`, exit status 2): a name that
does not exist, a port that does not speak as it was told, a certificate that is refused. Later the
same may be somebody on the path, or files that are just being replaced: it is told and retried.
"""

import socket
import ssl
import time

from .. import wire

REBUFFS = 6  #: connections closed without CONNACK before any was accepted: a refusal
THROWN_OUT = 3  #: so many connections in a row that were closed just after they had begun
BRIEF_S = 10.0  #: they lasted no longer than that


class Refused(Exception):
    """The broker answered and does not want this client, or is not trusted; trying again would not
    help, if it never worked."""


class Untrusted(ConnectionError):
    """The TLS handshake failed, and not for a certificate."""


class Faults:
    """Judges how a bridge's connections end. wait: a name that is not known may become so, and
    what closes each connection may be a forwarder whose broker is down."""

    def __init__(self, where, client_id, tls, wait=False):
        self.where, self.client_id, self.tls, self.wait = where, client_id, tls, wait
        self._rebuffs = self._thrown_out = 0
        self._ever = False
        self._ready_at = None

    def ready(self):
        """The connection is in use from now on."""
        self._ready_at, self._ever = time.monotonic(), True

    def lost(self, error, unheard):
        """A sentence on how a connection ended; unheard: CONNECT is sent and not answered.

        Raises Refused.
        """
        ready_at, self._ready_at = self._ready_at, None
        if ready_at is not None:
            return self._broken(error, time.monotonic() - ready_at)
        self._thrown_out = 0
        if isinstance(error, Refused):
            if not self._ever:
                raise error
            return f"cannot use: {error}"
        closed = isinstance(error, wire.Closed) and unheard or isinstance(error, Untrusted)
        self._rebuffs = self._rebuffs + 1 if closed else 0
        if not self._ever:
            self._hopeless(error, unheard)
        advice = ""
        if isinstance(error, ConnectionRefusedError) and not self._ever:
            advice = ": no broker listens there; is it running, and is that its port?"
        return f"cannot use: {self.where}: {error}{advice}"

    def _hopeless(self, error, unheard):
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
            if not self.wait:
                raise Refused(f"{self.where}: there is no such name; --wait goes on trying")
        elif isinstance(error, ssl.SSLError) and unheard and "ALERT" in (error.reason or ""):
            raise Refused(f"{self.where} refuses this client's certificate or lack of one "
                          f"({error.reason}): --cert FILE and --key FILE")  # fmt: skip
        elif isinstance(error, wire.ProtocolError) and unheard:
            hint = "" if self.tls or "TLS" in str(error) else (
                "; if it is the port for TLS: --tls or --ca FILE")
            raise Refused(f"{self.where} does not speak MQTT 3.1.1: {error}{hint}")
        elif self._rebuffs == REBUFFS and not self.wait:
            waits = "; --wait goes on trying"
            if isinstance(error, Untrusted):
                raise Refused(f"{self.where}: {error}, {REBUFFS} times{waits}")
            hint = "" if self.tls else ", or it wants TLS (--tls or --ca FILE)"
            raise Refused(f"{self.where} closes the connection {REBUFFS} times without CONNACK: "
                          f"it refuses this login or does not speak MQTT 3.1.1{hint}. If it is a "
                          f"forwarder before a broker that is down{waits}")  # fmt: skip

    def _broken(self, error, lasted):
        brief = isinstance(error, wire.Closed) and lasted < BRIEF_S
        self._thrown_out = self._thrown_out + 1 if brief else 0
        said = f"connection lost: {self.where}: {error}"
        if self._thrown_out >= THROWN_OUT:
            said += (f", {self._thrown_out} times in a row just after it was made: another client "
                     f"seems to use the client id {self.client_id!r}, and each throws out the "
                     "other: give one of them another --client-id")  # fmt: skip
        return said
