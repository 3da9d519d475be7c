"""The settings' template: what a user gets to fill in is itself valid TOML and valid settings."""

import tomllib

import settings


def test_template_is_toml_and_names_every_key():
    text = settings.template()
    assert tomllib.loads(text) is not None
    for row in settings.SCHEMA:
        assert row[5] in text


def test_template_uncommented_is_valid_but_for_the_broker():
    lines = [line[1:] if line.startswith("#") and " = " in line and not line.startswith("# ")
             else line for line in settings.template().splitlines()]
    data = tomllib.loads("\n".join(lines))
    assert sorted(settings.flatten(data)) == sorted(row[0] for row in settings.SCHEMA)
    errors = settings.validate(data)
    assert [error.split(":")[0] for error in errors] == ["broker.host"]
