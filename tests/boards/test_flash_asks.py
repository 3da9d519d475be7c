"""What a flash asks before it changes settings that would harm a board."""

import pytest
from certificates import Authority
from keep_kit import UNIX, three_messages
from umqtt_board.backup import journal
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.ota import forgotten, giving, keys
from umqtt_board.port import device


def test_a_flash_names_a_certificate_that_is_nowhere(used):
    flat = {"device": "one", "broker.host": "h", "broker.ca": "/broker.der"}
    with device.Device(used.port) as one:
        one.write_file("/broker.der", Authority("broker").certificate)
        steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        for name in ("/identity/broker-ac.pem", "/lib"):  # a folder
            flat["broker.ca"] = name
            with pytest.raises(BoardError, match="neither this computer nor the board has a file "
                                                 f"broker.ca = {name}"):  # fmt: skip
                steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        steps.refuse_harm(one, UNIX, flat, None, lambda text: True)


def test_a_flash_judges_the_certificates_and_the_key_that_lie_on_the_board(used):
    """As those on this computer: the board says little of what is wrong with them."""
    authority = Authority("broker")
    (cert, key), (other, _) = (authority.issue(name) for name in ("default/one", "default/two"))
    files = {"ca.der": authority.certificate, "ca.pem": authority.pem, "cert": cert, "key": key,
             "other": other, "garbage": b"garbage", "both": authority.pem + key,
             "late": b"words\n" + authority.pem,
             "param": b"-----BEGIN EC PARAMETERS-----\neA==\n-----END EC PARAMETERS-----\n" + key,
             }  # fmt: skip
    with device.Device(used.port) as one:
        for name, data in files.items():
            one.write_file(f"/{name}", data)
        for ca, mine, its_key, said in (
            ("ca.der", "cert", "key", ""),
            ("ca.pem", "cert", "key", ""),
            ("garbage", "cert", "key", "broker.ca: expected a certificate in /garbage on the b"),
            ("late", "cert", "key", "broker.ca: expected a certificate in /late on the board"),
            ("both", "cert", "key", "broker.ca: .* in /both on the board, got a private key, too"),
            ("ca.pem", "key", "key", "broker.cert: expected one certificate alone in /key on the"),
            ("ca.pem", "cert", "garbage", "broker.key: expected a private key, got what is none"),
            ("ca.pem", "cert", "param", "broker.key: expected .* at the beginning in /param on "),
            ("ca.pem", "other", "key", "broker.key: expected the key of broker.cert, got that of"),
        ):
            flat = {"device": "one", "broker.host": "h", "broker.ca": f"/{ca}",
                    "broker.cert": f"/{mine}", "broker.key": f"/{its_key}"}  # fmt: skip
            if not said:
                steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
                continue
            with pytest.raises(BoardError, match=f"Nothing was changed: .*{said}"):
                steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        flat |= {"broker.key": other.decode(), "broker.cert": "/other"}
        with pytest.raises(BoardError, match="broker.cert is the certificate of default/two"):
            steps.refuse_harm(one, UNIX, flat, None, lambda text: "of default/two" not in text)


def hold_three(board, folder):
    """Have the board hold three messages in its journal region."""
    board.cut()
    size = board.config["journal"]
    three_messages(folder, size)
    with open(board.flash_image, "r+b") as flash:
        flash.seek(board.config["filesystem"])
        flash.write(journal.load(folder).ljust(size, b"\xff"))
    board.power_on()


@pytest.mark.parametrize("how", ["forgotten", "given up"])
def test_a_board_is_not_left_waiting_with_readings_that_no_table_takes(
    used, tmp_path, monkeypatch, how
):
    """No mark comes for what is signed with a void key: its store would fill up."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    flat = {"device": "one", "broker.host": "h", "telemetry": "signed", "confirm": "pipeline"}
    there = flat | {"command_key": "ab" * 32}
    record = keys.Record("default", "one", there["command_key"], signs=True)
    keys.save(record)
    with device.Device(used.port) as one:
        said = steps.refuse_harm(one, UNIX, flat | {"device": "two"}, there, lambda text: False)
        assert said == ("the board was default/one, and is default/two from now on", False)
    hold_three(used, tmp_path / "three")
    with device.Device(used.port) as one:
        assert steps.refuse_harm(one, UNIX, flat, there, lambda text: False, giving) == ("", False)
        if how == "forgotten":
            forgotten.forget("default", "one")
        else:
            record.change("cd" * 32)
            record.arrived()
            record.spend(keys.readings_key(there["command_key"]))
            keys.save(record)
        with pytest.raises(BoardError, match=f"holds 3 readings .* key that was {how}:"):
            steps.refuse_harm(one, UNIX, flat, there, lambda text: False, giving)
        assert steps.refuse_harm(one, UNIX, flat, there, lambda text: "no table takes" in text,
                                 giving) == ("", True)  # fmt: skip
        with pytest.raises(BoardError, match=f"as default/one. .* key that was {how}:") as said:
            steps.refuse_harm(one, UNIX, flat | {"device": "two"}, there, lambda text: False,
                              giving)  # fmt: skip
        assert "umqtt-board command" not in str(said.value)
        for new in (flat | {"confirm": "broker"}, None):
            assert steps.refuse_harm(
                one, UNIX, new, there, lambda text: False, giving) == ("", False)


def test_a_flash_moves_no_store_away_from_its_messages_unasked(used, tmp_path):
    """Other settings alone, and a board that holds nothing where they do not look, are free."""
    there = {"device": "one", "broker.host": "h"}
    files = there | {"store": "files"}
    with device.Device(used.port) as one:
        steps.refuse_harm(one, UNIX, files, there, lambda text: False)
    hold_three(used, tmp_path / "three")
    with device.Device(used.port) as one:
        for flat, old in ((files, there), (files, None)):
            with pytest.raises(BoardError, match="3 that it holds in its journal region stay"):
                steps.refuse_harm(one, UNIX, flat, old, lambda text: False)
        steps.refuse_harm(one, UNIX, files, there, lambda text: "undelivered" in text)
        for flat, old in ((files | {"interval_ms": 50}, files), (there, None), (None, there)):
            steps.refuse_harm(one, UNIX, flat, old, lambda text: False)
