"""What the log of a table says of the rows of a data file, so that readers can leave files out.

Knows: Arrow columns, the form that Delta Lake gives values in JSON. Must not know: files, tables.

Each column of plain values is told of, and how many nulls it has: where a column lacks its ends,
though others have them, deltalake's `to_pyarrow_dataset` (and so DuckDB) compares with null, finds
no row and leaves the file out.
"""

import datetime
import math
import sys
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

LONGEST = 200  #: letters of a text that are told of
_LAST = "\U0010ffff"  #: no letter stands behind it
_MS = 1000  #: us; Delta Lake tells of no shorter time


@dataclass(frozen=True)
class Statistics:
    """{column: its least value}, {column: its greatest}, {column: how many nulls}. The ends as
    JSON takes them; a column of nulls alone has none."""

    least: dict = field(default_factory=dict)
    greatest: dict = field(default_factory=dict)
    nulls: dict = field(default_factory=dict)

    @classmethod
    def of(cls, rows):
        """Those of an Arrow table, whose columns of bytes, lists and structs are left out."""
        made = cls()
        for at in rows.schema:
            if not _is_plain(at.type):
                continue
            held = rows[at.name]
            made.nulls[at.name] = held.null_count
            ends = pc.min_max(held).as_py()
            if ends["min"] is None or ends["min"] != ends["min"]:  # nulls alone, or NaN alone
                continue
            made.least[at.name], made.greatest[at.name] = ends_of(ends["min"], ends["max"])
        return made

    @classmethod
    def of_actions(cls, row):
        """Those of one row of what DeltaTable.get_add_actions(flatten=True) gives."""
        def named(prefix):
            return {name.removeprefix(prefix): value for name, value in row.items()
                    if name.startswith(prefix) and value is not None}  # fmt: skip

        least, greatest = named("min."), named("max.")
        ends = {name: ends_of(low, greatest[name]) for name, low in least.items()
                if name in greatest}  # fmt: skip
        return cls({name: low for name, (low, _) in ends.items()},
                   {name: high for name, (_, high) in ends.items()}, named("null_count."))

    @classmethod
    def of_log(cls, told):
        """Those of the `stats` of an action `add`, a dict."""
        return cls(*(told.get(name) or {} for name in ("minValues", "maxValues", "nullCount")))

    def in_log(self, rows):
        """The `stats` of an action `add` of a file with so many rows."""
        return {"numRecords": rows, "minValues": self.least, "maxValues": self.greatest,
                "nullCount": self.nulls}  # fmt: skip

    def kept(self):
        """The same as JSON takes it; Statistics(*kept()) is equal."""
        return [self.least, self.greatest, self.nulls]


def _is_plain(kind):
    return (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            or pa.types.is_string(kind) or pa.types.is_date(kind)
            or pa.types.is_timestamp(kind))  # fmt: skip


def ends_of(low, high):
    """The ends of a column as the log has them: no value lies outside of these. Texts are cut,
    times are of whole milliseconds."""
    if isinstance(low, datetime.datetime):
        return _time(low), _time(_later(high))
    if isinstance(low, datetime.date):
        return low.isoformat(), high.isoformat()
    if isinstance(low, str):
        cut = LONGEST
        while high[cut : cut + 1] == _LAST:  # the same letter would stand before it
            cut += 1
        return low[:LONGEST], high[:cut] + _LAST if len(high) > cut else high
    if isinstance(low, float):
        return _finite(low), _finite(high)
    return low, high


def _finite(value):
    """A float as JSON has it, which has no infinity: the largest one stands for it."""
    return math.copysign(sys.float_info.max, value) if math.isinf(value) else value


def _time(value):
    utc = value.astimezone(datetime.UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _later(value):
    """The same time, or the next whole millisecond behind it."""
    more = -value.microsecond % _MS
    try:
        return value + datetime.timedelta(microseconds=more)
    except OverflowError:  # within the last millisecond that there is
        return value
