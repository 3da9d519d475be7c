"""Whom the operator's program trusts as the broker, and with which certificate it comes itself.

Knows TLS, and what is wrong with files of certificates in words. Must not know what is sent.
"""

import ssl
from pathlib import Path

from umqtt_board.errors import BoardError, reason


def context(broker):
    """The SSLContext for the operator's connection to a broker, a dict as of send.Session. Raises
    BoardError for a file that cannot be used."""
    ca, path = broker.get("ca"), "in the boards' settings"
    if ca and not ca.startswith("-----BEGIN"):
        path = ca
        try:
            ca = Path(path).read_text("ascii", "replace").replace("\ufffd", "?")
        except OSError as error:
            raise BoardError(f"The CA certificate {path} cannot be read: {error.strerror}. "
                             "Give its file on this computer as --ca.")  # fmt: skip
        if not ca.strip():  # nothing stands for the authorities of this computer's system
            raise BoardError(f"The CA certificate {path} is empty.")
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except ssl.SSLError:
        raise BoardError(f"The CA certificate {path} is not right: it is none in PEM, or damaged.")
    if broker.get("cert"):
        try:
            context.load_cert_chain(broker["cert"], broker.get("key"))
        except (OSError, ValueError) as error:
            raise BoardError(f"--cert {broker['cert']}: {_unlike(error, broker)}.")
    return context


def _unlike(error, broker):
    """What is wrong with the operator's certificate and key, in words."""
    paths = [path for path in (broker["cert"], broker.get("key")) if path]
    if not isinstance(error, ssl.SSLError):
        gone = next((path for path in paths if not Path(path).is_file()), paths[-1])
        return f"{gone}: {reason(error)}"
    if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
        return "the key is that of another certificate"
    return f"no certificate in PEM, or {paths[-1]} is not the key of it"
