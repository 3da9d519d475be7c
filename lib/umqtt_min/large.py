"""A PUBLISH longer than the receive buffer.

Knows: how to take it in without losing step: assembled for the callback up to
max_message, drained beyond that or where there is no memory for it; counted,
acknowledged as its QoS asks. Loaded with the first such message.
"""


class Large:
    """One long PUBLISH on its way in.

    p: index of its body in the client's buffer; n: Remaining Length, bytes.
    """

    def __init__(self, client, p, n):
        self._client = client
        self._op = client._rx[client._s]
        self._size = n
        self._got = 0
        self._topic = 0  # its length; of a drained message only that and the id are kept
        self._pid = 0
        self._buf = None
        if n <= client.max_message:
            try:
                self._buf = memoryview(bytearray(n))
            except MemoryError:
                pass
        self._take(client._rx, p, client._e - p)
        client._s = client._e = 0

    def _take(self, src, i, n):
        # n bytes of the body stand at src[i].
        if self._buf is not None:
            self._buf[self._got : self._got + n] = memoryview(src)[i : i + n]
        else:
            self._topic |= self._byte(src, i, n, 0) << 8
            self._topic |= self._byte(src, i, n, 1)
            if self._got + n > 1:
                self._pid |= self._byte(src, i, n, self._topic + 2) << 8
                self._pid |= self._byte(src, i, n, self._topic + 3)
        self._got += n

    def _byte(self, src, i, n, at):
        # The byte at place `at` of the body if it is among these n, else 0.
        at -= self._got
        return src[i + at] if 0 <= at < n else 0

    def more(self):
        """Read what is there; returns 0 if nothing came."""
        c = self._client
        left = self._size - self._got
        if self._buf is not None:
            n = c._read(self._buf[self._got :])
            self._got += n
        else:
            n = c._read(c._rungs[0][: min(left, len(c._rx))])
            self._take(c._rx, 0, n)
        if self._got == self._size:
            c._big = None
            self._finish()
        return n

    def _finish(self):
        c = self._client
        buf = self._buf
        if buf is not None:
            self._topic = buf[0] << 8 | buf[1]
        qos = self._op >> 1 & 3
        head = 2 + self._topic + (2 if qos else 0)
        if qos == 3 or head > self._size:
            c._bad("PUBLISH [MQTT-3.3.1-4]")
        pid = 0
        if qos:
            if buf is not None:
                self._pid = buf[head - 2] << 8 | buf[head - 1]
            pid = c._wire(self._pid)
            if not pid:
                c._bad("packet identifier 0 [MQTT-2.3.1-1]")
            if qos == 2 and c._seen(pid):
                return
        if buf is None:
            c.counters.oversize += 1
            if c.on_oversize:
                c.on_oversize(self._size)
        else:
            topic = bytes(buf[2 : 2 + self._topic])
            c._hear(topic)
            c._deliver(topic, bytes(buf[head:]))
            c._delivered = self._op
        if qos:
            c._acknowledge(self._op, pid)
