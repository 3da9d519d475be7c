"""Certificates for the TLS tests, made anew in a folder: nothing secret is kept in the repository.

Knows: a certificate authority, a server certificate for localhost and 127.0.0.1.
Must not know: who uses them.
"""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = datetime.timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _certificate(subject, issuer, key, issuer_key, extensions):
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 2 * _DAY)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256())


def _key_usage(**used):
    names = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    ).split()
    return x509.KeyUsage(**{name: used.get(name, False) for name in names})


def authority(folder, name):
    """Make NAME.pem and NAME.der; returns (name, key) for server()."""
    key = ec.generate_private_key(ec.SECP256R1())
    extensions = [
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (_key_usage(key_cert_sign=True, crl_sign=True), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ]
    cert = _certificate(name, name, key, key, extensions)
    (folder / f"{name}.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.der").write_bytes(cert.public_bytes(serialization.Encoding.DER))
    return name, key


def server(folder, issuer, name="server"):
    """Make NAME.pem (key and certificate together) for localhost, signed by issuer; its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName(names), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key()), False),
    ]
    cert = _certificate("localhost", issuer[0], key, issuer[1], extensions)
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + cert.public_bytes(serialization.Encoding.PEM)
    )
    return path
