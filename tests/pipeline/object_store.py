"""An S3-compatible server as a process of its own. Must not know what a test asserts."""

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

from patience import wait_until
from pipeline_kit import PROGRAMS
from pyarrow import fs

BUCKET = "umqtt"
KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "not a secret",
        "AWS_REGION": "us-east-1"}  # fmt: skip
SERVICES = ("master", "volume", "filer", "s3")


def ports(count):
    """Free ports, all different; who asks first for one has it."""
    with ExitStack() as held:
        socks = [held.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]


class ObjectStore:
    """SeaweedFS below a folder. environment: what a client needs; closed by `close`."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "data").mkdir()
        identity = {"name": "tests", "actions": ["Admin", "Read", "Write", "List"],
                    "credentials": [{"accessKey": KEYS["AWS_ACCESS_KEY_ID"],
                                     "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}]}  # fmt: skip
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        free = ports(2 * len(SERVICES))
        words = ["-filer", "-s3", f"-s3.config={folder / 's3.json'}", f"-dir={folder / 'data'}",
                 "-ip=127.0.0.1", "-volume.max=20", "-master.volumeSizeLimitMB=64",
                 "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]  # fmt: skip
        for at, name in enumerate(SERVICES):
            words += [f"-{name}.port={free[2 * at]}", f"-{name}.port.grpc={free[2 * at + 1]}"]
        self.url = f"http://127.0.0.1:{free[2 * SERVICES.index('s3')]}"
        self.environment = {**KEYS, "AWS_ENDPOINT_URL": self.url}
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [str(PROGRAMS / "weed"), "server", *words], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, cwd=folder, env={**os.environ, "TMPDIR": str(folder)})
        wait_until(self._bucket, 60, f"the object store; {folder / 'log'} says more")

    def _bucket(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        client = fs.S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"], secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=self.url.removeprefix("http://"), scheme="http",
            region=KEYS["AWS_REGION"], allow_bucket_creation=True, connect_timeout=2)  # fmt: skip
        try:
            client.create_dir(BUCKET)
        except OSError:
            return False
        return True

    @contextmanager
    def away(self):
        """It answers nobody in here."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            # On a busy machine its threads may go on for a while.
            wait_until(self._stands_still, 30, "the object store standing still")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _stands_still(self):
        stats = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] in "TZX" for stat in stats)

    def close(self):
        self.process.kill()
        self.process.wait()
