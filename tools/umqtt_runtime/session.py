"""The SparkSession of a laptop: one JVM, few threads, quick to start, UTC. On a cluster
spark-submit brings its own settings and this builder only adds what it finds unset."""

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

from . import class_archive
from .java import for_spark, java_home
from .java_process import Java
from .worker_python import worker_python

# The first two save 60 % of the CPU of a short run. With the first the code cache is 48 MB by
# default, which is full after some dozen batches, and from then on nothing is compiled any more.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"

#: Classes of Java that pyspark asks for by name each time.
ASKED_FOR = (
    "org.apache.spark.api.python.PythonRDD", "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.api.python.SerDeUtil", "org.apache.spark.api.python.SimplePythonFunction",
    "org.apache.spark.sql.api.python.PythonSQLUtils", "org.apache.spark.sql.functions",
)  # fmt: skip


def settings(memory, cores, scratch, archive=""):
    """Spark configuration as a dict; memory such as '1g', cores >= 1, scratch a folder of this
    user's alone, archive: class_archive's options for Java."""
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} {archive}".strip(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(Path(scratch, "warehouse")),
        "spark.sql.session.timeZone": "UTC",
        # Plans are made anew for each small batch; replanning them while they run costs more than
        # it saves.
        "spark.sql.adaptive.enabled": "false",
        # HotSpot does not compile longer methods, so that a plan whose code is one of them runs at
        # a third of the speed: Spark then makes several.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # The tables' names come from query and batch, so a part of a task need not be renamed
        # twice by the committer.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        # The rows of a batch are of one day or two: no need to sort them by it.
        "spark.sql.maxConcurrentOutputFileWriters": "8",
        "spark.hadoop.parquet.enable.summary-metadata": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Readers other than Spark know no INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.python.daemon.module": "umqtt_runtime.python_daemon",
        # On a machine that does much else, Python and Java wait longer than 15 s for each other.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # Else each column that a program names asks Java three times more, to tell in an error
        # message on which line of the program that was: 15 % of a small gold's CPU.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


def cluster_settings():
    """What the tables need wherever the session runs: nothing of a laptop."""
    kept = ("spark.sql.session.timeZone", "spark.sql.maxConcurrentOutputFileWriters",
            "spark.hadoop.parquet.enable.summary-metadata", "spark.sql.parquet.compression.codec",
            "spark.hadoop.parquet.page.verify-checksum.enabled",
            "spark.sql.parquet.outputTimestampType", "spark.sql.codegen.hugeMethodLimit",
            "spark.sql.sources.partitionColumnTypeInference.enabled",
            "spark.sql.execution.arrow.maxRecordsPerBatch")  # fmt: skip
    local = settings("1g", 1, "")
    return {key: local[key] for key in kept}


def _keep_classes(view):
    """Keep the classes that pyspark asks py4j for, hundreds of times for one query: otherwise py4j
    looks each time through all jars for one of that name, in several packages."""
    for path in ASKED_FOR:
        found = getattr(view, path)
        for name in (path, path.rpartition(".")[2]):
            setattr(view, name, found)


@contextmanager
def _own_handlers():
    """pyspark puts a handler of its own for SIGINT, which raises KeyboardInterrupt wherever the
    program is: there is no moment at which it may. To block the signal in this thread is not
    enough, for another one may take it, and the handler runs here all the same."""
    put = signal.signal
    signal.signal = lambda number, _: signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal = put


def session(name="umqtt-pipeline", memory="1g", cores=2, extra=None, java=None):
    """A SparkSession: the one that runs, or a local one. extra: more configuration (dict); java:
    the gateway.Java to be started for it.

    Under spark-submit what it was told, or finds in its configuration, stands; only what it leaves
    open is set, and neither master nor Java is chosen here. Raises java.NoJava,
    gateway.NotStarted.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit
        told = SparkConf()
        builder = SparkSession.builder.appName(name)
        for key, value in {**cluster_settings(), **(extra or {})}.items():
            if not told.contains(key):
                builder = builder.config(key, value)
        with _own_handlers():
            spark = builder.getOrCreate()
        _keep_classes(spark.sparkContext._jvm)
        return spark
    os.environ["JAVA_HOME"] = str(for_spark(java_home()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("TZ", "UTC")
    java = java or Java()
    told = {"spark.app.name": name, "spark.master": f"local[{cores}]",
            **settings(memory, cores, java.scratch(), class_archive.options()),
            **(extra or {})}  # fmt: skip
    os.environ["PYSPARK_PYTHON"] = worker_python(told["spark.master"])
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if SparkContext._gateway is None:
        SparkContext._ensure_initialized(gateway=java.start(told))
    builder = SparkSession.builder
    for key, value in told.items():
        builder = builder.config(key, value)
    with _own_handlers():
        spark = builder.getOrCreate()
    _keep_classes(spark.sparkContext._jvm)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
