"""The broker of the demo: the embedded one (iotcore) in a process of its own, or another's.

Knows how to start, kill and restart a broker process, and how to ask any broker whether it lets
us in. Must not know topics, boards or readings.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from .ports import free_port, is_free, listens

# What rumqttd keeps per topic filter before it forgets the oldest: enough for any demo run.
SEGMENT_BYTES, SEGMENTS = 16 * 1024 * 1024, 10

CONFIG = """id = 0
[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = {segment_bytes}
max_segment_count = {segments}
[v4.1]
name = "mqtt"
listen = "{host}:{port}"
next_connection_delay_ms = 1
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 262144
max_inflight_count = 100
dynamic_filters = true
"""


class BrokerError(Exception):
    """A broker that can't be used; the text says which, why and what to do."""


class EmbeddedBroker:
    """iotcore (rumqttd) on a fixed port, to be killed and started again at will.

    It keeps sessions and messages in memory only: kill() loses them all, which is the point.

    Arguments:
        port: 1..65535, or 0 for a free one (it stays the same over restarts)
        host: address to listen on
        log: path of a file that gets the broker's output (appended), or None
        users: {name: password}; None lets everybody in

    Raises BrokerError if the port is in use. A context manager: stopped at its end.
    """

    def __init__(self, port=0, host="127.0.0.1", log=None, users=None):
        if not 0 <= port <= 65535:
            raise BrokerError("broker port %d: expected 0 (any) or 1..65535" % port)
        self.host = host
        self._log = log
        self._users = users or {}
        self._process = None
        self.port = port or free_port(host)

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self):
        """Process id while running, else None."""
        return self._process.pid if self.running else None

    @property
    def address(self):
        """"HOST:PORT"."""
        return "%s:%d" % (self.host, self.port)

    def start(self, timeout=15.0):
        """Start it and wait until it listens; does nothing if it runs. Raises BrokerError."""
        if self.running:
            return self
        if not is_free(self.port, self.host):
            raise BrokerError("port %d on %s is in use: stop what listens there or choose "
                              "another port" % (self.port, self.host))
        self._process = self._spawn()
        deadline = time.monotonic() + timeout
        while not listens(self.port, self.host):
            if not self.running:
                raise BrokerError("the embedded broker ended at its start with status %s: see %s"
                                  % (self._process.returncode, self._log or "its output"))
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError("the embedded broker did not listen on %s within %g s"
                                  % (self.address, timeout))
            time.sleep(0.05)
        return self

    def _spawn(self):
        command = [sys.executable, "-m", "umqtt_demo.broker", json.dumps(self._config())]
        out = open(self._log, "ab") if self._log else subprocess.DEVNULL
        try:
            # The broker ends when this pipe closes: it never outlives us, however we end.
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out,
                                    start_new_session=True)
        finally:
            if self._log:
                out.close()

    def _config(self):
        text = CONFIG.format(host=self.host, port=self.port,
                             segment_bytes=SEGMENT_BYTES, segments=SEGMENTS)
        if self._users:
            text += "[v4.1.connections.auth]\n" + "".join(
                "%s = %s\n" % (json.dumps(name), json.dumps(word))
                for name, word in self._users.items())
        return text

    def kill(self):
        """SIGKILL: everything it had in memory is gone. Nothing happens if it does not run."""
        self._end(self._process.kill if self._process else None)

    def stop(self):
        """Terminate it. Nothing happens if it does not run."""
        self._end(self._process.terminate if self._process else None)

    def _end(self, how):
        if self._process is None:
            return
        if self.running:
            how()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)
        self._process.stdin.close()
        self._process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def parse_address(text):
    """(host, port) of "HOST:PORT" or "[IPv6]:PORT". Raises BrokerError on anything else."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+)):(\d{1,5})", text.strip())
    if not match or not 1 <= int(match[3]) <= 65535:
        raise BrokerError("BROKER=%s: expected HOST:PORT with a port of 1..65535, for example "
                          "BROKER=192.168.1.10:1883, or BROKER=embedded" % text)
    return match[1] or match[2], int(match[3])


def check_login(host, port, user=None, password=None, timeout=10.0):
    """Connect to a broker once, as a client with a clean session, and leave.

    Raises BrokerError that says whether it could not be reached, does not speak MQTT, or refused
    (CONNACK return codes: MQTT 3.1.1, section 3.2.2.3), and what to do.
    """
    import paho.mqtt.client as paho
    from umqtt_pipeline.bridge import answers
    from umqtt_pipeline.bridge.connection import Settings

    heard = {}
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="umqtt-demo-check")
    if user is not None:
        client.username_pw_set(user, password)
    client.on_connect = lambda _c, _u, _f, code, _p: heard.setdefault("connack", code)
    client.on_disconnect = lambda _c, _u, _f, code, _p: heard.setdefault("closed", code)
    try:
        client.connect(host, port, keepalive=30)
    except OSError as error:
        raise BrokerError("no broker at %s:%d (%s): start it or correct BROKER=HOST:PORT"
                          % (host, port, error.strerror or error))
    deadline = time.monotonic() + timeout
    while not heard and time.monotonic() < deadline:
        client.loop(0.2)
    # Before we close the connection ourselves, which is reported in the same way.
    answer = dict(heard)
    client.disconnect()
    client.loop(0.1)
    if not answer:
        try:
            answers.ask(Settings(host, port, spool=""))
        except answers.Foreign as error:
            raise BrokerError("there is no MQTT broker at %s:%d: %s. Correct BROKER=HOST:PORT"
                              % (host, port, error))
    _judge_login(answer, "%s:%d" % (host, port), user)


def _judge_login(heard, address, user):
    who = "user %r" % user if user is not None else "a client without user name"
    if "connack" in heard:
        if not heard["connack"].is_failure:
            return
        raise BrokerError("the broker at %s refused %s: %s. %s UMQTT_BROKER_USER and "
                          "UMQTT_BROKER_PASSWORD in the environment"
                          % (address, who, heard["connack"], "Set" if user is None else "Look at"))
    if "closed" in heard:
        raise BrokerError("the broker at %s closed the connection of %s without CONNACK: it "
                          "refuses this login (set UMQTT_BROKER_USER and UMQTT_BROKER_PASSWORD "
                          "in the environment) or does not speak MQTT 3.1.1" % (address, who))
    raise BrokerError("%s accepts connections but sends no CONNACK: is it an MQTT broker?"
                      % address)


def _serve(config):
    """Body of the broker process: run until killed or until our parent's pipe closes."""
    import os

    from iotcore.iotcore import IotCoreBroker

    def watch_parent():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch_parent, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broker.toml"
        path.write_text(config)
        broker = IotCoreBroker(config_path=str(path))
    broker.run_forever()


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
