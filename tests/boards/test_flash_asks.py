"""What a flash asks before it changes settings that would harm a board."""

import pytest
from keep_kit import UNIX, three_messages
from umqtt_board.backup import journal
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.port import device


def test_a_flash_names_a_certificate_that_is_nowhere(used, put):
    put(used, "broker.der", "certificate")
    flat = {"device": "one", "broker.host": "h", "broker.ca": "/broker.der"}
    with device.Device(used.port) as one:
        steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        flat["broker.ca"] = "/identity/broker-ac.pem"
        with pytest.raises(BoardError, match="neither this computer nor the board has broker.ca = "
                                             "/identity/broker-ac.pem"):  # fmt: skip
            steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        steps.refuse_harm(one, UNIX, flat, None, lambda text: True)


def test_a_flash_moves_no_store_away_from_its_messages_unasked(used, tmp_path):
    """Other settings alone, and a board that holds nothing where they do not look, are free."""
    there = {"device": "one", "broker.host": "h"}
    files = there | {"store": "files"}
    with device.Device(used.port) as one:
        steps.refuse_harm(one, UNIX, files, there, lambda text: False)
    used.cut()
    size = used.config["journal"]
    three_messages(tmp_path / "three", size)
    with open(used.flash_image, "r+b") as flash:
        flash.seek(used.config["filesystem"])
        flash.write(journal.load(tmp_path / "three").ljust(size, b"\xff"))
    used.power_on()
    with device.Device(used.port) as one:
        for flat, old in ((files, there), (files, None)):
            with pytest.raises(BoardError, match="3 that it holds in its journal region stay"):
                steps.refuse_harm(one, UNIX, flat, old, lambda text: False)
        steps.refuse_harm(one, UNIX, files, there, lambda text: "undelivered" in text)
        for flat, old in ((files | {"interval_ms": 50}, files), (there, None), (None, there)):
            steps.refuse_harm(one, UNIX, flat, old, lambda text: False)
