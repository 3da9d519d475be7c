"""Lines to a virtual chip: a socket, RFC 2217 with DTR and RTS, a pseudo-terminal.

Knows: pyserial's side of RFC 2217, the reset circuit of a development board.
Must not know: what is said over a line.
"""

import contextlib
import os
import pty
import select
import threading
import tty

from serial import rfc2217


class Lines:
    """DTR and RTS with the two transistors of a development board; the rest of a serial port."""

    baudrate, bytesize, parity, stopbits = 115200, 8, "N", 1
    rtscts = xonxoff = break_condition = False
    cts = dsr = cd = True
    ri = False
    name = "virtual"

    def __init__(self, chip):
        self._chip, self._dtr, self._rts = chip, False, False

    def _set(self, dtr, rts):
        self._dtr, self._rts = dtr, rts
        self._chip.pins(en=not (rts and not dtr), io0=not (dtr and not rts))

    dtr = property(lambda self: self._dtr, lambda self, on: self._set(bool(on), self._rts))
    rts = property(lambda self: self._rts, lambda self, on: self._set(self._dtr, bool(on)))

    def reset_input_buffer(self):
        """Nothing is buffered."""

    reset_output_buffer = reset_input_buffer


class SocketLine:
    """A TCP connection; with `lines` it speaks RFC 2217."""

    def __init__(self, connection, lines=None):
        self._connection, self._lock = connection, threading.RLock()
        self._manager = rfc2217.PortManager(lines, self) if lines else None

    def write(self, data):
        """Bytes as they are: what the manager of RFC 2217 says."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def send(self, data):
        """Bytes of the chip."""
        self.write(b"".join(self._manager.escape(data)) if self._manager else data)

    def receive(self, seconds):
        """Bytes for the chip, b"" when there are none yet; EOFError at the end."""
        if not select.select([self._connection], [], [], seconds)[0]:
            return b""
        try:
            data = self._connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            raise EOFError
        if self._manager is None:
            return data
        return b"".join(self._manager.filter(data))

    def close(self):
        """Hang up."""
        self._connection.close()


class PtyLine:
    """A pseudo-terminal: no DTR, no RTS."""

    def __init__(self):
        self.master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self.port = os.ttyname(self._slave)

    def send(self, data):
        """Bytes of the chip."""
        os.write(self.master, data)

    def receive(self, seconds):
        """Bytes for the chip, b"" when there are none."""
        if not select.select([self.master], [], [], seconds)[0]:
            return b""
        return os.read(self.master, 65536)

    def close(self):
        """Take it away."""
        os.close(self.master)
        os.close(self._slave)
