"""What a client tells of its connections: two hooks and a log. Loaded by a client that was given
one of them.

Knows: what happened, in words. Never knows: who makes a connection again.
"""

from .port import const
from .reasons import TEXT

_OWN = const(1000)  # from here on a reason is an MQTTException's: see Counters.last_error


def words(reason):
    """What `reason` of on_disconnect() means: 0 disconnect(), an errno, or 1000 + one of
    errors.py."""
    if not reason:
        return "disconnect()"
    if reason > _OWN:
        return TEXT.get(reason - _OWN, "refused by the broker")
    try:
        from errno import errorcode

        return errorcode[reason]
    except (ImportError, KeyError):
        return "errno %d" % reason


class Events:
    """See MQTTClient: on_connect, on_disconnect, log."""

    def __init__(self, client, on_connect, on_disconnect, log):
        hooks = {"on_connect": on_connect, "on_disconnect": on_disconnect, "log": log}
        for name, f in hooks.items():
            if f is not None and not callable(f):
                raise ValueError("%s=%r: a function, or None" % (name, f))
        self._client = client
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._log = log
        self._up = False  # on_connect() was called, on_disconnect() not yet

    def _write(self, line):
        log = self._log
        self._log = None  # one that raises is not called again
        log(line)
        self._log = log

    def connected(self):
        """connect() has come to its end."""
        c = self._client
        self._up = True
        if self._log:
            kept = "session kept" if c.session_present else "new session"
            self._write("connected to %s:%d, %s, %d unacknowledged"
                      % (c.server, c.port, kept, c.inflight()))  # fmt: skip
        if self._on_connect:
            self._on_connect(bool(c.session_present))

    def failed(self, e):
        """connect() has raised `e`."""
        if self._log:
            c = self._client
            self._write("no connection to %s:%d: %s" % (c.server, c.port, words_of(e)))

    def ended(self, reason):
        """The connection has ended. A connection that was not complete is connect()'s."""
        if not self._up:
            return
        self._up = False
        if self._log:
            self._write("connection ended: %s" % words(reason))
        if self._on_disconnect:
            self._on_disconnect(reason)


def words_of(e):
    """What an exception of connect() says."""
    if isinstance(e, OSError) and e.args and isinstance(e.args[0], int):
        return words(e.args[0])
    return str(e) or e.__class__.__name__
