"""Runs before main.py, and alone when a host tool takes the board over with a soft reset.

A hardware watchdog that an earlier start has set going cannot be stopped and goes on counting
through a soft reset; here it gets time enough for whatever is done at the console. Then the set of
files that is in force comes first on the search path.
"""

import gc

# Collect often: else what stays of each import lies between what has gone of it, all over the
# heap, and no room is left in one piece. More seldom where the heap is large, for it takes longer.
gc.threshold(max(4096, gc.mem_free() // 32))

import loader  # noqa: E402
import watchdog  # noqa: E402

watchdog.hold()
loader.late("trial", "choose")
