"""RSA: whether what was sent is what the holder of a trusted key has signed.

Knows RFC 8017, RSASSA-PKCS1-v1_5 with SHA-256, and keys of 3072 bits. Must not know what is
signed. In memory only while an update is checked. Not part of a set: what decides about sets is
the cable's.

An envelope is
    MODULUS    384 bytes, big-endian: the public key; its exponent is 65537
    SIGNATURE  384 bytes, of the rest
    TEXT       what is signed (release.py)
The board's settings hold the SHA-256 of two moduli, update.key and update.spare: a key in an
envelope is one of them or counts for nothing.

RSA and not Ed25519: no port has either in C, and in Python one costs 17 products of long integers,
the other 3,700.
"""

import hashlib
from binascii import hexlify

KEY = 384  # bytes of a modulus, and of a signature
# DER of DigestInfo for SHA-256 up to the digest: section 9.2, note 1
_SHA256 = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"


def verified(modulus, signature, message):
    """Tell whether a signature is right, under the exponent 65537.

    modulus, signature  KEY bytes each, big-endian; message: bytes of any length
    """
    n = int.from_bytes(modulus, "big")
    s = int.from_bytes(signature, "big")
    if len(modulus) != KEY or len(signature) != KEY or s >= n:
        return False
    x = s
    for _ in range(16):
        x = x * x % n
    x = x * s % n
    # The whole block is made and compared: nothing in it is looked for, so nothing can be hidden.
    tail = b"\x00" + _SHA256 + hashlib.sha256(message).digest()
    return x.to_bytes(KEY, "big") == b"\x00\x01" + b"\xff" * (KEY - 2 - len(tail)) + tail


def opened(envelope, trusted):
    """Return what is signed, bytes; raise ValueError, with the reason, if it cannot be trusted.

    envelope  memoryview
    trusted   SHA-256 of the moduli that count, 64 hexadecimal digits each
    """
    modulus, text = envelope[:KEY], bytes(envelope[2 * KEY :])
    if hexlify(hashlib.sha256(modulus).digest()).decode() not in trusted:
        raise ValueError("signed with a key that this board does not trust")
    if not verified(modulus, envelope[KEY : 2 * KEY], text):
        raise ValueError("the signature is wrong")
    return text
