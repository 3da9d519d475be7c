"""The file `session` of a spool: at which broker, and under which name, the bridge has had a
session. It tells a broker that sees the bridge for the first time from one that has lost what it
held for it.

Knows the file. Must not know sockets or packets.

    session    {"broker": "HOST:PORT", "client_id": "..."}, of the session that was there last
"""

import json
from pathlib import Path

from ..spool.files import replace_file


class SessionFile:
    """Of the spool in `folder`.   broker: HOST:PORT   client_id: the name of the session

    known: whether this broker has had a session of this name; False if the file cannot be read
    """

    def __init__(self, folder, broker, client_id):
        self._path = Path(folder, "session")
        self._text = json.dumps({"broker": broker, "client_id": client_id}).encode()
        try:
            self.known = self._path.read_bytes() == self._text
        except OSError:
            self.known = False

    def keep(self):
        """The broker has a session of this name from now on. Raises OSError if this cannot be
        written; it is known all the same as long as this process runs."""
        if not self.known:
            self.known = True
            replace_file(self._path, self._text)
