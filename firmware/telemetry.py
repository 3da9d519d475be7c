"""Telemetry: one reading as a SenML pack in CBOR, written into a fixed buffer.

Knows RFC 8428 (SenML, labels of table 4) and the few forms of RFC 8949 (CBOR) that it needs. Must
not know sensors or the store. After the constructor nothing is allocated on the heap as long as
the numbers are small ints (below 2**30 on a 32-bit chip); larger ones work and allocate. So does a
code, for two SHA-256 that hashlib makes anew each time; nothing of it stays.

A pack is an array of maps with definite lengths. The first map holds the base fields and the
first measurement:
    -2 (bn) "DEVICE/"    "ep" epoch, 8 bytes     "bo" boot number      "sq" sequence number
    "up" seconds since boot   "ms" milliseconds 0..999   "lo" lowest sequence number still held
    0 (n) name    1 (u) unit    2 (v) value
Each further map holds 0, 1 and 2. A value is an integer, or with decimals a decimal fraction
(tag 4, RFC 8949 section 3.4.4), so that no float is needed and none is rounded.

A pack that is signed has one field more, at the end of the last map: "mc", 8 bytes, the first of
HMAC-SHA256(key, TOPIC newline all bytes of the pack before these 8). Readers that do not know it
ignore it (RFC 8428 section 4.4).
"""

from umqtt_min.port import const

_BASE_FIELDS = const(7)
_CODE = b"\x62mc\x48"
_CODE_BYTES = const(8)

# Major types
_UINT = const(0x00)
_NINT = const(0x20)
_TEXT = const(0x60)
_ARRAY = const(0x80)
_MAP = const(0xA0)
_TAG = const(0xC0)


def _head(major, n):
    # Head of a CBOR item, RFC 8949 section 3; n < 65536 is all the fixed parts need.
    if n < 24:
        return bytes([major | n])
    if n < 256:
        return bytes([major | 24, n])
    return bytes([major | 25, n >> 8, n & 0xFF])


def _text(text):
    data = text.encode()
    return _head(_TEXT, len(data)) + data


def _field(name, unit, digits):
    # n, u and the label of v, ready up to the integer itself
    out = b"\x00" + _text(name)
    if unit:
        out += b"\x01" + _text(unit)
    out += b"\x02"
    if digits:
        out += _head(_TAG, 4) + _head(_ARRAY, 2) + _head(_NINT, digits - 1)
    return out


class Packer:
    """Writes the readings of one device with one fixed set of measurements.

    device   name, characters of RFC 8428 section 4.5.1
    epoch    8 bytes: the store's epoch
    boot     boot number, 0 or more
    fields   sequence of (name, unit or None, digits): the value is given as an integer that
             counts units of 10**-digits; digits 0..23; at most 23 fields
    sign     as signing.signer() gives it, or None
    """

    def __init__(self, device, epoch, boot, fields, sign=None):
        if len(epoch) != 8:
            raise ValueError("epoch: expected 8 bytes, got %d" % len(epoch))
        if not 1 <= len(fields) <= 23:
            raise ValueError("fields: expected 1 to 23, got %d" % len(fields))
        self._heads = [_field(name, unit, digits) for name, unit, digits in fields]
        self._pairs = [3 if unit else 2 for _, unit, _ in fields]
        fixed = b"\x80\xa0\x21" + _text(device + "/") + b"\x62ep\x48" + bytes(epoch) + b"\x62bo"
        size = len(fixed) + 5 * 9 + 4 * 3 + sum([len(head) + 10 for head in self._heads])
        size += len(_CODE) + _CODE_BYTES
        self._sign = sign
        self._last = 0  # where the last map begins
        self.buffer = bytearray(size)
        self._pos = 0
        self._copy(fixed)
        self._uint(_UINT, boot)
        self._start = self._pos
        self._view = memoryview(self.buffer)
        self._views: list = [None] * (size + 1)

    def pack(self, seq, low, up, ms, values):
        """Write one reading; return its length in bytes (in `buffer`, see view()).

        seq     sequence number the store is about to give
        low     lowest sequence number that the store still holds
        up, ms  time since boot: seconds, and milliseconds 0..999
        values  one integer per field; None leaves the field out
        Raises ValueError when every value is None: SenML has no record without a value.
        """
        self._pos = self._start
        self._pair(b"\x62sq", seq)
        self._pair(b"\x62up", up)
        self._pair(b"\x62ms", ms)
        self._pair(b"\x62lo", low)
        self._values(values)
        if self._sign:
            self._add_code()
        return self._pos

    def view(self, length):
        """Return the first `length` bytes of the buffer; each length is allocated only once."""
        view = self._views[length]
        if view is None:
            view = self._views[length] = self._view[:length]
        return view

    def _values(self, values):
        count = 0
        for i in range(len(self._heads)):
            if values[i] is not None:
                self._measurement(i, count, values[i])
                count += 1
        if not count:
            raise ValueError("reading without a value")
        self.buffer[0] = _ARRAY | count

    def _add_code(self):
        self.buffer[self._last] += 1
        self._copy(_CODE)
        code = self._sign(self.view(self._pos))
        for i in range(_CODE_BYTES):
            self._byte(code[i])

    def _measurement(self, i, count, value):
        if count:
            self._last = self._pos
            self.buffer[self._pos] = _MAP | self._pairs[i]
            self._pos += 1
        else:
            self._last = 1
            self.buffer[1] = _MAP | (_BASE_FIELDS + self._pairs[i])
        self._copy(self._heads[i])
        if value < 0:
            self._uint(_NINT, -1 - value)
        else:
            self._uint(_UINT, value)

    def _pair(self, label, n):
        self._copy(label)
        self._uint(_UINT, n)

    def _copy(self, data):
        end = self._pos + len(data)
        self.buffer[self._pos : end] = data
        self._pos = end

    def _uint(self, major, n):
        # Shifts instead of comparisons with 2**32: that constant is no small int on a chip.
        if n < 24:
            self._byte(major | n)
            return
        if n < 256:
            self._byte(major | 24)
            width = 8
        elif n < 65536:
            self._byte(major | 25)
            width = 16
        elif n >> 16 < 65536:
            self._byte(major | 26)
            width = 32
        else:
            if n >> 32 >> 32:
                raise ValueError("number needs more than 64 bits")
            self._byte(major | 27)
            width = 64
        while width:
            width -= 8
            self._byte(n >> width & 0xFF)

    def _byte(self, b):
        self.buffer[self._pos] = b
        self._pos += 1
