"""Silver: bronze rows decoded and validated.

Pure functions from DataFrames to DataFrames; nothing here reads or writes a file. It knows every
encoding, and the reason why a packet is no reading; of what the firmware packs ingest takes the
short way (decode/firmware_packs.py). group and device are the topic's, and the name in the payload
must be the same. What becomes of a reading is in ingest/dedup.py.

Knows topics, decoders, and which asks first. Must not know files or batches.
"""

from functools import lru_cache, reduce
from itertools import zip_longest
from operator import and_, or_

from pyspark.sql import functions as F

from ..decode import payloads, reasons
from ..decode.reasons import CLOCK, CLOCK_FROM, CLOCK_TO
from . import own_decoders
from .cbor_column import LABELS, cbor
from .json_columns import finite, first_error, flat_json, senml_json
from .own_decoders import Session, registered

TELEMETRY = r"^fleet/([^/]+)/([^/]+)/telemetry$"
NEEDED = ("epoch", "sequence", "boot", "uptime_ms", "measurements")  #: of every reading
GIVEN = ("device", *NEEDED)  #: by every decoder
OTHER_TOPICS = r"^fleet/[^/]+/[^/]+/(status|ack|cmd/.+)$"
#: What a bridge says on TOPIC/ack of any TOPIC/telemetry; a wide --topic brings it back.
MARK = r'^\{"epoch":"[0-9a-f]{16}","upto":[0-9]+,"missing":\['


def own(rows):
    """bool column for `rows`: which packets are for decoders of one's own. Raises Unfit."""
    return own_decoders.which(_session(rows.sparkSession)).isNotNull()


def check(spark):
    """Raises Unfit if a decoder of one's own gives something else than DECODED, by name."""
    own_decoders.which(_session(spark))


def _session(spark):
    return Session(spark.sparkContext.applicationId, spark)


def decode(bronze):
    """Bronze rows -> the same rows with group, device, epoch, sequence, boot, uptime_ms,
    measurements, other (a topic that carries no reading) and reason (why it is no reading).
    Raises Unfit."""
    steps, validated = _decode_columns(_session(bronze.sparkSession), registered())
    decoded = reduce(lambda rows, step: rows.select("*", *step), steps, bronze)
    return decoded.select(*bronze.columns, *validated)


@lru_cache(maxsize=1)
def _decode_columns(session, own):
    """The columns of `decode`, with the decoders `own`, made once in an application: it takes
    thousands of calls into the JVM, which would be a good part of a small batch's time."""
    text = F.col("payload").cast("string")
    head = F.substring(F.ltrim(F.substring(text, 1, 16), F.lit(" \t\r\n")), 1, 1)
    byte = F.substring("payload", 1, 1)
    is_cbor = byte.between(F.lit(b"\x80"), F.lit(b"\x9b")) | (byte == F.lit(b"\x9f"))
    levels = F.split("topic", "/")  # no regular expression where most topics go
    shape = F.col("topic").startswith("fleet/") & F.col("topic").endswith("/telemetry")
    telemetry = shape & (F.size(levels) == 4)
    by = F.col("_by")
    # A row may take a hundred times the room of its payload, and several of them are in memory.
    ours = by.isNull() & (F.length("payload") <= payloads.LONGEST)
    split = [
        F.when(telemetry, F.get(levels, 1)).otherwise("").alias("_group"),
        F.when(telemetry, F.get(levels, 2)).otherwise("").alias("_device"),
        F.when(telemetry, False).otherwise(F.col("topic").rlike(OTHER_TOPICS) | (
            F.col("topic").endswith("/ack") & text.rlike(MARK))).alias("other"),
        F.when(ours & is_cbor, F.col("payload")).alias("_cbor"),
        F.when(ours & ~is_cbor & (head == "["), text).alias("_senml"),
        F.when(ours & ~is_cbor & (head == "{"), text).alias("_flat"),
    ]
    (senml, of_senml), (flat, of_flat) = senml_json(F.col("_senml")), flat_json(F.col("_flat"))
    steps = [*own_decoders.steps(session), split, [cbor(F.col("_cbor")).alias("_c")]]
    steps += [a + b for a, b in zip_longest(senml.made, flat.made, fillvalue=[])]
    steps.append([F.coalesce(of_senml, of_flat).alias("_j")])
    # Field by field: a struct that is chosen as a whole is copied as a whole, with its lists.
    sources = ("_x", "_c", "_j") if own else ("_c", "_j")
    fields = {name: F.coalesce(*(F.col(s)[name] for s in sources)) for name in LABELS}
    known = reduce(or_, (F.col(s).isNotNull() for s in ("_by", "_c", "_j")))
    steps.append([_reason(fields, known, own).alias("_reason")])
    return steps, _validated(fields)


def _reason(r, known, own):
    """Why it is no reading. r: the decoded fields, known: whether any decoder took the payload,
    own: decoders of one's own, if there are any."""
    clocks = F.filter(r["measurements"], lambda m: m["name"] == CLOCK)
    return F.when(~F.col("other"), first_error(
        (F.col("payload").isNotNull(), reasons.LARGE),
        ((F.col("_device") != "") & (F.col("_group") != ""),
         "the topic is not fleet/GROUP/DEVICE/telemetry"),
        (known | (F.length("payload") <= payloads.LONGEST),
         f"more than {payloads.LONGEST} bytes"),
        (known, "unknown encoding"),
        (r["error"].isNull(), r["error"]),
        (reduce(and_, (r[name].isNotNull() for name in GIVEN)),
         F.concat(F.lit("the decoder "), "_by", F.lit(f" gave not all of {', '.join(GIVEN)}"))),
        *(_ranges(r) if own else ()),
        (r["device"] == F.col("_device"), F.concat(
            F.lit("the payload is of device "), r["device"], F.lit(", the topic is not"))),
        (F.forall(clocks, lambda m: m["value"].between(CLOCK_FROM, CLOCK_TO)),
         "a clock outside 2020..2100"),
    ))  # fmt: skip


def _ranges(r):
    """[(condition, reason)] for what a decoder of one's own gives; those of this package look
    themselves."""
    checks = (
        (r["epoch"].rlike(r"^[0-9a-f]{16}\z"), reasons.OWN["ep"]),
        (r["sequence"].between(1, reasons.LIMIT - 1), reasons.OWN["sq"]),
        (r["boot"].between(0, reasons.BITS_31), reasons.OWN["bo"]),
        (r["uptime_ms"].between(0, reasons.UPTIME_MS), reasons.OWN["up"]),
        (F.size(r["measurements"]) > 0, reasons.NO_MEASUREMENT),
        (F.forall(r["measurements"], lambda m: F.coalesce(m["name"] != "", F.lit(False))),
         reasons.NO_NAME),
        (F.forall(r["measurements"], lambda m: finite(m["value"])), reasons.NOT_FINITE),
    )  # fmt: skip
    return [(F.col("_by").isNull() | holds, reason) for holds, reason in checks]


def _validated(r):
    """What `decode` adds; of what is no reading only the reason, and what the topic says."""
    reason = F.col("_reason")
    return (
        F.col("other"), F.col("_group").alias("group"), F.col("_device").alias("device"),
        *(F.when(reason.isNull(), r[name]).alias(name) for name in NEEDED), reason.alias("reason"),
    )  # fmt: skip
