"""The unix port's `select` with a poll that lets timers run.

Knows: softtimer.  Must not know: anything else.
"""

import time  # noqa: F401  (its import sets softtimer up)

from softtimer import Poll as poll  # noqa: F401
from uselect import POLLERR, POLLHUP, POLLIN, POLLOUT  # noqa: F401
