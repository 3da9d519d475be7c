"""The board's settings: from settings.toml, a dict and the environment to settings.json.

The firmware's own settings module says which keys there are and checks them; the same code
runs on the board. Here is only where they come from. Values are never printed.
"""

import importlib.util
import json
import os
import tomllib
from pathlib import Path

from umqtt_board.build import Item
from umqtt_board.errors import BoardError
from umqtt_board.paths import FIRMWARE

PATH = "/settings.json"
PREFIX = "UMQTT_"  # environment: UMQTT_WIFI_PASSWORD is wifi.password


def firmware_settings():
    """The firmware's module `settings`, loaded on this computer."""
    spec = importlib.util.spec_from_file_location("umqtt_fw_settings", FIRMWARE / "settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gather(source=None, environment=os.environ):
    """Return the settings as a flat dict {"section.key": value}, None when there are none at all.

    source   a dict, the path of a TOML or JSON file, or None
    Environment variables come on top (UMQTT_BROKER_HOST is broker.host): so a password
    stands neither in a file nor on a command line. Raises BoardError naming every wrong key.
    """
    rules = firmware_settings()
    where = "the settings given" if isinstance(source, dict) or source is None else str(source)
    data = source if isinstance(source, dict) else _read(source)
    flat = rules.flatten(data) if isinstance(data, dict) else data
    given = _from_environment(rules, environment)
    if flat is None and not given:
        return None
    if isinstance(flat, dict) or flat is None:
        flat = (flat or {}) | given
    faults = rules.validate(flat)
    if faults:
        raise BoardError(f"Wrong settings in {where}:\n  " + "\n  ".join(faults))
    return flat


def as_item(flat):
    """The file for the board; its keys are sorted, so that equal settings are equal bytes."""
    return Item(PATH, json.dumps(flat, sort_keys=True, separators=(",", ":")).encode())


def _read(path):
    if path is None:
        return None
    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BoardError(f"SETTINGS={path} cannot be read: {getattr(error, 'strerror', error)}.")
    try:
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:  # both parsers' errors are ValueErrors that say line and column
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise BoardError(f"SETTINGS={path} is not {kind}: {error}.")


def _from_environment(rules, environment):
    found = {}
    for row in rules.SCHEMA:
        key, kind = row[0], row[1]
        text = environment.get(PREFIX + key.upper().replace(".", "_"))
        if text is not None:
            found[key] = _value(kind, text)
    return found


def _value(kind, text):
    """A text of the environment as the schema's kind; what does not fit is left for validate()."""
    if kind == "int" and text.lstrip("-").isdigit():
        return int(text)
    if kind == "bool" and text in ("true", "false", "1", "0"):
        return text in ("true", "1")
    return text
