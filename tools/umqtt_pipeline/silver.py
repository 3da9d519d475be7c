"""Silver: bronze rows decoded, validated, and told apart: new, duplicate, quarantine, other.

Pure functions from DataFrames to DataFrames; nothing here reads or writes a file. CBOR goes
through one Arrow UDF, JSON through Spark's own functions inside the JVM.

Identity of a reading: (group, device, epoch, sequence); group and device are the topic's, and the
name in the payload must be the same. The numbers seen of an epoch are kept as ranges
(`seen_after`), for ever: a duplicate is one however late it comes, and so is a reading.
"""


from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module
from operator import or_

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from . import bronze as bronze_rows
from . import decoders

MEASUREMENTS = "array<struct<name:string,unit:string,value:double>>"
IDENTITY = {"group": "string", "device": "string", "epoch": "string", "sequence": "bigint"}
RECEIPT = {"received_at": "timestamp", "offset": "bigint", "date": "date"}
COLUMNS = {
    **IDENTITY, "boot": "int", "uptime_ms": "bigint", "time": "timestamp",
    "time_quality": "string", "received_at": "timestamp", "qos": "int",
    "measurements": MEASUREMENTS, "offset": "bigint", "date": "date",
}  # fmt: skip
QUARANTINE = {"reason": "string", **bronze_rows.COLUMNS}
DUPLICATES = {**IDENTITY, "dup": "boolean", **RECEIPT}
CLOCK_ROWS = {**IDENTITY, "boot": "int", "uptime_ms": "bigint", "time": "timestamp", **RECEIPT}
# The state: numbers seen (ranges), the clock of a boot.
SEEN = {"group": "string", "device": "string", "epoch": "string", "first": "bigint",
        "last": "bigint"}  # fmt: skip
CLOCKS = {"group": "string", "device": "string", "epoch": "string", "boot": "int",
          "clock_time": "timestamp", "clock_uptime_ms": "bigint"}  # fmt: skip
KEY = ["group", "device", "epoch"]
BOOT = [*KEY, "boot"]
CLOCK = "clock"  #: name of the measurement that sets a boot's time
CLOCK_FROM, CLOCK_TO = 1_577_836_800, 4_102_444_800  #: believed: from 2020 until 2100
TELEMETRY = r"^fleet/([^/]+)/([^/]+)/telemetry$"
OTHER_TOPICS = r"^fleet/[^/]+/[^/]+/(status|ack|cmd/.+)$"
DECODED = (
    "struct<device:string,epoch:string,sequence:bigint,boot:int,uptime_ms:bigint,low:bigint,"
    f"measurements:{MEASUREMENTS},error:string>"
)


# -- decoders ---------------------------------------------------------------------------------


_LABELS = ["device", "epoch", "sequence", "boot", "uptime_ms", "low", "measurements", "error"]


def _decode_cbor(payloads):
    """pyarrow binary array -> struct array DECODED; null for null. What the firmware packs goes
    by column, the rest one by one."""
    import numpy as np
    import pyarrow as pa

    from . import vectors

    known, columns = vectors.decode(payloads)
    if known.all() and len(known):
        return _struct(columns)
    rest = np.flatnonzero(~known)
    others = _decode_one_by_one(payloads.take(pa.array(rest)))
    if columns is None:
        return others
    place = np.arange(len(known))
    place[rest] = len(known) + np.arange(len(rest))
    return pa.concat_arrays([_struct(columns), others]).take(pa.array(place))


def _struct(columns, mask=None):
    """Columns of DECODED, `error` left out if there is none -> struct array."""
    import pyarrow as pa

    if len(columns) < len(_LABELS):
        columns = [*columns, pa.nulls(len(columns[0]), pa.string())]
    return pa.StructArray.from_arrays(columns, _LABELS, mask=mask)


def _decode_one_by_one(payloads):
    """pyarrow binary array of any CBOR -> struct array DECODED; null for null."""
    import pyarrow as pa

    columns = [[] for _ in range(6)]
    sizes, names, units, values, errors, nulls = [0], [], [], [], [], []
    for payload in payloads.to_pylist():
        row, error = (None,) * 6, None
        if payload is not None:
            try:
                r = decoders.senml_cbor(payload)
                row = (r.device, r.epoch.hex(), r.sequence, r.boot, r.uptime_ms, r.low)
                for name, unit, value in r.measurements:
                    names.append(name)
                    units.append(unit)
                    values.append(value)
            except decoders.Malformed as why:
                error = str(why)
        for column, value in zip(columns, row):
            column.append(value)
        sizes.append(len(names))
        errors.append(error)
        nulls.append(payload is None)
    items = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(units, pa.string()),
         pa.array(values, pa.float64())], ["name", "unit", "value"],
    )  # fmt: skip
    kinds = (pa.string(), pa.string(), pa.int64(), pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds)]
    arrays.append(pa.ListArray.from_arrays(pa.array(sizes, pa.int32()), items))
    arrays.append(pa.array(errors, pa.string()))
    return _struct(arrays, pa.array(nulls, pa.bool_()))


def cbor(payload):
    """Column of SenML CBOR payloads -> column DECODED."""
    import pyarrow as pa

    @F.arrow_udf(DECODED)
    def decode_cbor(payloads: pa.Array) -> pa.Array:
        return _decode_cbor(payloads)

    return decode_cbor(payload)


def _first_error(*checks):
    """The text of the first (condition that must hold, text) that does not hold, or null."""
    chain = None
    for condition, text in checks:
        failed = ~F.coalesce(condition, F.lit(False))
        text = F.lit(text) if isinstance(text, str) else text
        chain = F.when(failed, text) if chain is None else chain.when(failed, text)
    return chain


def _checked(device, fields, measurements, first_checks, names):
    """DECODED of JSON's parts; fields: {ep, sq, bo, up, ms, lo: column}; names: what the payload
    calls them, in the same order."""
    ep, sq, bo, up, ms_, lo = names
    ms = F.coalesce(fields["ms"], F.lit(0))
    finite = F.forall(
        measurements,
        lambda m: F.coalesce(
            ~F.isnan(m["value"]) & (F.abs(m["value"]) < F.lit(float("inf"))), F.lit(False)
        ),
    )
    limit = decoders.LIMIT
    error = _first_error(
        *first_checks,
        (fields["ep"].rlike("^[0-9A-Fa-f]{16}$"), f"{ep} is not 8 bytes (16 hex digits)"),
        (fields["sq"].between(1, limit - 1), f"{sq} is missing or out of range"),
        (F.coalesce(fields["lo"], F.lit(1)).between(1, fields["sq"]), f"{lo} is above {sq}"),
        (fields["bo"].between(0, (1 << 31) - 1), f"{bo} is missing or out of range"),
        (fields["up"].between(0, (1 << 31) - 1), f"{up} is missing or out of range"),
        (ms.between(0, 999), f"{ms_} is not an integer in 0..999"),
        (F.size(measurements) > 0, "no measurement"),
        (F.forall(measurements, lambda m: F.length(m["name"]) > 0), "a measurement has no name"),
        (finite, "a measurement is not a finite number"),
    )
    uptime = F.try_add(F.try_multiply(fields["up"], F.lit(1000)), ms)
    return F.struct(
        device.alias("device"), F.lower(fields["ep"]).alias("epoch"),
        fields["sq"].alias("sequence"), fields["bo"].try_cast("int").alias("boot"),
        uptime.alias("uptime_ms"), fields["lo"].alias("low"),
        measurements.alias("measurements"), error.alias("error"),
    )  # fmt: skip


def _once(names, known):
    """Whether none of the known names comes twice among the names of an object: RFC 8259 section
    4 leaves it open which of the two is meant."""
    found = F.filter(names, lambda name: name.isin(*known))
    return F.size(found) == F.size(F.array_distinct(found))


def _integer(text):
    """Column of an integer's text -> bigint, null if it is written in any other way."""
    number = text.try_cast("bigint")
    return F.when(number.cast("string") == text, number)


# What Spark would take beyond RFC 8259.
STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
TWICE = "a field of the identity comes twice"
SENML = (
    "array<struct<bn:string,ep:string,sq:bigint,bo:bigint,up:bigint,ms:bigint,lo:bigint,"
    "n:string,u:string,v:double>>"
)


def senml_json(text):
    """Column of SenML JSON text -> column DECODED."""
    pack = F.from_json(text, SENML, STRICT)
    first = F.get(pack, 0)
    names = F.map_keys(F.get(F.from_json(text, "array<map<string,string>>", STRICT), 0))
    records = F.filter(
        pack, lambda r, i: (i > 0) | r["n"].isNotNull() | r["v"].isNotNull()
    )
    values = F.transform(
        records,
        lambda r: F.struct(r["n"].alias("name"), r["u"].alias("unit"), r["v"].alias("value")),
    )
    fields = {name: first[name] for name in decoders.OWN_LABELS}
    checks = (
        (pack.isNotNull() & (F.size(pack) > 0) & text.rlike(r"\]\s*$"),
         "not an array of SenML records"),
        (_once(names, ("bn", *fields)), TWICE),
        (first["bn"].rlike("^.+/$"), "bn is not DEVICE/"),
    )  # fmt: skip
    device = F.regexp_replace(first["bn"], "/$", "")
    return _checked(device, fields, values, checks, decoders.OWN_LABELS)


def flat_json(text):
    """Column of flat JSON text -> column DECODED: what is not identity is a measurement."""
    data = F.from_json(text, "map<string,string>", STRICT)
    fields = {short: F.try_element_at(data, F.lit(key)) for key, short in decoders.FLAT.items()}
    device = fields.pop("device")
    numbers = {short: _integer(column) for short, column in fields.items()}
    numbers["ep"] = fields["ep"]
    known = F.array(*map(F.lit, decoders.FLAT))
    values = F.transform(
        F.filter(F.map_entries(data), lambda e: ~F.array_contains(known, e["key"])),
        lambda e: F.struct(
            e["key"].alias("name"), F.lit(None).cast("string").alias("unit"),
            e["value"].try_cast("double").alias("value"),
        ),
    )  # fmt: skip
    checks = (
        (data.isNotNull() & text.rlike(r"\}\s*$"), "not a JSON object"),
        (_once(F.map_keys(data), decoders.FLAT), TWICE),
        (F.length(device) > 0, "device is missing"),
    )
    return _checked(device, numbers, values, checks, tuple(decoders.FLAT)[1:])


@dataclass(frozen=True)
class Decoder:
    """A decoder of one's own, asked before those of this module.

    name     for messages
    applies  function from the columns topic and payload to a bool column: which packets are its
    decode   function from the columns topic and payload to a column DECODED; its field `error`
             is null or the reason for the quarantine
    """

    name: str
    applies: Callable
    decode: Callable


_registered = []


def register(decoder):
    """Use a Decoder from now on. Raises TypeError if it is none."""
    if not isinstance(decoder, Decoder):
        raise TypeError(f"{decoder!r} is no umqtt_pipeline.silver.Decoder")
    if decoder not in _registered:
        _registered.append(decoder)
        _decode_columns.cache_clear()


def forget(decoder):
    """Do without a registered decoder again."""
    _registered.remove(decoder)
    _decode_columns.cache_clear()


def load(name):
    """The object that MODULE:NAME names. Raises ImportError, AttributeError, ValueError."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError("expected MODULE:NAME")
    return getattr(import_module(module), attribute)


def _own():
    """(bool column: a registered decoder takes it, column DECODED or null)."""
    topic, payload = F.col("topic"), F.col("payload")
    taken, found = F.lit(False), F.lit(None).cast(DECODED)
    for decoder in reversed(_registered):
        applies = F.coalesce(decoder.applies(topic, payload), F.lit(False))
        found = F.when(applies, decoder.decode(topic, payload).cast(DECODED)).otherwise(found)
        taken = applies | taken
    return taken, found


def decode(bronze):
    """Bronze rows -> the same rows with group, device, epoch, sequence, boot, uptime_ms,
    measurements, other (a topic that carries no reading) and reason (why it is no reading)."""
    split, decoders_, validated = _decode_columns(bronze.sparkSession.sparkContext.applicationId)
    decoded = bronze.select("*", *split).select("*", decoders_[0]).select("*", decoders_[1])
    return decoded.select(*bronze.columns, *validated)


@lru_cache(maxsize=1)
def _decode_columns(_application):
    """The columns of `decode`, made once in an application: it takes thousands of calls into the
    JVM, which would be a good part of a small batch's time."""
    text = F.col("payload").cast("string")
    head = F.substring(F.ltrim(F.substring(text, 1, 16), F.lit(" \t\r\n")), 1, 1)
    byte = F.substring("payload", 1, 1)
    is_cbor = byte.between(F.lit(b"\x80"), F.lit(b"\x9b")) | (byte == F.lit(b"\x9f"))
    levels = F.split("topic", "/")  # no regular expression where most topics go
    shape = F.col("topic").startswith("fleet/") & F.col("topic").endswith("/telemetry")
    telemetry = shape & (F.size(levels) == 4)
    own, found = _own()
    split = (
        F.when(own, found).alias("_x"),
        F.when(telemetry, F.get(levels, 1)).otherwise("").alias("_group"),
        F.when(telemetry, F.get(levels, 2)).otherwise("").alias("_device"),
        F.when(telemetry, False).otherwise(F.col("topic").rlike(OTHER_TOPICS)).alias("other"),
        F.when(~own & is_cbor, F.col("payload")).alias("_cbor"),
        F.when(~own & ~is_cbor & (head == "["), text).alias("_senml"),
        F.when(~own & ~is_cbor & (head == "{"), text).alias("_flat"),
    )
    json = F.when(F.col("_senml").isNotNull(), senml_json(F.col("_senml"))).when(
        F.col("_flat").isNotNull(), flat_json(F.col("_flat"))
    )
    decoders_ = (json.alias("_j"), cbor(F.col("_cbor")).alias("_c"))
    # Field by field: a struct that is chosen as a whole is copied as a whole, with its lists.
    sources = ("_x", "_c", "_j") if _registered else ("_c", "_j")
    fields = {name: F.coalesce(*(F.col(s)[name] for s in sources)) for name in _LABELS}
    known = reduce(or_, (F.col(s).isNotNull() for s in sources))
    return split, decoders_, _validated(fields, known)


def _validated(r, known):
    """What `decode` adds. r: the decoded fields, known: whether any decoder took the payload."""
    clocks = F.filter(r["measurements"], lambda m: m["name"] == CLOCK)
    reason = F.when(~F.col("other"), _first_error(
        ((F.col("_device") != "") & (F.col("_group") != ""),
         "the topic is not fleet/GROUP/DEVICE/telemetry"),
        (known, "unknown encoding"),
        (r["error"].isNull(), r["error"]),
        (r["device"] == F.col("_device"), F.concat(
            F.lit("the payload is of device "), r["device"], F.lit(", the topic is not"))),
        (F.forall(clocks, lambda m: m["value"].between(CLOCK_FROM, CLOCK_TO)),
         "a clock outside 2020..2100"),
    ))  # fmt: skip
    names = ("epoch", "sequence", "boot", "uptime_ms", "measurements")
    return (
        F.col("other"), F.col("_group").alias("group"), F.col("_device").alias("device"),
        *(r[name].alias(name) for name in names), reason.alias("reason"),
    )  # fmt: skip


# -- one row per reading ------------------------------------------------------------------------


def with_fate(decoded, seen):
    """Decoded rows with a column fate: new, duplicate, quarantine or other.

    seen: SEEN_SCHEMA, disjoint ranges of the sequence numbers that came before. Among copies in
    `decoded` the one received first is new.
    """
    good = ~F.col("other") & F.col("reason").isNull()
    # One pass over the rows, or they would be decoded twice: what is no reading comes along under
    # a number of its own.
    number = F.when(F.col("_good"), F.col("sequence")).otherwise(-1 - F.col("offset"))
    copies = Window.partitionBy(*KEY, "_number").orderBy("received_at", "offset")
    rows = decoded.withColumn("_good", good).withColumn("_number", number).repartition(*KEY)
    ranked = rows.withColumn("_first", F.row_number().over(copies) == 1).alias("r")
    ranges = seen.repartition(*KEY).alias("s")
    same = [F.col(f"r.{k}") == F.col(f"s.{k}") for k in KEY]
    inside = F.col("r._number").between(F.col("s.first"), F.col("s.last"))
    joined = ranked.join(ranges, [*same, inside], "left")
    fate = (
        F.when(F.col("r.other"), "other")
        .when(~F.col("r._good"), "quarantine")
        .when(F.col("r._first") & F.col("s.first").isNull(), "new")
        .otherwise("duplicate")
    )
    return joined.select(*(F.col(f"r.{c}") for c in decoded.columns), fate.alias("fate"))


def seen_after(seen, new):
    """The ranges of `seen` with the sequence numbers of the rows of `new` taken in."""
    added = new.select(*KEY, F.col("sequence").alias("first"), F.col("sequence").alias("last"))
    both = seen.select(*added.columns).unionByName(added).repartition(*KEY)
    ordered = Window.partitionBy(*KEY).orderBy("first")
    before = F.max("last").over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("first") > before + 1), 1).otherwise(0)
    islands = both.withColumn("_begins", begins).withColumn(
        "_island", F.sum("_begins").over(ordered.rowsBetween(Window.unboundedPreceding, 0))
    )
    merged = islands.groupBy(*KEY, "_island").agg(
        F.min("first").alias("first"), F.max("last").alias("last")
    )
    return merged.drop("_island")


# -- what goes into which table -------------------------------------------------------------------


def quarantine(told):
    """Rows that are no reading, as they came, with the reason."""
    return told.where(F.col("fate") == "quarantine").select(*QUARANTINE)


def duplicates(told):
    """Copies that were left out of silver."""
    return told.where(F.col("fate") == "duplicate").select(*DUPLICATES)


def clock_rows(told):
    """Clock records: at uptime_ms of that boot it was `time`."""
    clock = F.get(F.filter("measurements", lambda m: m["name"] == CLOCK), 0)
    return (
        told.where(F.col("fate") == "new")
        .withColumn("time", F.timestamp_millis(F.round(clock["value"] * 1000).cast("bigint")))
        .where(F.col("time").isNotNull())
        .select(*CLOCK_ROWS)
    )


def clocks_after(clocks, new_clock_rows):
    """One clock per boot: the one known, else the first that came (later ones do not change
    times that were told)."""
    order = Window.partitionBy(*BOOT).orderBy("_rank", "received_at", "offset")
    none = F.lit(None)
    old = clocks.select("*", F.lit(0).alias("_rank"), none.cast("timestamp").alias("received_at"),
                        none.cast("bigint").alias("offset"))  # fmt: skip
    new = new_clock_rows.select(
        *BOOT, F.col("time").alias("clock_time"), F.col("uptime_ms").alias("clock_uptime_ms"),
        F.lit(1).alias("_rank"), "received_at", "offset",
    )  # fmt: skip
    ranked = old.unionByName(new).withColumn("_n", F.row_number().over(order))
    return ranked.where(F.col("_n") == 1).select(*clocks.columns)


def with_time(rows, clocks):
    """Rows with time and time_quality made anew from the clock of their boot.

    'clock': clock time plus the difference of uptimes; 'received': no clock of that boot came,
    time is the time of receipt, which the reading cannot be younger than.
    """
    kept = [c for c in rows.columns if c not in ("time", "time_quality")]
    joined = rows.select(*kept).join(clocks, BOOT, "left")
    shift = (F.col("uptime_ms") - F.col("clock_uptime_ms")) * 1000
    exact = F.timestamp_micros(F.unix_micros("clock_time") + shift)
    known = F.col("clock_time").isNotNull()
    return joined.select(
        *kept,
        F.when(known, exact).otherwise(F.col("received_at")).alias("time"),
        F.when(known, F.lit("clock")).otherwise(F.lit("received")).alias("time_quality"),
    )


def readings(told):
    """New rows that carry more than a clock; without their time."""
    return (
        told.where(F.col("fate") == "new")
        .withColumn("measurements", F.filter("measurements", lambda m: m["name"] != CLOCK))
        .where(F.size("measurements") > 0)
        .select(*BOOT, "sequence", "uptime_ms", "received_at", "qos", "measurements", "offset",
                "date")
    )  # fmt: skip


def silver(told, clocks):
    """Silver rows of one batch."""
    return with_time(readings(told), clocks).select(*COLUMNS)
