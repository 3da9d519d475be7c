"""SenML CBOR payloads to readings by an Arrow UDF, one by one.

What the firmware packs does not come here (decode/firmware_packs.py): this is for all other CBOR.
Knows Arrow and decode/payloads.py. Must not know topics or files.
"""

import pyarrow as pa
from pyspark.sql import functions as F

from ..decode import payloads as decoders
from ..tables.schema import MEASUREMENTS

LABELS = ["device", "epoch", "sequence", "boot", "uptime_ms", "low", "measurements", "error"]
DECODED = (
    "struct<device:string,epoch:string,sequence:bigint,boot:int,uptime_ms:bigint,low:bigint,"
    f"measurements:{MEASUREMENTS},error:string>"
)


def decode(payloads):
    """pyarrow binary array of any CBOR -> struct array DECODED; null for null."""
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
    return pa.StructArray.from_arrays(arrays, LABELS, mask=pa.array(nulls, pa.bool_()))


def cbor(payload):
    """Column of SenML CBOR payloads -> column DECODED."""

    @F.arrow_udf(DECODED)
    def decode_cbor(payloads: pa.Array) -> pa.Array:
        return decode(payloads)

    return decode_cbor(payload)
