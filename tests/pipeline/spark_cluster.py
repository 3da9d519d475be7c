"""A standalone Spark cluster of processes: a master, workers that see nothing of the driver's
files, and a driver by spark-submit with the packages shipped. Must not know what a test asserts.
"""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import umqtt_pipeline
import umqtt_runtime
from object_store import ports
from patience import wait_until
from pipeline_kit import QUICK, family, killed
from umqtt_runtime.java import for_spark, java_home
from umqtt_runtime.session import QUICK_JVM

BIN = Path(sys.executable).parent
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
EXECUTOR = b"CoarseGrainedExecutorBackend"
CODE = Path(umqtt_pipeline.__file__).parents[1]


def _hides():
    """Whether a process may have mounts of its own here."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return tried.returncode == 0


def shipped_packages(folder):
    """A zip file of the packages that executors need, as a user makes one."""
    path = folder / "packages.zip"
    with zipfile.ZipFile(path, "w") as out:
        for package in (umqtt_pipeline, umqtt_runtime):
            root = Path(package.__file__).parent
            for file in sorted(root.rglob("*.py")):
                out.write(file, file.relative_to(root.parent))
    return path


class SparkCluster:
    """folder: for what its processes write;   hidden: folders that no worker may see;
    environment: of all of them. `close` ends it."""

    def __init__(self, folder, hidden, environment, memory="700m"):
        self.folder, self.memory = Path(folder), memory
        self.hidden = [CODE, *hidden] if _hides() else []
        self.environment = {
            **os.environ, **environment, "JAVA_HOME": str(for_spark(java_home())),
            "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1", "TZ": "UTC",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        }  # fmt: skip
        self.environment.pop("SPARK_HOME", None)
        port, web = ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self.processes = []
        self._begin("master", [MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", web])
        self.workers = []
        self.packages = shipped_packages(self.folder)

    def _begin(self, name, words, before=()):
        log = open(self.folder / f"{name}.log", "ab")
        with log:
            made = subprocess.Popen(
                [*before, str(BIN / "spark-class"), *map(str, words)], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=self.folder, env=self.environment,
                start_new_session=True)  # fmt: skip
        self.processes.append(made)
        return made

    def worker(self):
        """One more worker, of one core."""
        name = f"worker-{len(self.processes)}"
        (self.folder / name).mkdir()
        before = []
        if self.hidden:
            cover = "".join(f"mount -t tmpfs none '{each}' && " for each in self.hidden)
            before = ["unshare", "-m", "sh", "-c", f'{cover}exec "$@"', "sh"]
        (web,) = ports(1)
        self.workers.append(self._begin(name, [
            WORKER, self.url, "--host", "127.0.0.1", "--cores", 1, "--memory", self.memory,
            "--webui-port", web, "--work-dir", self.folder / name], before))  # fmt: skip

    def check_hidden(self):
        """Raises AssertionError if a worker sees what is another machine's; where processes may
        not have mounts of their own, nothing is hidden."""
        for worker in self.workers:
            for folder in self.hidden:
                wait_until(lambda seen=f"/proc/{worker.pid}/root{folder}": not os.listdir(seen),
                           60, f"a worker that does not see {folder}")  # fmt: skip

    def executors(self):
        """Process ids of the executors, of whichever worker."""
        return [pid for worker in self.workers for pid, line in family(worker.pid)
                if EXECUTOR in line and line.startswith(b"/")]  # fmt: skip

    def submit(self, folder, log, *arguments):
        """A driver that works in `folder`: `umqtt-pipeline ...` by spark-submit. Returns it."""
        told = {"spark.executor.memory": self.memory, "spark.executor.cores": 1,
                "spark.driver.memory": self.memory, "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
                "spark.local.dir": str(folder), "spark.driver.extraJavaOptions": QUICK_JVM,
                "spark.executor.extraJavaOptions": QUICK_JVM, "spark.default.parallelism": 2,
                "spark.sql.shuffle.partitions": 2, "spark.sql.adaptive.enabled": "false",
                "spark.deploy.maxExecutorRetries": -1,
                "spark.python.authenticate.socketTimeout": "120s"}  # fmt: skip
        words = [word for pair in told.items() for word in ("--conf", "=".join(map(str, pair)))]
        with open(log, "ab") as out:
            made = subprocess.Popen(
                [str(BIN / "spark-submit"), "--master", self.url, *words, *QUICK, "--py-files",
                 str(self.packages), str(CODE / "umqtt_pipeline" / "__main__.py"),
                 *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder,
                env=self.environment, start_new_session=True)  # fmt: skip
        self.processes.append(made)
        return made

    def close(self):
        """Kill all that is left."""
        for process in reversed(self.processes):
            killed(process)


def ended(process, seconds):
    """Tell a driver to end, and wait; returns its exit status."""
    for pid, line in family(process.pid):
        if b"__main__.py" in line and b"SparkSubmit" not in line:
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: process.poll() is not None, seconds, "the end of the driver")
    return process.returncode
