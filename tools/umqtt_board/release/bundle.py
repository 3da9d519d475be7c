"""A release: a set with its manifest and signature, and the file in which it travels.

The form of manifest and envelope is in firmware/release.py. A bundle is a ZIP file:
    manifest.json  what is signed, byte by byte
    signature, key 384 bytes each: RSA-3072, big-endian
    files.sha256   a line a file, as sha256sum writes it, of the .mpy files as they are imported
    set            the bytes that go to a board
Whoever has a bundle can send it to boards that they have a command key for, and can change nothing
in it. Must not know boards nor MQTT.
"""

import hashlib
import io
import json
import time
import zipfile
import zlib
from dataclasses import dataclass

from umqtt_board.errors import BoardError
from umqtt_board.ota import fileset
from umqtt_board.paths import FIRMWARE
from umqtt_board.private import other_than, write
from umqtt_board.release.signing_key import BYTES, fingerprint, verified

DAYS = 365
_RELEASE = FIRMWARE / "release.py"
_PARTS = {"manifest.json": 1024, "signature": BYTES, "key": BYTES, "files.sha256": 1 << 20,
          "set": 4194304}  # fmt: skip
# A time that is in no archive twice: the same release gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass
class Limits:
    """What a release is for.

    project   as in the boards' settings, update.project
    chip      sys.platform of the boards, board what their interpreter's banner says; "": any
    security  security version; None: SECURITY of firmware/release.py
    days      until the signature expires; 0: never
    """

    project: str = "umqtt_min"
    chip: str = ""
    board: str = ""
    security: int | None = None
    days: int = DAYS


def file_list(files):
    """The list of a set's files (path -> bytes) as sha256sum writes it, bytes."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n"
                   for path, data in sorted(files.items())).encode()  # fmt: skip


def manifest(made, limits):
    """The manifest of a fileset.Set, bytes: what is signed. limits: Limits."""
    security = limits.security
    if security is None:
        security = fileset.constant(_RELEASE, "SECURITY")
    text = json.dumps({
        "project": limits.project, "board": limits.board, "chip": limits.chip,
        "version": made.version, "security": security,
        "expires": int(time.time()) + 86400 * limits.days if limits.days else 0,
        "sha": made.sha, "size": len(made.run), "index": made.index, "mpy": made.mpy,
        "loader": made.loader, "files": hashlib.sha256(file_list(made.files)).hexdigest(),
    }, indent=1).encode()  # fmt: skip
    if len(text) > fileset.constant(_RELEASE, "MOST"):
        raise BoardError("The names of project, board and chip are too long for a manifest.")
    return text


def sign(made, key, limits):
    """Sign a fileset.Set with a SigningKey: from now on its envelope goes ahead of it."""
    text = manifest(made, limits)
    made.seal(key.modulus + key.sign(text) + text)


def save(made, path):
    """Write a signed fileset.Set as a bundle; BoardError where a file of another kind is."""
    if path.is_file() and path.stat().st_size and not zipfile.is_zipfile(path):
        raise other_than(path, "bundle")
    parts = {"manifest.json": made.envelope[2 * BYTES :], "key": made.envelope[:BYTES],
             "signature": made.envelope[BYTES : 2 * BYTES], "files.sha256": file_list(made.files),
             "set": made.run}  # fmt: skip
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    write(path, out.getvalue())


def load(path):
    """The signed fileset.Set in a bundle; BoardError for one in which anything is not right.

    Returns (Set, manifest as a dict, fingerprint of the key): whether that key is to be trusted is
    for the boards to say.
    """
    parts = _parts(path)
    text, key, signature = parts["manifest.json"], parts["key"], parts["signature"]
    if len(key) != BYTES or not verified(key, signature, text):
        raise BoardError(f"{path}: the signature is wrong.")
    try:
        said = json.loads(text)
        made = fileset.Set.of_run(said["version"], said["index"], parts["set"], said["mpy"],
                                  said["loader"])  # fmt: skip
        right = (said["sha"], said["size"]) == (made.sha, len(made.run))
        listed = hashlib.sha256(parts["files.sha256"]).hexdigest() == said["files"]
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        raise BoardError(f"{path} is no bundle that this project has made ({error}).")
    if not right or not listed or file_list(made.files) != parts["files.sha256"]:
        raise BoardError(f"{path}: its files are not those that were signed.")
    made.seal(key + signature + text)
    return made, said, fingerprint(key)


def _parts(path):
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise BoardError(f"The bundle {path} is no file.")
    try:
        with zipfile.ZipFile(path) as archive:
            found = {info.filename: info for info in archive.infolist()}
            if set(found) != set(_PARTS) or len(found) != len(archive.infolist()):
                raise ValueError("it has other parts")
            if any(info.file_size > _PARTS[name] for name, info in found.items()):
                raise ValueError("a part of it is too long")
            return {name: archive.read(name) for name in found}
    except OSError as error:
        raise BoardError(f"The bundle {path} cannot be read: {error.strerror or error}.")
    except ValueError as error:
        raise BoardError(f"{path} is no bundle: {error}.")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError):
        raise BoardError(f"{path} is no bundle: it is damaged, or no ZIP file.")
