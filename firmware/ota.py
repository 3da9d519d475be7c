"""Updates over MQTT: takes a new set of files piece by piece and hands it to the loader.

Knows how far a set has come, and the flash that it needs. Must not know topics, keys, nor which
set runs (loader.py). Imported with the first update, not before.

A set is one run of bytes, and one file in flash (setfs.py). The signed command gives its SHA-256
and the length of its index.

It comes in pieces: ID (4 bytes, the first of that SHA-256), OFFSET (4 bytes, big-endian), then so
many bytes of the set, then the first 16 bytes of the next piece's SHA-256 (zeros in the last). The
signed command holds those of the first piece, so each piece is checked before any of it is
written, though no piece is signed: what somebody else sends in between changes nothing.

Pieces go straight into the file of the slot that is not in use. After each 4 KiB or so it is
synced and /sets/get.json says how far it is: from there it goes on after a reset.

Ahead of a set that is signed comes its envelope (rsa.py), as the first "signed" bytes; no piece
has bytes of both. A board without keys passes over it, one with keys has signed.py for it.
"""

import gc
import hashlib
import sys
from binascii import hexlify, unhexlify
from time import ticks_diff, ticks_ms

import loader
import state
from fileset import Refused, SetFile, free, make_folder, remove
from setfs import SetFS
from umqtt_min.port import const

_HEAD = const(8)  # ID and OFFSET
_CHAIN = const(16)
SYNC = 4096
# What littlefs needs besides the set: to turn around in, and for the small files beside it.
SPARE = 6 * 4096
# The longest piece: it fits the client's buffer beside the longest topic.
PIECE = 384
# A report for every so many pieces taken, and not more often than this for pieces out of turn.
_EVERY = 8
# A sleeping board stays awake for an update as long as pieces come; without one, so long.
_ACTIVE_MS = const(10000)
_TELL_MS = 500
# (key of the command, type, lowest, highest); a text's length lies between the two
_FIELDS = (
    ("sha", str, 64, 64), ("chain", str, 2 * _CHAIN, 2 * _CHAIN), ("version", str, 1, 32),
    ("size", int, 1, 4194304), ("index", int, 1, 65536), ("piece", int, 1, PIECE),
    ("need", int, 0, 16777216), ("mpy", int, 0, 255), ("loader", int, 0, 255),
    ("boots", int, 1, 100), ("seconds", int, 1, 86400), ("signed", int, 0, 1792),
)  # fmt: skip


def _check(body):
    for key, kind, low, high in _FIELDS:
        value = body.get(key, 0 if key == "signed" else None)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Refused('"%s" is missing or of the wrong kind' % key)
        size = len(value) if isinstance(value, str) else value
        if not low <= size <= high:
            raise Refused('"%s" is %s, expected %d to %d' % (key, size, low, high))
    try:
        unhexlify(body["sha"] + body["chain"])
    except ValueError:
        raise Refused('"sha" or "chain" is not hexadecimal')
    mpy = getattr(sys.implementation, "_mpy", body["mpy"]) & 0xFF
    if body["mpy"] != mpy:
        raise Refused("files for .mpy version %d, this MicroPython loads %d" % (body["mpy"], mpy))
    if body["loader"] > loader.VERSION:
        raise Refused("needs loader %d, this board has %d: update it by cable"
                      % (body["loader"], loader.VERSION))


def target(found):
    """Return the slot that the pointer `found` leaves free; raise Refused while there is none."""
    if loader.on_trial(found):
        raise Refused("the last update is still on trial")
    return 2 if found["slot"] == 1 else 1


class Update:
    """The update of this board, if one is on its way; taken up where an earlier start left it.

    send  function(report): publishes a report, a dict; what it raises passes
    log   function(text)

    A report has "id", "state" ("receiving", "checking", "restarting", "making room" or
    "refused"), "have" and "size" in bytes, "why" when it was refused. After "making room" the
    board starts the set that the cable put, and wants the command once more.
    """

    def __init__(self, send, log):
        self._send = send
        self._log = log
        self._path = loader.ROOT + "/get.json"
        self._get = {}
        self._file = None
        self._have = self._synced = self._pieces = 0
        self._told = self._moved = ticks_ms()
        self.forged = 0
        self._security = 0  # version that was signed
        self._leave = False
        self._no = None  # a refusal that nobody was told yet: (why, sha)
        self._resume()

    @property
    def busy(self):
        """True while an update goes on: a piece has come a moment ago, or all are there."""
        get = self._get
        if not get:
            return False
        return self._have == get["size"] or ticks_diff(ticks_ms(), self._moved) < _ACTIVE_MS

    def _resume(self):
        try:
            self._get = state.load(self._path)
            if self._get:
                self._open()
        except (ValueError, TypeError, KeyError, OSError) as error:
            # Not what this code has written: the sender will have to begin anew.
            self._log("update: %s: %s" % (self._path, error))
            self._drop()

    def _open(self):
        get = self._get
        self._moved = ticks_ms()
        self._have = self._synced = get["have"]
        if not 0 <= self._have <= get["size"]:
            raise ValueError("damaged")
        self._chain = unhexlify(get["next"])
        self._id = unhexlify(get["sha"][:8])
        self._file = SetFile(loader.place(get["slot"]), max(0, self._have - get["signed"]))

    def _drop(self):
        file, self._file, self._get = self._file, None, {}
        if file:
            file.close()
        remove(self._path)

    # What comes in

    def begin(self, body):
        """Take the signed command: begin, or go on with the set that is on its way already.

        Returns True when that set runs: then the board's status is the answer.
        """
        try:
            _check(body)
            if body["chain"] != self._get.get("chain"):
                found = loader.pointer()
                if body["sha"][:8] == found.get("id"):
                    return True
                self._prepare(body, found)
            if not self._leave:
                self.tell()
        except (ValueError, OSError, MemoryError) as error:
            # ValueError: Refused, and a SHA-256 that is not hexadecimal.
            sha = body.get("sha")
            self._refuse(error, sha if isinstance(sha, str) else "")
        return False

    def _prepare(self, body, found):
        slot = target(found)
        self._drop()
        if found.pop("failed", None):
            loader.point(found)  # whatever is said of this set from now on is about this time
        for unused in (1, 2):
            if unused != found["slot"]:
                remove(loader.place(unused))
        if not self._has_room(body, found):
            return
        get = {key: body.get(key, 0) for key, _, _, _ in _FIELDS}
        get["slot"], get["have"], get["next"] = slot, 0, body["chain"]
        get["security"] = self._security
        make_folder(loader.ROOT)
        state.save(get, self._path)
        self._get = get
        self._open()
        self._log("update %s, version %s: %d bytes to come"
                  % (get["sha"][:8], get["version"], get["size"]))

    def _has_room(self, body, found):
        need, there = body["need"] + SPARE, free()
        if need <= there:
            return True
        if need > there + found.get("need", 0):
            raise Refused("needs %d bytes of flash, %d are free" % (need, there))
        # Without the set that runs there is room: the one that the cable put takes the update.
        self._restart({"slot": 0}, "making room", body["sha"])
        return False

    def piece(self, payload):
        """Take a piece; for use in the client's callback. Whatever it is, it raises nothing."""
        get = self._get
        try:
            if not get or len(payload) < _HEAD + _CHAIN or payload[:4] != self._id:
                return
            at = int.from_bytes(payload[4:_HEAD], "big")
            if at != self._have:
                # One got lost, or the sender does not know how far it is.
                if ticks_diff(ticks_ms(), self._told) >= _TELL_MS:
                    self._pieces = _EVERY
                return
            if hashlib.sha256(payload).digest()[:_CHAIN] != self._chain:
                self.forged += 1
                return
            self._take(memoryview(payload)[_HEAD : len(payload) - _CHAIN])
            self._chain = payload[-_CHAIN:]
            self._keep()
        except (Refused, OSError, MemoryError) as error:
            self.give_up(error)  # step() tells

    def _take(self, data):
        if self._have + len(data) > self._get["size"]:
            raise Refused("longer than its command says")
        if self._have >= self._get["signed"]:
            self._file.write(data)
        self._have += len(data)
        self._pieces += 1
        self._moved = ticks_ms()

    def _keep(self):
        # The file first: what get.json says is there must be there.
        if self._have - self._synced < SYNC and self._have < self._get["size"]:
            return
        if self._have == self._get["size"]:
            self._pieces = _EVERY
        self._file.sync()
        self._get["have"] = self._synced = self._have
        self._get["next"] = hexlify(self._chain).decode()
        state.save(self._get, self._path)

    # What is done about it

    def step(self):
        """Check some more of the set, tell how far it is; return True when another is in force.

        The board must be started anew then. Raises what telling raises.
        """
        if self._leave:
            return True
        if self._pieces >= _EVERY:
            self.tell()
        if not self._get or self._have < self._get["size"]:
            return False
        sha = self._get["sha"]
        try:
            return self._finish()
        except (Refused, OSError, MemoryError) as error:
            self._refuse(error, sha)
            return False

    def _finish(self):
        digest = self._file.check()
        if digest is None:
            return False
        if hexlify(digest).decode() != self._get["sha"]:
            raise Refused("the SHA-256 of the whole is wrong")
        get = self._get
        try:
            SetFS(loader.place(get["slot"]), get["index"]).stat("app.mpy")
        except OSError:
            # The one that the cable put would run in its name.
            raise Refused("there is no app.mpy in it")
        before = loader.pointer()
        before.pop("before", None)
        new = {"slot": get["slot"], "id": get["sha"][:8], "version": get["version"],
               "need": get["need"], "index": get["index"], "before": before,
               "sha": get["sha"][:32], "security": get.get("security", 0),
               "left": get["boots"], "seconds": get["seconds"]}
        self._restart(new, "restarting", get["sha"])
        return True

    def _restart(self, to, word, sha):
        loader.point(to)  # from here on the board boots that set
        self._leave = True
        try:
            self._drop()
            if to["slot"]:
                self._log("update %s is in force, on trial for %d starts" % (to["id"], to["left"]))
            self._tell(word, "", sha)
        except Exception as error:
            # Whether or not anybody hears of it: the restart comes next.
            gc.collect()
            self._log("%s: %s" % (type(error).__name__, error))

    def give_up(self, error, sha=None):
        """Refuse a set because of an exception; tell() reports it.

        sha  SHA-256 of the set to refuse, "" if its command gave none. Another set that is on its
             way goes on. None: refuse the set that is on its way; without one nothing happens.
        """
        own = self._get.get("sha", sha)
        if own is None:
            return  # there is none on its way
        sha = own if sha is None else sha
        # First the room: what comes next may want the memory that was missing.
        if sha == own:
            self._drop()
        gc.collect()
        self._no = (str(error) or type(error).__name__, sha)
        self._pieces = _EVERY
        self._log("update %s refused: %s" % (sha[:8], self._no[0]))

    def _refuse(self, error, sha):
        self.give_up(error, sha)
        self.tell()

    def tell(self):
        """Report a refusal that nobody has heard of yet; else how far the update is, if one is on
        its way."""
        if self._no:
            self._tell("refused", *self._no)
            self._no = None
        elif self._get:
            self._tell("receiving" if self._have < self._get["size"] else "checking")

    def _tell(self, word, why="", sha=None):
        # sha: of the set that it is about, "" if its command gave none; None: the one on its way
        self._told = ticks_ms()
        self._pieces = 0
        get = self._get
        report = {"id": (get["sha"] if sha is None else sha)[:8], "state": word,
                  "have": self._have if get else 0, "size": get.get("size", 0)}
        if why:
            report["why"] = why
        self._send(report)
