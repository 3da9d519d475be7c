"""The firmware's settings: what is accepted, what each refusal says. Both interpreters."""

import os

import settings

GOOD = {"device": "oven-1", "broker": {"host": "10.0.0.2"}}


def with_(**changes):
    data = dict(GOOD)
    data.update(changes)
    return data


def test_smallest_file_is_enough():
    full = settings.complete({"broker": {"host": "10.0.0.2"}})
    assert full["broker.port"] == 1883
    assert full["keepalive"] == 30
    assert full["broker.tls"] is False
    assert len(full) == len(settings.SCHEMA)


def test_every_default_is_valid_by_its_own_rule():
    for key, _, _, _, default, text in settings.SCHEMA:
        assert text
        if default is not None and key != "broker.host":
            data = dict(GOOD)
            data[key] = default
            assert settings.validate(data) == [], (key, settings.validate(data))


def test_sections_and_dotted_keys_mean_the_same():
    dotted = {"broker.host": "h", "wifi.ssid": "s"}
    nested = {"broker": {"host": "h"}, "wifi": {"ssid": "s"}}
    assert settings.complete(dotted) == settings.complete(nested)


def test_tls_is_on_when_a_ca_is_given():
    full = settings.complete({"broker": {"host": "h", "ca": "/ca.pem"}})
    assert full["broker.tls"] is True
    assert full["broker.port"] == 8883
    assert settings.complete({"broker": {"host": "h", "ca": "/c", "tls": False}})["broker.port"] \
        == 1883


def refused(data, key, expected):
    errors = settings.validate(data)
    assert len(errors) == 1, errors
    assert errors[0].startswith(key + ": "), errors
    assert expected in errors[0], errors
    return errors[0]


def test_error_names_the_key_and_what_is_expected():
    refused(with_(keepalive=0), "keepalive", "a whole number from 1 to 65535, got 0")
    refused(with_(keepalive=65536), "keepalive", "1 to 65535")
    refused(with_(qos=0), "qos", "from 1 to 2, got 0")
    refused(with_(qos="1"), "qos", "got '1'")
    refused(with_(qos=True), "qos", "got True")
    refused(with_(interval_ms=1.5), "interval_ms", "a whole number")
    refused(with_(confirm="both"), "confirm", 'one of "broker", "pipeline"')
    refused(with_(device="a/b"), "device", "the first a letter or a digit")
    refused(with_(device="x" * 33), "device", "0 to 32 characters")
    refused(with_(group=""), "group", "1 to 32")
    refused(with_(command_key="abc"), "command_key", "hexadecimal digits")
    refused({"broker": {"host": "h", "tls": "yes"}}, "broker.tls", "true or false")


def test_missing_broker():
    refused({}, "broker.host", "got nothing")
    refused({"broker": {"host": ""}}, "broker.host", "1 to 253 bytes, got ''")


def test_unknown_key_suggests_the_right_one():
    assert "did you mean broker.host?" in refused(with_(host="h"), "host", "unknown key")
    assert "interval_ms" in refused(with_(interval=5), "interval", "unknown key")
    refused(with_(wifi={"colour": "red"}), "wifi.colour", "unknown key")


def test_all_errors_are_listed_at_once():
    assert len(settings.validate({"qos": 5, "keepalive": 0, "colour": 1})) == 4


def test_secrets_are_not_repeated_in_errors():
    for key in settings.SECRETS:
        data = dict(GOOD)
        data[key] = 12345
        error = refused(data, key, "got something else")
        assert "12345" not in error


def test_keys_that_must_agree():
    refused(with_(wifi={"password": "12345678"}), "wifi.ssid", "belongs to")
    refused(with_(wifi={"ssid": "s", "password": "1234567"}), "wifi.password", "8 to 63")
    refused({"broker": {"host": "h", "password": "p"}}, "broker.user", "MQTT-3.1.2-22")
    refused(with_(retry={"first_ms": 5000, "max_ms": 100}), "retry.max_ms", "at least")
    refused(with_(full="release"), "full", 'needs confirm = "pipeline"')
    assert settings.validate(with_(full="release", confirm="pipeline")) == []


def test_watchdog_must_outlast_what_a_step_may_wait():
    # Else a broker that does not answer would look like a main loop that hangs.
    refused(with_(watchdog_s=30), "watchdog_s", "at least connect_s + 30 = 40")
    refused(with_(connect_s=60, watchdog_s=89), "watchdog_s", "at least connect_s + 30 = 90")
    for good in ({"watchdog_s": 0, "connect_s": 60}, {"watchdog_s": 40}, {"connect_s": 60}):
        assert settings.validate(with_(**good)) == []


def test_pins_of_a_bus_come_in_pairs():
    refused(with_(**{"i2c.scl": 5}), "i2c.sda", "both i2c.scl and i2c.sda")
    assert settings.validate(with_(**{"i2c.scl": 5, "i2c.sda": 4})) == []


def test_not_a_table():
    assert "expected a table" in settings.validate([])[0]


def load_error(text):
    path = "fw_settings_test.json"
    with open(path, "w") as file:
        file.write(text)
    try:
        settings.load(path)
    except settings.SettingsError as error:
        return str(error)
    finally:
        os.remove(path)
    raise AssertionError("accepted " + text)


def test_load_says_which_file_and_why():
    assert "not JSON" in load_error("{")
    assert "qos: expected" in load_error('{"broker": {"host": "h"}, "qos": 3}')
    try:
        settings.load("nowhere/settings.json")
        raise AssertionError("accepted a missing file")
    except settings.SettingsError as error:
        assert "nowhere/settings.json: cannot be read" in str(error)


def test_a_ca_that_is_neither_text_nor_a_file_is_a_fault_of_the_settings():
    from link import ca_der

    for text in ("none.pem", "/none/ca.der", "-----BEGIN CERTIFICATE"):
        try:
            ca_der(text)
        except ValueError as error:
            assert "broker.ca: no certificate and no file on this board" in str(error)
        else:
            raise AssertionError(text)
