"""Private keys in files: PKCS#8 in PEM, which a passphrase locks.

Knows cryptography's forms. Must not know what a key is for, nor where a passphrase comes from.
"""

from cryptography.hazmat.primitives import serialization


def written(key, passphrase):
    """A private key of cryptography's as a file's bytes. passphrase: text; "" locks nothing."""
    lock = serialization.NoEncryption()
    if passphrase:
        lock = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def read(data, passphrase):
    """The private key in a file's bytes; ValueError or TypeError when it cannot be opened.

    passphrase  function() that returns it, called for a file that is locked
    """
    word = passphrase().encode() if b"ENCRYPTED" in data else None
    return serialization.load_pem_private_key(data, word)
