"""A certificate authority of a test's own, and what it signs.

Knows: the `cryptography` package (it comes with esptool).  Must not know: brokers, the client.
Keys are P-256: that is what small devices can verify quickly.
"""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject, issuer, key):
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - day).not_valid_after(now + 2 * day)


class Authority:
    """A certificate authority; `certificate` is its own, in DER."""

    def __init__(self, name):
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, name, self.key)
        builder = builder.add_extension(x509.BasicConstraints(True, 0), True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._signed = builder.add_extension(usage, True).sign(self.key, hashes.SHA256())
        self.certificate = self._signed.public_bytes(Encoding.DER)
        self.pem = self._signed.public_bytes(Encoding.PEM)

    def issue(self, name, addresses=()):
        """A certificate for a host (or a client) of that name: (certificate, key), both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name)]
        names += [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
        builder = _builder(name, self.name, key)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        signed = builder.sign(self.key, hashes.SHA256())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return signed.public_bytes(Encoding.PEM), pem
