"""Fetching an image: what lies in the cache under its name is always whole and right."""

import hashlib
import http.server
import threading

import pytest
from umqtt_board import boards
from umqtt_board.errors import BoardError
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


def test_whole_download_is_kept_and_used_again(server, get):
    path = get()
    assert path.read_bytes() == IMAGE and path.name == "X-v1.bin"
    assert get.bytes[-1] == (len(IMAGE), len(IMAGE), "X-v1.bin")
    assert get() == path and len(server.seen) == 1
    assert sorted(p.name for p in path.parent.iterdir()) == ["X-v1.bin", "X-v1.bin.lock"]


def test_a_download_that_ends_early_is_gone_on_with(server, get):
    server.plan = ["cut", "cut"]
    assert get().read_bytes() == IMAGE
    half = len(IMAGE) // 2
    assert [asked for _, asked in server.seen] == [
        None, f"bytes={half}-", f"bytes={half + half // 2}-",
    ]  # fmt: skip


def test_a_partial_download_is_never_used_and_the_next_run_goes_on(server, get):
    server.plan = ["cut"] * 3
    with pytest.raises(BoardError, match="could not be fetched: .*the next run goes on there"):
        get()
    assert not (get.folder / "X-v1.bin").exists()
    server.seen.clear()
    assert get().read_bytes() == IMAGE
    assert server.seen[0][1] == f"bytes={len(IMAGE) - len(IMAGE) // 8}-"


def test_a_server_that_stalls_is_given_up(server, get):
    server.plan = ["stall"] * 3
    with pytest.raises(BoardError, match="could not be fetched: .*timed out.*FIRMWARE=FILE"):
        get(stall_s=0.3)


def test_another_image_under_the_same_address_is_fetched_from_its_beginning(server, get):
    server.plan = ["cut"] * 3
    with pytest.raises(BoardError):
        get()
    server.tag = '"2"'
    assert get().read_bytes() == IMAGE


def test_a_part_that_is_too_long_is_begun_anew(server, get):
    server.plan = ["cut"] * 3
    with pytest.raises(BoardError):
        get()
    (get.folder / "X-v1.bin.part").write_bytes(bytes(len(IMAGE) + 5))
    assert get().read_bytes() == IMAGE


def test_the_wrong_sum_is_refused_and_nothing_is_left(server, get):
    with pytest.raises(BoardError, match="not the image that was expected: its SHA-256 is"):
        get(wanted="0" * 64)
    assert [p.name for p in get.folder.iterdir() if p.stat().st_size > 200] == []


def test_what_lies_in_the_cache_is_compared_at_each_use(server, get):
    path = get()
    path.write_bytes(IMAGE[:-1] + b"?")
    assert get().read_bytes() == IMAGE
    assert len(server.seen) == 2 and "not the image that is wanted" in get.said[-2]


@pytest.mark.parametrize("given", ["", "#", "#sha256=", f"#sha256={SUM[:-1]}", f"#{SUM}",
                                   f"#sha256={SUM}0", f"#sha256={SUM[:-1]}g", f"?sha256={SUM}"])
def test_an_address_without_its_checksum_is_not_asked_for(server, tmp_path, given):
    with pytest.raises(BoardError, match="has no checksum.*'https://...#sha256=...'"):
        fetch.image(boards.load("esp32"), server.address + given, None, None, tmp_path)
    assert server.seen == [] and list(tmp_path.iterdir()) == []


def test_an_address_that_names_no_file(server, tmp_path):
    for address in ("http://127.0.0.1", "http://127.0.0.1/", "http://127.0.0.1/.."):
        with pytest.raises(BoardError, match="names no file"):
            fetch.image(boards.load("esp32"), f"{address}#sha256={SUM}", None, None, tmp_path)


def test_missing_image_and_no_network(server, get, tmp_path):
    server.plan = ["missing"]
    with pytest.raises(BoardError, match="the server says 404 .*micropython.org/download"):
        get()
    server.shutdown()
    server.server_close()
    with pytest.raises(BoardError, match="See to the connection to the Internet"):
        get()


def test_what_firmware_may_be(server, tmp_path):
    def quiet(*_):
        """No progress."""

    mine = tmp_path / "mine.bin"
    mine.write_bytes(b"x")
    board = boards.load("esp32")
    assert fetch.image(board, mine, quiet, quiet) == mine
    with pytest.raises(BoardError, match='is not a file.*"fetch".*"skip"'):
        fetch.image(board, tmp_path / "no.bin", quiet, quiet)
    own = f"{server.address}#sha256={SUM.upper()}"
    assert fetch.image(board, own, quiet, quiet, tmp_path).read_bytes() == IMAGE
    other = f"{server.address}#sha256={'0' * 64}"
    with pytest.raises(BoardError, match="not the image that was expected"):
        fetch.image(board, other, quiet, quiet, tmp_path)
    assert fetch.cache_folder({"XDG_CACHE_HOME": "/x"}).as_posix() == "/x/umqtt_min"


@pytest.mark.parametrize("name", [n for n in boards.names() if n != "unix"])
def test_every_chip_names_an_image_with_its_sum(name):
    address, wanted = fetch.published(boards.load(name))
    assert address.startswith("https://micropython.org/resources/firmware/")
    assert boards.load(name)["micropython"]["version"] in address
    assert len(wanted) == 64 and int(wanted, 16)
