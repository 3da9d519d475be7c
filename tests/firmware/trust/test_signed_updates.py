"""Signed updates end to end: a release made on the host, and virtual boards that trust its key.
What is not signed so is among the attacks."""

import json
import shutil

import pytest
import release as firmware_release
import rsa
from bundle_kit import WORD, pack, parts_of, small
from patience import wait_until
from signed_kit import FIRST, SPARE, STRANGER
from umqtt_board.errors import BoardError
from umqtt_board.ota import keys
from umqtt_board.release import bundle, signing_key
from update_kit import fleet, run_cli


@pytest.fixture(autouse=True)
def no_keys_of_other_tests(monkeypatch):
    shutil.rmtree(keys.root(), ignore_errors=True)
    monkeypatch.setenv("UMQTT_SIGNING_PASSPHRASE", WORD)


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


def test_a_bundle_with_no_files_is_named(release):
    _, path = release
    pack(path, parts_of(path) | {"set": b""})
    with pytest.raises(BoardError, match=f"{path} is no bundle .*it has no files, or an empty"):
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


def test_bundle_and_ota_on_the_command_line(boards, broker, capsys, tmp_path):
    path, release = tmp_path / "key.pem", tmp_path / "release"
    run_cli(capsys, "signing-key", path)
    trusted = signing_key.fingerprint(signing_key.SigningKey.load(path, lambda: WORD).modulus)
    (board,) = fleet(boards, broker.port, "b1", update={"key": trusted.upper()})
    status, said = run_cli(capsys, "bundle", "--key", path, "--out", release, "--security", "3")
    assert status == 0 and json.loads(parts_of(release)["manifest.json"])["security"] == 3, said
    (tmp_path / "other").write_text("settings")
    status, said = run_cli(capsys, "bundle", "--key", path, "--out", tmp_path / "other")
    assert status == 2 and "is no bundle" in said
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
