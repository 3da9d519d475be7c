"""Certificates and the key of the settings: files of this computer become text for the board.

Knows: PEM and DER. Must not know: where else settings come from, what a board does with it.
"""

import base64
import os
import re
import ssl
import tempfile
from pathlib import Path

KEY = "broker.ca"
OWN = ("broker.cert", "broker.key")  # the board's own
KEYS = (KEY, *OWN)
BEGIN = "-----BEGIN CERTIFICATE-----"
_PEM = "-----BEGIN "
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----\n?", re.DOTALL)


def resolve(flat, folders):
    """Return (settings, list of faults): in them the PEM text instead of a file's name.

    flat     settings as a flat dict
    folders  {one of KEYS: the folder that its name is relative to}; one that is not in it names
             a file of the board's, and stays as it is

    A name that begins with "/" and is nothing here is left: it may be one on the board. In the
    names of the board's own files {group} and {device} stand for its group and its name.
    """
    faults = []
    for key, folder in folders.items():
        given = flat.get(key)
        if isinstance(given, str) and given:
            found, wrong = _resolve(key, _named(key, given, flat), folder)
            flat = flat | {key: found if wrong else _alone(key, found)}
            faults += wrong
    if set(folders).isdisjoint(OWN):
        return flat, faults
    return flat, faults or _unlike(*(flat.get(key) for key in OWN))


def on_board(flat):
    """{path of a file on the board: which of KEYS names it}."""
    return {flat[key]: key for key in KEYS
            if isinstance(flat.get(key), str) and flat[key].startswith("/")}  # fmt: skip


def faults(flat, files):
    """What is wrong with the certificates and the key in a board's own settings, a list: text that
    is none, or a key that is of another certificate.

    files  {path: bytes} of files on the board that they name; one that is not in it is not judged
    """
    found = []
    for key in KEYS:
        given = flat.get(key)
        if given in files:
            found += _on_board_faults(key, given, files[given])
        elif isinstance(given, str) and given and not given.startswith("/"):
            found += _faults(key, given) if is_pem(given) else [
                f"{key}: expected PEM text, or the path of a file on the board, which begins "
                'with "/"']  # fmt: skip
    return found or _unlike(*(text_of(key, flat, files) for key in OWN))


def text_of(key, flat, files):
    """The PEM text of one of KEYS in the settings `flat`; what they say where that is the name of
    a file that is not in `files`, as for faults()."""
    given = flat.get(key)
    if given not in files:
        return given
    data = files[given]
    # As firmware/link.py: a file that does not begin as PEM is taken for DER.
    return data.decode(errors="replace") if data.startswith(_PEM.encode()) else _text(key, data)


def _on_board_faults(key, path, data):
    where = f" in {path} on the board"
    text = text_of(key, {key: path}, {path: data})
    found = _faults(key, text, where)
    if not found and not text.startswith(_alone(key, text)):
        what = "private key" if key == OWN[1] else "certificate"
        found = [f"{key}: expected the {what} at the beginning{where}: it reads no further"]
    return found


def is_pem(text):
    """Whether a setting is a certificate or key itself, and not the name of its file."""
    return _PEM in str(text)


def _named(key, given, flat):
    if key not in OWN or _PEM in given:
        return given
    given = given.replace("{group}", str(flat.get("group", "default")))
    return given.replace("{device}", str(flat["device"])) if flat.get("device") else given


def _resolve(key, given, folder):
    if "{device}" in given and key in OWN and _PEM not in given:
        return given, [f"device: expected the board's name, because {key} is the file {given}"]
    if _PEM in given:
        return given, _faults(key, given)
    path = Path(folder) / os.path.expanduser(given)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        if given.startswith("/") and isinstance(error, FileNotFoundError | NotADirectoryError):
            return given, []
        why = ("is a folder" if isinstance(error, IsADirectoryError) else
               f"cannot be read: {getattr(error, 'strerror', None) or error}")  # fmt: skip
        return given, [f"{key}: expected PEM text, a file of this computer, or the path of one on "
                       f'the board, which begins with "/"; {path} {why}']
    text = data.decode(errors="replace") if _PEM.encode() in data else _text(key, data)
    return text, _faults(key, text, f" in {path}")


def _alone(key, text):
    """The certificate or key in a text without what stands around it: the board reads the first
    block of PEM, and takes a text that begins otherwise for the name of a file."""
    end = "PRIVATE KEY" if key == OWN[1] else "CERTIFICATE"
    found = [block[0] for block in _BLOCK.finditer(text) if block[1].endswith(end)]
    return found[0] if found else text


def _unlike(certificate, key):
    """The fault of a certificate and a key, PEM, that are of two pairs: no broker lets the board
    in with them. None of what lies on the board, or what this computer's TLS cannot judge."""
    if not (is_pem(certificate) and is_pem(key)):
        return []
    with tempfile.NamedTemporaryFile(suffix=".pem") as both:  # its owner's alone
        both.write(f"{certificate}\n{key}".encode())
        both.flush()
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(both.name, password="")
        except ssl.SSLError as error:
            if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
                return [f"{OWN[1]}: expected the key of {OWN[0]}, got that of another certificate"]
            if error.reason in (None, "BAD_BASE64_DECODE"):  # the certificate was looked at before
                return [f"{OWN[1]}: expected a private key, got what is none"]
    return []


def _text(key, der):
    if key != OWN[1]:
        return ssl.DER_cert_to_PEM_cert(der)
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"


def _faults(key, text, where=""):
    if key == OWN[1]:
        if text.count("PRIVATE KEY-----") == 2 and "ENCRYPTED" not in text:
            return []
        return [f"{key}: expected one private key without a passphrase{where}"]
    if "PRIVATE KEY-----" in text:  # it would go onto each board, and into copies in clear
        return [f"{key}: expected one certificate alone{where}, got a private key, too: give a "
                "file without it"]  # fmt: skip
    count = text.count(BEGIN)
    if count != 1:
        what = ("the one that the broker's is signed with" if key == KEY else "its own")
        return [f"{key}: expected one certificate{where}, got {count}: the board takes only "
                f"{what}"]  # fmt: skip
    try:
        # Alone: what stands around it, as `openssl x509 -text` has it, is in any alphabet.
        ssl.create_default_context(cadata=_alone(key, text))
    except (ssl.SSLError, TypeError):  # TypeError: what is not ASCII
        return [f"{key}: expected a certificate{where}, got what is none, or is damaged"]
    return []
