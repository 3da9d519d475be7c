"""Messages that the asyncio face has received and no task has handled yet.

Knows: which of them is handled when, that acknowledgements go out in the order of the messages
[MQTT-4.6.0-2, -3], what comes again on the next connection. Never knows: packets, who waits.

A message of QoS 1 or 2 stays the broker's until the task that took it comes for the next one:
what a reset finds here comes again. On a new connection the broker sends again what was not
acknowledged, and what is still here is not queued twice.

What an acknowledgement stands behind has to be read, though there is no room. Of QoS 0 the oldest
goes. What is of QoS 1 or 2 is not taken in, and no later one on this connection, for it could not
be acknowledged before: they stay the broker's, which sends them again on the next connection.
"""

_TYPING = 0  # see client.py
if _TYPING:
    from typing import Any

_PUBLISH = 0x30  # as in packets.py
_QOS_2 = 0x04
_QOS = 0x06
# So many times `most` have room while an acknowledgement is awaited: brokers send 20 and more
# before they wait for PUBACK.
_AHEAD = 8


class Message:
    """One of them; op: first byte of its PUBLISH, pid: 0 at QoS 0, link: number of the
    connection on which it came last."""

    op = pid = link = 0
    handled = False

    def __init__(self, topic, msg):
        self.topic = topic
        self.msg = msg


class Inbox:
    """The messages of one `core`, an aio_core.Core, which is set once it is made.

    most: so many are read without need; again: another connection may be made to have the
    broker send again what there was no room for.
    """

    core: "Any"

    def __init__(self, most, again):
        self._most = most
        self._more = again
        self._behind = False  # since then no message of QoS 1 or 2 was taken in on this connection
        self.dropped = 0  # messages of QoS 0
        self._queue = []  # not taken yet
        self._taken = []  # (task, message of QoS 1 or 2 that it handles)
        self._owed = []  # not acknowledged, in the order in which they came on the connection
        self._link = 0
        self._oversize = 0  # messages that were too long, when the last one came that was not

    def __len__(self):
        return len(self._queue)

    def room(self):
        """Whether one more may be read without need."""
        return len(self._queue) < self._most

    def put(self, topic, msg):
        """The core's callback."""
        self._oversize = self.core.counters.oversize
        if self._over():  # the last was of QoS 0, for received() did not see to it
            self._drop(len(self._queue))
        self._queue.append(Message(topic, msg))

    def _over(self):
        return len(self._queue) > self._most * _AHEAD

    def _drop(self, n):
        # The oldest of QoS 0 among the first n; False if there is none.
        for i in range(n):
            if not self._queue[i].pid:
                self._queue.pop(i)
                self.dropped += 1
                return True
        return False

    def take(self, task):
        """The next message as (topic, msg), for `task`."""
        message = self._queue.pop(0)
        if message.pid:
            self._taken.append((task, message))
        return message.topic, message.msg

    def _settle(self, task):
        # What `task` took is handled, and what those took that have returned. One that was
        # cancelled or failed has not: as after an exception in a callback the connection ends,
        # for on this one no acknowledgement could follow, and the message comes again.
        for one in self._taken[:]:
            fate = one[0] is task or _fate(one[0])
            if fate is not None:
                self._taken.remove(one)
                if fate:
                    self._handled(one[1])
                else:
                    self._failed(one[1])

    def _failed(self, message):
        if message in self._owed:
            self._owed.remove(message)  # when it comes again it is a new one
            if self._here(message):
                self.core._lost()

    def failed(self, task):
        """What `task` took was not handled: the connection ends, and it comes again."""
        for one in self._taken[:]:
            if one[0] is task:
                self._taken.remove(one)
                self._failed(one[1])

    def _handled(self, message):
        if message in self._owed:
            self._keep(message)
            if message.op & _QOS_2 and not self._here(message):
                self._owed.remove(message)  # see again()

    def _keep(self, message):
        # Now, not with PUBREC, which may have to wait: it must not be given to a task again.
        if message.op & _QOS_2:
            self.core._inbox.in_add(message.pid)
        message.handled = True

    def _here(self, message):
        return self.core.connected and message.link == self.core.counters.connects

    def acknowledge(self, task=None):
        """Send the acknowledgements that are due; `task` is through with what it took before.
        OSError, also of a store that does not take the identifier of a message of QoS 2."""
        if not (self._owed or self._taken):
            return
        self._look()
        self._settle(task)
        for message in self._owed[:]:
            if self._here(message):
                if not message.handled or self.core._tx.waiting:
                    return
                self._owed.remove(message)
                self.core.answer(message.op, message.pid)

    def _look(self):
        # On another connection identifiers are the broker's still, or those of a lost session.
        # What was handled and has not come again on the one before will not come; at QoS 2 its
        # identifier is known.
        link = self.core.counters.connects
        if link != self._link:
            lost = self.core.session_present is False
            self._owed = [
                m
                for m in self._owed
                if not (lost or m.handled and (m.op & _QOS_2 or m.link != self._link))
            ]
            self._link = link
            self._behind = False

    def behind(self):
        """True when all that the connection brought is handled, but for what found no room."""
        if not self._behind or not self.room() or self._link != self.core.counters.connects:
            return False
        return not self.owed()

    def owed(self):
        """How many messages of this connection are not acknowledged."""
        return len([m for m in self._owed if self._here(m)])

    def received(self, op, pid):
        # In place of an acknowledgement: put() has just been called, or the message is too long.
        self._look()
        if self._oversize == self.core.counters.oversize:
            message = self._queue[-1]
        else:
            message = Message(b"", b"")
        old = None if self._behind else self._find(op, pid)
        if old:
            self._owed.remove(old)
            if old.topic == message.topic and old.msg == message.msg:
                if message.topic:
                    self._unput()
                    self.core.counters.duplicates += 1
                message = old
        elif self._full():
            self._behind = True
            if message.topic:
                self._unput()
            return
        self._owe(message, op, pid)
        if not message.topic and not message.handled:
            self._keep(message)

    def _find(self, op, pid):
        for old in self._owed:
            if old.pid == pid and old.op & _QOS == op & _QOS:
                return old
        return None

    def _full(self):
        # The message put last stays the broker's, if that sends it again.
        if self._behind or not self._over() or self._drop(len(self._queue) - 1):
            return self._behind
        return self._more and not self.core.clean

    def _unput(self):
        self._queue.pop()
        self.core.counters.received -= 1

    def _owe(self, message, op, pid):
        message.op = op
        message.pid = pid
        message.link = self._link
        self._owed.append(message)

    def again(self, pid):
        # A message of QoS 2 whose identifier is known: its PUBREC, too, has to wait its turn.
        self._look()
        if self._behind:
            return
        old = self._find(_PUBLISH | _QOS_2, pid)
        if old:
            self._owed.remove(old)
        message = Message(b"", b"")
        message.handled = True
        self._owe(message, _PUBLISH | _QOS_2, pid)


def _fate(task):
    # None: it runs; True: it has returned; False: cancelled, or ended by an exception.
    if not task.done():
        return None
    end = getattr(task, "data", None)  # MicroPython keeps there what ended it
    if end is not None:
        return isinstance(end, StopIteration)
    # exception() would tell CPython that somebody has looked after it.
    return not task.cancelled() and task._exception is None
