"""MicroPython's `micropython` module for CPython.

Knows: which of its functions mean something here and which only count (the heap).
Must not know: anything else.
"""

_locked = 0


def const(value):
    """The value."""
    return value


def schedule(function, arg):
    """Run function(arg); here at once, on the chips at the next branch or wait."""
    function(arg)


def native(function):
    """Compiler directive: nothing to do here."""
    return function


viper = native


def heap_lock():
    """Counts only: CPython's heap cannot be locked."""
    global _locked
    _locked += 1
    return _locked


def heap_unlock():
    """Counts only; returns the depth left."""
    global _locked
    _locked -= 1
    return _locked


def heap_locked():
    """Depth of heap_lock()."""
    return _locked


def alloc_emergency_exception_buf(size):
    """Nothing to do here."""


def opt_level(level=None):
    """0: asserts run."""
    return 0


def mem_info(verbose=False):
    """Nothing to print here."""


def kbd_intr(char):
    """Nothing to do here."""
