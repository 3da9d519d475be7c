"""Quantiles of latencies: one definition for the summaries, the report and the findings.

Knows: the columns of the table `latencies`. Must not know: files, what quantiles are used for.

A quantile of 99 % is the smallest value that at least 99 % of the values do not exceed. It is one
of the values, never a mean of two: a few slow messages among fast ones are not made faster.
"""

import numpy as np
import pyarrow.compute as pc

SHOWN = {"p50": 50, "p90": 90, "p99": 99}  #: column of by_group(): per cent


def quantiles(group, value, weight, longest, n, percents):
    """The quantiles of each of n groups: an array with a row for each of `percents` (whole
    numbers), a column for each group; NaN if the group has no values.

    group    number of the group of each value
    value    the values, which may be rounded to a step
    weight   how many times each value is there
    longest  a value that is not rounded, which no quantile of the group exceeds; or NaN
    """
    order = np.lexsort((value, group))
    up_to = np.concatenate([[0], np.cumsum(weight[order])])
    total = up_to[np.searchsorted(group[order], np.arange(n), side="right")]
    before = np.concatenate([[0], total[:-1]])
    most = np.full(n, np.nan)
    np.fmax.at(most, group, longest)
    found, some = np.full((len(percents), n), np.nan), total > before
    for k, percent in enumerate(percents):
        rank = before + -(-percent * (total - before) // 100)  # whole numbers: rounded up
        at = np.searchsorted(up_to[1:], rank[some], side="left")
        found[k, some] = np.fmin(value[order][at], most[some])
    return found


def by_group(latencies, *by):
    """Rows {*by, sender, qos, messages, p50, p90, p99, longest_ms} of acknowledged messages."""
    done = latencies.filter(pc.and_(pc.is_valid(latencies["latency_ms"]),
                                    pc.is_valid(latencies["qos"])))  # fmt: skip
    names, number = (*by, "sender", "qos"), {}
    done = done.sort_by([(name, "ascending") for name in names])
    group = np.array([number.setdefault(tuple(row.values()), len(number))
                      for row in done.select(names).to_pylist()], np.int64)  # fmt: skip
    value, weight, longest = (done[n].to_numpy()
                              for n in ("latency_ms", "messages", "longest_ms"))  # fmt: skip
    found = quantiles(group, value, weight, longest, len(number), SHOWN.values())
    most = np.zeros(len(number))
    np.fmax.at(most, group, longest)
    messages = np.bincount(group, weight, len(number)).astype(np.int64)
    for k, key in enumerate(number):
        yield {**dict(zip(names, key)), "messages": int(messages[k]),
               **dict(zip(SHOWN, found[:, k].tolist())), "longest_ms": float(most[k])}  # fmt: skip
