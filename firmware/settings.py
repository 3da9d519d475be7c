"""Settings: what may stand in settings.json, what each key means, and whether a file is right.

Knows the keys, their ranges and defaults. Must not know what uses them: it opens no radio and no
store. It runs on the board (where it reads /settings.json at boot) and under CPython (where the
flashing tool checks settings.toml with the same code), and imports nothing else of the firmware.

The file has one level of sections: {"device": "oven", "broker": {"host": "10.0.0.2"}}. A section's
key is called "broker.host" here and in every message; the dotted form is accepted in the file too.
"""

import json

PATH = "/settings.json"

INT, BOOL, TEXT, NAME, HEX = "int", "bool", "text", "name", "hex"

# (key, kind, low, high, default, help); kind is one of the above or a tuple of the allowed words.
# For texts low and high bound the length. A default of None: worked out by load().
SCHEMA = (
    ("device", NAME, 0, 32, "", "name of this sensor, unique in the fleet; empty: the chip's id"),
    ("group", NAME, 1, 32, "default", "group the sensor belongs to, a level of its topics"),
    ("wifi.ssid", TEXT, 0, 32, "", "network to join; empty on a board without Wi-Fi"),
    ("wifi.password", TEXT, 0, 63, "", "its password, 8 to 63 characters; empty: an open network"),
    ("broker.host", TEXT, 1, 253, "", "host name or address of the MQTT broker"),
    ("broker.port", INT, 0, 65535, 0, "TCP port; 0: 1883, or 8883 with TLS"),
    ("broker.user", TEXT, 0, 255, "", "user name; empty: none"),
    ("broker.password", TEXT, 0, 255, "", "password for the user name"),
    ("broker.tls", BOOL, 0, 1, None, "TLS; by default on when a CA is given"),
    ("broker.ca", TEXT, 0, 8192, "", "CA certificate, switches TLS on: PEM or DER file, or text"),
    ("broker.cert", TEXT, 0, 4096, "", "this board's own certificate, as broker.ca; empty: none"),
    ("broker.key", TEXT, 0, 4096, "", "and its key, as broker.ca"),
    ("keepalive", INT, 1, 65535, 30, "MQTT keep alive in seconds (some brokers refuse 0)"),
    ("connect_s", INT, 1, 60, 10, "longest wait for the broker to accept a connection, seconds"),
    ("window", INT, 1, 64, 16, "messages sent before the oldest must be acknowledged"),
    ("interval_ms", INT, 1, 86400000, 10000, "time between two readings, milliseconds"),
    ("readings", INT, 0, 1073741823, 0, "stop after so many readings; 0: never"),
    ("sensor", NAME, 1, 32, "auto",
     "driver, a module of sensors/: simulated, chip, ...; auto: chip, or simulated off a chip"),
    ("i2c.bus", INT, 0, 3, 0, "number of the I2C bus, for a sensor on one"),
    ("i2c.scl", INT, -1, 48, -1, "its pins; -1: those that the port gives this bus"),
    ("i2c.sda", INT, -1, 48, -1, "see i2c.scl"),
    ("i2c.address", INT, 0, 119, 0, "address of the sensor on the bus; 0: the driver's usual one"),
    ("pin", INT, -1, 48, -1, "GPIO of a sensor with a wire of its own (dht22)"),
    ("qos", INT, 1, 2, 1, "MQTT QoS of the readings"),
    ("confirm", ("broker", "pipeline"), 0, 0, "broker",
     "who releases a reading: the broker's acknowledgement, or the pipeline's durable mark"),
    ("stall_s", INT, 1, 86400, 30, "pipeline: publish again when its mark stands still so long"),
    ("retention", INT, 1, 65000, 1000,
     "pipeline: most readings kept for it once the broker has them"),
    ("marks", ("any", "signed"), 0, 0, "any",
     "pipeline: which of its marks are heeded: any, or those signed by the bridge (--mark-keys)"),
    ("telemetry", ("plain", "signed"), 0, 0, "plain",
     "signed: each reading carries a code, which the pipeline checks (--telemetry-keys)"),
    ("full", ("wait", "release"), 0, 0, "wait",
     "journal full: wait = no reading until there is room; release = give up the oldest reading "
     "that the broker has acknowledged and the pipeline has not; if there is none, wait"),
    ("store", ("auto", "flash", "files"), 0, 0, "auto",
     "where messages are kept: flash = the journal region, auto = that where there is one, or "
     "else files"),
    ("command_key", HEX, 32, 128, "",
     "key of remote commands, hexadecimal; without this line one is made; empty: no commands"),
    ("update.key", HEX, 64, 64, "",
     "SHA-256 of the key that updates must be signed with (umqtt-board signing-key); empty: none"),
    ("update.spare", HEX, 64, 64, "", "and that of a second one, which may sign as well"),
    ("update.project", NAME, 1, 32, "umqtt_min", "project that a signed update must be for"),
    ("update.trial", ("reading", "commit"), 0, 0, "reading",
     "what ends the trial of new firmware: the first acknowledged reading, or the command commit"),
    ("ntp", TEXT, 0, 253, "pool.ntp.org", "time server; empty: something else sets the clock"),
    ("report_s", INT, 0, 86400, 60, "seconds between two status reports; 0: only on connecting"),
    ("deep_sleep", BOOL, 0, 1, False,
     "sleep between two readings: wake, measure, publish, sleep (interval_ms from wake to wake)"),
    ("awake_s", INT, 1, 3600, 20,
     "deep_sleep: longest time awake, seconds; what is not acknowledged by then waits in flash"),
    ("safe_after", INT, 0, 100, 5,
     "crashes in a row before the safe mode, which needs a command_key; 0: never"),
    ("watchdog_s", INT, 0, 3600, 120, "reset when the main loop stands still so long; 0: never"),
    ("retry.first_ms", INT, 1, 60000, 500, "reconnecting: bound of the first random pause"),
    ("retry.max_ms", INT, 1, 3600000, 60000, "reconnecting: bound that the pauses grow to"),
)

# Never printed, never passed on a command line.
SECRETS = ("wifi.password", "broker.password", "broker.key", "command_key")


class SettingsError(ValueError):
    """The settings cannot be used; str() lists every error, one a line."""


def _row(key):
    for row in SCHEMA:
        if row[0] == key:
            return row
    return None


def flatten(data):
    """Return {"section.key": value} of a dict with at most one level of sections."""
    flat = {}
    for key, value in data.items():
        if isinstance(value, dict) and _row(key) is None:
            for name, inner in value.items():
                flat["%s.%s" % (key, name)] = inner
        else:
            flat[key] = value
    return flat


def _is_name(text):
    # RFC 8428 section 4.5.1 without "/", which is a level of a topic: the device's name opens
    # every SenML name.
    # Bytes: MicroPython keeps each character that it has handed out as a name, for ever.
    first = True
    for c in text.encode():
        # a-z, A-Z, 0-9
        plain = 97 <= c <= 122 or 65 <= c <= 90 or 48 <= c <= 57
        if not plain and (first or c not in b"-:._"):
            return False
        first = False
    return True


def _is_hex(text):
    for c in text.encode():
        if c not in b"0123456789abcdefABCDEF":
            return False
    return len(text) % 2 == 0


def expected(key):
    """Return in words what the key takes, such as "a whole number from 1 to 65535"."""
    _, kind, low, high, _, _ = _row(key)
    if isinstance(kind, tuple):
        return "one of " + ", ".join('"%s"' % word for word in kind)
    if kind == INT:
        return "a whole number from %d to %d" % (low, high)
    if kind == BOOL:
        return "true or false"
    if kind == HEX:
        return "%d to %d hexadecimal digits, an even number of them" % (low, high)
    if kind == NAME:
        return ("%d to %d characters of a-z A-Z 0-9 - : . _, the first a letter or a digit"
                % (low, high))
    return "a text of %d to %d bytes" % (low, high)


def _fits(row, value):
    _, kind, low, high, default, _ = row
    if isinstance(kind, tuple):
        return value in kind
    if kind == BOOL:
        return isinstance(value, bool) or (value is None and default is None)
    if kind == INT:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if not isinstance(value, str):
        return False
    if value == "":
        return low == 0 or kind == HEX
    try:
        size = len(value.encode())
    except UnicodeError:  # half of a surrogate pair, on a host
        return False
    if not low <= size <= high or "\0" in value:
        return False
    return kind == TEXT or (_is_name(value) if kind == NAME else _is_hex(value))


def _similar(key):
    # A typing error is mostly the right last word in the wrong section, or one letter.
    last = key.split(".")[-1]
    for row in SCHEMA:
        name = row[0]
        near = name.split(".")[-1]
        if near == last or (len(last) > 3 and (near.startswith(last[:4]))):
            return "; did you mean %s?" % name
    return ""


def _together(flat, errors):
    # Conditions between keys; each key on its own is right when this runs.
    ssid, password = flat.get("wifi.ssid", ""), flat.get("wifi.password", "")
    if password and not ssid:
        errors.append("wifi.ssid: expected the network that wifi.password belongs to, got nothing")
    if password and len(password) < 8:
        errors.append("wifi.password: expected 8 to 63 characters (WPA2), got %d" % len(password))
    if flat.get("broker.password") and not flat.get("broker.user"):
        errors.append("broker.user: expected a user name, because broker.password is set "
                      "[MQTT-3.1.2-22]")
    if flat.get("broker.tls") and not flat.get("broker.ca"):
        errors.append("broker.ca: expected the CA certificate that the broker's is checked with, "
                      "because broker.tls is on")
    if bool(flat.get("broker.cert")) != bool(flat.get("broker.key")):
        errors.append("broker.key: expected both broker.cert and broker.key, or neither")
    if flat.get("broker.cert") and not flat.get("broker.ca"):
        errors.append("broker.ca: expected the CA certificate that the broker's is checked with, "
                      "because broker.cert is set")
    for key in ("marks", "telemetry"):
        if flat.get(key) == "signed" and flat.get("command_key") == "":
            errors.append('command_key: expected a key, because %s = "signed" needs one made of '
                          "it" % key)
    _numbers_together(flat, errors)


def _numbers_together(flat, errors):
    dog, connect = flat.get("watchdog_s", 120), flat.get("connect_s", 10)
    if dog and dog < connect + 30:
        # A step that waits for the network takes that long, and half a minute where the chip's
        # own network code holds it up: no network fault may look like a main loop that hangs.
        errors.append("watchdog_s: expected 0, or at least connect_s + 30 = %d" % (connect + 30))
    if flat.get("retry.max_ms", 60000) < flat.get("retry.first_ms", 500):
        errors.append("retry.max_ms: expected at least retry.first_ms")
    if (flat.get("i2c.scl", -1) < 0) != (flat.get("i2c.sda", -1) < 0):
        errors.append("i2c.sda: expected both i2c.scl and i2c.sda, or neither")
    if flat.get("full") == "release" and flat.get("confirm", "broker") != "pipeline":
        errors.append('full: "release" needs confirm = "pipeline"; with confirm = "broker" '
                      "nothing acknowledged is kept")


def validate(data):
    """Check the settings; return a list of errors, empty when all is right.

    data  what json.load or tomllib.load gave: a dict, with sections or dotted keys
    Each error is one line: the key, what is expected, what was found. Secrets are not repeated.
    """
    if not isinstance(data, dict):
        return ["settings: expected a table of keys, got %s" % type(data).__name__]
    errors = []
    flat = flatten(data)
    for key in sorted(flat):
        row = _row(key)
        if row is None:
            errors.append("%s: unknown key%s" % (key, _similar(key)))
        elif not _fits(row, flat[key]):
            got = "something else" if key in SECRETS else repr(flat[key])
            errors.append("%s: expected %s, got %s" % (key, expected(key), got))
    if "broker.host" not in flat:
        errors.append("broker.host: expected %s, got nothing" % expected("broker.host"))
    if not errors:
        _together(flat, errors)
    return errors


def complete(data):
    """Return the settings as a flat dict with every key present; raise SettingsError."""
    errors = validate(data)
    if errors:
        raise SettingsError("\n".join(errors))
    flat = flatten(data)
    full = {}
    for row in SCHEMA:
        full[row[0]] = flat.get(row[0], row[4])
    if full["broker.tls"] is None:
        full["broker.tls"] = bool(full["broker.ca"])
    if not full["broker.port"]:
        full["broker.port"] = 8883 if full["broker.tls"] else 1883
    return full


def load(path=PATH):
    """Read the settings of this board from a JSON file.

    Returns a flat dict with every key of SCHEMA. Raises SettingsError naming the file, the keys
    and what is expected.
    """
    try:
        with open(path) as file:
            data = json.load(file)
    except OSError as error:
        raise SettingsError("%s: cannot be read (%s); flash the board again or copy a "
                            "settings.json to it" % (path, error))
    except ValueError as error:
        raise SettingsError("%s: not JSON (%s)" % (path, error))
    try:
        return complete(data)
    except SettingsError as error:
        raise SettingsError("%s: %s" % (path, error))


def template():
    """Return a settings.toml with every key, its meaning and its default (host only)."""
    lines, section = ["# Settings of a sensor. A line that is commented out shows a default."], ""
    rows = [row for row in SCHEMA if "." not in row[0]] + [r for r in SCHEMA if "." in r[0]]
    for key, _, _, _, default, text in rows:
        if "." in key:
            head, key = key.split(".")
            if head != section:
                section = head
                lines.append("\n[%s]" % head)
        value = "false" if default is None else json.dumps(default)
        lines.append("# %s: %s\n#%s = %s" % (key, text, key, value))
    return "\n".join(lines) + "\n"

