"""How far a long batch is, on the log.

Knows how Spark counts tasks. Must not know what they do, rows or files.
"""

import logging
import threading
import time

log = logging.getLogger("umqtt.progress")

EVERY_S = 10


class Watch:
    """While it is entered, a line every `every` seconds: what is done, and how much of it is.

    name   of the work, begins each line
    every  seconds
    """

    def __init__(self, spark, name, every=EVERY_S):
        self._tracker, self.name, self.every = spark.sparkContext.statusTracker(), name, every
        self._doing, self._over = "planning", threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self):
        self._begun = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def doing(self, what):
        """Say from now on that this is done."""
        self._doing = what

    def _run(self):
        from py4j.protocol import Py4JError

        while not self._over.wait(self.every):
            try:
                done, tasks = self._tasks()
            except (Py4JError, OSError) as error:  # what runs in Spark fails, too, and says so
                log.debug("Spark does not say how far it is: %s", error)
                return
            counts = f", {done} of {tasks} tasks done" if tasks else ""
            log.info("%s: %s%s, %d s", self.name, self._doing, counts,
                     time.monotonic() - self._begun)  # fmt: skip

    def _tasks(self):
        """(tasks done, all tasks) of the stages that run."""
        found = map(self._tracker.getStageInfo, self._tracker.getActiveStageIds())
        counts = [(stage.numCompletedTasks, stage.numTasks) for stage in found if stage]
        return tuple(map(sum, zip(*counts))) if counts else (0, 0)
