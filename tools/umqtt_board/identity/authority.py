"""Certificate authorities of a fleet, and what they sign. P-256: what a small chip can verify.

An authority's key stays in the folder of this computer's keys; certificates may lie anywhere.
Knows X.509. Must not know brokers or boards.
"""

import datetime
import re

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from umqtt_board import private
from umqtt_board.errors import BoardError
from umqtt_board.lock import pem

AUTHORITY_DAYS = 20 * 365
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_EARLY = datetime.timedelta(days=1)  # clocks that are a little late


def _now():
    return datetime.datetime.now(datetime.timezone.utc)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Unlike(ValueError):
    """A certificate and a key are of two pairs."""


class Authority:
    """One authority, made when its files are not there.

    name    of it, in its certificate
    folder  a Path; NAME.pem and NAME-key.pem lie there
    word    passphrase of its key, "" for none
    Raises BoardError for files that cannot be used.
    """

    def __init__(self, name, folder, word=""):
        self.name, self._word = name, word
        self._files = folder / f"{name}.pem", folder / f"{name}-key.pem"
        if not any(path.exists() for path in self._files):  # of one alone the other is lost
            self._make()
        self._certificate, self._key = self._read()
        begins = self._certificate.not_valid_before_utc
        if begins > _now():
            raise BoardError(f"{self._files[0]} is valid from {begins:%Y-%m-%d} on, and now it is "
                             f"{_now():%Y-%m-%d} here: set this computer's clock. If it was ahead "
                             "when that file was made, and is right now: `umqtt-board keys revoke "
                             "--authorities`, then `umqtt-board identity` makes everything anew.")

    def _make(self):
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(_name(self.name), _name(self.name), key.public_key(), AUTHORITY_DAYS)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = made.add_extension(x509.BasicConstraints(True, 0), True)
        made = made.add_extension(usage, True).sign(key, hashes.SHA256())
        # One without the other is an authority that has lost it: another one of that name would
        # shut out who trusts the first.
        private.write(self._files[1], pem.written(key, self._word))
        private.write(self._files[0], made.public_bytes(serialization.Encoding.PEM))

    def _read(self):
        try:
            if self._files[1].stat().st_mode & 0o077:
                raise BoardError(f"{self._files[1]} holds a key and others may read it: "
                                 f"`chmod 600 {self._files[1]}`.")  # fmt: skip
            return _pair(*(path.read_bytes() for path in self._files), self._word)
        except FileNotFoundError as error:
            why = f"{error.filename} is not there"
        except OSError as error:
            why = f"{error.filename} cannot be read: {error.strerror}"
        except Unlike:
            why = "the key is another one's"
        except (ValueError, TypeError):
            why = "one of the two is damaged, or was locked with another passphrase"
        raise BoardError(f"{self._files[1]} and {self._files[0].name} are not an authority's "
                         f"certificate and key ({why}). Bring them back from a copy (`umqtt-board "
                         "keys import`), or remove both and give a new folder: then all "
                         "certificates are made anew.")  # fmt: skip

    @staticmethod
    def _builder(subject, issuer, public, days):
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        until = _now() + datetime.timedelta(days=days)
        return builder.not_valid_before(_now() - _EARLY).not_valid_after(until)

    @property
    def pem(self):
        """Its certificate, bytes."""
        return self._files[0].read_bytes()

    def issue(self, name, days, hosts=()):
        """Return (certificate, key), both PEM, of a client of that name; of a server with hosts:
        names or addresses by which it is reached."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(_name(name), self._certificate.subject, key.public_key(), days)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        made = made.add_extension(x509.ExtendedKeyUsage([usage]), False)
        if hosts:
            names = x509.SubjectAlternativeName([host_name(host) for host in hosts])
            made = made.add_extension(names, False)
        made = made.sign(self._key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM), pem.written(key, "")

    def holds(self, certificate, key, name, days, hosts=()):
        """Whether certificate and key, both PEM, are what issue() of this authority makes, valid
        now and for so many days more."""
        try:
            found = x509.load_pem_x509_certificate(certificate)
            found.verify_directly_issued_by(self._certificate)
            if pem.read(key, lambda: "").public_key() != found.public_key():
                return False
        except Exception:  # cryptography has a class of its own for a signature that is not right
            return False
        return (found.subject == _name(name)
                and _hosts(found) == {host_name(host) for host in hosts}
                and found.not_valid_before_utc <= _now()
                and found.not_valid_after_utc > _now() + datetime.timedelta(days=days))


def _pair(certificate, key, word):
    found = x509.load_pem_x509_certificate(certificate)
    opened = pem.read(key, lambda: word)
    if opened.public_key() != found.public_key():
        raise Unlike
    return found, opened


def sound(certificate, key, word):
    """Whether these bytes are an authority's certificate and its key, which that passphrase
    opens. key: None for a certificate alone."""
    try:
        if key is None:
            return bool(x509.load_pem_x509_certificate(certificate))
        return bool(_pair(certificate, key, word))
    except (ValueError, TypeError):
        return False


def stranger(before, known):
    """The name of the authority that the PEM file `before`, bytes, has last; "" if it is known,
    and for an empty or a damaged file. known: function(certificate in PEM)."""
    try:
        last = x509.load_pem_x509_certificates(before)[-1]
    except (ValueError, IndexError):
        return ""
    if known(last.public_bytes(serialization.Encoding.PEM)):
        return ""
    return _called(last)


def _called(certificate):
    return certificate.subject.rfc4514_string().removeprefix("CN=")


def with_trust(before, authority, revoked):
    """The PEM file `before` of trusted authorities, bytes, with this one in it; and the names of
    those that are no longer in it: revoked ones, and an earlier one of its name, whose key is
    gone. None for a damaged file. revoked: function(certificate in PEM).

    Two authorities of one name cannot be told apart by whoever checks a certificate."""
    try:
        there = x509.load_pem_x509_certificates(before) if before.strip() else []
    except ValueError:
        return authority.pem, None
    own = x509.load_pem_x509_certificate(authority.pem)
    stay = [one for one in there if one == own or one.subject != own.subject
            and not revoked(one.public_bytes(serialization.Encoding.PEM))]  # fmt: skip
    gone = [_called(one) for one in there if one not in stay]
    if own not in stay:
        stay.append(own)
    data = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in stay)
    return data, gone


def relocked(data, before, after):
    """The key in the bytes of an authority's file under another passphrase; "" is none. ValueError
    or TypeError for bytes that are no key, or are locked with neither of the two."""
    try:
        return pem.written(pem.read(data, lambda: before), after)
    except (ValueError, TypeError):
        pem.read(data, lambda: after)  # an earlier run came so far
        return data


def _hosts(certificate):
    """The names and addresses in a certificate, as a set of what host_name() returns."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return set(found.value)


def hosts(certificate):
    """The names and addresses of a server's certificate in PEM, as issue() takes them; [] for what
    is none."""
    try:
        found = _hosts(x509.load_pem_x509_certificate(certificate))
    except ValueError:
        return []
    return sorted(str(one.value) for one in found)


def host_name(text):
    """A host name or an address as it stands in a server's certificate; BoardError for another
    text."""
    import ipaddress

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        name = text.encode("idna").decode()  # as a resolver asks for it
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name):
        raise BoardError(f"--host {text!r}: expected a host name or an address, as boards have it "
                         "in broker.host.")  # fmt: skip
    return x509.DNSName(name)
