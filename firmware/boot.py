"""Runs before main.py, and alone when a host tool takes the board over with a soft reset.

A hardware watchdog that an earlier start has set going cannot be stopped and goes on counting
through a soft reset; here it gets time enough for whatever is done at the console. Then the set of
files that is in force comes first on the search path.
"""

import loader
import watchdog

watchdog.hold()
loader.choose()
