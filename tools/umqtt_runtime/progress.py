"""How far long work is, on the log.

Knows how Spark counts tasks. Must not know what they do, rows or files.
"""

import logging
import threading
import time

log = logging.getLogger("umqtt.progress")

FIRST_S = 1.0  #: a step that lasts so long is told of
EVERY_S = 10
LOOK_S = 0.25


class Watch:
    """While it is entered, a line for each step that takes longer than a moment, and then every
    `every` seconds: what is done, and how much of it is.

    spark  None while there is none: then no tasks are counted
    name   of the work, begins each line
    every  seconds
    doing  the first step
    """

    def __init__(self, spark, name, every=EVERY_S, doing="planning"):
        self._tracker = spark and spark.sparkContext.statusTracker()
        self.name, self.every = name, every
        self._doing, self._far, self._over = doing, "", threading.Event()
        self._next = time.monotonic() + min(FIRST_S, every)
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
        self._doing, self._far = what, ""
        self._next = time.monotonic() + min(FIRST_S, self.every)

    def at(self, far):
        """Have the next line say how far that is, such as "2 of 3 files"."""
        self._far = f", {far}"

    def _run(self):
        from py4j.protocol import Py4JError

        while not self._over.wait(min(LOOK_S, self.every)):
            if time.monotonic() < self._next:
                continue
            self._next = time.monotonic() + self.every
            try:
                done, tasks = self._tasks()
            except (Py4JError, OSError) as error:  # what runs in Spark fails, too, and says so
                log.debug("Spark does not say how far it is: %s", error)
                return
            counts = f", {done} of {tasks} tasks done" if tasks else ""
            log.info("%s: %s%s%s, %d s", self.name, self._doing, self._far, counts,
                     time.monotonic() - self._begun)  # fmt: skip

    def _tasks(self):
        """(tasks done, all tasks) of the stages that run."""
        if self._tracker is None:
            return 0, 0
        found = map(self._tracker.getStageInfo, self._tracker.getActiveStageIds())
        counts = [(stage.numCompletedTasks, stage.numTasks) for stage in found if stage]
        return tuple(map(sum, zip(*counts))) if counts else (0, 0)
