"""The unix port's `machine`, completed with what esp32 and rp2 have and it lacks (softmachine.py).

Knows: the built-in module under the name `umachine`.  Must not know: anything else.
"""

import time  # noqa: F401  (its import sets softtimer up)

from softmachine import *  # noqa: F403
from umachine import *  # noqa: F403
