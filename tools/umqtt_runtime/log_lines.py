"""The log of a process on standard error. Knows logging. Must not know click, which the workers of
a cluster need not have, nor commands.
"""

import logging

from . import failures


def log_to_stderr():
    """Have the log on standard error, a line each with the time. Nothing changes where somebody
    else has set up the log."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(failures.no_traceback_of_py4j)
