"""The process from which Spark forks its Python workers: pyspark's own, but for a signal and a
traceback.

Knows pyspark's daemon. Must not know sessions or what workers do. Java and the daemon do not heed
SIGINT, which goes to whole process groups and services, and is for the command alone: it ends the
batch that runs. pyspark has each worker answer it with KeyboardInterrupt and a traceback.

When a task has failed Java tells why, and closes the connection to its worker. pyspark prints a
traceback of that, too.
"""

import signal


def main():
    """Run the daemon; Spark starts it (`spark.python.daemon.module`)."""
    from pyspark import daemon

    signal.default_int_handler = signal.SIG_IGN  # what pyspark.daemon.worker sets in each
    daemon.worker = _without_a_word(daemon.worker)
    daemon.manager()


def _without_a_word(worker):
    """pyspark's function of a worker; it returns 1 if Java has closed the connection."""
    def quiet(*arguments):
        try:
            return worker(*arguments)
        except ConnectionError:
            return 1

    return quiet


if __name__ == "__main__":
    main()
