"""Whom a certificate is for: its common name, read without the package cryptography.

Knows as much of DER (X.690) and of a certificate (RFC 5280, section 4.1) as that takes. Must not
know what the name means, nor whether the certificate is any good.
"""

import hashlib
import ssl

_COMMON_NAME = bytes([0x06, 3, 0x55, 4, 3])  # OBJECT IDENTIFIER 2.5.4.3
_VERSION = 0xA0  # of a certificate: optional
_SUBJECT = 4  # after serial number, algorithm, issuer and validity


def common_name(pem):
    """The last common name of the subject of a certificate in PEM, a text; "" for one without, and
    for what is no certificate."""
    try:
        certificate = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") :])
        ((_, signed),) = _values(certificate)
        parts = _values(_values(signed)[0][1])
        subject = parts[_SUBJECT + (parts[0][0] == _VERSION)][1]
        names = [attribute for _, several in _values(subject) for _, attribute in _values(several)
                 if attribute.startswith(_COMMON_NAME)]  # fmt: skip
        return _values(names[-1])[1][1].decode() if names else ""
    except (ValueError, IndexError):
        return ""


def words(pem):
    """What a certificate in PEM is called in a line: its name, and what tells it from another one
    of that name."""
    try:
        data = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") :])
    except ValueError:
        return "a damaged certificate"
    return f"the certificate {common_name(pem)!a} {hashlib.sha256(data).hexdigest()[:16]}"


def _values(data):
    """[(tag, content)] of the DER values that follow each other in bytes."""
    found = []
    while data:
        tag, size, head = data[0], data[1], 2
        if size > 0x7F:
            head += size & 0x7F
            size = int.from_bytes(data[2:head], "big")
        found.append((tag, data[head : head + size]))
        data = data[head + size :]
    return found
