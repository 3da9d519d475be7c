"""The inner loops as Python runs them, for what is so little that compiling would take longer.

Knows: arrays, how a loop reads and writes them. Must not know: what a loop does.

A compiled loop has numbers of 64 bits whatever the width of a field, and cuts off what a field
does not hold. So does this: numbers are Python's, and what is too large for its field is cut.
"""

from functools import wraps

import numpy as np


class _Fields(dict):
    """The fields of an array of rows as memoryviews, by name, each made when it is asked for."""

    def __init__(self, array):
        super().__init__()
        self.array = array

    def __missing__(self, name):
        self[name] = view = memoryview(self.array[name])
        return view


class _Row:
    """One row."""

    __slots__ = ("at", "fields")

    def __init__(self, fields, at):
        self.fields, self.at = fields, at

    def __getitem__(self, name):
        return self.fields[name][self.at]

    def __setitem__(self, name, value):
        view = self.fields[name]
        try:
            view[self.at] = value
        except ValueError:
            bits = 8 * view.itemsize
            value &= (1 << bits) - 1
            signed = view.format.islower()
            view[self.at] = value - (1 << bits) if signed and value >> bits - 1 else value


class _Rows:
    """An array of rows, of one or more dimensions."""

    def __init__(self, array):
        self.fields, self.shape = _Fields(array), array.shape

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, at):
        return _Row(self.fields, at)

    def __setitem__(self, at, row):
        self.fields.array[at] = row.fields.array[row.at]


class _Table:
    """An array of numbers with two dimensions."""

    def __init__(self, array):
        self.array, self.view = array, memoryview(array)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, at):
        return self.view[at] if isinstance(at, tuple) else memoryview(self.array[at])

    def __setitem__(self, at, value):
        self.view[at] = value


def _seen(value):
    """An argument as a loop has it."""
    if isinstance(value, np.ndarray):
        if value.dtype.names:
            return _Rows(value)
        return _Table(value) if value.ndim > 1 else memoryview(value)
    if hasattr(value, "_fields"):
        return type(value)(*map(_seen, value))
    return int(value)


def entry(function):
    """A loop that other modules call with arrays."""

    @wraps(function)
    def run(*arguments):
        return function(*map(_seen, arguments))

    return run


def kernel(function):
    """One that only loops call."""
    return function


inlined = kernel

wide = int
