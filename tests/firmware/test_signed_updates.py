"""Signed updates end to end: a release made on the host, and virtual boards that trust its key."""

import io
import json
import shutil
import zipfile

import pytest
import release as firmware_release
import rsa
from patience import wait_until
from signed_kit import FIRST, SPARE, STRANGER
from umqtt_board.errors import BoardError
from umqtt_board.ota import fileset, keys
from umqtt_board.release import bundle, signing_key
from update_kit import NEW, Sending, changed, fleet, run_cli

WORD = "correct horse battery"


@pytest.fixture(autouse=True)
def no_keys_of_other_tests(monkeypatch):
    shutil.rmtree(keys.root(), ignore_errors=True)
    monkeypatch.setenv("UMQTT_SIGNING_PASSPHRASE", WORD)


@pytest.fixture(scope="module")
def key():
    return signing_key.SigningKey.new()


def small():
    return fileset.Set({"app.mpy": b"a" * 900, "x/y.mpy": bytes(range(256)) * 9}, "9.9")


@pytest.fixture
def release(tmp_path, key):
    """A small signed set, and the bundle with it."""
    made = small()
    bundle.sign(made, key, bundle.Limits())
    bundle.save(made, tmp_path / "release")
    return made, tmp_path / "release"


def checked(made, trusted, now=0, project="umqtt_min"):
    """What a board says of a set's envelope."""
    text = rsa.opened(memoryview(made.envelope), trusted)
    return firmware_release.check(text, made.command(3, 600), project, now)


def test_the_board_takes_what_the_host_signs(key):
    made, trusted = small(), [signing_key.fingerprint(key.modulus)]
    bundle.sign(made, key, bundle.Limits(security=7, days=1))
    said = checked(made, trusted)
    assert (said["security"], said["sha"]) == (7, made.sha)
    with pytest.raises(ValueError, match="expired"):
        checked(made, trusted, said["expires"] + 1)
    with pytest.raises(ValueError, match="trust"):
        checked(made, [FIRST.print, SPARE.print])
    for limits, why in ((bundle.Limits(project="p"), 'project "p"'),
                        (bundle.Limits(chip="esp32"), 'chip "esp32"'),
                        (bundle.Limits(board="Pico"), 'board "Pico"')):  # fmt: skip
        bundle.sign(made, key, limits)
        with pytest.raises(ValueError, match=why):
            checked(made, trusted)


def test_host_and_board_agree_on_a_signature():
    for key in (FIRST, STRANGER):
        for message in (b"", b"x", bytes(5000)):
            assert signing_key.verified(key.modulus, key.sign(message), message)
    assert not signing_key.verified(FIRST.modulus, SPARE.sign(b"x"), b"x")
    assert signing_key.fingerprint(FIRST.modulus) == FIRST.print


def test_a_bundle_comes_back_as_it_was(release, key):
    made, path = release
    back, said, fingerprint = bundle.load(path)
    assert (back.files, back.run, back.pieces) == (made.files, made.run, made.pieces)
    assert back.command(3, 60) == made.command(3, 60)
    assert said["version"] == "9.9" and fingerprint == signing_key.fingerprint(key.modulus)


def parts_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path, parts):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


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
        with pytest.raises(BoardError):
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


def test_a_signing_key_is_locked_and_never_written_over(capsys, tmp_path, monkeypatch):
    path = tmp_path / "release.pem"
    status, said = run_cli(capsys, "signing-key", path)
    found = signing_key.SigningKey.load(path, lambda: WORD)
    assert status == 0 and signing_key.fingerprint(found.modulus) in said
    assert path.stat().st_mode & 0o077 == 0 and b"ENCRYPTED" in path.read_bytes()
    before = path.read_bytes()
    status, again = run_cli(capsys, "signing-key", path)
    assert status == 0 and again in said and path.read_bytes() == before
    with pytest.raises(BoardError, match="is there"):
        found.save(path, WORD)
    monkeypatch.setenv("UMQTT_SIGNING_PASSPHRASE", "something else")
    status, said = run_cli(capsys, "signing-key", path)
    assert status == 2 and "passphrase is wrong" in said
    monkeypatch.setenv("UMQTT_SIGNING_PASSPHRASE", "short")
    status, said = run_cli(capsys, "signing-key", tmp_path / "other.pem")
    assert status == 2 and "12 characters" in said and not (tmp_path / "other.pem").exists()
    for text in (b"", b"-----BEGIN PRIVATE KEY-----\n", before.replace(b"A", b"B")):
        path.write_bytes(text)
        status, said = run_cli(capsys, "bundle", "--key", path, "--out", tmp_path / "b")
        assert status == 2 and "Traceback" not in said, said


def test_a_key_of_another_kind_is_refused(tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    path = tmp_path / "key"
    for key in (rsa.generate_private_key(65537, 2048), rsa.generate_private_key(3, 3072),
                ec.generate_private_key(ec.SECP256R1())):  # fmt: skip
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM,
                                           serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))  # fmt: skip
        with pytest.raises(BoardError, match="expected an RSA key of 3072 bits"):
            signing_key.SigningKey.load(path, lambda: WORD)


def test_a_fleet_with_keys_takes_signed_sets_alone(boards, broker, key, tmp_path):
    trusted = {"key": FIRST.print, "spare": signing_key.fingerprint(key.modulus)}
    one, two = fleet(boards, broker.port, "b1", "b2", update=trusted)
    made = changed(tmp_path)
    with Sending(broker.port, made, "b1", "b2") as sending:
        pass
    assert sending.states == {"b1": "refused", "b2": "refused"}
    assert "not signed" in sending.session.members["b1"].why
    bundle.sign(made, signing_key.SigningKey.new(), bundle.Limits())
    with Sending(broker.port, made, "b1", "b2") as sending:
        pass
    assert sending.states == {"b1": "refused", "b2": "refused"}
    assert "does not trust" in sending.session.members["b2"].why
    for board in (one, two):
        assert "bytes to come" not in board.printed()
    bundle.sign(made, key, bundle.Limits())
    with Sending(broker.port, made, "b1", "b2") as sending:
        sending.await_part("b1", 0.2)
        one.cut()
        one.power_on()
    assert sending.states == {"b1": "done", "b2": "done"}
    status = sending.session.members["b1"].status
    assert (status["version"], status["set"]) == (NEW, made.id)


def test_bundle_and_ota_on_the_command_line(boards, broker, capsys, tmp_path):
    path, release = tmp_path / "key.pem", tmp_path / "release"
    run_cli(capsys, "signing-key", path)
    trusted = signing_key.fingerprint(signing_key.SigningKey.load(path, lambda: WORD).modulus)
    (board,) = fleet(boards, broker.port, "b1", update={"key": trusted.upper()})
    status, said = run_cli(capsys, "bundle", "--key", path, "--out", release, "--security", "3")
    assert status == 0 and json.loads(parts_of(release)["manifest.json"])["security"] == 3, said
    where = ["ota", "--device", "b1", "--group", "test", "--timeout", "300"]
    status, said = run_cli(capsys, *where)
    assert status == 1 and "not signed" in said, said
    status, said = run_cli(capsys, *where, "--bundle", release)
    assert status == 0 and "security version 3" in said and trusted[:16] in said, said
    board.wait_for("update is healthy, and stays", 20)
    status, said = run_cli(capsys, *where, "--bundle", release, "--sign", path)
    assert status == 2 and "--sign or --bundle" in said
    # What the board runs is not sent again: that, too, it says.
    status, said = run_cli(capsys, *where, "--sign", path)
    assert status == 0, said
    wait_until(lambda: board.printed().count("bytes to come") == 1, 5, "one update")
