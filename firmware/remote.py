"""Remote: what comes in by .../cmd/ and what is done about it.

Knows the topics of commands, the durable counter and the actions that it is given. Must not know
what an action does, nor the bytes of an update. Without a key nothing is subscribed to, and the
code of commands and updates is never loaded.
"""

import gc
import json
import os

import clock
import loader
import state
from umqtt_min import MQTTException

# No name of a device begins with "-": on this level are the commands for a whole group.
ALL = "-all"
_LONGEST = 86400000  # ms, as in settings.py, whose words take too much room to ask it
_NAME = b"abcdefghijklmnopqrstuvwxyz-"
# Commands before the last one that a report names. Several senders may have commanded the board at
# the same time: each learns from it that its own command was obeyed, and does not send it again.
_BEFORE = 4


def _plain(name):
    # The name of a command, bytes of the topic, as text that may be printed, whoever sent it.
    return bytes([c if c in _NAME else 0x3F for c in name[:16]]).decode()


class Remote:
    """The commands of one board.

    settings  flat dict as settings.complete() gives it
    actions   dict: name of a command -> function(body)
    send      function(level, payload): publishes on .../LEVEL of this board, QoS 0
    restart   function(why): leaves the broker and resets the board
    log       function(text)
    uptime    clock.Uptime of this start
    """

    def __init__(self, settings, actions, send, restart, log, uptime):
        self._settings = settings
        self._actions = actions
        self._send = send
        self._restart = restart
        self._log = log
        self._uptime = uptime
        self._commands = None
        self._update = None
        self._todo = []
        self.kept = {}
        self.off = ""  # why the board takes no commands, as the status report tells it
        self.interval = settings["interval_ms"]
        group = "fleet/%s/" % settings["group"]
        self._mine = (group + settings["device"] + "/cmd/").encode()
        self._all = (group + ALL + "/cmd/").encode()
        self._piece = (self._mine + b"piece", self._all + b"piece")
        self._load()

    def _load(self):
        key = self._settings["command_key"]
        if not key:
            self.off = "no command_key"
        try:
            self.kept = state.load()
        except state.StateError as error:
            # Without the counter every command that somebody has recorded would be a new one.
            self._log("%s: commands stay off, their counter is lost" % error)
            self.off = str(error)
        count = self.kept.get("count", 0)
        if type(count) is not int or count < 0:
            self.off = "the counter in %s is damaged" % state.PATH
            self._log("commands stay off: %s" % self.off)
        if not self.off:
            from binascii import unhexlify

            from commands import Commands

            self._commands = Commands(unhexlify(key), count, self._keep,
                                      clock.unix_s, self._uptime)  # fmt: skip
        # An interval that came by command holds until the settings' own is changed.
        ms = self.kept.get("interval_ms") if self.kept.get("interval_was") == self.interval else 0
        if type(ms) is int and 0 < ms <= _LONGEST:
            self.interval = ms

    @property
    def topics(self):
        """What to subscribe to: a list of (filter, QoS)."""
        return [(self._mine + b"+", 1), (self._all + b"+", 1)] if self._commands else []

    @property
    def count(self):
        """Counter of the last command that was obeyed, 0: none was."""
        return self._commands.count if self._commands else 0

    @property
    def refused(self):
        """Commands refused since the start."""
        return self._commands.refused if self._commands else 0

    @property
    def updating(self):
        """True while an update is on its way: not the time to go to sleep."""
        return self._update is not None and self._update.busy

    def sealed(self, level, report):
        """Return a report, a dict, as the message for .../LEVEL of this board: with the counter of
        the last command. If there is a key it has a code, the counters of the commands before
        that, and what tells the sender how to make a command for this start."""
        commands = self._commands
        report["count"] = self.count
        if not commands:
            return json.dumps(report).encode()
        report["before"] = self._before()
        report["start"], report["up"] = commands.start, self._uptime.s
        if commands.late:
            report["refused_late"] = commands.late
        body = json.dumps(report, separators=(",", ":")).encode()
        return commands.seal(self._mine[:-4] + level, body)

    def received(self, topic, payload):
        """Take a message, in the client's callback: takes note, acts in step().

        Raises nothing, whatever the message is: with QoS 1 it would come again for ever.
        """
        if self._commands is None:
            return
        if topic in self._piece:
            # Unsigned: each is checked against what the signed command said.
            if self._update:
                self._update.piece(payload)
            return
        start = self._mine if topic.startswith(self._mine) else self._all
        if topic.startswith(start):
            self._command(topic, _plain(topic[len(start) :]), payload)

    def _command(self, topic, name, payload):
        late = self._commands.late
        try:
            self._todo.append((name, self._commands.check(topic, payload)))
        except ValueError as error:
            # A message for a group says nothing about a board that it has no code for.
            if self._commands.meant or not topic.startswith(self._all):
                self._log("command %s refused: %s" % (name, error))
            again = self._commands.late != late or self._commands.below
            if again and ("report", None) not in self._todo:
                # Who has sent it can send it anew, by what this report says.
                self._todo.append(("report", None))
        except OSError as error:
            self._log("command %s refused: %s" % (name, error))

    def connected(self):
        """A connection stands: take an update up again where it ended.

        Raises what sending raises, but no MemoryError: each connection would end by it.
        """
        if self._commands is None:
            return
        gc.collect()
        path = loader.ROOT + "/get.json"
        try:
            if self._update is None and loader.exists(path):
                try:
                    sha = state.load(path).get("sha")
                except ValueError:
                    sha = ""
                if not self._load_update(str(sha)):
                    os.remove(path)  # refused: the sender was told
            if self._update:
                self._update.tell()
        except MemoryError as error:
            self.failed(error)
            self._log("no word of updates: %s" % error)

    def step(self):
        """Carry out what was taken note of. Raises what sending raises: OSError, MQTTException."""
        if self._todo:
            name, body = self._todo.pop(0)
            try:
                self._obey(name, body)
            except (OSError, MQTTException):
                raise
            except Exception as error:
                # What a command says ends no connection.
                self._log("command %s failed: %s: %s" % (name, type(error).__name__, error))
        if self._update and self._update.step():
            self._restart("update")

    def failed(self, error):
        """An exception has come out of the board's work: for want of memory an update on its
        way is given up, since the board is there to measure. The report goes out later.
        Raises nothing."""
        if self._update and isinstance(error, MemoryError):
            try:
                self._update.give_up(error)
            except Exception as second:
                gc.collect()
                self._log("update: %s: %s" % (type(second).__name__, second))

    def _before(self):
        # Only what this code has written: the file may come from a copy of another board.
        before = self.kept.get("before")
        return before[:_BEFORE] if isinstance(before, list) else []

    def _keep(self, count):
        kept = dict(self.kept)
        if self.count:
            kept["before"] = ([self.count] + self._before())[:_BEFORE]
        kept["count"] = count
        state.save(kept)
        self.kept = kept  # a command whose counter could not be kept is not obeyed

    def keep_interval(self, ms):
        """Make an interval that came by command durable. Raises OSError."""
        self.kept["interval_was"] = self._settings["interval_ms"]
        self.kept["interval_ms"] = ms
        state.save(self.kept)
        self.interval = ms

    def _load_update(self, sha):
        # Only here: whoever is never updated never pays for it. sha: of the set that it is about.
        gc.collect()
        try:
            s = self._settings
            trusted = [s[key].lower() for key in ("update.key", "update.spare") if s[key]]
            if trusted:
                from signed import Signed

                self._update = Signed(self._tell, self._log, trusted, s["update.project"])
            else:
                import ota

                self._update = ota.Update(self._tell, self._log)
        except Exception as error:
            # Too little memory, say: no reason to lose the connection, and it with each one.
            why = "%s: %s" % (type(error).__name__, error)
            self._log("no update: " + why)
            self._tell({"id": sha[:8], "state": "refused", "have": 0, "size": 0, "why": why})
        return self._update

    def _tell(self, report):
        self._send(b"ota", self.sealed(b"ota", report))

    def _obey(self, name, body):
        if name == "ota":
            update = self._update or self._load_update(str(body.get("sha")))
            if update and update.begin(body):
                self._actions["report"](body)
        elif name == "restart":
            # What has come with it is acknowledged and counted: nobody sends it again.
            if any(other != "restart" for other, _ in self._todo):
                self._todo.append((name, body))
            else:
                self._restart("command")
        elif name == "commit":
            self._commit(body)
        elif name in self._actions:
            self._actions[name](body)
        else:
            self._log("command %s: unknown" % name)

    def _commit(self, body):
        # Of the set that runs: one that was withheld is for no other.
        if body.get("set") == loader.pointer().get("id") and loader.healthy():
            self._log("update is healthy, and stays")
        else:
            self._log("command commit: not for a set on trial here")
        self._actions["report"](body)  # of which set runs: whoever sent it waits for that
