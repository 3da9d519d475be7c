"""`format("jetstream")`: a PySpark Data Source that reads a stream of NATS JetStream.

Knows NATS's subjects and JetStream's API, by the package nats-py (`pip install '.[nats]'`). Must
not know payloads or tables. NATS's own MQTT broker, or a leaf node, stores the devices' messages
in the stream; no bridge is needed, and no mark is published.

Options
    path             nats://HOST:PORT/STREAM; user:password@ before HOST, tls:// for TLS.
                     NATS_CREDS in the environment names a file of credentials
    maxRowsPerBatch  most messages in one micro-batch (default 200000; 0: no limit)
    maxBytesPerBatch  about the most bytes in one micro-batch (default 128 MiB; 0: no limit)
    numPartitions    tasks that read one micro-batch (default 2)
    stopFile         while there is a file of this name a stream has nothing new
    skipDamaged      true: go on without messages that the stream has let go before they were read;
                     that is logged

The rows are those of `format("mqtt")`: topic from the subject, received_at is when the stream
stored the message, offset is its sequence number, and spool is nats/STREAM/CREATED: a stream that
was deleted and made anew is another one. qos is known of what MQTT clients have published.

An offset of the query is {spool: next sequence number}. Messages are read by direct gets, which
any replica answers, and one may lack what is new: whatever number does not come is asked for at
the leader, before it counts as deleted.
"""

import asyncio
import datetime
import json
import logging
import math
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..spool.files import SpoolError, refuse
from .rows import BATCH_BYTES, BATCH_ROWS, LATEST_US, SCHEMA

log = logging.getLogger("umqtt.source")

API = "$JS.API"
OF_MQTT = "$MQTT.msgs."  #: before the subject of what NATS's MQTT broker keeps itself
ASKED = 1000  #: messages of one direct get, or
ASKED_BYTES = 4 << 20  #: so many bytes
PART_ROWS = 10_000  #: fewer are not worth a task of their own
ANSWER_S = 30.0
DEFAULTS = {"maxRowsPerBatch": 200_000, "maxBytesPerBatch": 128 << 20, "numPartitions": 2}


def topic_of(subject):
    """The MQTT topic of a subject, as NATS's MQTT broker maps them: levels are tokens, an empty
    level is the token "/", a dot is "//"."""
    levels = subject.removeprefix(OF_MQTT).split(".")
    return "/".join("" if level == "/" else level.replace("//", ".") for level in levels)


def place_of(path):
    """(server, stream) of nats://HOST:PORT/STREAM. Raises ValueError."""
    parts = urlsplit(path or "")
    stream = parts.path.strip("/")
    if parts.scheme not in ("nats", "tls") or not parts.hostname or not stream or "/" in stream:
        raise ValueError(f"{path}: write nats://HOST:PORT/STREAM")
    return f"{parts.scheme}://{parts.netloc}", stream


def _micros(text):
    """RFC 3339 with nanoseconds, as unix us."""
    whole, _, rest = text.rstrip("Z").partition(".")
    at = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC)
    return int(at.timestamp()) * 1_000_000 + int(f"{rest[:6]:0<6}")


@dataclass
class Range(InputPartition):
    """Messages from `start` up to and without `stop` of the stream `spool`."""

    spool: str
    start: int
    stop: int


@dataclass
class State:
    """A stream: its name as a spool, the first and the last number, mean bytes of a message."""

    spool: str
    first: int
    last: int
    size: float


class Stream:
    """A connection to one stream."""

    def __init__(self, nats, name):
        self.nats, self.name = nats, name

    @classmethod
    @asynccontextmanager
    async def at(cls, path):
        """Connect to nats://HOST:PORT/STREAM. Raises SpoolError."""
        try:
            import nats
        except ImportError:
            raise SpoolError("the package nats-py is not installed: pip install '.[nats]'")
        server, name = place_of(path)
        try:
            made = await nats.connect(server, connect_timeout=ANSWER_S, allow_reconnect=False,
                                      user_credentials=os.environ.get("NATS_CREDS"))  # fmt: skip
        except (OSError, nats.errors.Error) as error:
            raise SpoolError(f"{urlsplit(path).hostname}: NATS does not answer: {error}")
        try:
            yield cls(made, name)
        except nats.errors.NoRespondersError:
            raise SpoolError(f"{server} has no JetStream")
        except (OSError, nats.errors.Error) as error:
            raise SpoolError(f"{server}, stream {name}: {error or type(error).__name__}")
        finally:
            await made.close()

    async def _ask(self, what, request=None):
        """The answer of JetStream's API as a dict; None if there is no such message."""
        data = json.dumps(request).encode() if request else b""
        answer = await self.nats.request(f"{API}.{what}.{self.name}", data, timeout=ANSWER_S)
        found = json.loads(answer.data)
        fault = found.get("error")
        if fault and fault.get("err_code") == 10037:
            return None
        if fault:
            raise SpoolError(f"stream {self.name}: {fault.get('description', fault)}")
        return found

    async def state(self):
        """The State of the stream. Raises SpoolError if it cannot be read as it has to be."""
        found = await self._ask("STREAM.INFO")
        if not found["config"].get("allow_direct"):
            raise SpoolError(f"stream {self.name}: messages are read by direct gets; allow them "
                             f"(`nats stream edit {self.name} --allow-direct`)")  # fmt: skip
        state = found["state"]
        return State(f"nats/{self.name}/{_micros(found['created'])}", max(state["first_seq"], 1),
                     state["last_seq"], state["bytes"] / max(state["messages"], 1))  # fmt: skip

    async def messages(self, start, stop):
        """Yield (number, subject, headers, payload) of what the stream has in [start, stop)."""
        at = start
        while at < stop:
            count = min(ASKED, stop - at)
            came = await self._direct(at, count)
            for number, *rest in came:
                if number != at and not await self._deleted(at, min(number, stop)):
                    break  # the replica lacks it: ask again
                if number >= stop:
                    return
                yield number, *rest
                at = number + 1
            if not came:
                if await self._deleted(at, stop):
                    return
                await asyncio.sleep(0.1)

    async def _deleted(self, first, stop):
        """Whether the leader has none of the messages in [first, stop)."""
        found = await self._ask("STREAM.MSG.GET", {"seq": first, "next_by_subj": ">"})
        return found is None or found["message"]["seq"] >= stop

    async def _direct(self, start, count):
        """The next messages from a number on, some of them or all `count`."""
        inbox = self.nats.new_inbox()
        answers = await self.nats.subscribe(inbox)
        request = {"seq": start, "batch": count, "max_bytes": ASKED_BYTES, "next_by_subj": ">"}
        await self.nats.publish(f"{API}.DIRECT.GET.{self.name}", json.dumps(request).encode(),
                                reply=inbox)  # fmt: skip
        found = []
        try:
            while True:
                answer = await answers.next_msg(timeout=ANSWER_S)
                status = (answer.headers or {}).get("Status")
                if status in ("204", "404"):
                    return found
                if status is not None:
                    raise SpoolError(f"stream {self.name}: {answer.headers.get('Description')}")
                head = answer.headers
                found.append((int(head["Nats-Sequence"]), head["Nats-Subject"], head, answer.data))
        finally:
            await answers.unsubscribe()


async def _state(path):
    async with Stream.at(path) as stream:
        return await stream.state()


def _batch(spool, held):
    """One Arrow record batch of some messages."""
    import pyarrow as pa

    numbers, subjects, heads, payloads = zip(*held)
    qos = [head.get("Nmqtt-Pub", "") for head in heads]
    stored = [min(_micros(head["Nats-Time-Stamp"]), LATEST_US) for head in heads]
    columns = {
        "topic": pa.array(map(topic_of, subjects), pa.string()),
        "payload": pa.array(payloads, pa.binary()),
        "qos": pa.array([int(each) if each.isdigit() else None for each in qos], pa.int32()),
        "retain": pa.repeat(False, len(held)), "dup": pa.repeat(False, len(held)),
        "packet_id": pa.nulls(len(held), pa.int32()),
        "received_at": pa.array(stored, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "spool": pa.repeat(spool, len(held)), "offset": pa.array(numbers, pa.int64()),
    }  # fmt: skip
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def _number(options, name):
    try:
        value = int(options.get(name) or DEFAULTS[name])
    except ValueError:
        value = -1
    if value < 0:
        raise ValueError(f"option {name}={options.get(name)!r}: an integer of at least 0")
    return value or math.inf


class JetStreamSource(DataSource):
    """Register it with `spark.dataSource.register(JetStreamSource)`."""

    @classmethod
    def name(cls):
        return "jetstream"

    def schema(self):
        return SCHEMA

    def streamReader(self, schema):  # noqa: N802 (the API's name)
        place_of(self.options.get("path"))
        return JetStreamReader(self.options)


class JetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches; one object per query lives in the driver's planner process."""

    def __init__(self, options):
        self.path = options["path"]
        self.rows, self.bytes, self.tasks = (_number(options, name) for name in DEFAULTS)
        self.stop_file = options.get("stopFile")
        self.skip = (options.get("skipDamaged") or "false").lower() == "true"
        self._target = None  # the end for available-now

    def _state(self):
        return asyncio.run(_state(self.path))

    def initialOffset(self):  # noqa: N802
        state = self._state()
        return {state.spool: state.first}

    def getDefaultReadLimit(self):  # noqa: N802
        return ReadAllAvailable() if self.rows == math.inf else ReadMaxRows(int(self.rows))

    def prepareForTriggerAvailableNow(self):  # noqa: N802
        self._target = self._state().last + 1

    def latestOffset(self, start, limit):  # noqa: N802
        if self.stop_file and Path(self.stop_file).exists():
            return start
        state = self._state()
        at = start.get(state.spool, state.first)
        if at > state.last + 1:
            raise SpoolError(f"{state.spool} ends at {state.last}, and was read up to {at - 1}: "
                             "an older copy of the stream was put back")  # fmt: skip
        at = self._kept(state, at)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else math.inf
        most = min(most, max(1, self.bytes // max(state.size, 1)))
        end = min(self._target or math.inf, state.last + 1)
        return {**start, state.spool: int(max(at, min(end, at + most)))}

    def _kept(self, state, at):
        """Where reading goes on: what the stream has let go unread is told."""
        if at < state.first:
            refuse(f"{state.spool}: messages {at} to {state.first - 1} were let go by the stream "
                   "before they were read (its limits, or a purge): ingest goes on without them "
                   "with --skip-damaged", self.skip)  # fmt: skip
            return state.first
        return at

    def partitions(self, start, end):
        state = self._state()
        found = []
        for spool, stop in end.items():
            at = start.get(spool, state.first if spool == state.spool else stop)
            if at == stop:
                continue
            if spool != state.spool:
                raise SpoolError(f"{spool} was deleted, and its messages up to {stop - 1} are not "
                                 "yet in the tables")  # fmt: skip
            at = min(self._kept(state, at), stop)
            share = max(PART_ROWS, -((at - stop) // int(min(self.tasks, 1 << 16))))
            found += [Range(spool, a, min(a + share, stop)) for a in range(at, stop, share)]
        return found

    def read(self, partition):
        if isinstance(partition, Range):
            yield from asyncio.run(_read(self.path, partition))

    def commit(self, end):
        """Nothing: the stream's own limits say how long a message stays."""

    def stop(self):
        """Nothing is held open."""


async def _read(path, part):
    """Arrow record batches of a Range."""
    made, held, size = [], [], 0
    async with Stream.at(path) as stream:
        async for message in stream.messages(part.start, part.stop):
            held.append(message)
            size += len(message[3])
            if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
                made.append(_batch(part.spool, held))
                held, size = [], 0
    return made + ([_batch(part.spool, held)] if held else [])


def register(spark):
    """Make `format("jetstream")` known to a session."""
    spark.dataSource.register(JetStreamSource)
