"""A local server with an image, which does what its plan says, and a cache to download into.

Must not know what a test is about.
"""

import hashlib
import http.server
import threading

import pytest
from umqtt_board.flash import fetch

IMAGE = bytes(range(256)) * 1500
SUM = hashlib.sha256(IMAGE).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves IMAGE with ranges, as the server's `plan` (one word a request) says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        word = server.plan.pop(0) if server.plan else "whole"
        server.seen.append((word, self.headers.get("Range")))
        if word == "missing":
            self.send_error(404)
            return
        start = 0
        if self.headers.get("Range") and self.headers.get("If-Range") == server.tag:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        if start >= len(IMAGE):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("ETag", server.tag)
        self.send_header("Content-Length", str(len(IMAGE) - start))
        self.end_headers()
        body = IMAGE[start:]
        if word in ("cut", "stall"):
            body = body[: len(body) // 2]
        self.wfile.write(body)
        if word == "stall":
            server.over.wait(60)
        self.close_connection = True

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def server(monkeypatch):
    """A local server; `plan` and `seen` are its attributes."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    one = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.plan, one.seen, one.tag, one.over = [], [], '"1"', threading.Event()
    one.address = f"http://127.0.0.1:{one.server_address[1]}/f/X-v1.bin"
    threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
    yield one
    one.over.set()
    one.shutdown()
    one.server_close()


@pytest.fixture
def get(server, tmp_path):
    """Function that downloads into a cache of this test; its `said` is what was reported."""

    def run(wanted=SUM, stall_s=30):
        return fetch.download(server.address, wanted, lambda step, text: run.said.append(text),
                              lambda *numbers: run.bytes.append(numbers), run.folder,
                              stall_s)  # fmt: skip

    run.said, run.bytes, run.folder = [], [], tmp_path / "cache"
    return run
