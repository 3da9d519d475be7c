"""The board's settings, from settings.toml, a dict, the environment and answers to settings.json.

The firmware's own settings module says which keys there are and checks them; the same code
runs on the board. Here is where they come from, and what helps a person who mistyped one.

Knows: the schema; TOML, JSON, environment variables.
Must not know: boards or ports. Values are never printed.
"""

import difflib
import importlib.util
import json
import os
import re
import tomllib
from pathlib import Path

from umqtt_board.errors import BoardError
from umqtt_board.flash.build import Item
from umqtt_board.paths import FIRMWARE
from umqtt_board.settings import ca_file

PATH = "/settings.json"
PREFIX = "UMQTT_"  # environment: UMQTT_WIFI_PASSWORD is wifi.password
# Of other commands.
OTHERS = ("UMQTT_JDK", *(f"UMQTT_{name}_PASSPHRASE{file}" for file in ("", "_FILE")
                         for name in ("SIGNING", "KEYS", "KEYS_NEW", "EXPORT")))  # fmt: skip
# What a file need not hold: it stays on the board as long as that is for the same network, login.
BELONGS = {"wifi.password": ("wifi.ssid",), "broker.password": ("broker.host", "broker.user")}
# What each value of `confirm` promises, for whoever sets it and whoever flashes it.
PROMISES = {
    "pipeline": "a reading stays on the board until the pipeline's bridge has it on disk: exactly "
                "once, whatever is unplugged; `umqtt-pipeline bridge` must run",
    "broker": "a reading is forgotten when the broker has acknowledged it: what a broker loses "
              "with its memory is lost; for a broker without our pipeline",
}  # fmt: skip
UNKNOWN = ": unknown key"  # how the firmware's check words it


def firmware_settings():
    """The firmware's module `settings`, loaded on this computer."""
    spec = importlib.util.spec_from_file_location("umqtt_fw_settings", FIRMWARE / "settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gather(source=None, environment=os.environ, *, wifi=False, ask=None):
    """Return the settings as a flat dict {"section.key": value}, None without a source.

    source       a dict, the path of a TOML or JSON file, or None
    environment  variables that come on top (UMQTT_BROKER_HOST is broker.host): so a password
                 stands neither in a file nor on a command line
    wifi         the board has a radio and nothing else: wifi.ssid must be given
    ask          function(key, help, secret) that returns a text: asked for what must be given and
                 is not; None: that is an error

    Raises BoardError naming every wrong key.
    """
    data = source if isinstance(source, dict) else _read(source)
    given = from_environment(environment)
    if data is None:
        return None
    where, folder = "the settings given", "."
    if not isinstance(source, dict):
        where, folder = str(source), Path(source).parent
    return _checked(firmware_settings(), data, given, where, wifi, ask, folder)


def exposed(source):
    """Return a sentence when a settings file holds a secret and others than its owner may read
    it, else None.

    source  as for gather(), with which it has been read
    """
    if source is None or isinstance(source, dict) or not Path(source).stat().st_mode & 0o077:
        return None
    rules = firmware_settings()
    flat = rules.flatten(_read(source))
    # A key may be the name of its file.
    held = [key for key in rules.SECRETS if flat.get(key)
            and not (key in ca_file.KEYS and not ca_file.is_pem(flat[key]))]
    if not held:
        return None
    return f"{source} holds {held[0]} and others may read it: `chmod 600 {source}`"


def changed(there, given, *, wifi=False, ask=None):
    """Return the settings of a board with those of the environment on top; see gather().

    there  what the board has (from_board()), None when it has none
    given  as from_environment() returns it; with neither, what must be given is asked for
    """
    where = f"the environment ({PREFIX}...)" if given else "the answers given"
    if there:
        where += ", on top of those that the board has"
    # No folder: a file that the board names is one of its own, never one of this computer.
    return _checked(firmware_settings(), there or {}, given, where, wifi, ask, None)


def from_board(data):
    """Return the settings in a board's settings.json as a flat dict, None for a damaged file."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return firmware_settings().flatten(found) if isinstance(found, dict) else None


def lowered(flat, there):
    """What protects a board now and would not with other settings: a list of words.

    flat   the settings that it shall have, None if those that are `there` stay
    there  the settings that it has, None for none
    """
    if flat is None or not there:
        return []
    found = []
    if there.get("update.key") and not flat.get("update.key"):
        found.append("update.key is gone: the board takes updates that nobody has signed")
    for key, strict, words in (
        ("marks", "signed", "marks that nobody has signed let go of its readings"),
        ("telemetry", "signed", "anybody who may publish on its topic can forge its readings"),
        ("broker.tls", True, "its password and its readings go in clear"),
    ):  # fmt: skip
        if there.get(key) == strict and flat.get(key) != strict:
            found.append(f"{key} is no longer {json.dumps(strict)}: {words}")
    return found


def keep_secrets(flat, there):
    """Return settings with the passwords that the board has for the same network and login.

    A password need not stand in the file, and is not typed anew for each flashing.
    """
    kept = {key: there[key] for key, owners in BELONGS.items()
            if key in (there or {}) and key not in flat
            and all(there.get(owner) == flat.get(owner) for owner in owners)}  # fmt: skip
    return flat | kept


def _checked(rules, data, given, where, wifi, ask, folder):
    faults = _shape(rules, data)
    if not faults:
        flat = rules.flatten(data) | given
        # Nobody is asked for what the file says under a key that is written wrong.
        faults = [fault for fault in rules.validate(flat) if UNKNOWN in fault]
        if ask and not faults:
            flat |= _asked(rules, flat, wifi, ask)
        folders = {key: "." if key in given else folder for key in ca_file.KEYS
                   if key in given or folder is not None}  # fmt: skip
        flat, faults = ca_file.resolve(flat, folders)
        faults += [_with_suggestion(rules, fault) for fault in rules.validate(flat)]
        faults += _address(flat)
        if wifi and not flat.get("wifi.ssid"):
            faults.append("wifi.ssid: expected the network to join (this board has no other way "
                          "to the broker), got nothing")  # fmt: skip
    if faults:
        raise BoardError(f"Wrong settings in {where}:\n  " + "\n  ".join(faults))
    return flat


def _address(flat):
    """What is wrong with an address that no look-up of names can find."""
    host = flat.get("broker.host")
    if not isinstance(host, str) or not re.search(r"://|/|\s|^[^:]*:\d+$", host):
        return []
    return ["broker.host: expected a name or an address alone; a port stands in broker.port, "
            "TLS in broker.tls"]  # fmt: skip


def _asked(rules, flat, wifi, ask):
    """Ask for what must be given and is not; a network's password too, which may be empty."""
    found = {}
    helps = {row[0]: row[5] for row in rules.SCHEMA}
    if wifi and not flat.get("wifi.ssid"):
        for key in ("wifi.ssid", "wifi.password"):
            found[key] = flat.get(key) or ask(key, helps[key], key in rules.SECRETS)
    if not flat.get("broker.host"):
        found["broker.host"] = ask("broker.host", helps["broker.host"], False)
    return found


def _sections(rules):
    """{section: its keys} of the schema."""
    found = {}
    for row in rules.SCHEMA:
        section, dot, key = row[0].partition(".")
        if dot:
            found.setdefault(section, []).append(key)
    return found


def _shape(rules, data):
    """What is wrong with tables and values being in each other's place."""
    if not isinstance(data, dict):
        return [f"expected a table of keys, got {type(data).__name__}"]
    sections = _sections(rules)
    faults = []
    for key, value in data.items():
        if key in sections and not isinstance(value, dict):
            faults.append(f"{key}: expected a table with {', '.join(sections[key])}, got "
                          f'{type(value).__name__}: write "{key}.{sections[key][0]} = ..." or '
                          f'"[{key}]" and the keys below it')  # fmt: skip
        elif isinstance(value, dict) and key not in sections:
            faults.append(f"[{key}]: unknown table{_mean(key, sections, '[{}]')}")
    return faults


def _with_suggestion(rules, fault):
    key, unknown, _ = fault.partition(UNKNOWN)
    if not unknown:
        return fault
    names = [row[0] for row in rules.SCHEMA]
    short = {name.split(".")[-1]: name for name in names}
    # The right key in the wrong table first, then a mistyped one, then both at a time.
    last = key.split(".")[-1]
    mean = f"; did you mean {short[last]}?" if last in short else _mean(key, names)
    if not mean:
        close = difflib.get_close_matches(last, list(short), 1, 0.6)
        mean = f"; did you mean {short[close[0]]}?" if close else ""
    return f"{key}{UNKNOWN}{mean}"


def _mean(word, names, form="{}", cutoff=0.6):
    close = difflib.get_close_matches(word, list(names), 1, cutoff)
    return f"; did you mean {form.format(close[0])}?" if close else ""


def as_item(flat):
    """The file for the board; its keys are sorted, so that equal settings are equal bytes."""
    return Item(PATH, json.dumps(flat, sort_keys=True, separators=(",", ":")).encode())


def _read(path):
    if path is None:
        return None
    path = Path(path)
    try:
        text = path.read_text("utf-8-sig")  # editors of Windows put a mark in front
    except OSError as error:
        raise BoardError(f"SETTINGS={path} cannot be read: {error.strerror}.")
    except UnicodeDecodeError as error:
        where = error.start + 1
        raise BoardError(f"SETTINGS={path} is not UTF-8 (byte {where}): save it as UTF-8.")
    try:
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except RecursionError:
        raise BoardError(f"SETTINGS={path} is no file of settings: it is nested too deep.")
    except ValueError as error:  # both parsers' errors are ValueErrors that say line and column
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise BoardError(f"SETTINGS={path} is not {kind}: {error}.")


def from_environment(environment):
    """Return the settings in environment variables; BoardError for one that is mistyped or wrong.

    A variable that begins like ours and is like none of ours is somebody else's; unused() has it.
    """
    rules = firmware_settings()
    names = _variables(rules)
    found = {key: _value(kind, environment[name]) for name, (key, kind) in names.items()
             if name in environment}  # fmt: skip
    faults = [f"{name}: no setting{near}" for name in _unknown(environment, names)
              if (near := _near(name, names))]  # fmt: skip
    faults += [fault for fault in rules.validate(found) if fault.split(":")[0] in found]
    if faults:
        raise BoardError(f"Wrong settings in the environment ({PREFIX}...):\n  "
                         + "\n  ".join(faults))  # fmt: skip
    return found


def unused(environment):
    """Return the names of variables that begin like ours, and mean nothing here."""
    return _unknown(environment, _variables(firmware_settings()))


def _variables(rules):
    """{name of a variable: (its key, kind)}."""
    return {PREFIX + row[0].upper().replace(".", "_"): (row[0], row[1]) for row in rules.SCHEMA}


def _unknown(environment, names):
    return sorted(name for name in environment
                  if name.startswith(PREFIX) and name not in names and name not in OTHERS)


def _near(name, names):
    """A hint: the last word alone (UMQTT_SSID), or letters that are mistyped."""
    last = [known for known in names if known.endswith("_" + name[len(PREFIX):])]
    return f"; did you mean {last[0]}?" if len(last) == 1 else _mean(name, names, cutoff=0.8)


def _value(kind, text):
    """A text of the environment as the schema's kind; what does not fit is left for validate()."""
    if kind == "int" and text.lstrip("-").isdigit():
        return int(text)
    if kind == "bool" and text in ("true", "false", "1", "0"):
        return text in ("true", "1")
    return text
