"""The fleet's certificates and access lists: made, renewed, and the whole chain with them. What
they keep out is among the attacks."""

import datetime
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import Subscriber
from identity_kit import BOARDS, Client, files
from umqtt_board.identity import access, authority
from umqtt_board.ota import keys, send
from update_kit import board_cli, flashed


def test_what_is_good_stays_and_a_new_authority_leaves_no_gap(guarded, fleet, capsys):
    before = {path: path.read_bytes() for path in fleet.rglob("*") if path.is_file()}
    assert board_cli("identity", "--out", fleet, "--host", "localhost") == 0
    assert "0 certificates made, 6 kept" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in fleet.rglob("*") if path.is_file()}
    old = files(shutil.copytree(fleet, fleet.parent / "old"), "g/a")
    assert board_cli("identity", "--out", fleet, "--host", "localhost", "--new-authority") == 0
    assert "5 certificates made, 1 kept" in capsys.readouterr().out
    assert (fleet / "broker" / "fleet-ca.pem").read_text().count("BEGIN CERTIFICATE") == 2
    guarded.kill()
    guarded.start()  # it takes the bundle
    for pair in (old, files(fleet, "g/a")):
        with Client(guarded.guarded, fleet, "g/a", pair):
            pass
    (fleet / "broker" / "fleet-ca.pem").write_bytes((keys.authorities_folder() / "fleet-2.pem")
                                         .read_bytes())  # fmt: skip
    guarded.kill()
    guarded.start()
    with Client(guarded.guarded, fleet, "g/a"):
        pass
    with pytest.raises(OSError), Client(guarded.guarded, fleet, "g/a", old):
        pass


def test_keys_are_their_owners_alone(fleet):
    for folder in (fleet, keys.authorities_folder()):
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.rglob("*.pem"):
            assert path.stat().st_mode & 0o777 == 0o600, path
    assert not list(fleet.rglob("*ca-key*"))


def test_rules_for_emqx_say_the_same(fleet):
    text = (fleet / "broker" / "emqx-acl.conf").read_text()
    assert text.rstrip().endswith("{deny, all}.")
    for one in access.fleet(BOARDS):
        for action, topics in (("publish", one.publish), ("subscribe", one.subscribe)):
            named = ", ".join(f'"{topic}"' for topic in topics)
            assert f'{{allow, {{username, "{one.user}"}}, {action}, [{named}]}}.\n' in text


def test_the_broker_needs_one_folder_and_no_more(guarded, fleet, tmp_path, capsys):
    """guarded has it alone in its configuration; here it lies elsewhere."""
    assert sorted(path.name for path in (fleet / "broker").iterdir()) == [
        "broker-key.pem", "broker.pem", "emqx-acl.conf", "fleet-ca.pem", "mosquitto.acl",
        "mosquitto.conf"]  # fmt: skip
    assert str(fleet / "broker") in (fleet / "broker" / "mosquitto.conf").read_text()
    assert board_cli("identity", "--out", fleet, "--broker-folder", "/etc/mosquitto/fleet") == 0
    named = [line.split()[1] for line in (fleet / "broker" / "mosquitto.conf").read_text()
             .splitlines() if "/" in line]  # fmt: skip
    assert {str(Path(name).parent) for name in named} == {"/etc/mosquitto/fleet"}
    assert {Path(name).name for name in named} == {
        "fleet-ca.pem", "broker.pem", "broker-key.pem", "mosquitto.acl"}  # fmt: skip


def test_a_renewal_without_options_keeps_the_brokers_folder_and_names(fleet, capsys):
    hosts = ("--host", "localhost", "--host", "10.0.0.2", "--host", "b\u00fcro.example")
    elsewhere = ("--broker-folder", "/etc/mosquitto/fleet")
    assert board_cli("identity", "--out", fleet, *hosts, *elsewhere) == 0
    conf, pem = (fleet / "broker" / name for name in ("mosquitto.conf", "broker.pem"))
    before = conf.read_bytes(), pem.read_bytes()
    capsys.readouterr()
    assert board_cli("identity", "--out", fleet) == 0
    said = capsys.readouterr().out
    assert "0 certificates made, 6 kept" in said
    assert "mosquitto.conf names /etc/mosquitto/fleet, as before" in said
    assert before == (conf.read_bytes(), pem.read_bytes())
    assert board_cli("keys", "revoke", "--authorities") == 0
    assert board_cli("identity", "--out", fleet) == 0
    assert "6 certificates made, 0 kept" in capsys.readouterr().out
    _sound(fleet)
    pem.write_bytes(b"x")
    assert board_cli("identity", "--out", fleet) == 0
    assert "is damaged, and stays as it is: --host" in capsys.readouterr().out


def test_a_command_without_a_certificate_is_told_of_it(guarded, fleet, monkeypatch, capsys):
    monkeypatch.setattr(send, "CONNECT_S", 1)
    status = board_cli("command", "--device", "a", "--group", "g", "--broker",
                       f"localhost:{guarded.guarded}", "--ca", fleet / "broker-ca.pem",
                       "report")  # fmt: skip
    assert status == 2 and "give --cert and --key" in capsys.readouterr().err


def test_a_board_that_falls_out_of_the_lists_is_named(fleet, capsys):
    assert board_cli("identity", "--out", fleet, "--board", "g/new-key") == 0
    assert "not in the lists" not in capsys.readouterr().out
    assert board_cli("identity", "--out", fleet) == 0
    said = capsys.readouterr().out
    assert said.count("not in the lists") == 1 and "--board g/new-key has it in them" in said
    assert board_cli("identity", "--out", fleet, "--board", "bridge") == 2
    assert "--board bridge: expected GROUP/DEVICE" in capsys.readouterr().err


def test_no_board_no_files(home, tmp_path, capsys):  # noqa: F811
    assert board_cli("identity", "--out", tmp_path / "x") == 2
    assert "no key for any board" in capsys.readouterr().err and not (tmp_path / "x").exists()
    assert board_cli("identity", "--out", tmp_path / "x", "--board", "g/a#") == 2


def test_the_whole_chain_with_certificates(boards, guarded, fleet, bridge, tmp_path, capsys):  # noqa: F811
    """A board, the real bridge and the operator's command, each as itself."""
    pair = [open(path).read() for path in files(fleet, "g/a")]
    ca = (fleet / "broker-ca.pem").read_text()
    key = keys.load("g", "a").key
    bridge("--broker", f"localhost:{guarded.guarded}", "--ca", fleet / "broker-ca.pem",
           "--cert", files(fleet, "bridge")[0], "--key", files(fleet, "bridge")[1],
           "--topic", "fleet/g/+/telemetry", "--topic", "fleet/h/+/telemetry")  # fmt: skip
    board = boards.make(guarded.guarded, "a", group="g", command_key=key, confirm="pipeline",
                        readings=20, broker={
                            "host": "localhost", "port": guarded.guarded, "ca": ca,
                            "cert": pair[0], "key": pair[1]})  # fmt: skip
    with Subscriber(guarded.port) as seen:
        board.power_on()
        board.wait_for("all delivered: 20 readings", 60)
        seen.await_readings(20)
        status = board_cli("command", "--device", "a", "--group", "g", "--broker",
                           f"localhost:{guarded.guarded}", "--ca", fleet / "broker-ca.pem",
                           "--cert", files(fleet, "operator")[0],
                           "--key", files(fleet, "operator")[1], "interval", "2")  # fmt: skip
        assert status == 0, capsys.readouterr()
    board.wait_for("interval 2000 ms by command", 10)


def _again(out, *more):
    return board_cli("identity", "--out", out, "--host", "localhost", *more)


def _sound(out):
    """Each certificate verifies with openssl and has the key beside it."""
    for pem in out.rglob("*.pem"):
        if not pem.with_name(f"{pem.stem}-key.pem").exists():
            continue
        authority = "broker-ca.pem" if pem.stem == "broker" else "broker/fleet-ca.pem"
        done = subprocess.run(["openssl", "verify", "-CAfile", out / authority, pem],
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, (pem, done.stderr)
        assert _public("x509", pem) == _public("pkey", pem.with_name(f"{pem.stem}-key.pem"))


def _public(kind, path):
    more = ["-noout", "-pubkey"] if kind == "x509" else ["-pubout"]
    return subprocess.run(["openssl", kind, "-in", path, *more], capture_output=True,
                          check=True).stdout  # fmt: skip


def test_what_a_clock_has_made_that_was_ahead_is_made_anew(fleet, monkeypatch, capsys):
    """An authority of these days is one that every broker and board has: it goes by a word."""
    ahead = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=3650)
    for path in (fleet / "boards" / "g").iterdir():
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_now", lambda: ahead)
        assert _again(fleet) == 0
    capsys.readouterr()
    assert _again(fleet) == 0
    assert "6 certificates made, 0 kept" in capsys.readouterr().out
    _sound(fleet)
    assert board_cli("keys", "revoke", "--authorities") == 0
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_now", lambda: ahead)
        assert _again(fleet) == 0
    assert _again(fleet) == 2
    assert "set this computer's clock. If it was ahead" in capsys.readouterr().err
    assert board_cli("keys", "revoke", "--authorities") == 0
    assert _again(fleet) == 0
    _sound(fleet)


def test_what_is_damaged_or_does_not_belong_together_is_made_anew(fleet, capsys):
    key = fleet / "boards" / "g" / "a-key.pem"
    key.write_bytes(key.read_bytes()[:100])
    (fleet / "bridge.pem").write_bytes((fleet / "operator.pem").read_bytes())
    (fleet / "boards" / "h" / "a.pem").write_text("")
    capsys.readouterr()
    assert _again(fleet) == 0
    assert "3 certificates made, 3 kept" in capsys.readouterr().out
    _sound(fleet)


def test_a_broker_with_another_name_gets_a_certificate_for_it(fleet, capsys):
    capsys.readouterr()
    hosts = ("--host", "broker.example", "--host", "10.0.0.2")
    assert board_cli("identity", "--out", fleet, *hosts) == 0
    assert "1 certificates made, 5 kept" in capsys.readouterr().out
    text = subprocess.run(["openssl", "x509", "-in", fleet / "broker" / "broker.pem", "-noout",
                           "-ext", "subjectAltName"], capture_output=True, text=True).stdout
    assert "DNS:broker.example, IP Address:10.0.0.2" in text


def test_the_last_board_that_is_forgotten_leaves_the_lists(home, tmp_path, capsys):  # noqa: F811
    flashed({"group": "g", "device": "a", "broker.host": "h"}, "a")
    out = tmp_path / "out"
    assert _again(out) == 0
    assert "fleet/g/a/" in (out / "broker" / "mosquitto.acl").read_text()
    assert board_cli("keys", "forget", "--group", "g", "--device", "a", "--yes") == 0
    assert _again(out) == 0
    assert "fleet/g/a/" not in (out / "broker" / "mosquitto.acl").read_text()
    assert _again(out, "--broker-folder", "/etc\nlistener 1") == 2


def test_a_host_is_a_name_or_an_address(fleet, capsys):
    before = _content(fleet)
    for wrong in ("", "a b", "-x", "http://h", "x" * 300, "a..b"):
        assert board_cli("identity", "--out", fleet, "--new-authority", "--host", wrong) == 2
        assert _content(fleet) == before
        assert f"--host {wrong!r}: expected a host name" in capsys.readouterr().err
    assert board_cli("identity", "--out", fleet, "--host", "b\u00fcro.example") == 0
    text = subprocess.run(["openssl", "x509", "-in", fleet / "broker" / "broker.pem", "-noout",
                           "-ext", "subjectAltName"], capture_output=True, text=True).stdout
    assert "DNS:xn--bro-hoa.example" in text


def test_a_damaged_file_of_authorities_is_told_and_made_anew(fleet, capsys):
    trusted = fleet / "broker" / "fleet-ca.pem"
    trusted.write_bytes(trusted.read_bytes()[:-60])
    assert _again(fleet) == 0
    assert "was damaged: fleet-1 is the only authority in it now" in capsys.readouterr().out
    _sound(fleet)


def test_an_authority_that_was_revoked_gives_its_place_to_another_one(fleet, capsys):
    assert board_cli("keys", "revoke", "--authorities") == 0
    assert _again(fleet) == 0
    out = capsys.readouterr().out
    assert "6 certificates made, 0 kept" in out and "trusts no longer fleet-1:" in out
    _sound(fleet)


def test_no_authority_that_was_revoked_stays_in_a_folder_of_before(fleet, capsys):
    """The first one has the name of one of today, the second has not."""
    trusted = fleet / "broker" / "fleet-ca.pem"
    assert _again(fleet, "--new-authority") == 0
    stolen = {path.read_bytes() for path in keys.authorities_folder().glob("fleet-?.pem")}
    assert len(stolen) == 2 and all(pem in trusted.read_bytes() for pem in stolen)
    capsys.readouterr()
    assert board_cli("keys", "revoke", "--authorities") == 0
    said = capsys.readouterr().out
    assert "on this computer into the old one, from which it removes these" in said
    assert _again(fleet) == 0
    assert "trusts no longer fleet-1, fleet-2:" in capsys.readouterr().out
    assert trusted.read_bytes() == (keys.authorities_folder() / "fleet-1.pem").read_bytes()
    _sound(fleet)
    assert _again(fleet) == 0
    assert "trusts no longer" not in capsys.readouterr().out


def _content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", ["revoked", "newer", "its key is lost"])
def test_a_computer_that_lacks_the_folders_authority_changes_nothing(
    change, fleet, tmp_path, monkeypatch, capsys
):
    """It would have the broker trust what was stolen, and no board of today."""
    old, new = keys.home(), tmp_path / "new"
    shutil.copytree(old, tmp_path / "elsewhere" / old.name)
    if change == "revoked":
        assert board_cli("keys", "revoke", "--authorities") == 0
        assert board_cli("identity", "--out", new, "--host", "localhost") == 0
    elif change == "newer":
        new = fleet
        assert _again(fleet, "--new-authority") == 0
    else:
        new = fleet
        shutil.rmtree(tmp_path / "elsewhere" / old.name / "identity")
    before = _content(new)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    kept = _content(keys.home())
    for more in ((), ("--new-authority",)):
        capsys.readouterr()
        assert _again(new, *more) == 2
        assert "that this computer does not have: another one has made it" in (
            capsys.readouterr().err)
        assert (_content(new), _content(keys.home())) == (before, kept)
    assert _again(tmp_path / "own", "--host", "localhost") == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(old.parent))
    assert _again(new) == 0
    assert _content(new) == before


def test_a_folder_of_before_takes_the_new_authority(fleet, tmp_path):
    """One computer writes two folders, and has had the authority of both."""
    assert board_cli("identity", "--out", tmp_path / "b", "--host", "localhost") == 0
    assert _again(fleet, "--new-authority") == 0
    assert _again(tmp_path / "b") == 0
    _sound(tmp_path / "b")


def test_two_at_once_make_one_authority(home, tmp_path):
    command = [sys.executable, "-m", "umqtt_board", "identity", "--out", tmp_path / "out",
               "--host", "localhost", "--board", "g/a"]  # fmt: skip
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for _ in range(3)]  # fmt: skip
    said = [each.communicate(timeout=100)[0].decode() for each in running]
    assert [each.returncode for each in running] == [0, 0, 0], said
    assert sorted(text.split("out: ")[1][:20] for text in said) == sorted(
        ["0 certificates made,"] * 2 + ["4 certificates made,"]), said
    _sound(tmp_path / "out")


def test_an_authoritys_key_of_another_certificate_is_refused(fleet, capsys):
    held = keys.authorities_folder()
    good = (held / "fleet-1-key.pem").read_bytes()
    (held / "fleet-1-key.pem").write_bytes((held / "broker-ca-key.pem").read_bytes())
    assert _again(fleet) == 2
    assert "the key is another one's" in capsys.readouterr().err
    (held / "fleet-1-key.pem").write_bytes(good)
    (held / "fleet-1-key.pem").chmod(0o644)
    assert _again(fleet) == 2
    assert "chmod 600" in capsys.readouterr().err
