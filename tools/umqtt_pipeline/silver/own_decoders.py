"""Decoders of one's own: who they are, whether what they give is fit, and its columns.

Everything is taken by name: Spark itself would cast one struct to another by the places of their
fields, and a boot in the place of a sequence number is a number, too. Whether it fits is known
when the functions are built, before there is a packet.

Knows Spark's types. Must not know topics, other decoders, or what a reading is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from umqtt_runtime import failures

from .cbor_column import DECODED

INT_MAX = (1 << 31) - 1


class Unfit(Exception):
    """A decoder that is none, or gives something else than DECODED."""


@dataclass(frozen=True)
class Decoder:
    """A decoder of one's own, asked before those of this package.

    name     for messages, and for the reason of what it gives no whole reading of
    applies  function from the columns topic and payload to a bool column: which packets are its
    decode   function from the columns topic and payload to a struct with the fields of DECODED,
             in any order; its field `error` is null or the reason for the quarantine
    """

    name: str
    applies: Callable
    decode: Callable


@dataclass(frozen=True)
class Session:
    """A session, for which what is built in its application is the same as for another one's."""

    application: str
    spark: SparkSession = field(compare=False)


_registered = []


def register(decoder):
    """Use a Decoder from now on. Raises TypeError if it is none."""
    if not isinstance(decoder, Decoder):
        raise TypeError(f"{decoder!r} is no umqtt_pipeline.silver.Decoder")
    if decoder not in _registered:
        _registered.append(decoder)


def forget(decoder):
    """Do without a registered decoder again."""
    _registered.remove(decoder)


def registered():
    """The decoders of one's own, in the order in which they are asked."""
    return tuple(_registered)


def load(name):
    """The object that MODULE:NAME names. Raises ImportError, AttributeError, ValueError."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError("expected MODULE:NAME")
    return getattr(import_module(module), attribute)


def which(session):
    """int column: the number of the decoder that takes a packet, the first that does; or null.
    Raises Unfit, with a sentence that names the decoder and what of it does not fit."""
    taken = F.lit(None).cast("int")
    for number, (_, applies, _, _) in reversed(list(enumerate(_fitted(session, registered())))):
        taken = F.when(applies, number).otherwise(taken)
    return taken


def steps(session):
    """Lists of columns, to be added one after the other: _by (name of the decoder that takes the
    packet, or null) and _x (column DECODED, or null) among them. Raises as `which`."""
    fitted = list(enumerate(_fitted(session, registered())))
    by, found = F.lit(None).cast("string"), F.lit(None).cast(DECODED)
    given = []  # in a step of its own: a field that is taken of it does not work it out again
    for number, (name, _, column, kind) in fitted:
        takes = F.col("_own") == number
        given.append(F.when(takes, column).alias(f"_own{number}"))
        by = F.when(takes, F.lit(name)).otherwise(by)
        made = _by_name(F.col(f"_own{number}"), kind, _wanted(session))
        found = F.when(takes, made).otherwise(found)
    return [[which(session).alias("_own")], given, [by.alias("_by"), found.alias("_x")]]


@lru_cache(maxsize=1)
def _fitted(session, own):
    """[(name, column of `applies`, column of `decode`, type of that)] of the decoders."""
    wanted, found = _wanted(session), []
    for decoder in own:
        applies, flag = _given(decoder, "applies", session)
        if not isinstance(flag, T.BooleanType | T.NullType):
            _refuse(decoder, f"applies() gives {flag.simpleString()}, not boolean")
        decode, kind = _given(decoder, "decode", session)
        wrong = _misfit(kind, wanted, "")
        if wrong:
            _refuse(decoder, f"decode() gives {wrong}")
        found.append((decoder.name, F.coalesce(applies, F.lit(False)), decode, kind))
    return found


def _refuse(decoder, why):
    raise Unfit(f"the decoder {decoder.name}: {why}")


@lru_cache(maxsize=1)
def _wanted(session):
    return session.spark.range(0).select(F.lit(None).cast(DECODED).alias("x")).schema["x"].dataType


def _given(decoder, what, session):
    """(column, its type) that a function of a decoder gives for topic and payload."""
    try:
        column = getattr(decoder, what)(F.col("topic"), F.col("payload"))
    except Exception as error:  # the user's own code may raise anything
        _refuse(decoder, f"{what}() raises {failures.raised_at(error)}")
    if not isinstance(column, Column):
        _refuse(decoder, f"{what}() gives {column!r:.100}, which is no Column of Spark")
    no_packets = session.spark.range(0).select(
        F.lit("").alias("topic"), F.lit(b"").alias("payload"))  # fmt: skip
    try:
        found = no_packets.select("*", F.when(F.lit(True), column).alias("_x"))
        return column, found.schema["_x"].dataType
    except Exception as error:
        if not failures.of_spark(error):
            raise
        _refuse(decoder, f"{what}(): {failures.sentence(error)}")


WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
TAKEN = {
    T.LongType: WHOLE, T.IntegerType: WHOLE, T.StringType: T.StringType,
    T.DoubleType: (*WHOLE, T.FloatType, T.DoubleType, T.DecimalType),
}  # fmt: skip


def _misfit(kind, wanted, where):
    """What is wrong with a type, or None. where: name of the field that is of it"""
    if isinstance(kind, T.NullType):
        return None
    if isinstance(wanted, T.ArrayType) and isinstance(kind, T.ArrayType):
        return _misfit(kind.elementType, wanted.elementType, f"{where}[]")
    if isinstance(wanted, T.StructType) and isinstance(kind, T.StructType):
        return _misnamed(kind.names, wanted.names, where) or next(filter(None, (
            _misfit(kind[f.name].dataType, f.dataType, f"{where and where + '.'}{f.name}")
            for f in wanted)), None)  # fmt: skip
    if isinstance(kind, TAKEN.get(type(wanted), ())):
        return None
    return f"{where and where + ' as '}{kind.simpleString()}, not {wanted.simpleString()}"


def _misnamed(names, wanted, where):
    """What is wrong with the names of a struct's fields, or None."""
    found = [
        (f"lacks {', '.join(n for n in wanted if n not in names)}", set(wanted) - set(names)),
        (f"has {', '.join(n for n in names if n not in wanted)}", set(names) - set(wanted)),
        (f"has {', '.join(n for n in wanted if names.count(n) > 1)} more than once",
         len(names) > len(set(names))),
    ]  # fmt: skip
    wrong = " and ".join(said for said, holds in found if holds)
    of = f"a struct{where and f' in {where}'}"
    return wrong and f"{of} that {wrong}; needed are {', '.join(wanted)}"


def _by_name(column, kind, wanted):
    """A column of a type in which nothing is amiss, as one of the wanted type; a struct that is
    null may be one of nulls."""
    if kind.simpleString() == wanted.simpleString():
        return column
    if isinstance(kind, T.StructType):
        return F.struct(*(_by_name(column[f.name], kind[f.name].dataType, f.dataType).alias(f.name)
                          for f in wanted))  # fmt: skip
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda x: _by_name(x, kind.elementType, wanted.elementType))
    if isinstance(wanted, T.IntegerType):  # what is too much for it is out of range, no failure
        column = F.when(column.between(0, INT_MAX), column).when(column.isNotNull(), -1)
    return column.cast(wanted)
