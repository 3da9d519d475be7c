"""The keys that sign releases: RSA-3072, in a file that a passphrase locks.

A key is a PKCS#8 file in PEM. It is made on, and need never leave, a computer that no network
reaches; boards and brokers know the SHA-256 of its modulus alone. Must not know what is signed.
"""

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from umqtt_board import private
from umqtt_board.errors import BoardError
from umqtt_board.lock import pem

BITS = 3072
BYTES = BITS // 8
EXPONENT = 65537


class SigningKey:
    """A key that can sign. key: of cryptography's."""

    def __init__(self, key):
        self._key = key

    @classmethod
    def new(cls):
        """A key that nobody else has."""
        return cls(rsa.generate_private_key(EXPONENT, BITS))

    @classmethod
    def load(cls, path, passphrase):
        """The key in a file; BoardError when it cannot be read.

        passphrase  function() that returns it, called for a file that is locked
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BoardError(f"The signing key {path} cannot be read: {error.strerror}.")
        try:
            key = pem.read(data, passphrase)
        except (ValueError, TypeError):
            raise BoardError(f"{path} does not open: the passphrase is wrong, or it is no signing "
                             "key of `umqtt-board signing-key`, or a damaged one.")  # fmt: skip
        numbers = getattr(key, "key_size", 0), getattr(key.public_key(), "public_numbers", None)
        if not isinstance(key, rsa.RSAPrivateKey) or numbers[0] != BITS \
                or numbers[1]().e != EXPONENT:  # fmt: skip
            raise BoardError(f"{path}: expected an RSA key of {BITS} bits with the exponent "
                             f"{EXPONENT}: `umqtt-board signing-key` makes one.")  # fmt: skip
        return cls(key)

    def save(self, path, passphrase):
        """Write it into a new file, with mode 0600. passphrase: text; "" locks nothing."""
        if path.exists():
            raise BoardError(f"{path} is there: a signing key is never written over.")
        private.write(path, pem.written(self._key, passphrase))

    @property
    def modulus(self):
        """The public key as an envelope carries it: BYTES bytes, big-endian."""
        return self._key.public_key().public_numbers().n.to_bytes(BYTES, "big")

    def sign(self, message):
        """RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017) of bytes: BYTES bytes."""
        return self._key.sign(message, padding.PKCS1v15(), hashes.SHA256())


def fingerprint(modulus):
    """What a board's settings hold of a key: SHA-256 of its modulus, hexadecimal."""
    return hashlib.sha256(modulus).hexdigest()


def verified(modulus, signature, message):
    """Whether a signature is right; all are bytes."""
    try:
        key = rsa.RSAPublicNumbers(EXPONENT, int.from_bytes(modulus, "big")).public_key()
        key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True
