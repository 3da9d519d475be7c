"""MicroPython's `machine` module for CPython.

Knows: mpshim, and softmachine.py of the virtual board.  Must not know: anything else.
"""

from mpshim import softmachine

for _name in dir(softmachine):
    if not _name.startswith("_"):
        globals()[_name] = getattr(softmachine, _name)


def idle():
    """Nothing to do here."""


soft_reset = softmachine.reset
