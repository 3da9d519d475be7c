"""Release: whether a manifest that was signed is for this board, and of the set that comes.

Knows what a manifest says, and what it must say. Must not know signatures, pieces, flash, nor
which set runs. In memory only while an update is checked. Not part of a set: what decides about
sets is the cable's.
"""

import json
import sys

import loader

# Security version: to be raised with a release after which no older one may run. A board refuses
# what is older than that of its own release.py, and than any set that has passed its trial on it.
SECURITY = 1
MOST = 1024  # bytes of a manifest
_MOST_INT = (1 << 53) - 1
# (key, type): a whole number from 0 on, or a text. "chip" is sys.platform, "board" what the
# interpreter's banner says, such as "Raspberry Pi Pico W with RP2040"; "" is any. "expires" is
# Unix seconds, 0 is never. "files" is the SHA-256 of a list of the files with the SHA-256 of each:
# that is for the host, the board checks the SHA-256 of the whole set.
_FIELDS = (
    ("project", str), ("board", str), ("chip", str), ("version", str), ("sha", str),
    ("files", str), ("size", int), ("index", int), ("mpy", int), ("loader", int),
    ("security", int), ("expires", int),
)  # fmt: skip
# What the command says, too.
_SAME = ("sha", "version", "index", "mpy", "loader")


def check(text, body, project, now):
    """Return the manifest, a dict; raise ValueError, with the reason, when the set is not for this
    board.

    text     that was signed, bytes
    body     of the command that it came with
    project  that the board belongs to
    now      Unix time, seconds; 0: not known, then no date is checked
    """
    if not text or len(text) > MOST:
        raise ValueError("manifest of %d bytes, expected 1 to %d" % (len(text), MOST))
    try:
        found = json.loads(text)
    except Exception:
        # Not ValueError alone: text that is nested deeply takes the stack or the heap.
        found = None
    for key, kind in _FIELDS:
        value = found.get(key) if isinstance(found, dict) else None
        right = isinstance(value, kind) and not isinstance(value, bool)
        if not right or kind is int and not 0 <= value <= _MOST_INT:
            raise ValueError('manifest: "%s" is missing or of the wrong kind' % key)
    _fits(found, body, project, now)
    return found


def _fits(found, body, project, now):
    for key in _SAME:
        if found[key] != body[key]:
            raise ValueError('manifest: "%s" is not that of the command' % key)
    if found["size"] != body["size"] - body["signed"]:
        raise ValueError('manifest: "size" is not that of the command')
    if found["project"] != project:
        raise ValueError('signed for the project "%s", this is "%s"' % (found["project"], project))
    machine = getattr(sys.implementation, "_machine", "")
    for key, this in (("chip", sys.platform), ("board", machine)):
        if found[key] and found[key] != this:
            raise ValueError('signed for the %s "%s", this is "%s"' % (key, found[key], this))
    if found["expires"] and now > found["expires"]:
        raise ValueError("the signature has expired %d s ago" % (now - found["expires"]))
    lowest = max(SECURITY, loader.late("guard", "floor"))
    if found["security"] < lowest:
        raise ValueError("security version %d, this board takes %d and later"
                         % (found["security"], lowest))
