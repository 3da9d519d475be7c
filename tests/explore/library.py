"""Which copy of the library is explored.

Knows: DEVICE_LIB. Must not know: what is in a library.
"""

import os
from pathlib import Path

OWN = Path(__file__).resolve().parent.parent.parent / "lib"


def library():
    """The folder. Raises ValueError for one without the library: then the installed one would be
    explored, and each fault of yours pass for one that nobody finds."""
    lib = os.environ.get("DEVICE_LIB") or str(OWN)
    if not (Path(lib) / "umqtt_min" / "__init__.py").is_file():
        raise ValueError("DEVICE_LIB=%s: there is no umqtt_min in that folder" % lib)
    return lib
