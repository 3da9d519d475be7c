"""Modules of MicroPython's own that a file or folder in the root of a board would hide.

Pure. Knows: where MicroPython looks for a module. Must not know: what is asked of a board.
"""

#: Those that the firmware, the library or our questions import. MicroPython takes these from a
#: file where there is one; it never does so with sys, gc and others that are left out here.
EXTENSIBLE = ("array", "binascii", "errno", "hashlib", "io", "json", "machine", "os", "select",
              "socket", "struct", "time")  # fmt: skip
#: ... that are frozen into it, as Python: the root comes first on the search path.
FROZEN = ("asyncio", "ssl")

#: Programs that follow find the modules of MicroPython's own, whatever lies in the filesystem: a
#: name with "u" before it is never taken from there. What a board has put in the place of one on
#: purpose, as the virtual board does, has a full path and stays.
OWN = f"""
def _own_modules():
    import sys
    for name in {EXTENSIBLE!r}:
        path = getattr(sys.modules.get(name), "__file__", "")
        if path[:1] != "/" or path[:5] == "/lib/":
            try:
                sys.modules[name] = __import__("u" + name)
            except ImportError:
                pass
_own_modules()
"""
