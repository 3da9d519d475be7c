"""Makes CPython look like MicroPython to the device library and its tests: `import mpshim` first.

Knows: what MicroPython's time, socket, ssl and select do where CPython differs.  The modules
`deflate`, `machine`, `micropython` and `vfs` lie beside this file.
Must not know: the library under test, pytest.
Patches the process it is imported in, so the tests give it one of its own.
"""

import builtins
import errno
import importlib.util
import os
import select
import socket
import ssl
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
_BOARD_SHIM = os.path.join(HERE, "..", "..", "boards", "unix", "shim")
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def _load(name):
    # By path: the folder also holds a time.py and a select.py that CPython must not find.
    path = os.path.join(_BOARD_SHIM, name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


softtimer = _load("softtimer")
softmachine = _load("softmachine")


class _Streams:
    """The stream methods of MicroPython (py/stream.c): loop until done, None = would block."""

    def _mp_recv(self, n):
        return self.recv(n)

    def _mp_send(self, view):
        return self.send(view)

    def write(self, buf, *where):
        """write(buf), write(buf, n), write(buf, off, n) -> count, None if it would block."""
        view = memoryview(buf).cast("B") if not isinstance(buf, str) else memoryview(buf.encode())
        if len(where) == 1:
            view = view[: where[0]]
        elif where:
            view = view[where[0] : where[0] + where[1]]
        done = 0
        while done < len(view):
            try:
                done += self._mp_send(view[done:])
            except _WOULD_BLOCK:
                return done or None
            except TimeoutError:
                raise OSError(errno.ETIMEDOUT, "ETIMEDOUT") from None
        return done

    def _fill(self, view):
        done = 0
        while done < len(view):
            try:
                part = self._mp_recv(len(view) - done)
            except _WOULD_BLOCK:
                return done or None
            except TimeoutError:
                raise OSError(errno.ETIMEDOUT, "ETIMEDOUT") from None
            if not part:
                break
            view[done : done + len(part)] = part
            done += len(part)
        return done

    def readinto(self, buf, n=-1):
        """readinto(buf[, n]) -> count, None if nothing is there, 0 at the end of the stream."""
        view = memoryview(buf).cast("B")
        return self._fill(view if n < 0 else view[:n])

    def read(self, n=-1):
        """read([n]) -> bytes, None if nothing is there, b"" at the end of the stream."""
        if n >= 0:
            buf = bytearray(n)
            got = self._fill(memoryview(buf))
            return None if got is None else bytes(buf[:got])
        parts = []
        while True:
            part = self.read(4096)
            if not part:
                return b"".join(parts) if parts or part is not None else None
            parts.append(part)


class Socket(_Streams, socket.socket):
    """socket.socket with MicroPython's stream methods added."""

    def accept(self):
        """As MicroPython's: the new socket has the same class and blocks."""
        fd, addr = self._accept()
        return Socket(self.family, self.type, self.proto, fileno=fd), addr

    def makefile(self, *args, **kw):
        """MicroPython gives the socket itself."""
        return self


class SSLSocket(_Streams):
    """A TLS stream over a Socket.  Methods as on MicroPython: no settimeout, no fileno there."""

    def __init__(self, inner):
        self._inner = inner

    def _mp_recv(self, n):
        try:
            return self._inner.recv(n)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""

    def _mp_send(self, view):
        return self._inner.send(view)

    def setblocking(self, flag):
        """True: block."""
        self._inner.setblocking(flag)

    def close(self):
        """Close the stream and the socket below."""
        self._inner.close()

    def fileno(self):
        """For select.poll() on CPython only."""
        return self._inner.fileno()

    def pending(self):
        """Bytes decrypted and not read: MicroPython's poll looks at them."""
        return self._inner.pending()


def _load_cert_chain(self, certfile, keyfile=None):
    # MicroPython takes bytes in DER (the key in PKCS 8); CPython only files in PEM.
    if not isinstance(certfile, bytes):
        return _real_load_cert_chain(self, certfile, keyfile)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as f:
        f.write(ssl.DER_cert_to_PEM_cert(certfile))
        f.write(ssl.DER_cert_to_PEM_cert(keyfile).replace("CERTIFICATE", "PRIVATE KEY"))
        f.flush()
        return _real_load_cert_chain(self, f.name)


def _load_verify_locations(self, cafile=None, cadata=None):
    # MicroPython takes a file name, or bytes in DER or PEM.
    if isinstance(cadata, (bytes, bytearray)) and cadata.startswith(b"-----"):
        cadata = bytes(cadata).decode()
    _real_load_verify_locations(self, cafile=cafile, cadata=cadata)


def _wrap_socket(
    self, sock, *, server_side=False, do_handshake_on_connect=True, server_hostname=None
):
    # As MicroPython: without do_handshake_on_connect, read and write drive the handshake; with it,
    # it blocks whatever the socket does.
    blocking = sock.getblocking()
    plain = _RealSocket(sock.family, sock.type, sock.proto, fileno=sock.detach())
    plain.setblocking(do_handshake_on_connect or blocking)
    inner = _real_wrap_socket(
        self,
        plain,
        server_side=server_side,
        do_handshake_on_connect=do_handshake_on_connect,
        server_hostname=server_hostname,
    )
    inner.setblocking(blocking)
    return SSLSocket(inner)


class _RealPoll:
    """select.poll with objects instead of descriptors, and ipoll."""

    def __init__(self):
        self._poll = _real_poll()
        self._objects = {}

    def register(self, obj, eventmask=5):
        fd = obj if isinstance(obj, int) else obj.fileno()
        self._objects[fd] = obj
        self._poll.register(fd, eventmask)

    def modify(self, obj, eventmask):
        self._poll.modify(obj if isinstance(obj, int) else obj.fileno(), eventmask)

    def unregister(self, obj):
        for fd, known in list(self._objects.items()):
            if known is obj:
                del self._objects[fd]
                self._poll.unregister(fd)

    def ipoll(self, timeout=-1, flags=0):
        pending = [
            (obj, 1) for obj in self._objects.values() if hasattr(obj, "pending") and obj.pending()
        ]
        if pending:
            return pending
        found = self._poll.poll(None if timeout < 0 else timeout)
        return [(self._objects[fd], event) for fd, event in found]


def _ticks_ms():
    return (time.monotonic_ns() // 1_000_000) & ((1 << 30) - 1)


def _ticks_us():
    return (time.monotonic_ns() // 1000) & ((1 << 30) - 1)


def _ticks_add(ticks, delta):
    if not -(1 << 29) < delta < (1 << 29):
        raise OverflowError("ticks interval overflow")
    return (ticks + delta) & ((1 << 30) - 1)


def _print_exception(e, file=None):
    traceback.print_exception(e, file=file or sys.stdout)


def _patch_time():
    softtimer.setup(_ticks_ms, lambda ms: _real_sleep(ms / 1000), _RealPoll, _print_exception)
    time.ticks_ms = softtimer.ticks_ms
    time.ticks_us = _ticks_us
    time.ticks_cpu = _ticks_us
    time.ticks_diff = softtimer.ticks_diff
    time.ticks_add = _ticks_add
    time.sleep_ms = softtimer.sleep_ms
    time.sleep_us = lambda us: _real_sleep(us / 1_000_000)
    time.sleep = lambda seconds: softtimer.sleep_ms(int(seconds * 1000))
    select.poll = softtimer.Poll


def _patch_rest():
    socket.socket = Socket
    # Methods, not the class: ssl's own code looks its classes up by name.
    ssl.SSLContext.wrap_socket = _wrap_socket
    ssl.SSLContext.load_verify_locations = _load_verify_locations
    ssl.SSLContext.load_cert_chain = _load_cert_chain
    sys.print_exception = _print_exception
    builtins.const = lambda x: x  # MicroPython's compiler knows const() without an import


if not hasattr(time, "ticks_ms"):
    _real_sleep = time.sleep
    _real_poll = select.poll
    _RealSocket = socket.socket
    _real_wrap_socket = ssl.SSLContext.wrap_socket
    _real_load_verify_locations = ssl.SSLContext.load_verify_locations
    _real_load_cert_chain = ssl.SSLContext.load_cert_chain
    _patch_time()
    _patch_rest()
