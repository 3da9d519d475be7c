"""Real brokers for the tests: mosquitto if it is installed, iotcore; and the strict one over TCP.

Knows: how each is started on a free port of the loopback and when it is ready.
Must not know: what is tested with it.
"""

import getpass
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from certificates import Authority
from strict_server import StrictServer

START_SECONDS = 60.0
_MOSQUITTO = """
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
"""
_TLS = """
cafile {folder}/ca.pem
certfile {folder}/server.pem
keyfile {folder}/server-key.pem
"""
_running = {}
_folders = []
_kept = []


def free_port():
    """A port of 127.0.0.1 that is this process's until it ends, also while no broker listens.

    The socket that keeps it is bound and does not listen: a broker may listen there, as brokers
    set SO_REUSEADDR, and the port is given to nobody else, neither to another test's server nor
    to a client, which would at last connect to itself.
    """
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _kept.append(s)
    return s.getsockname()[1]


def wait_port(port, process, seconds=START_SECONDS):
    """Wait until the port accepts; raises RuntimeError when the process ends or time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args[0]} does not accept on port {port} after {seconds} s")


class Broker:
    """A broker process on 127.0.0.1:port; its folder holds configuration and log."""

    def __init__(self, name, extra=""):
        self.name = name
        self.extra = extra
        self.host = "127.0.0.1"
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=name + "-"))
        self.start()

    def _command(self):
        if self.name == "iotcore":
            program = Path(sys.executable).parent / "iotcore"
            return [str(program), "--listen", self.host, "--port", str(self.port)]
        config = self.folder / "mosquitto.conf"
        # Started by root it would become another user, who cannot read what lies in the folder.
        user = f"user {getpass.getuser()}\n"
        config.write_text(user + _MOSQUITTO.format(port=self.port) + self.extra)
        return [find_mosquitto(), "-c", str(config)]

    def start(self):
        """Start it (again, on the same port) and wait until it accepts."""
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_port(self.port, self.process)

    def kill(self):
        """SIGKILL: what it held in memory is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class TLSBroker(Broker):
    """A mosquitto that speaks TLS as `localhost`, and asks for a client's certificate on a
    second listener, `port_mutual`.  Its folder holds ca.der, other.der (a CA that did not sign
    it), client.pem and client-key.pem."""

    def __init__(self):
        self.port_mutual = free_port()
        super().__init__("mosquitto", "")

    def _command(self):
        authority = Authority("umqtt_min test CA")
        files = {"ca.pem": authority.pem, "ca.der": authority.certificate}
        files["other.der"] = Authority("umqtt_min test CA").certificate
        files["server.pem"], files["server-key.pem"] = authority.issue("localhost")
        files["client.pem"], files["client-key.pem"] = authority.issue("sensor-1")
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        self.extra = _TLS.format(folder=self.folder)
        self.extra += f"listener {self.port_mutual} 127.0.0.1\nrequire_certificate true\n"
        self.extra += _TLS.format(folder=self.folder)
        return super()._command()

    def environment(self):
        """What a device test has to know of it."""
        return {"BROKER_MUTUAL_PORT": str(self.port_mutual), "BROKER_TLS": str(self.folder)}


def find_mosquitto():
    """The mosquitto program; Debian puts it where an ordinary user's PATH does not look."""
    return shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def need_mosquitto():
    """Skip the test where there is none."""
    if not find_mosquitto():
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")


def get(name):
    """The session's broker of that name, started when first asked for."""
    if name in ("mosquitto", "tls"):
        need_mosquitto()
    if name not in _MAKERS:
        raise ValueError(f"# needs: {name}: unknown, use one of {', '.join(_MAKERS)}")
    if name not in _running:
        _running[name] = _MAKERS[name]()
    return _running[name]


def _strict_tls():
    # Its folder holds the authority that signed its certificate (ca) and another one (other).
    folder = Path(tempfile.mkdtemp(prefix="tls-"))
    _folders.append(folder)
    authority = Authority("umqtt_min test CA")
    chain = folder / "server.pem"
    chain.write_bytes(b"".join(authority.issue("localhost", ["127.0.0.1"])))
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "ca.der").write_bytes(authority.certificate)
    (folder / "other.der").write_bytes(Authority("umqtt_min test CA").certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server = StrictServer(tls=context)
    server.folder = folder
    return server


_MAKERS = {
    "mosquitto": lambda: Broker("mosquitto"),
    "iotcore": lambda: Broker("iotcore"),
    "strict": StrictServer,
    "strict-tls": _strict_tls,
    "tls": TLSBroker,
}


def check(name):
    """What a strict broker has seen so far; raises ProtocolError, once."""
    if name in ("strict", "strict-tls") and name in _running:
        broker = _running[name].broker
        _running[name].settle()
        try:
            with _running[name].lock:
                broker.check()
        finally:
            broker.errors.clear()


def environment(name, config=None):
    """The environment that tells a device test where its broker is."""
    broker = get(name)
    found = {"BROKER_HOST": broker.host, "BROKER_PORT": str(broker.port), "BROKER_NAME": name}
    if name == "strict-tls":
        found["BROKER_CERTIFICATES"] = str(broker.folder)
    if hasattr(broker, "environment"):
        found.update(broker.environment())
    return found


def stop_all():
    """Stop every broker that get() started."""
    while _running:
        _running.popitem()[1].stop()
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)


@pytest.fixture
def broker(request):
    """A broker of this test alone, by indirect parameter (iotcore if none): it may be killed."""
    name = getattr(request, "param", "iotcore")
    if name == "mosquitto":
        need_mosquitto()
    own = Broker(name)
    yield own
    own.stop()
