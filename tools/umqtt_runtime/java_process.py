"""Spark's Java, a child process of ours: begun, watched while it starts, and what it ended with.

pyspark starts one as well, but keeps the process to itself until Java answers: nobody could end it
or say what it died of, and Java's shell scripts would take a SIGTERM to the whole process group.
Knows pyspark's gateway and processes. Must not know sessions or commands.
"""

import atexit
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from .stop import SIGNALS

START_S = 600  #: until Java answers; it may fetch packages from far away (spark.jars.packages)
END_S = 5  #: how long Java may take to put its things in order
#: What Spark's shell script says if the Java is killed that makes the command line of the other.
KILLED = re.compile(rb"spark-class: line \d+: +(CMD: bad array subscript|\d+ Killed )")


class NotStarted(Exception):
    """Java has ended, or does not answer, before there was a session; the text says why."""


class Java:
    """One Java for one session.

    process   subprocess.Popen, None before it is begun and for the one of spark-submit
    at_work   whether there is a session: before that, nothing of it is worth an orderly end
    aside     None, or a list: what Java says from then on goes there, as bytes
    """

    def __init__(self):
        self.process, self.at_work, self._folder, self._scratch = None, False, None, None
        self.aside = None
        self._said = self._killed = False

    def scratch(self):
        """A new folder for what Spark puts aside, which may be rows of the tables: of this user
        alone, of a name that nobody can have made before. It goes with the process."""
        self._scratch = tempfile.mkdtemp(prefix="umqtt-spark-")
        atexit.register(shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch

    def start(self, settings):
        """Start it with this configuration (dict); returns a py4j gateway. Raises NotStarted."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        self._folder = tempfile.mkdtemp(prefix="umqtt-java-")
        try:
            told = Path(self._folder, "port")
            self._begin(settings, told)
            self._wait_for(told)
            with open(told, "rb") as file:
                port, secret = read_int(file), UTF8Deserializer().loads(file)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        # Also by spark-submit pyspark is told so where its Java is.
        os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
        try:
            gateway = launch_gateway()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        return gateway

    def _begin(self, settings, told):
        from pyspark.find_spark_home import _find_spark_home

        command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        # It ends when its standard input does, whatever becomes of this process.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_deaf,
            env={**os.environ, "SPARK_CONNECT_MODE": "0",
                 "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)})  # fmt: skip
        self._reader = threading.Thread(target=self._pass_on, name="java", daemon=True)
        self._reader.start()

    def _pass_on(self):
        """Its standard error to ours, line by line."""
        for line in self.process.stderr:
            if KILLED.search(line):
                self._killed = True
                continue
            if self.aside is not None:
                self.aside.append(line)
                continue
            self._said = True
            try:
                os.write(2, line)
            except OSError:  # nobody reads ours any more: Java must not wait for that
                self._said = False

    def _wait_for(self, told):
        until = time.monotonic() + START_S
        while not told.is_file():
            if self.process.poll() is not None:
                self._reader.join(END_S)
                above = "what it said stands above" if self._said else "it did not say why"
                raise NotStarted(f"Java has ended {self.ended()}; {above}")
            if time.monotonic() > until:
                self.process.kill()
                raise NotStarted(f"Java does not answer within {START_S} s")
            time.sleep(0.05)

    def ended(self, seconds=0):
        """How it has ended, as words; None if it still runs after that time."""
        if self.process is None:
            return None
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        number = -status if status < 0 else status - 128  # a shell's word for a child's signal
        if self._killed:
            number = signal.SIGKILL
        if number not in set(signal.Signals):
            return f"with status {status}"
        how = f"by {signal.Signals(number).name}"
        if number == signal.SIGKILL:
            how += " (by the system, if memory has run out: --memory is its heap)"
        return how

    def end(self, seconds=END_S):
        """End it; for stopping.Stop.leave. seconds: how long an orderly end may take."""
        if self.process is None:
            return
        try:
            if self.at_work:
                self.process.stdin.close()
                self.process.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            self.at_work = False  # then like one that has not begun
        if not self.at_work:
            self.process.kill()
            self.process.wait()
        for folder in (self._folder, self._scratch):
            shutil.rmtree(folder, ignore_errors=True)


def _deaf():
    """In the child: SIGTERM and SIGINT, which go to whole process groups and services, are for
    the Python side, which ends Java when it has ended what it had begun."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
