"""What a hello of TLS tells: version, server name, JA3 and JA4.

Knows: ClientHello and ServerHello (RFC 8446, 4.1), server_name (RFC 6066), ALPN (RFC 7301), GREASE
(RFC 8701). JA3: Salesforce's, an MD5 of five lists; JA4: FoxIO's, technical_details/JA4.md. Must
not know: how the bytes were captured.
"""

import hashlib
import string

from .collecting import CLIENT_HELLO, RECORD, SERVER_HELLO

SERVER_NAME, GROUPS, FORMATS, SIGNATURES, ALPN, VERSIONS = 0, 10, 11, 13, 16, 43
NONE = "0" * 12  #: JA4's digest of nothing
_JA4 = {0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3", 0x0002: "s2"}
_NAMES = {0x0304: "1.3", 0x0303: "1.2", 0x0302: "1.1", 0x0301: "1.0", 0x0300: "SSL 3.0"}
_PLAIN = (string.ascii_letters + string.digits).encode()


class Short(Exception):
    """A length leads beyond the end."""


class _Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def bytes(self, n):
        found = self.raw[self.at : self.at + n]
        if len(found) < n:
            raise Short
        self.at += n
        return found

    def number(self, n):
        return int.from_bytes(self.bytes(n), "big")

    def block(self, n):
        """What stands behind its length of n bytes."""
        return self.bytes(self.number(n))

    def more(self):
        return self.at < len(self.raw)


def _grease(number):
    return number & 0x0F0F == 0x0A0A and number >> 8 == number & 255


def _numbers(raw):
    """Numbers of two bytes, without GREASE."""
    found = [int.from_bytes(raw[k : k + 2], "big") for k in range(0, len(raw) - 1, 2)]
    return [n for n in found if not _grease(n)]


def _extensions(reader):
    """[(type, content)] in their order, GREASE as well."""
    if not reader.more():
        return []
    inner, found = _Reader(reader.block(2)), []
    while inner.more():
        found.append((inner.number(2), inner.block(2)))
    return found


def _list(content, width):
    """The content of an extension that is one list with a length of so many bytes."""
    return _Reader(content).block(width) if content else b""


def _host(content):
    """The name in server_name, or None."""
    names = _Reader(_list(content, 2))
    while names.more():
        kind, name = names.number(1), names.block(2)
        if kind == 0:
            return name.decode("ascii", "backslashreplace")
    return None


def _ja3(version, ciphers, extensions, last):
    fields = ([version], ciphers, [t for t, _ in extensions if not _grease(t)],
              _numbers(_list(last.get(GROUPS), 2)), list(_list(last.get(FORMATS), 1)))  # fmt: skip
    said = ",".join("-".join(map(str, numbers)) for numbers in fields)
    return hashlib.md5(said.encode(), usedforsecurity=False).hexdigest()


def _digest(*lists):
    said = "_".join(",".join(f"{n:04x}" for n in numbers) for numbers in lists if numbers)
    return hashlib.sha256(said.encode()).hexdigest()[:12] if lists[0] else NONE


def _ends_of(protocol):
    """JA4's two characters for the first protocol of ALPN."""
    if not protocol:
        return "00"
    if protocol[0] in _PLAIN and protocol[-1] in _PLAIN:
        return chr(protocol[0]) + chr(protocol[-1])
    digits = protocol.hex()
    return digits[0] + digits[-1]


def _ja4(version, ciphers, extensions, last):
    types = [t for t, _ in extensions if not _grease(t)]
    offered = _Reader(_list(last.get(ALPN), 2))
    first = offered.block(1) if offered.more() else b""
    start = (f"t{_JA4.get(version, '00')}{'d' if SERVER_NAME in types else 'i'}"
             f"{min(len(ciphers), 99):02}{min(len(types), 99):02}{_ends_of(first)}")  # fmt: skip
    told = sorted(t for t in types if t not in (SERVER_NAME, ALPN))
    signed = _numbers(_list(last.get(SIGNATURES), 2))
    return f"{start}_{_digest(sorted(ciphers))}_{_digest(told, signed)}"


def name_of(version):
    """A version's name, 1.3 for instance; one that is not known as hexadecimal digits."""
    return _NAMES.get(version, f"0x{version:04x}")


def _of_client(reader):
    version = reader.number(2)
    reader.bytes(32)
    reader.block(1)
    ciphers = _numbers(reader.block(2))
    reader.block(1)
    extensions = _extensions(reader)
    last = dict(extensions)
    highest = max(_numbers(_list(last.get(VERSIONS), 1)), default=version)
    return {"offered": name_of(highest), "server_name": _host(last.get(SERVER_NAME)),
            "ja3": _ja3(version, ciphers, extensions, last),
            "ja4": _ja4(highest, ciphers, extensions, last)}  # fmt: skip


def _of_server(reader):
    version = reader.number(2)
    reader.bytes(32)
    reader.block(1)
    reader.bytes(3)
    chosen = dict(_extensions(reader)).get(VERSIONS)
    return {"version": name_of(int.from_bytes(chosen, "big") if chosen else version)}


def read(records):
    """What the hello at the beginning of `records` tells. Of a client: offered (the highest
    version), server_name, ja3, ja4; of a server: version. {} if it is damaged or none."""
    reader, message = _Reader(records), b""
    try:
        while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
            reader.bytes(RECORD - 2)
            message += reader.block(2)
        body = _Reader(message[4 : 4 + int.from_bytes(message[1:4], "big")])
        reads = {CLIENT_HELLO: _of_client, SERVER_HELLO: _of_server}.get(message[0])
        return reads(body) if reads else {}
    except Short:
        return {}
