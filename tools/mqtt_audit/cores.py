"""Where the tasks of an audit run: one after another in this process, or in Spark's workers.

Knows: Spark's context, progress. Must not know: what a task does.
"""

import logging
import threading
from contextlib import nullcontext

from . import worker

log = logging.getLogger("umqtt.audit")


class Here:
    """All tasks in this process: nothing has to be started."""

    cores = 1

    def tasks(self, n, task):
        """The results of task(0..n-1)."""
        return [task(k) for k in range(n)]

    def progress(self, _what, _total):
        """Nothing is said: it takes seconds."""
        return nullcontext()


class Spark:
    """Tasks in the workers of a session of Spark."""

    def __init__(self, session):
        self._context = session.sparkContext
        self.cores = self._context.defaultParallelism

    def tasks(self, n, task):
        """The results of task(0..n-1), run as n tasks of Spark."""

        def run(k):
            found = task(k)
            worker.settle()
            return found

        return self._context.parallelize(range(n), n).map(run).collect() if n else []

    def progress(self, what, total):
        """A context in which it is said now and then how many of a step's tasks are done."""
        return _Progress(self._context.statusTracker(), what, total)


class _Progress:
    EVERY = 10.0

    def __init__(self, tracker, what, total):
        self.tracker, self.what, self.total = tracker, what, total
        self._over = threading.Event()

    def _say(self):
        from py4j.protocol import Py4JError

        while not self._over.wait(self.EVERY):
            try:
                log.info("%s: %d of %d parts", self.what, self._done(), self.total)
            except (Py4JError, OSError) as error:  # the step itself fails, too, and says so
                log.debug("Spark does not say how far it is: %s", error)
                return

    def _done(self):
        stages = map(self.tracker.getStageInfo, self.tracker.getActiveStageIds())
        return max((stage.numCompletedTasks for stage in stages if stage), default=0)

    def __enter__(self):
        threading.Thread(target=self._say, daemon=True).start()

    def __exit__(self, *_):
        self._over.set()
