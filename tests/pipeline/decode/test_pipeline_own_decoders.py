"""Decoders of one's own: what they give is taken by name, or refused before there is a packet."""

import pyarrow as pa
import pytest
from pipeline_kit import EPOCH, QUICK, fill, publish, run, senml, topic
from pyspark.sql import functions as F
from umqtt_pipeline import silver
from umqtt_pipeline.ingest import bronze
from umqtt_pipeline.tables.schema import ddl

WHOLE = {
    "device": "'dev1'", "epoch": f"'{EPOCH.hex()}'", "sequence": "7L", "boot": "3",
    "uptime_ms": "12500L", "low": "null", "error": "string(null)",
    "measurements": "array(named_struct('value', 1.5D, 'unit', 'Cel', 'name', 't'))",
}  # fmt: skip
VALUE = "array(named_struct('name', 't', 'unit', null, 'value', {}))"


def struct(fields):
    pairs = ", ".join(f"'{name}', {value}" for name, value in fields.items())
    return F.expr(f"named_struct({pairs})")


def of(decode, applies=lambda topic, payload: F.lit(True)):
    return silver.Decoder("mine", applies, decode)


@pytest.fixture
def decoded(spark):
    """Row of silver.decode for a packet that a decoder takes."""

    def decode(decoder):
        packet = (topic(), b"x", 1, False, False, 1, None, "s", 0, None)
        silver.register(decoder)
        try:
            return silver.decode(spark.createDataFrame([packet], ddl(bronze.COLUMNS))).first()
        finally:
            silver.forget(decoder)

    return decode


def same(row):
    return row.reason is None and (row.device, row.epoch, row.sequence, row.boot) == (
        "dev1", EPOCH.hex(), 7, 3) and row.uptime_ms == 12500  # fmt: skip


@pytest.mark.parametrize("names", [
    sorted(WHOLE), sorted(WHOLE, reverse=True),
    # Only types that are cast to one another without a word stand in another place.
    ["device", "epoch", "boot", "sequence", "uptime_ms", "low", "measurements", "error"],
])  # fmt: skip
def test_fields_in_any_order(decoded, names):
    row = decoded(of(lambda topic, payload: struct({name: WHOLE[name] for name in names})))
    assert same(row)
    assert [m.asDict() for m in row.measurements] == [{"name": "t", "unit": "Cel", "value": 1.5}]


OTHER = ("struct<error:string,measurements:array<struct<value:double,unit:string,name:string>>,"
         "low:bigint,uptime_ms:bigint,boot:bigint,sequence:bigint,epoch:string,device:string>")
GIVEN = {"boot": 3, "sequence": 7, "device": "dev1", "epoch": EPOCH.hex(), "uptime_ms": 12500,
         "measurements": [{"unit": "Cel", "value": 1.5, "name": "t"}]}  # fmt: skip


def test_fields_of_udfs_in_any_order(decoded):
    """Of one by row, and of one over Arrow that declares one order and gives another."""

    def by_row(topic, payload):
        return F.udf(lambda _: GIVEN, OTHER)(payload)

    def by_column(topic, payload):
        item = pa.struct([("unit", pa.string()), ("value", pa.float64()), ("name", pa.string())])
        kinds = {"measurements": pa.list_(item), "device": pa.string(), "epoch": pa.string(),
                 "error": pa.string()}  # fmt: skip
        kind = pa.struct([(name, kinds.get(name, pa.int64())) for name in sorted(WHOLE)])

        @F.arrow_udf(OTHER)
        def one(payloads: pa.Array) -> pa.Array:
            return pa.array([GIVEN] * len(payloads), kind)

        return one(payload)

    for decode in (by_row, by_column):
        row = decoded(of(decode))
        assert same(row) and row.measurements[0].name == "t", row
        assert (row.measurements[0].unit, row.measurements[0].value) == ("Cel", 1.5)


@pytest.mark.parametrize("field,value,said", [
    ("measurements", VALUE.format("2"), None), ("measurements", VALUE.format("2.5"), None),
    ("sequence", "7S", None), ("uptime_ms", "12500", None), ("boot", "3L", None),
    ("boot", f"{5 << 32}L", "boot is not in 0.."), ("boot", "-1L", "boot is not in 0.."),
    ("boot", "bigint(null)", "not all of device"), ("device", "null", "not all of device"),
    ("measurements", "array()", "no measurement"),
    ("measurements", f"array_append({VALUE.format('2')}, null)", "has no name"),
    ("error", "'out of order'", "out of order"),
])  # fmt: skip
def test_a_narrower_or_wider_number_and_null(decoded, field, value, said):
    row = decoded(of(lambda topic, payload: struct({**WHOLE, field: value})))
    assert said in row.reason if said else same(row), row


def test_a_struct_that_is_null(decoded):
    for decode in (lambda topic, payload: F.lit(None),
                   lambda topic, payload: F.when(F.length(payload) > 1, struct(WHOLE))):
        assert decoded(of(decode)).reason.startswith("the decoder mine gave not all of device")


def without(*names):
    return {name: value for name, value in WHOLE.items() if name not in names}


def raises(topic, payload):
    raise RuntimeError("not today\nnor tomorrow")


@pytest.mark.parametrize("decode,said", [
    (lambda *_: struct(without("low")), "a struct that lacks low; needed are device, epoch, se"),
    (lambda *_: struct({**WHOLE, "Low": "1"}), "a struct that has Low; needed are device"),
    (lambda *_: struct({**without("boot"), "Boot": "3"}), "a struct that lacks boot and has Boot"),
    (lambda *_: F.struct(struct(WHOLE)["boot"].alias("boot"), *(
        struct(WHOLE)[name].alias(name) for name in WHOLE)), "a struct that has boot more than"),
    (lambda *_: struct({**WHOLE, "sequence": "'7'"}), "sequence as string, not bigint"),
    (lambda *_: struct({**WHOLE, "sequence": "7D"}), "sequence as double, not bigint"),
    (lambda *_: struct({**WHOLE, "boot": "true"}), "boot as boolean, not int"),
    (lambda *_: struct({**WHOLE, "epoch": "X'00'"}), "epoch as binary, not string"),
    (lambda *_: struct({**WHOLE, "measurements": "'t'"}), "measurements as string, not array<"),
    (lambda *_: struct({**WHOLE, "measurements": "map('t', 1D)"}), "measurements as map<string,"),
    (lambda *_: struct({**WHOLE, "measurements": "array(1D)"}), "measurements[] as double, not "),
    (lambda *_: struct({**WHOLE, "measurements": VALUE.format("'1'")}),
     "measurements[].value as string, not double"),
    (lambda *_: struct({**WHOLE, "measurements": "array(named_struct('name', 't', 'value', 1D))"}),
     "a struct in measurements[] that lacks unit; needed are name, unit, value"),
    (lambda topic, payload: payload, "binary, not struct<device:string,"),
    (lambda *_: 5, "5, which is no Column of Spark"),
    (lambda *_: F.col("nonsense"), "`nonsense`"),
    (lambda *_: F.explode(F.array(struct(WHOLE))), "generator"),
    (raises, "decode() raises RuntimeError: not today (" + __file__ + ", line"),
])  # fmt: skip
def test_what_is_refused_before_there_is_a_packet(spark, decode, said):
    mine = of(decode)
    silver.register(mine)
    try:
        with pytest.raises(silver.Unfit) as refused:
            silver.check(spark)
    finally:
        silver.forget(mine)
    text = str(refused.value)
    assert text.startswith("the decoder mine: decode()") and said in text and "\n" not in text


def test_which_packets_are_its_is_a_bool(spark):
    for applies, said in ((lambda topic, payload: topic, "gives string, not boolean"),
                          (lambda topic, payload: None, "None, which is no Column of Spark")):
        mine = of(lambda *_: struct(WHOLE), applies)
        silver.register(mine)
        with pytest.raises(silver.Unfit, match=rf"decoder mine: applies\(\) .*{said}"):
            silver.check(spark)
        silver.forget(mine)


MODULE = """
from pyspark.sql import functions as F
from umqtt_pipeline import silver

MINE = silver.Decoder("mine", lambda topic, payload: F.lit(True), lambda topic, payload: 5)
"""


def test_the_command_ends_with_a_sentence_and_has_made_no_batch(tmp_path):
    (tmp_path / "unfit.py").write_text(MODULE)
    fill(tmp_path / "spool", [publish(senml(1))])
    done = run("ingest", "--spool", tmp_path / "spool", "--tables", tmp_path / "tables", "--once",
               "--decoder", "unfit:MINE", *QUICK, PYTHONPATH=str(tmp_path))  # fmt: skip
    assert done.returncode == 2, done.stderr
    said = "the decoder mine: decode() gives 5, which is no Column of Spark"
    told = [line for line in done.stderr.splitlines() if "umqtt.progress:" not in line]
    assert told == [f"Error: {said}"]  # Spark's start may have taken long enough to be told of
    assert not (tmp_path / "tables" / "_checkpoint").exists()


@pytest.mark.parametrize("code,said,hint", [
    ("import pyspark.sql.functions as F\n\nHERE = F.col('topic')", "AssertionError", True),
    ("import pyspark.sql.functions as F\n\n@F.udf('string')\ndef f(x): ...", "RuntimeErr", True),
    ("import json\n\njson.loads('{')", "JSONDecodeError: Expecting", False),
    ("import sys\n\nsys.exit(0)", "SystemExit: 0", False),
])  # fmt: skip
def test_a_module_that_fails_when_it_is_imported(tmp_path, code, said, hint):
    (tmp_path / "early.py").write_text(code)
    done = run("replay", "--tables", tmp_path, "--decoder", "early:HERE", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    last = " ".join(done.stderr.splitlines()[2:])
    assert said in last
    assert ("must not need a Spark session when it is imported" in last) == hint
    if "json" not in code:
        assert f"({tmp_path}/early.py, line 3)" in last
