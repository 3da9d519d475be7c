"""How the inner loops are compiled: by numba, once per machine, kept on disk; or not at all.

Knows: numba. Must not know: what is compiled, when it is worth it (kept.py).

entry marks a function that Python calls, kernel one that only compiled functions call, and inlined
a kernel whose code stands where it is called. wide makes a number of 64 bits of one that a field
or a byte holds.

A call hands over each array as seven numbers, those of a Talk as some ninety, and for each frame
and each packet there are many calls: inlined, the reading of packets takes a quarter of the time.
Not every kernel is, since what stands within a loop that has much in it takes minutes to compile.
"""

from . import kept

#: Every function that is compiled.
LOOPS = []


def compiled():
    """How many of LOOPS this process has compiled, or has begun to, as none were kept."""
    return sum(bool(loop.stats.cache_misses) for loop in LOOPS)


if kept.plain():
    from .plain import entry, inlined, kernel, wide
else:
    import numba

    _folder = kept.folder()
    if _folder is not None:
        numba.config.CACHE_DIR = str(_folder)

    def _listed(compile_):
        def mark(function):
            LOOPS.append(compile_(function))
            return LOOPS[-1]

        return mark

    # _nrt=False: references to arrays are not counted, which took most of the time of loops that
    # only read and write rows; so none of these may make an array.
    _settings = {"cache": _folder is not None, "error_model": "numpy", "_nrt": False}
    entry = _listed(numba.njit(**_settings))
    #: Without what Python needs it compiles faster.
    _bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **_settings}
    kernel = _listed(numba.njit(**_bare))
    inlined = _listed(numba.njit(forceinline=True, **_bare))
    wide = numba.int64

__all__ = ["LOOPS", "compiled", "entry", "inlined", "kernel", "wide"]
