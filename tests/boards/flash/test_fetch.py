"""Fetching an image: what lies in the cache under its name is always whole and right."""

import pytest
from fetch_kit import IMAGE, SUM
from umqtt_board import boards
from umqtt_board.errors import BoardError
from umqtt_board.flash import fetch


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
