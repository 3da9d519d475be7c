"""Which key a board gets when it is flashed or restored: its own, a new one, or the one that an
earlier flash, cut short, was to give it.

Knows what a board has shown. Must not know how keys are kept (ota/keys.py).
"""

import secrets

from umqtt_board.errors import BoardError
from umqtt_board.ota import counters, forgotten, keys
from umqtt_board.settings.settings_file import firmware_settings

KEY_BYTES = 32
FORGOTTEN, GIVEN_UP = "forgotten", "given up"  #: why a key is void


def give(flat, device, held=None, tell=lambda text: None, signed="", count=0):
    """Return (settings, count): the settings with the board's key in them, and the counter that
    its commands have to exceed. When the board has them, arrived() is to be called.

    flat    settings as settings_file.gather() gives them; an empty "command_key" there means that
            the board shall obey no commands, one that is not empty is kept as this board's
    device  name of the board
    held    the key that the board has shown, and has a counter for; None: it has shown none
    tell    function(text), called when the key that this computer had is void now
    signed  the key with which the board has signed readings that it may still hold, or its bridge
            marks; "": none
    count   the board's counter, if it is to be believed: another computer may have commanded it

    A board that does not show its key gets a new one. It has been erased, or is another one that
    says this name: whoever has recorded commands could have it obey them once more.
    """
    if flat.get("command_key") == "":
        return flat, 0
    group = flat.get("group", "default")
    keys.first_use(tell)
    with keys.locked():
        record = keys.find(group, device) or keys.Record(group, device, "")
        _choose(record, flat, held, tell)
        why = _why_void(record, signed)
        if why == FORGOTTEN:
            tell(f"{device} was forgotten: what it has signed until now goes to quarantine")
        elif why == GIVEN_UP:
            tell(f"the key that {device} had was given up (`telemetry-keys --no-former`): what it "
                 "has signed until now goes to quarantine")  # fmt: skip
        elif signed and signed not in (record.key, *record.former):
            record.had(signed)
            tell(f"{device} had a key that this computer did not know, and may have signed "
                 "readings with it: `telemetry-keys` has it from now on, until "
                 "--no-former")  # fmt: skip
        if held == record.key and record.fresh:
            record.arrived()
        elif held == record.key:
            record.count = max(record.count, count)
        else:
            # For another key no command is recorded: a counter too far ahead is given up with it.
            record.count = max(0 if counters.ahead(record.count) else record.count,
                               counters.now(), count + 1)  # fmt: skip
            former = 0 if counters.ahead(record.given) else record.given
            record.given = max(record.count, former + 1)
        forgotten.flashed(record.name)
        record.broker = _broker(flat)
        record.signs = flat.get("telemetry") == "signed"
        record.settings = _comparable(flat, record.key)
        keys.save(record)
    return flat | {"command_key": record.key}, record.count


def _choose(record, flat, held, tell):
    """Give the Record the key that its board shall have: see give()."""
    device = record.device
    if "command_key" in flat:
        revoked = record.revoked and not record.fresh and record.key == flat["command_key"]
        if revoked or forgotten.is_void(record.name, flat["command_key"]):
            raise BoardError(f"The settings say a command_key for {device} that was revoked: "
                             "take it out, and the board gets a new one.")  # fmt: skip
        record.change(flat["command_key"])
    elif record.fresh:
        if held != record.key:
            tell(f"an earlier flash of {device} has not ended: it gets the key that it was to "
                 "get then")  # fmt: skip
    elif not record.key or record.revoked or held != record.key:
        if record.revoked:
            tell(f"the key of {device} was revoked: it gets a new one")
        elif record.key:
            tell(f"the board did not show the key of {device}: it was erased, or is another "
                 "one of that name. It gets a new key, the one before is void")  # fmt: skip
        record.change(secrets.token_hex(KEY_BYTES))


def knows(device, flat, there, print_=""):
    """Whether this computer has, or takes from the board when it gives it its key, the one with
    which the board that the settings `flat` name has signed readings.

    device  a device.Device; there: the settings that it has, None for none
    print_  keys.fingerprint() of that key; "": any key of the board will do
    """
    name = f"{flat.get('group', 'default')}/{flat['device']}"
    record = keys.find(*name.split("/"))
    known = record.every_key if record else []
    if not print_:
        return bool(known)
    shown = _shown(device, there, flat, flat["device"])
    return any(keys.fingerprint(key, name) == print_ for key in (*known, shown)
               if key and not (record and key != record.key and record.gave_up(key)))


def void(device, flat, there):
    """Why no table takes the readings that a board, a device.Device, holds: by its settings
    `there` they are signed, and their key was FORGOTTEN or GIVEN_UP; else "". flat: the settings
    that it shall have."""
    if (there or {}).get("telemetry") != "signed":
        return ""
    group, name = flat.get("group", "default"), name_of(device, flat)
    record = keys.find(group, name) or keys.Record(group, name, "")
    return _why_void(record, _shown(device, there, flat, name))


def _why_void(record, signed):
    """The same of the key `signed`, "" for none, of the board of a keys.Record."""
    if signed and forgotten.is_void(record.name, signed):
        return FORGOTTEN
    return GIVEN_UP if signed not in ("", record.key) and record.gave_up(signed) else ""


def arrived(device, flat, count=0):
    """A board, a device.Device, has the settings that give() or for_board() has returned: the key
    in them is the one that it obeys.

    count  its counter of commands, where that may be above what give() returned
    """
    if not (flat or {}).get("command_key"):
        return
    with keys.locked():
        record = keys.find(flat.get("group", "default"), name_of(device, flat))
        if not record or record.key != flat["command_key"]:
            return
        if record.fresh:  # else it was revoked while the board was flashed with it
            record.arrived()
        record.count = max(record.count, count)
        keys.save(record)


def usual():
    """{setting: its default}."""
    return {row[0]: row[4] for row in firmware_settings().SCHEMA}


def changed(old, new):
    """Which settings, but for the key of commands, are others in `new` than in `old`, both flat: a
    sorted list. One that is not there is its default."""
    default = usual()
    return [name for name in sorted({*old, *new} - {"command_key"})
            if old.get(name, default.get(name)) != new.get(name, default.get(name))]  # fmt: skip


def given(device, flat):
    """(the settings that this computer last gave the board that the settings `flat` name, or
    another one that said its name; those of `flat`), to be compared: without the name, and secrets
    as codes. None if it knows no board of that name."""
    record = _record(device, flat)
    if not record or not record.settings:
        return None
    return record.settings, _comparable(flat, record.key)


def _comparable(flat, key):
    """Settings without the name and the key of commands, and with a code under that key for each
    secret: who reads the file with the key has the secrets' codes, and no more."""
    secrets_ = firmware_settings().SECRETS
    return {name: keys.secret_code(key, name, value) if value and name in secrets_ else value
            for name, value in flat.items() if name not in ("command_key", "device", "group")}


def _broker(flat):
    full = _complete(flat)
    found = {"host": full["broker.host"], "port": full["broker.port"], "tls": full["broker.tls"]}
    for name in ("user", "ca"):
        if full[f"broker.{name}"]:
            found[name] = full[f"broker.{name}"]
    return found


def _complete(flat):
    rules = firmware_settings()
    try:
        return rules.complete(flat)
    except rules.SettingsError as error:
        raise BoardError(f"The settings are not right:\n{error}")


def for_board(device, flat, there, own=False, tell=lambda text: None):
    """As give(), for the board on the other end of a device.Device.

    flat   the settings that it shall have; None: it keeps those that it has
    there  the settings that it has, None for none
    own    the key in `flat` is what the board itself says: that is not taken for this computer's
           word, or a board that says another one's name would say what that one's key is
    """
    if own and flat and flat.get("command_key"):
        flat = {key: value for key, value in flat.items() if key != "command_key"}
    count = counters.read(device)
    held = (there or {}).get("command_key") if count is not None else None
    count = count or 0
    if held and counters.ahead(count):
        count = 0
        record = _record(device, there)
        what = ("it has another key, which it gets now" if record and record.revoked
                else "`umqtt-board keys revoke` and a flash give it another key")  # fmt: skip
        tell("the board's counter of commands is a month ahead of this computer's clock. It obeys "
             f"no other computer until {what}")
    known = bool((there or {}).get("command_key")) and not firmware_settings().validate(there)
    if flat is None:
        record = _record(device, there) if known else None
        if record is None or not (record.revoked or record.fresh):
            if record and record.key != there["command_key"]:
                record = None
            if known and record is None:
                tell("the board keeps a key that this computer does not know, and obeys whoever "
                     "has it. Give it settings (SETTINGS=), and it gets a new one")  # fmt: skip
            return None, record.count if record else 0
        flat = {key: value for key, value in there.items() if key != "command_key"}
    name = name_of(device, flat)
    return give(flat, name, held, tell, _shown(device, there, flat, name), count)


def _shown(device, there, flat, name):
    """The key with which by the settings `there` the board's marks or readings are signed, if they
    have the topics of `flat`, in which it is `name`; "": none."""
    if not (there or {}).get("command_key") or firmware_settings().validate(there):
        return ""
    signs = "signed" in (there.get("telemetry"), there.get("marks"))
    group = there.get("group", "default") == flat.get("group", "default")
    return there["command_key"] if signs and group and name_of(device, there) == name else ""


def _record(device, there):
    """The Record of a board that says those settings, None if this computer has none."""
    return keys.find(there.get("group", "default"), name_of(device, there))


def name_of(device, flat):
    """The name of a board, a device.Device, with those settings: theirs, or that of its chip."""
    if flat.get("device"):
        return flat["device"]
    device.doing = "asking for its name"
    code = "import machine, binascii\n_say(binascii.hexlify(machine.unique_id()).decode())"
    return f"umqtt-{device.value(code, str)}"
