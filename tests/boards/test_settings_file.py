"""Settings: from file, environment and questions; what is mistyped gets a suggestion."""

import pytest
from umqtt_board import settings_file
from umqtt_board.errors import BoardError

GOOD = {"broker": {"host": "h"}}


@pytest.mark.parametrize("data, said", [
    ({"broker": "x"}, r'broker: expected a table with host, port, .*got str.*"broker.host = ..."'),
    ({"brokr": {"host": "h"}}, r"\[brokr\]: unknown table; did you mean \[broker\]\?"),
    ({"broker": {"host": "h", "prot": 1}}, "broker.prot: unknown key; did you mean broker.port?"),
    (GOOD | {"intervall_ms": 1}, "intervall_ms: unknown key; did you mean interval_ms?"),
    (GOOD | {"ssid": "x"}, "ssid: unknown key; did you mean wifi.ssid?"),
    (GOOD | {"hosst": "x"}, "hosst: unknown key; did you mean broker.host?"),
    (GOOD | {"xyzzy": "x"}, r"xyzzy: unknown key$"),
    ([1], "expected a table of keys, got list"),
])  # fmt: skip
def test_a_mistyped_key_gets_a_suggestion(tmp_path, data, said):
    path = tmp_path / "settings.json"
    path.write_text(settings_file.json.dumps(data))
    with pytest.raises(BoardError, match=said.replace("?", r"\?") if "\\" not in said else said):
        settings_file.gather(path, {})


def test_a_board_with_a_radio_needs_a_network():
    with pytest.raises(BoardError, match="wifi.ssid: expected the network to join"):
        settings_file.gather(GOOD, {}, wifi=True)
    given = settings_file.gather(GOOD, {"UMQTT_WIFI_SSID": "home"}, wifi=True)
    assert given == {"broker.host": "h", "wifi.ssid": "home"}
    assert settings_file.gather(GOOD, {}) == {"broker.host": "h"}


def test_only_what_is_missing_is_asked_for_and_secrets_as_secrets():
    asked = []

    def ask(key, text, secret):
        asked.append((key, secret))
        assert text
        return {"wifi.ssid": "home", "wifi.password": "password", "broker.host": "b"}[key]

    found = settings_file.gather({"wifi": {"password": "from file"}}, {}, wifi=True, ask=ask)
    assert found == {"wifi.ssid": "home", "wifi.password": "from file", "broker.host": "b"}
    assert asked == [("wifi.ssid", False), ("broker.host", False)]
    asked.clear()
    assert settings_file.by_questions(False, ask) == {"broker.host": "b"}
    settings_file.by_questions(True, ask)
    assert asked[1:] == [("wifi.ssid", False), ("wifi.password", True), ("broker.host", False)]
    assert settings_file.gather(None, {}, wifi=True, ask=ask) is None


def test_an_answer_that_is_wrong_is_an_error_like_any_other():
    with pytest.raises(BoardError, match="answers given:\n  wifi.password: expected 8 to 63"):
        settings_file.by_questions(True, lambda key, text, secret: "short")
