"""The file `session` of a spool: at which broker, and under which name, the bridge has had a
session, and which topic filters are in it. It tells a broker that sees the bridge for the first
time from one that has lost what it held for it. A session keeps the filters of earlier runs, too:
the file says from which the bridge has to unsubscribe.

Knows the file. Must not know sockets or packets.

    session    {"broker": "HOST:PORT", "client_id": "...", "topics": [...]}, of the session that
               was there last
"""

import json
from pathlib import Path

from ..spool.files import replace_file


class SessionFile:
    """Of the spool in `folder`.   broker: HOST:PORT   client_id: the name of the session

    known: whether this broker has had a session of this name; False if the file cannot be read
    topics: the filters that may be in it
    """

    def __init__(self, folder, broker, client_id):
        self._path = Path(folder, "session")
        self._of = {"broker": broker, "client_id": client_id}
        self.known, self.topics = False, []
        try:
            told = json.loads(self._path.read_bytes())
            if {name: told[name] for name in self._of} == self._of:
                self.topics, self.known = list(map(str, told["topics"])), True
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # it is written again

    def keep(self, topics):
        """The broker has a session of this name from now on, with these filters at most. Raises
        OSError if this cannot be written; it is known all the same as long as this process
        runs."""
        if not self.known or self.topics != list(topics):
            self.known, self.topics = True, list(topics)
            replace_file(self._path, json.dumps({**self._of, "topics": self.topics}).encode())
