"""The CA certificate of the settings: a file of this computer becomes text for the board.

Knows: PEM and DER. Must not know: where else settings come from, what a board does with it.
"""

import ssl
from pathlib import Path

KEY = "broker.ca"
BEGIN = "-----BEGIN CERTIFICATE-----"


def resolve(flat, folder):
    """Return (settings, list of faults): in them the PEM text instead of a file's name.

    flat    settings as a flat dict
    folder  where the settings file lies: names are relative to it

    A name that begins with "/" and is no file here is left: it may be one on the board.
    """
    given = flat.get(KEY)
    if not isinstance(given, str) or not given:
        return flat, []
    if BEGIN in given:
        return flat, _faults(given)
    path = Path(folder) / given
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        if given.startswith("/"):
            return flat, []
        why = getattr(error, "strerror", None) or error
        return flat, [f"{KEY}: expected PEM text, a file of this computer, or the path of one on "
                      f'the board, which begins with "/"; {path} cannot be read: {why}']
    pem = BEGIN.encode() in data
    text = data.decode(errors="replace") if pem else ssl.DER_cert_to_PEM_cert(data)
    return flat | {KEY: text}, _faults(text, f" in {path}")


def _faults(text, where=""):
    count = text.count(BEGIN)
    if count != 1:
        return [f"{KEY}: expected one certificate{where}, got {count}: the board takes only the "
                "one that the broker's is signed with"]
    try:
        ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        return [f"{KEY}: expected a certificate{where}: {error.reason or error}"]
    return []
