"""The step that gets a MicroPython image: a file, or a download into a cache that can be trusted.

No address is used without the SHA-256 of what lies there: board.toml has that of the published
image, and an address of one's own brings its own. A download lies as NAME.part until all of it is
there and its SHA-256 is right; then it gets its name, in one rename. The sum is compared at each
use. A download that was broken off goes on where it stopped (RFC 9110, section 14.2, If-Range),
with this run or the next.

Knows: HTTP, the cache folder (XDG Base Directory Specification).
Must not know: chips, what is in an image.
"""

import fcntl
import hashlib
import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from umqtt_board.errors import BoardError

STALL_S = 30  # a server that sends nothing for so long is given up
TRIES = 3  # each goes on where the one before ended
BLOCK = 65536
LARGEST = 64 << 20  # no image is larger; protects the disk
_SUM = re.compile(r"sha256=([0-9a-fA-F]{64})")
_BROKEN = (OSError, http.client.HTTPException, EOFError)


class _Truncated(EOFError):
    """The connection ended before the announced length."""


def cache_folder(environment=os.environ):
    """Return the folder of downloaded images: $XDG_CACHE_HOME/umqtt_min, by default ~/.cache."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "umqtt_min"


def published(board):
    """Return (address, SHA-256) of the image that a board's folder names."""
    data = board["micropython"]
    address = data["url"].format(
        image=data["image"], version=data["version"], released=data["released"]
    )
    return address, data["sha256"]


def image(board, firmware, progress, transfer, folder=None, stall_s=STALL_S):
    """Return the path of the image to write: FIRMWARE= a file or an address, else the published.

    board     a boards.Board
    firmware  path, http(s)://...#sha256=SUM, or "fetch" for the published one
    progress  function(step, text); transfer: function(done, total, name), total 0 if unknown
    folder    the cache (default cache_folder())
    Raises BoardError.
    """
    text = str(firmware)
    if text.startswith(("http://", "https://")):
        address, wanted = _with_sum(text)
    elif text == "fetch":
        address, wanted = published(board)
    else:
        return _file(firmware)
    return download(address, wanted, progress, transfer, folder or cache_folder(), stall_s)


def _with_sum(text):
    """(address, SHA-256) of an address that carries its checksum; BoardError for one that does
    not: whoever is between here and there could put another program onto the board."""
    address, _, given = text.partition("#")
    found = _SUM.fullmatch(given)
    if not found:
        raise BoardError(
            f"FIRMWARE={text} has no checksum, or not 64 hexadecimal digits of it. Give the "
            "address with the SHA-256 of the image, in quotes: FIRMWARE='https://...#sha256=...' "
            "(`sha256sum FILE` shows that of an image which you trust), or give a file."
        )
    return address, found[1].lower()


def _file(firmware):
    path = Path(firmware)
    if not path.is_file():
        raise BoardError(
            f"FIRMWARE={firmware} is not a file. Give the path of a MicroPython image, an address "
            '(https://...), "fetch" for the published image, or "skip" to leave the interpreter '
            "on the board as it is."
        )
    return path


def download(address, wanted, progress, transfer, folder, stall_s=STALL_S):
    """Return the path of the cached copy of `address`, downloaded unless it is there and right.

    wanted  its SHA-256 in hexadecimal, lower case
    """
    name = Path(urllib.parse.urlsplit(address).path).name
    if name in ("", ".."):
        raise BoardError(f"FIRMWARE={address} names no file: give the address of an image.")
    target = Path(folder) / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.with_name(name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two boards flashed at a time share one download
            if _cached(target, wanted, progress):
                return target
            _fetch(address, target, wanted, progress, transfer, stall_s)
    except PermissionError as error:
        raise BoardError(f"{error.filename} cannot be written: set XDG_CACHE_HOME to a folder of "
                         "your own, or give a file as FIRMWARE=.")  # fmt: skip
    return target


def digest(path):
    """Return the SHA-256 of a file, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cached(target, wanted, progress):
    """Whether the copy in the cache is whole; one that is not is thrown away."""
    if not target.exists():
        return False
    if wanted == digest(target):
        progress("image", f"{target.name} is in the cache, its SHA-256 is right")
        return True
    progress("image", f"{target} is not the image that is wanted: fetching it anew")
    target.unlink()
    return False


def _fetch(address, target, wanted, progress, transfer, stall_s):
    part = target.with_name(target.name + ".part")
    for tries_left in range(TRIES - 1, -1, -1):
        try:
            _get(address, part, progress, transfer, stall_s)
            break
        except urllib.error.HTTPError as error:
            raise BoardError(_no_such_image(address, error))
        except _BROKEN as error:
            if not tries_left:
                raise BoardError(_off_line(address, part, error))
    _accept(address, part, target, wanted)


def _accept(address, part, target, wanted):
    found = digest(part)
    if found != wanted:
        part.unlink()
        raise BoardError(
            f"{address} is not the image that was expected: its SHA-256 is {found}, not {wanted}. "
            "It was thrown away. Try again; if it stays so, something on the way changes "
            "downloads: get the image in another way and give it as FIRMWARE=FILE."
        )
    part.replace(target)
    _note(part).unlink(missing_ok=True)


def _note(part):
    return part.with_name(part.name + ".json")


def _resume_headers(address, part):
    """Ask for the rest only, if it is still the rest of the same thing."""
    try:
        note = json.loads(_note(part).read_text())
        have = part.stat().st_size
    except (OSError, ValueError, RecursionError):
        return {}, 0
    if note.get("address") != address or not note.get("tag") or not have:
        return {}, 0
    return {"Range": f"bytes={have}-", "If-Range": note["tag"]}, have


def _get(address, part, progress, transfer, stall_s):
    headers, have = _resume_headers(address, part)
    request = urllib.request.Request(address, headers=headers | {"User-Agent": "umqtt-board"})
    try:
        answer = urllib.request.urlopen(request, timeout=stall_s)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.unlink()  # longer than the thing itself: begin anew
        raise EOFError("the rest could not be had")
    with answer:
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        progress("image", f"{'going on with' if have else 'fetching'} {address}")
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        _note(part).write_text(json.dumps({"address": address, "tag": tag}))
        _receive(answer, part, have, total, transfer)


def _receive(answer, part, have, total, transfer):
    if total > LARGEST:
        raise BoardError(f"{answer.url} has {total} bytes: that is no image of MicroPython.")
    with open(part, "r+b" if have else "wb") as file:
        file.seek(have)
        file.truncate()
        while block := answer.read1(BLOCK):
            file.write(block)
            have += len(block)
            transfer(have, total, part.stem)
            if have > LARGEST:
                raise BoardError(f"{answer.url} does not end: that is no image of MicroPython.")
        file.flush()
        os.fsync(file.fileno())
    if have < total:
        raise _Truncated(f"the connection ended after {have} of {total} bytes")


def _no_such_image(address, error):
    return (
        f"{address} cannot be had: the server says {error.code} {error.reason}. Look for the "
        "image at micropython.org/download and give it as FIRMWARE=FILE."
    )


def _off_line(address, part, error):
    reason = getattr(error, "reason", None) or error
    have = part.stat().st_size if part.exists() else 0
    kept = f" The {have} bytes that came are kept: the next run goes on there." if have else ""
    return (
        f"{address} could not be fetched: {reason}.{kept} See to the connection to the Internet "
        "and try again, or give an image that you have as FIRMWARE=FILE."
    )
