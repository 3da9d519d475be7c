"""Signed: updates of a board that has keys: it takes no set but those that they have signed.

Knows where in an update the envelope comes, and that nothing is done to flash before it was found
right. Must not know signatures (rsa.py) nor manifests (release.py). Loaded on no other board.
"""

import gc
import sys
from binascii import unhexlify
from time import ticks_ms

import clock
import loader
from fileset import Refused
from ota import _EVERY, Update


class Signed(Update):
    """As Update; the envelope lies in RAM until it is whole and was checked.

    trusted  SHA-256 of the keys, a list of 64 hexadecimal digits each, lower case
    project  that this board belongs to
    """

    def __init__(self, send, log, trusted, project):
        self._trusted = trusted
        self._project = project
        self._proof = None  # the envelope, as far as it is there
        self._unproved = False
        super().__init__(send, log)

    def begin(self, body):
        """As Update's; a command for a set that is not signed changes nothing."""
        if body.get("signed"):
            return super().begin(body)
        why = "it is not signed, and this board takes signed sets alone"
        self._log("update refused: " + why)
        self._tell("refused", why, str(body.get("sha")))
        return False

    def _prepare(self, body, found):
        if loader.on_trial(found):
            raise Refused("the last update is still on trial")
        if self._file:
            self._file.close()
            self._file = None
        self._proof, self._unproved = bytearray(body["signed"]), True
        self._get = body
        self._have = 0
        self._moved = ticks_ms()
        self._chain = unhexlify(body["chain"])
        self._id = unhexlify(body["sha"][:8])

    def piece(self, payload):
        """As Update's; none of the set is taken before the envelope was checked."""
        if not self._unproved or self._have < self._get["signed"]:
            super().piece(payload)

    def _take(self, data):
        end = self._have + len(data)
        if end > self._get["signed"] > self._have:
            raise Refused("a piece has bytes of envelope and set")
        if not self._unproved:
            super()._take(data)
            return
        self._proof[self._have : end] = data
        self._have = end
        self._moved = ticks_ms()

    def _keep(self):
        if not self._unproved:
            super()._keep()

    def step(self):
        """As Update's."""
        get = self._get
        if not self._unproved:
            return super().step()
        if self._have == get["signed"]:
            try:
                self._prove()
            except (Refused, OSError, MemoryError) as error:
                self._refuse(error, get["sha"])
        return False

    def _prove(self):
        get, have, chain = self._get, self._have, self._chain
        gc.collect()
        try:
            self._check(get)
        except Exception as error:
            # Of whatever kind, MemoryError too: without an answer it would go on for ever.
            raise Refused(str(error) or type(error).__name__)
        finally:
            sys.modules.pop("rsa", None)
            sys.modules.pop("release", None)
        self._unproved = False
        super()._prepare(get, loader.pointer())
        if self._get:
            self._have, self._chain = have, chain
        self._pieces = _EVERY  # the sender waits for a word

    def _check(self, get):
        # One after the other: each is some kilobytes, and the set itself wants them.
        import rsa

        text = rsa.opened(memoryview(self._proof), self._trusted)
        self._proof = None
        del sys.modules["rsa"], rsa  # here already, for the room
        gc.collect()
        import release

        self._security = release.check(text, get, self._project, clock.unix_s())["security"]

    def _drop(self):
        if not self._unproved:
            super()._drop()
            return
        # Nothing was written: what was on its way before goes on, if there is the memory for it.
        self._proof, self._unproved = None, False
        self._get = {}
        gc.collect()
        try:
            self._resume()
        except MemoryError as error:
            super()._drop()
            self._log("update: %s: %s" % (self._path, error))
