"""Shape: whether what came over the network is what it should be, before anything uses it.

Knows JSON and whole numbers. Must not know topics nor meanings.
"""

import json


def parse(text):
    """Return what JSON text stands for. Raises ValueError, whatever is wrong with it.

    text  bytes or str, of any content
    """
    try:
        return json.loads(text)
    except Exception:
        # Not ValueError alone: text that is nested deeply takes the stack or the heap.
        raise ValueError("not JSON that this board can read")


def whole(value, low, high):
    """Tell whether a value of parse() is a whole number from `low` to `high`.

    JSON's true is 1 in Python, and 1e999 is infinite: neither is one.
    """
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
