"""The lock of this computer's keys: a key of its own, in a file that the passphrase locks.

Everything else is sealed with that key, so that another passphrase changes one small file, and one
question opens all boards. lock.pem lies in the folder of the keys; without it nothing is sealed.
Must not know what a board is.
"""

import base64
import hmac
import importlib.util
import secrets

import click

from umqtt_board import private
from umqtt_board.errors import BoardError
from umqtt_board.lock.passphrase import LEAST, Passphrase

PASSPHRASE = Passphrase("UMQTT_KEYS_PASSPHRASE", "this computer's keys")
NEW = Passphrase("UMQTT_KEYS_NEW_PASSPHRASE", "this computer's keys from now on")
_NONCE = 12  # bytes, of AES-GCM
_OFFER = f"""\
  This is the first key of this computer: who has a copy of it can command the board. A
  passphrase of {LEAST} characters or more locks this key and all later ones. Each command that
  needs a key then asks for it, or takes it from {PASSPHRASE.variable}.
  Press Enter to go without: the keys stay in files that only you can read, and
  `umqtt-board keys lock` locks them later."""
_UNLOCKED = ("keys are kept without a passphrase, in files that only you can read; "
             "`umqtt-board keys lock` sets one")  # fmt: skip


class Closed(BoardError):
    """A lock does not open: the passphrase is wrong, or its file is damaged."""


class Lock:
    """What opens and seals. key: an X25519 private key of cryptography's."""

    def __init__(self, key):
        self._key = key
        self._secret = key.private_bytes_raw()

    @classmethod
    def new(cls):
        """A lock that nobody else has."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return cls(X25519PrivateKey.generate())

    def pem(self, word):
        """The bytes of its file, locked with a passphrase."""
        from umqtt_board.lock import pem

        return pem.written(self._key, word)

    def seal(self, text, name):
        """A text as only this lock opens it, and only under that name. Another one each time."""
        nonce = secrets.token_bytes(_NONCE)
        sealed = self._cipher().encrypt(nonce, text.encode(), name.encode())
        return base64.b64encode(nonce + sealed).decode()

    def opened(self, sealed, name):
        """The text; ValueError for what this lock has not sealed under that name."""
        from cryptography.exceptions import InvalidTag

        data = base64.b64decode(sealed, validate=True)
        try:
            return self._cipher().decrypt(data[:_NONCE], data[_NONCE:], name.encode()).decode()
        except InvalidTag:
            raise ValueError("it was sealed with another lock, for another board, or is changed")

    def code(self, data):
        """A code of bytes that nobody makes without this lock, hexadecimal."""
        key = hmac.digest(self._secret, b"umqtt export", "sha256")
        return hmac.digest(key, data, "sha256").hex()

    @property
    def word(self):
        """The passphrase of the files that are locked PEM themselves."""
        return hmac.digest(self._secret, b"umqtt authorities", "sha256").hex()

    def _cipher(self):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(hmac.digest(self._secret, b"umqtt boards", "sha256"))


class _Opened:
    """Locks that were opened, so that a command asks once. {bytes of the file: Lock}"""

    locks: dict = {}


def path(folder):
    """The file of the lock of a folder of keys."""
    return folder / "lock.pem"


def of(folder):
    """The Lock of a folder of keys, None when it has none; asks for the passphrase. Raises Closed,
    BoardError when nobody can be asked."""
    try:
        data = path(folder).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return opened(data, PASSPHRASE, path(folder))
    except Closed as error:
        why = (f"{path(folder)} is locked, and {PASSPHRASE.source} is empty."
               if PASSPHRASE.given() == "" else str(error))  # fmt: skip
        raise Closed(f"{why} Keys that came by `umqtt-board keys import` may have the passphrase "
                     "of the copy that was the first here. If the file is damaged, `umqtt-board "
                     "keys import --yes` of your copy brings it back.")  # fmt: skip


def opened(data, passphrase, where):
    """The Lock in the bytes of a file; Closed when it does not open.

    passphrase  function() that returns it; where: what to call the file
    """
    if data not in _Opened.locks:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        from umqtt_board.lock import pem

        try:
            key = pem.read(data, passphrase)
        except (ValueError, TypeError):
            raise Closed(f"{where} does not open: the passphrase is wrong, or the file is "
                         "damaged.")  # fmt: skip
        if not isinstance(key, X25519PrivateKey):
            raise Closed(f"{where} is not the lock of keys.")
        _Opened.locks[data] = Lock(key)
    return _Opened.locks[data]


def forget():
    """Ask for passphrases again."""
    _Opened.locks.clear()


def put(folder, lock, word):
    """Write a Lock's file, locked with a passphrase; returns the Lock."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = lock.pem(word)
    private.replace(path(folder), data)
    _Opened.locks[data] = lock
    return lock


def offered(tell):
    """The passphrase that whoever makes the first key of this computer wants; "": none.

    tell  function(text), called when there is none and nobody has said so
    """
    found = PASSPHRASE.given()
    if found is None and PASSPHRASE.can_ask() and importlib.util.find_spec("cryptography"):
        click.echo(_OFFER)
    elif found is None:
        tell(_UNLOCKED)
        return ""
    return PASSPHRASE.new(optional=True)
