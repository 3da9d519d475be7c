"""A socket whose broker accepts every CONNECT, for interpreters without a network."""

SOCK_STREAM = 1


def getaddrinfo(host, port, af=0, kind=0):
    return [(2, 1, 0, "", (host, port))]


class socket:
    def __init__(self, *a):
        self._in = b""

    def connect(self, addr):
        pass

    def write(self, buf, off=-1, n=-1):
        # As MicroPython's streams: write(buf), write(buf, n), write(buf, off, n).
        if n < 0:
            n = off if off >= 0 else len(buf)
            off = 0
        if buf[off] == 0x10:
            self._in = b"\x20\x02\x00\x00"
        return n

    def read(self, n):
        data = self._in[:n]
        self._in = self._in[n:]
        return data

    def readinto(self, buf, n=-1):
        n = min(len(buf) if n < 0 else n, len(self._in))
        buf[:n] = self._in[:n]
        self._in = self._in[n:]
        return n or None

    def setblocking(self, flag):
        pass

    settimeout = setblocking

    def setsockopt(self, *a):
        pass

    def close(self):
        pass
