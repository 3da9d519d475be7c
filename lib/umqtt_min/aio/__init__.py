"""The asyncio face: several tasks publish, one or more take messages, on one connection.

    from umqtt_min.aio import MQTTClient

    client = MQTTClient("sensor-1", "192.168.1.10", keepalive=60)
    await client.connect()
    await client.subscribe("commands/#", 1)
    async for topic, msg in client:
        await client.publish("answers", msg, qos=1)     # returns when it is acknowledged

Knows: the core client and its session, tasks. Never knows: bytes of packets.
Everything is done by the core, whose calls are made where they do not wait. One
wait is left: connect(), at the start and when a lost connection is made again,
blocks the whole loop while it looks the name up, opens the stream and waits for
CONNACK: see `reconnect`. Loaded by those who use it.
"""

import asyncio

from ..errors import (
    ENOTCONN,
    ETIMEDOUT,
    GIVEN_UP,
    LOST,
    NOT_CONNECTED,
    STORE_FULL,
    TIMEOUT,
    MQTTException,
)
from ..port import const, ticks_add, ticks_diff, ticks_ms
from ..validate import milliseconds
from .core import Core
from .inbox import Inbox
from .tasks import POLL, Tasks, sleep

# As in packets.py
_SUBSCRIBE = const(0x82)
_SUBACK = const(0x90)
_UNSUBSCRIBE = const(0xA2)
_UNSUBACK = const(0xB0)
_SUBACK_FAILURE = const(0x80)

_LOOK = const(100)  # ms between two looks whether the store still has a message


def _left(end):
    return ticks_diff(end, ticks_ms())


class MQTTClient(Tasks):
    """An MQTT client for asyncio.

    Arguments as umqtt_min.MQTTClient, but for `timer`: a task keeps the link alive.
    store: None makes a RAMStore(), for QoS 1 and 2 need one here: messages (topic and
    payload of 4,092 bytes together at most, or give a larger one) are in it
    until they are acknowledged, over lost connections too; what a reset must not
    lose belongs into a FlashStore or FileStore;
    queue: messages received and not taken, 1 to 65535. When they are that many, nothing
    more is read, and the broker waits. While a task awaits an acknowledgement, which may
    stand behind other messages, reading goes on, so that the body of `async for` may
    publish: up to eight times as many are kept, and beyond that the oldest of QoS 0 are
    `dropped`; those of QoS 1 and 2 that find no room are left to the broker, and another
    connection is made for them when those before are handled. Where it would not send them
    again, after connect(True) or with reconnect=False, they are kept all the same. Whoever
    subscribes must also take the messages, best in a task that is begun before;
    reconnect: True makes a lost connection again, with pauses as reconnect.Reconnect
    has them, and subscribes anew if the broker lost the session; a dict gives its
    arguments (`attempt`: seconds, 5, that a connect() of it may block the loop);
    False: the end of the connection is an error of every task that uses the client.
    """

    def __init__(self, *arguments, store=None, window=16, queue=8, reconnect=True, **options):
        from ..arguments import whole

        whole("queue", queue, 1, 65535)
        again = reconnect if isinstance(reconnect, dict) else {}
        odd = [name for name in again if name not in ("first", "most", "stable", "attempt")]
        odd += [name for name in ("timer", "durable_inbox") if name in options]
        if odd or again is not reconnect and not isinstance(reconnect, bool):
            from ..reasons import refuse_aio

            refuse_aio(reconnect, options)
        if store is None:
            from ..store.ram import RAMStore

            store = RAMStore()
        self._inbox = Inbox(queue, reconnect is not False)
        self.core = Core(store, window, self._inbox, self._room, self._acked, arguments, options)
        self._inbox.core = self.core
        self.core.set_callback(self._received)
        self.error = None  # why there is no connection: the last error of network or broker
        self._waiters = {}  # sequence number: Event of the task that awaits its end
        self._flushing = 0  # tasks that await any acknowledgement
        self._sending = 0  # ... that all of their message of QoS 0 is out
        self._filters = {}  # topic filter: QoS, to subscribe anew
        self._owed = False  # ... in a session that has not got them yet
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._asking = asyncio.Lock()
        if reconnect is not False:
            from ..reconnect import Reconnect

            self._link = Reconnect(self.core, **again)

    # For the application

    @property
    def connected(self):
        """True while there is a connection."""
        return self.core.connected

    @property
    def counters(self):
        """What happened so far: see umqtt_min.MQTTClient."""
        return self.core.counters

    def inflight(self):
        """Messages stored whose acknowledgement has not come yet."""
        return self.core.inflight()

    @property
    def dropped(self):
        """Messages of QoS 0 that found no room: see `queue`."""
        return self._inbox.dropped

    def set_last_will(self, topic, msg, retain=False, qos=0):
        """As umqtt_min.MQTTClient.set_last_will(), before connect()."""
        self.core.set_last_will(topic, msg, retain, qos)

    async def connect(self, clean_session=None, timeout=None):
        """Connect and start the tasks that serve the connection.

        Arguments, result and errors as umqtt_min.MQTTClient.connect(): one attempt.
        Blocks the loop until it is made, `timeout` seconds at most. After an error, or
        cancelled, there is no connection, and every task that waits hears of it.
        """
        try:
            await self._stop()
            present = self.core.connect(clean_session, timeout)
            if self._link:
                self._link.begun()
            self.error = None
            self._changed()
            self._runner = asyncio.create_task(self._run())
        except BaseException:
            self._end_all()
            raise
        return present

    async def disconnect(self):
        """Send DISCONNECT, end the tasks; `async for` ends when all was taken. Cancelled, it
        has disconnected all the same."""
        try:
            await self._stop()
            self.handled()
        finally:
            self._end_all()

    def _end_all(self):
        self.core.disconnect()
        self._sock = None
        self._give_up()

    async def publish(self, topic, msg, retain=False, qos=0, timeout=None, wait=True):
        """Publish; returns when it is sent (QoS 0) or acknowledged to its end.

        timeout: seconds, None: the client's. Until then it waits for the connection,
        for room in the store and for the acknowledgement. wait=False: at QoS 1 and 2 it
        returns when the message is in the store, connected or not. Cancelled, or after an
        MQTTException with .stored, the message stays in the store and is sent by itself.
        A message longer than `buffer_size` is copied: whatever becomes of the task, its
        buffers are the caller's again, and one of QoS 0 that was begun goes out to its end.
        Returns the packet identifier, None at QoS 0. Raises OSError (at QoS 0 also when the
        connection ended before all of it was out), ValueError, MemoryError, MQTTException
        TIMEOUT, LOST, NOT_CONNECTED, STORE_FULL, GIVEN_UP (the store dropped it: policy=,
        max_age=).
        """
        end = self._end(timeout)
        if not qos:
            await self._clear(end)
            sock = self.core.sock
            self.core.send(topic, msg, retain)
            self._sending += 1
            try:
                while self.core._tx.waiting and self.core.sock is sock:
                    await self._clear(end)
            finally:
                self._sending -= 1
            if self.core.sock is not sock:
                raise OSError(self.core._tx.errno)
            return None
        while True:
            while self.connected and self.core._tx.waiting:
                await self._clear(end)
            try:
                if not wait:
                    return self.core.send(topic, msg, retain, qos, False)
                return await self._publish((topic, msg, retain, qos, False), end)
            except MQTTException as e:
                if e.reason != STORE_FULL or _left(end) <= 0:
                    raise
            await self._any()

    async def subscribe(self, topic, qos=0, timeout=None):
        """Subscribe and wait for SUBACK; arguments, result, errors as the core's."""
        from ..subscribe import filters, granted

        wanted = filters(self.core, topic, qos)
        await self._ask(_SUBSCRIBE, wanted, True, self._end(timeout))
        codes = self.core._granted
        for i in range(len(wanted)):
            if codes[i] != _SUBACK_FAILURE:  # what was granted stands
                self._filters[wanted[i][0]] = wanted[i][1]
        return granted(self.core, wanted, topic)

    async def unsubscribe(self, topic, timeout=None):
        """Unsubscribe from one filter or a list of them and wait for UNSUBACK."""
        from ..subscribe import names

        gone = names(self.core, topic)
        for f, _ in gone:
            self._filters.pop(f, None)
        await self._ask(_UNSUBSCRIBE, gone, False, self._end(timeout))

    async def flush(self, timeout=None):
        """Wait until all publishes are acknowledged; False if the time was too short."""
        end = self._end(timeout)
        while self.core.inflight():
            if _left(end) <= 0:
                return False
            self._check()
            await self._any()
        return True

    async def _any(self):
        # A while, in which an acknowledgement may come.
        self._flushing += 1
        self._taken.set()
        try:
            await sleep(POLL)
        finally:
            self._flushing -= 1

    def __aiter__(self):
        """Messages as (topic, msg), both bytes, in the order in which they came. One of QoS 1 or
        2 is acknowledged when its task comes for the next, returns, or calls handled() or
        disconnect(), and those before it are. A task that is cancelled or fails in the body
        ends the connection, and the message comes again."""
        return self

    async def __anext__(self):
        self.handled()
        while not self._inbox:
            if not self._runner:
                raise StopAsyncIteration
            self._check()
            self._arrived.clear()
            await self._arrived.wait()
        self._taken.set()
        return self._inbox.take(asyncio.current_task())

    def handled(self):
        """The message that this task took last is handled: for a task that leaves `async for`
        and lives on. Its next message, its return and disconnect() say the same."""
        try:
            self._inbox.acknowledge(asyncio.current_task())
        except OSError as e:
            self.error = e

    async def __aenter__(self):
        await self.connect()
        return self

    async def __aexit__(self, kind, value, trace):
        if kind:
            self._inbox.failed(asyncio.current_task())
        await self.disconnect()

    # Inside

    def _end(self, timeout):
        return ticks_add(ticks_ms(), milliseconds(self.core, timeout))

    def _check(self):
        # Raises what ended the connection, if nobody makes it again.
        if not self._runner:
            raise OSError(ENOTCONN)
        if self.error and not (self._link and isinstance(self.error, (OSError, MQTTException))):
            raise self.error

    async def _clear(self, end):
        # There is a connection, and all that was to be sent is out.
        while not self.connected or self.core._tx.waiting:
            self._check()
            if _left(end) <= 0:
                if self.connected:
                    self.core._lost()  # half a packet is out: nothing else can follow it
                raise OSError(ETIMEDOUT)
            await sleep(POLL)
            if self.connected:
                self._pump()

    async def _publish(self, message, end):
        # The sequence number is that of the next record.
        seq = self.core.store.seq
        acked = self._waiters[seq] = asyncio.Event()
        self._taken.set()
        try:
            pid = self.core.send(*message)
            await self._wait(acked, seq, pid, end)
        finally:
            self._waiters.pop(seq, None)
        return pid

    async def _wait(self, acked, seq, pid, end):
        reason = TIMEOUT
        if not (self._link and self._runner or self.connected):
            reason = NOT_CONNECTED
        else:
            while reason == TIMEOUT and _left(end) > 0:
                try:
                    await asyncio.wait_for(acked.wait(), min(max(_left(end), 1), _LOOK) / 1000)
                    reason = LOST
                except asyncio.TimeoutError:
                    if seq in self._waiters and not self.core.store.find(seq):
                        reason = GIVEN_UP
        if seq in self._waiters:
            n = reason == TIMEOUT and self._inbox.owed()
            detail = n and "the broker may wait until %d are acknowledged: see wait=" % n or None
            # A store that drops the oldest may have dropped this one.
            raise MQTTException(reason, detail, pid, self.core.store.find(seq) > 0)

    async def _ask(self, op, wanted, codes, end):
        # SUBSCRIBE or UNSUBSCRIBE, one at a time, and its answer.
        core = self.core
        async with self._asking:
            await self._clear(end)
            ack = _SUBACK if codes else _UNSUBACK
            core.ask(op, wanted, codes)
            self._taken.set()
            sock = core.sock
            try:
                while core._rx.code != ack:
                    if core.sock is not sock:
                        raise OSError(core._tx.errno)
                    if _left(end) <= 0:
                        raise MQTTException(TIMEOUT, ack)
                    await sleep(POLL)
            finally:
                core._rx.waiting = 0

    # What the core calls

    def _room(self):
        return self._inbox.room() or self._awaited()

    def _awaited(self):
        # Something that may stand behind messages.
        rx = self.core._rx
        return self._waiters or self._flushing or rx.waiting and not rx.code

    def _received(self, topic, msg):
        self._inbox.put(topic, msg)
        self._arrived.set()

    def _acked(self, seq):
        waiter = self._waiters.pop(seq, None)
        if waiter:
            waiter.set()
