"""The tasks of the asyncio face: one reads each connection, one looks at the clock.

Knows: tasks, the core's pump, when a connection is another one. Never knows: the application's
calls, which aio/__init__.py has.
"""

import asyncio

_TYPING = 0  # see client.py
if _TYPING:
    from typing import Any

_core = getattr(asyncio, "core", None)  # MicroPython's, which waits for streams
_SUBSCRIBE = 0x82  # as in packets.py
_PAUSE = 100  # ms between two looks at the clock
POLL = 5  # ms between two looks at a stream that cannot be waited for


def sleep(ms):
    """asyncio.sleep() of milliseconds."""
    # One of the two is there.
    if hasattr(asyncio, "sleep_ms"):
        return asyncio.sleep_ms(ms)
    return asyncio.sleep(ms / 1000)


def _readable(stream):
    # As MicroPython's own asyncio.StreamReader waits.
    yield _core._io_queue.queue_read(stream)


class Tasks:
    """What aio.MQTTClient does by itself, between connect() and disconnect()."""

    core: "Any"  # these are aio.py's
    error: "Any"
    _arrived: "Any"
    _ask: "Any"
    _end: "Any"
    _filters: "Any"
    _inbox: "Any"
    _owed: "Any"
    _room: "Any"
    _sending: "Any"
    _taken: "Any"
    _waiters: "Any"
    _link: "Any" = None  # the reconnect.Reconnect
    _sock = None  # the stream that _reader reads
    _reader: "Any" = None
    _runner: "Any" = None

    def _pump(self):
        # All that can be done now. Errors are for those who use the connection.
        try:
            if self._link:
                self._link.step()
                self.error = self._link.error
            else:
                self.core.check_msg()
            self._inbox.acknowledge()
            if self._inbox.behind() and not (self._sending or self.core._rx.waiting):
                self._link.anew()
        except Exception as e:
            self.error = e

    async def _read(self, sock):
        # Serves one connection: a message is handled as soon as it is there.
        core = self.core
        wait = _core and core._tx.poll
        while core.sock is sock:
            if not self._room():
                self._taken.clear()
                await self._taken.wait()
            elif core._rx.peek():
                await sleep(0)
            elif wait:
                await _readable(sock)
            else:
                await sleep(POLL)
            if core.sock is sock:
                self._pump()

    async def _run(self):
        # Looks at the clock: keep-alive, lost connections, new ones.
        core = self.core
        while self._runner:
            if core.connected or self._link:
                self._pump()
            try:
                if core.sock is not self._sock:
                    self._changed()
                    # A link that is cut before SUBACK leaves a session without subscriptions.
                    anew = core.owed or not core.session_present
                    self._owed = self._owed or core.connected and anew
                    if core.connected and self._owed:
                        await self._renew()
            except Exception as e:  # no memory for a task or a packet: with the next connection
                self.error = e
                core.disconnect()
            await sleep(_PAUSE)

    def _changed(self):
        # Another connection, or none.
        if self._reader:
            self._reader.cancel()
            self._reader = None
        self._sock = self.core.sock
        if self._sock:
            self._reader = asyncio.create_task(self._read(self._sock))
            return
        if not self.error:
            self.error = OSError(self.core._tx.errno)
        if not self._link:
            self._give_up()

    def _give_up(self):
        # Nobody makes the connection again: everybody who waits hears of it.
        for waiter in self._waiters.values():
            waiter.set()
        self._arrived.set()

    async def _renew(self):
        # Subscriptions are the session's; a broker that refuses one now did not before.
        if self._filters:
            await self._ask(_SUBSCRIBE, list(self._filters.items()), True, self._end(None))
        self._owed = self.core.owed = False

    async def _stop(self):
        # A cancellation can get lost in what a task just awaits: until it has ended.
        try:
            for task in (self._runner, self._reader):
                while task and not task.done():
                    task.cancel()
                    await sleep(0)
        finally:
            self._runner = self._reader = None
