"""A download: an image or a bundle that is not what was published is refused before anything is
done with it."""

import io
import zipfile

import pytest
from bundle_kit import pack, parts_of
from fetch_kit import IMAGE, SUM
from umqtt_board import boards
from umqtt_board.errors import BoardError
from umqtt_board.flash import fetch
from umqtt_board.ota import fileset
from umqtt_board.release import bundle


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


def test_every_byte_of_a_bundles_parts_counts(release):
    _, path = release
    parts = parts_of(path)
    for name, data in parts.items():
        for i in range(len(data)):
            flipped = data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :]
            pack(path, parts | {name: flipped})
            with pytest.raises(BoardError):
                bundle.load(path)
        for other in (b"", data[:-1], data + b"\n"):
            pack(path, parts | {name: other})
            with pytest.raises(BoardError):
                bundle.load(path)


def test_what_is_no_bundle_is_refused_in_a_sentence(release, tmp_path):
    _, path = release
    whole, parts = path.read_bytes(), parts_of(path)
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(BoardError, match="is no bundle: it is damaged"):
            bundle.load(path)
    at = whole.index(b"manifest.json")
    path.write_bytes(whole[:at] + b"n" + whole[at + 1 :])
    with pytest.raises(BoardError, match="is no bundle: it is damaged, or no ZIP file.$"):
        bundle.load(path)
    more = io.BytesIO()
    with zipfile.ZipFile(more, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (parts | {"set": bytes(100_000_000)}).items():
            archive.writestr(name, data)
    path.write_bytes(more.getvalue())  # 100 MB in 100 KB
    with pytest.raises(BoardError, match="too long"):
        bundle.load(path)
    pack(path, parts | {"../x": b"x"})
    with pytest.raises(BoardError, match="other parts"):
        bundle.load(path)
    pack(path, parts)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("set", parts["set"])
    with pytest.raises(BoardError, match="other parts"):
        bundle.load(path)
    with pytest.raises(BoardError, match="cannot be read"):
        bundle.load(tmp_path / "none")


def test_parts_of_two_releases_do_not_mix(release, key, tmp_path):
    _, path = release
    one = parts_of(path)
    made = fileset.Set({"app.mpy": b"b" * 900, "x/y.mpy": bytes(range(256)) * 9}, "9.9")
    bundle.sign(made, key, bundle.Limits())
    bundle.save(made, tmp_path / "other")
    two = parts_of(tmp_path / "other")
    for name in one:
        if name != "key":  # it is the same
            pack(path, one | {name: two[name]})
            with pytest.raises(BoardError):
                bundle.load(path)
    with pytest.raises(BoardError, match="not those that were signed"):
        pack(path, one | {"set": two["set"], "files.sha256": two["files.sha256"]})
        bundle.load(path)
