"""What becomes of decoded readings: new or duplicate, the numbers seen, clocks and times.

Pure functions from Arrow tables to Arrow tables, by column: nothing here reads or writes a file.
The columns are those of tables/schema.py. A reading is known by (group, device, epoch, sequence);
the numbers seen of an epoch are kept as ranges, for ever: it is a duplicate however late it comes,
and a reading however late.

What was seen is told as what a batch adds to it. The additions of several batches, one behind the
other, mean the same as their `joined_...`, in whatever order.

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


def told_apart(readings, seen, whole=False):
    """Readings -> (the new ones, the duplicates, the ranges that the new ones add to `seen`).

    seen: disjoint ranges of the sequence numbers that came before. Among copies the one received
    first is new. The new ones come sorted by epoch and sequence. whole: the ranges are all of
    `seen`, with the new ones taken in.
    """
    readings = by_receipt(readings)
    keys, codes, seen_codes = coded(KEY, readings, seen)
    sequence = numbers(readings["sequence"])
    order = np.lexsort((sequence, codes))  # stable: copies stay in the order of receipt
    code, number = codes[order], sequence[order]
    held = _joined(seen_codes, numbers(seen["first"]), numbers(seen["last"]))
    new = _differs(code, number) & ~_within(code, number, *held)
    ranges = (code[new], number[new], number[new])
    if whole:
        ranges = tuple(np.concatenate(both) for both in zip(held, ranges))
    found, first, last = _joined(*ranges)
    after = _table(SEEN, keys.take(found), first=first, last=last)
    return readings.take(order[new]), readings.take(np.sort(order[~new])), after


def joined_seen(ranges):
    """Disjoint ranges of the numbers seen, with those that touch made one."""
    keys, codes = coded(KEY, ranges)
    found, first, last = _joined(codes, numbers(ranges["first"]), numbers(ranges["last"]))
    return _table(SEEN, keys.take(found), first=first, last=last)


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


def clocks_added(clocks, new_clock_rows):
    """What new clock records add to the clocks known: that of each boot that has none, the first
    that came (later ones do not change times that were told)."""
    came = by_receipt(new_clock_rows)
    _, codes, known = coded(BOOT, came, clocks)
    boots, first = np.unique(codes, return_index=True)
    added = came.take(first[~np.isin(boots, known)])
    return _table(CLOCKS, added, clock_time=numbers(added["time"]),
                  clock_uptime_ms=numbers(added["uptime_ms"]))  # fmt: skip


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


def unclocked_added(silver_rows, number):
    """The boots that wait for a clock since batch `number`, which brought `silver_rows`."""
    late = silver_rows.filter(pc.equal(silver_rows["time_quality"], "received"))
    boots, codes = coded(BOOT, late)
    batch = np.full(len(boots), number, np.int64)
    found = np.unique(codes)
    return _table(UNCLOCKED, boots.take(found), first_batch=batch[found], last_batch=batch[found])


def joined_unclocked(unclocked, clocks):
    """One row for each boot that waits, without those whose clock has come: in `clocks`."""
    boots, codes, known = coded(BOOT, unclocked, clocks)
    first, last = _span(unclocked, codes, len(boots))
    waits = np.setdiff1d(codes, known)
    return _table(UNCLOCKED, boots.take(waits), first_batch=first[waits], last_batch=last[waits])


def due(unclocked, clocks):
    """Rows of `clocks`, which have just come, of boots that waited: with the first and the last
    batch that has readings of them."""
    boots, codes, known = coded(BOOT, unclocked, clocks)
    first, last = _span(unclocked, codes, len(boots))
    chosen = np.flatnonzero(np.isin(known, codes))
    found = clocks.take(chosen)
    for name, values in (("first_batch", first), ("last_batch", last)):
        found = found.append_column(name, pa.array(values[known[chosen]]))
    return found


def _span(unclocked, codes, count):
    """(first, last batch) of each code, as arrays."""
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, -1)
    np.minimum.at(first, codes, numbers(unclocked["first_batch"]))
    np.maximum.at(last, codes, numbers(unclocked["last_batch"]))
    return first, last
