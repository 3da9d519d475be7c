"""`umqtt-board settings`: a settings.toml to fill in, or filled in by questions.

Knows the terminal, and the template of firmware/settings.py. Must not know boards nor what a
setting does, but for `confirm`: which promise a board keeps is asked for, and never left open.
"""

import json
import sys
import tomllib
from pathlib import Path

import click

from umqtt_board import private
from umqtt_board.errors import BoardError
from umqtt_board.settings.settings_file import PROMISES, firmware_settings

DEFAULT = "settings.toml"


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT)
@click.option("--broker", metavar="HOST[:PORT]", help="The MQTT broker.")
@click.option("--wifi", metavar="SSID", help="The network to join; its password is asked for "
              "when the board is flashed, or taken from UMQTT_WIFI_PASSWORD.")
@click.option("--device", help="Name of the sensor; left out: made of the chip's id.")
@click.option("--group", help="Group that it belongs to.")
@click.option("--confirm", type=click.Choice(list(PROMISES)),
              help="Who releases a reading (default: pipeline, the promise of exactly once).")
@click.option("--force", is_flag=True, help="Replace a file that is there.")  # fmt: skip
def settings(file, broker, wifi, device, group, confirm, force):
    """Write FILE (settings.toml) with every setting, its meaning and its default.

    At a terminal it asks for what a board cannot do without.
    """
    if file.exists() and not force:
        raise BoardError(f"{file}: is there already. Edit it, name another file, or replace it "
                         f"with `umqtt-board settings {file} --force`.")
    if sys.stdin.isatty():
        broker, wifi, confirm = _ask(broker, wifi, confirm)
    given = {"device": device, "group": group, "confirm": confirm or "pipeline",
             "wifi.ssid": wifi, **_address(broker)}  # fmt: skip
    given = {key: value for key, value in given.items() if value not in (None, "")}
    _check(given)
    _write(file, fill(firmware_settings().template(), given))
    _tell(file, given)


def _ask(broker, wifi, confirm):
    if broker is None:
        broker = click.prompt("MQTT broker, HOST or HOST:PORT", default="", show_default=False,
                              value_proc=_usable)  # fmt: skip
    if wifi is None:
        wifi = click.prompt("Wi-Fi network (empty: none)", default="", show_default=False)
    if confirm is None:
        click.echo("Who releases a reading on the board?")
        for word, promise in PROMISES.items():
            click.echo(f"  {word}: {promise}")
        confirm = click.prompt("confirm", type=click.Choice(list(PROMISES)), default="pipeline")
    return broker, wifi, confirm


def _usable(broker):
    """What was typed, if it is the address of a broker; else click says why and asks again."""
    try:
        _check(_address(broker.strip()))
    except BoardError as error:
        raise click.BadParameter(str(error))
    return broker.strip()


def _address(broker):
    if not broker:
        return {}
    host, colon, port = broker.rpartition(":")
    if not colon or broker.endswith("]") or ":" in host and not host.startswith("["):
        return {"broker.host": broker}
    if not port.isdigit():
        raise BoardError(f"--broker {broker}: expected HOST or HOST:PORT.")
    return {"broker.host": host.strip("[]"), "broker.port": int(port)}


def _check(given):
    found = firmware_settings().validate({"broker.host": "-", **given})
    if found:
        raise BoardError("\n".join(found))


def fill(template, given):
    """The template with these settings in force: {"broker.host": "10.0.0.2"}."""
    lines, section = [], ""
    left = dict(given)
    for line in template.splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        key = section + line[1:].partition(" =")[0]
        if line.startswith("#") and not line.startswith("# ") and key in left:
            line = "%s = %s" % (key[len(section):], json.dumps(left.pop(key), ensure_ascii=False))
        lines.append(line)
    if left:
        raise ValueError("not in the template: %s" % ", ".join(left))
    return "\n".join(lines) + "\n"


def _write(file, text):
    tomllib.loads(text)
    private.replace(file, text.encode())  # passwords will stand in it


def _tell(file, given):
    click.echo(f"{file}: written")
    click.echo(f"  confirm = {given['confirm']}: {PROMISES[given['confirm']]}")
    if "broker.host" not in given:
        click.echo("  to be filled in: broker.host (and wifi.ssid on a board with a radio)")
    elif given.get("wifi.ssid") and not given.get("wifi.password"):
        click.echo("  to be filled in: wifi.password, unless the network is open (or give "
                   "UMQTT_WIFI_PASSWORD when you flash)")  # fmt: skip
    click.echo(f"  then: make flash BOARD=... SETTINGS={file}  (BOARD=esp32, rp2040, ... or unix)")
