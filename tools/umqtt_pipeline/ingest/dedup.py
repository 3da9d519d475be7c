"""What becomes of decoded readings: new or duplicate, the numbers seen, clocks and times.

Pure functions from Arrow tables to Arrow tables, by column: nothing here reads or writes a file.
The columns are those of tables/schema.py. A reading is known by (group, device, epoch, sequence);
the numbers seen of an epoch are kept as ranges (`seen_after`), for ever: it is a duplicate however
late it comes, and a reading however late.

Knows identities, ranges, clocks. Must not know payloads, Spark or files.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..decode.reasons import CLOCK
from ..tables.schema import (
    BOOT,
    CLOCK_ROWS,
    CLOCKS,
    DUPLICATES,
    KEY,
    SEEN,
    SILVER,
    UNCLOCKED,
    arrow_schema,
)


def numbers(column):
    """An Arrow column of integers, times (us) or dates (days), without nulls, as numpy array."""
    kind = {pa.date32(): pa.int32()}.get(column.type, pa.int64())
    return column.cast(kind).to_numpy().astype(np.int64, copy=False)


def coded(names, *tables):
    """Number the different values of some columns over several tables.

    Returns a table of the different values, and for each of `tables` an array with the row in it
    that each of its own rows is.
    """
    stacked = pa.concat_tables([table.select(names) for table in tables]).combine_chunks()
    # No level of a topic holds a slash, so no two keys look alike.
    text = pc.binary_join_element_wise(*(c.cast(pa.string()) for c in stacked.columns), "/")
    codes = text.combine_chunks().dictionary_encode()
    indices = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    place = np.empty(len(codes.dictionary), np.int64)
    place[indices[::-1]] = np.arange(len(indices))[::-1]
    edges = np.cumsum([0, *(len(table) for table in tables)])
    return stacked.take(place), *(indices[a:b] for a, b in zip(edges, edges[1:]))


def _differs(*columns):
    """For sorted columns: where a row is not the same as the one before."""
    found = np.ones(len(columns[0]), bool)
    found[1:] = np.logical_or.reduce([c[1:] != c[:-1] for c in columns])
    return found


def _within(codes, values, range_codes, first, last):
    """Which of `values` (each of a code) lie in a range of the same code; ranges are disjoint."""
    ranges = len(first)
    code, value = np.concatenate((range_codes, codes)), np.concatenate((first, values))
    order = np.lexsort((np.arange(len(code)) >= ranges, value, code))
    before = np.maximum.accumulate(np.where(order < ranges, np.arange(len(order)), -1))
    nearest = np.where(before >= 0, order[before], -1)  # the range that begins last before it
    inside = np.zeros(len(code), bool)
    if ranges:
        same = (nearest >= 0) & (range_codes[nearest] == code[order])
        inside[order] = same & (value[order] <= last[nearest])
    return inside[ranges:]


def told_apart(readings, seen):
    """Readings -> (the new ones, the duplicates, the ranges of `seen` with the new taken in).

    seen: disjoint ranges of the sequence numbers that came before. Among copies the one received
    first is new. The new ones come sorted by epoch and sequence.
    """
    readings = by_receipt(readings)
    keys, codes, seen_codes = coded(KEY, readings, seen)
    sequence = numbers(readings["sequence"])
    order = np.lexsort((sequence, codes))  # stable: copies stay in the order of receipt
    code, number = codes[order], sequence[order]
    first, last = numbers(seen["first"]), numbers(seen["last"])
    new = _differs(code, number) & ~_within(code, number, seen_codes, first, last)
    ranges = _joined(
        np.concatenate((seen_codes, code[new])), np.concatenate((first, number[new])),
        np.concatenate((last, number[new])),
    )  # fmt: skip
    after = _table(SEEN, keys.take(ranges[0]), first=ranges[1], last=ranges[2])
    return readings.take(order[new]), readings.take(np.sort(order[~new])), after


def _joined(codes, first, last):
    """Disjoint ranges of several codes with those that touch made one: (codes, first, last)."""
    order = np.lexsort((first, codes))
    codes, first, last = codes[order], first[order], last[order]
    begins = _differs(codes)
    begins[1:] |= first[1:] > last[:-1] + 1
    ends = np.append(begins[1:], True) if len(begins) else begins
    return codes[begins], first[begins], last[ends]


def by_receipt(rows):
    """Rows sorted by the time they came, and by their place."""
    rows = rows.combine_chunks()
    when, place = numbers(rows["received_at"]), numbers(rows["offset"])
    later = when[1:] - when[:-1]
    if ((later > 0) | (later == 0) & (place[1:] >= place[:-1])).all():
        return rows
    return rows.take(np.lexsort((place, when)))


def duplicates(copies):
    """Copies that were left out of silver."""
    return copies.select(list(DUPLICATES))


def _table(kinds, rows, **more):
    """A table with the columns `kinds`: those of `rows`, and more of them as arrays."""
    schema = arrow_schema(kinds)
    columns = [
        pa.array(more[f.name]).cast(f.type) if f.name in more else rows[f.name] for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _items(rows):
    """The measurements of all rows one behind the other: (list array, items, row of each)."""
    lists = rows["measurements"].combine_chunks()
    return lists, lists.flatten(), pc.list_parent_indices(lists).to_numpy()


def _is_clock(items):
    return pc.fill_null(pc.equal(items.field("name"), CLOCK), False)


def clock_rows(new):
    """Clock records among new readings: at uptime_ms of that boot it was `time`."""
    _, items, parents = _items(new)
    at = np.flatnonzero(_is_clock(items).to_numpy(zero_copy_only=False))
    rows, first = np.unique(parents[at], return_index=True)
    seconds = items.field("value").take(pa.array(at[first])).to_numpy(zero_copy_only=False)
    told = np.floor(seconds * 1000 + 0.5).astype(np.int64) * 1000
    return _table(CLOCK_ROWS, new.take(rows), time=told)


def clocks_after(clocks, new_clock_rows):
    """One clock per boot: the one known, else the first that came (later ones do not change
    times that were told)."""
    came = by_receipt(new_clock_rows)
    _, codes, known = coded(BOOT, came, clocks)
    boots, first = np.unique(codes, return_index=True)
    added = came.take(first[~np.isin(boots, known)])
    more = _table(CLOCKS, added, clock_time=numbers(added["time"]),
                  clock_uptime_ms=numbers(added["uptime_ms"]))  # fmt: skip
    return pa.concat_tables([clocks, more])


def readings(new):
    """New rows that carry more than a clock, without the clock."""
    lists, items, _ = _items(new)
    kept = pc.invert(_is_clock(items))
    if pc.all(kept, min_count=0).as_py():
        return new
    mask = kept.to_numpy(zero_copy_only=False)
    sizes = pc.list_value_length(lists).to_numpy()
    edges = np.concatenate(([0], np.cumsum(mask)))[np.concatenate(([0], np.cumsum(sizes)))]
    left = pa.ListArray.from_arrays(pa.array(edges, pa.int32()), items.filter(kept))
    at = new.schema.get_field_index("measurements")
    rows = new.set_column(at, new.schema.field(at), left.cast(lists.type))
    return rows.filter(pa.array(np.diff(edges) > 0))


def times(rows, clocks):
    """(time in us, whether it is a clock's) of each row, from the clock of its boot.

    A clock's: clock time plus the difference of uptimes. If no clock of that boot came, time is
    the time of receipt, which the reading cannot be younger than.
    """
    _, codes, known = coded(BOOT, rows, clocks)
    place = np.full(len(codes) + len(known), -1)
    place[known] = np.arange(len(known))
    at = place[codes]
    found, received = at >= 0, numbers(rows["received_at"])
    if not found.any():
        return received, found
    at = np.maximum(at, 0)
    shift = numbers(rows["uptime_ms"]) - numbers(clocks["clock_uptime_ms"])[at]
    exact = numbers(clocks["clock_time"])[at] + shift * 1000
    return np.where(found, exact, received), found


def _quality(clocked):
    return pc.if_else(pa.array(clocked), "clock", "received")


def silver(new, clocks, number):
    """Silver rows of new readings: with their time, and the number of the batch they came in."""
    rows = readings(new)
    when, clocked = times(rows, clocks)
    batch = np.full(len(rows), number, np.int64)
    return _table(SILVER, rows, time=when, time_quality=_quality(clocked), batch=batch)


def corrected(rows, clocks):
    """Silver rows with the times made anew of those whose boot is in `clocks`; None if there is
    none of them. Columns that it does not know stay."""
    when, clocked = times(rows, clocks)
    if not clocked.any():
        return None
    when = np.where(clocked, when, numbers(rows["time"]))
    at = [rows.schema.get_field_index(name) for name in ("time", "time_quality")]
    told = pa.array(when).cast(rows.schema.field(at[0]).type)
    quality = pc.if_else(pa.array(clocked), "clock", rows["time_quality"])
    return rows.set_column(at[0], rows.schema.field(at[0]), told).set_column(
        at[1], rows.schema.field(at[1]), quality)  # fmt: skip


def unclocked_after(unclocked, silver_rows, clocks, number):
    """(boots that still wait for a clock, boots that waited and have one now).

    unclocked: the boots that waited before batch `number`, which brought `silver_rows`; clocks: as
    after it. The second table has the clock, too.
    """
    late = silver_rows.filter(pc.equal(silver_rows["time_quality"], "received"))
    boots, before, here, clocked = coded(BOOT, unclocked, late, clocks)
    first = np.full(len(boots), number)
    last = np.full(len(boots), -1)
    first[before], last[before] = numbers(unclocked["first_batch"]), numbers(
        unclocked["last_batch"])  # fmt: skip
    last[here] = number
    has_clock = np.zeros(len(boots), bool)
    has_clock[clocked] = True
    waits = np.flatnonzero((last >= 0) & ~has_clock)
    still = _table(UNCLOCKED, boots.take(waits), first_batch=first[waits], last_batch=last[waits])
    waited = np.zeros(len(boots), bool)
    waited[before] = True
    chosen = np.flatnonzero(waited[clocked])
    due = clocks.take(chosen)
    for name, values in (("first_batch", first), ("last_batch", last)):
        due = due.append_column(name, pa.array(values[clocked[chosen]]))
    return still, due
