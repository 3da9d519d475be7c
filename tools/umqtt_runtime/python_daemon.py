"""The process from which Spark forks its Python workers: pyspark's own, but for one signal.

Knows pyspark's daemon. Must not know sessions or what workers do. Java and the daemon do not heed
SIGINT, which goes to whole process groups and services, and is for the command alone: it ends the
batch that runs. pyspark has each worker answer it with KeyboardInterrupt and a traceback.
"""

import signal


def main():
    """Run the daemon; Spark starts it (`spark.python.daemon.module`)."""
    from pyspark import daemon

    signal.default_int_handler = signal.SIG_IGN  # what pyspark.daemon.worker sets in each
    daemon.manager()


if __name__ == "__main__":
    main()
