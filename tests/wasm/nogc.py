"""`gc` for the WebAssembly build: its collector does not see pointers in WebAssembly's locals and
would free what is in use; so nothing is collected there.

Knows: the built-in module.  Must not know: who uses it.
"""

import gc as _gc
import sys

mem_alloc = _gc.mem_alloc
mem_free = _gc.mem_free


def collect():
    """Nothing: the heap has 1 MiB, and each test file its own process."""


def enable():
    """It stays switched off."""


disable = enable
_gc.disable()
sys.modules["gc"] = sys.modules[__name__]
