"""What answers at an address where an MQTT broker should be, in words.

Knows how other protocols greet. Must not know MQTT beyond the first byte of CONNACK, nor spools.
"""

import time

from .. import wire
from .connection import Link

ASK = b"HEAD / HTTP/1.0\r\n\r\n"  #: what a server that waits for a whole line understands
ASK_S = 3.0  #: how long it may take to answer
SHOWN = 40  #: letters of a greeting
KNOWN = (
    (b"HTTP/", "an HTTP server"), (b"SSH-", "an SSH server"), (b"AMQP", "an AMQP broker"),
    (b"220", "a mail or FTP server"), (b"* OK", "an IMAP server"), (b"+OK", "a POP3 server"),
    (b"-ERR", "a Redis or POP3 server"), (b"RFB ", "a VNC server"),
    (b"\x15\x03", "a server that speaks TLS: --tls or --ca FILE"),
)  # fmt: skip


class Foreign(wire.ProtocolError):
    """What answered is no MQTT broker; the text says what it is."""


class Silent(ConnectionError):
    """The connection was made, and not a byte came."""


def check(data):
    """Look at the first bytes that a broker sent. Raises Foreign if they are not CONNACK's, which
    they must be [MQTT-3.2.0-1]."""
    if data and data[0] != wire.CONNACK:
        raise Foreign(f"{_who(data)} answers")


def _who(data):
    line = data.split(b"\n")[0][:SHOWN].rstrip()
    said = line.decode("ascii", "replace")
    shown = f" ({said!r})" if said.isprintable() and len(said) > 3 else ""
    for head, name in KNOWN:
        if data.startswith(head):
            return name + shown
    return f"something that is no MQTT broker{shown or f', first byte 0x{data[0]:02x},'}"


def ask(settings):
    """Ask who is silent there, as a browser would: an HTTP server waits for a whole line, which
    CONNECT has not. Raises Foreign if it answers."""
    try:
        link = Link(settings)
    except OSError:
        return
    try:
        link.send(ASK)
        end, data = time.monotonic() + ASK_S, b""
        while not data and time.monotonic() < end:
            link.wait(end - time.monotonic())
            data = link.receive()
        check(data)
    except OSError:
        pass
    finally:
        link.close()
