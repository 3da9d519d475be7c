"""The commands `umqtt-board mark-keys` and `umqtt-board telemetry-keys`: the keys with which the
bridge signs its marks, and those with which the pipeline checks readings.

Knows the terminal, and how such a key is made of a board's own (firmware/confirm.py,
firmware/telemetry.py). Must not know what a mark or a reading is.
"""

import json
from pathlib import Path

import click

from umqtt_board import private
from umqtt_board.ota import keys
from umqtt_board.ota.reports import hmac_sha256

MARKS = b"umqtt marks"
TELEMETRY = b"umqtt telemetry"

_group = click.option("--group",
                      help="Boards of this group alone (default: all boards known here).")


def made(records, purpose):
    """{"fleet/GROUP/DEVICE": key, hexadecimal} of keys.Records. Who has these can do what they are
    made for, and can neither command a board nor find its key."""
    return {f"fleet/{record.group}/{record.device}": hmac_sha256(record.key, purpose)
            for record in records}  # fmt: skip


def with_former(records):
    """As made(), for readings: a board that had other keys has a list, its own key first."""
    found = made(records, TELEMETRY)
    for record in records:
        if record.former:
            own = f"fleet/{record.group}/{record.device}"
            found[own] = [found[own], *(hmac_sha256(key, TELEMETRY) for key in record.former)]
    return found


def _records(group):
    groups = [group] if group else keys.groups()
    return [record for name in groups for record in keys.members(name)]


def _write(out, found):
    private.replace(out, json.dumps(found, indent=1, sort_keys=True).encode() + b"\n")


@click.command("mark-keys")
@_group
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="File to write, for `umqtt-pipeline bridge --mark-keys`; a bridge that runs "
              "reads it again.")  # fmt: skip
def mark_keys(group, out):
    """Write the keys with which the bridge signs marks, for boards with marks = "signed"."""
    found = made(_records(group), MARKS)
    _write(out, found)
    click.echo(f"{out}: keys for the marks of {len(found)} boards; write it anew after flashing "
               "a board that is new or was erased")  # fmt: skip


@click.command("telemetry-keys")
@_group
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="File to write, for --telemetry-keys of `umqtt-pipeline bridge`, `ingest` and "
              "`replay`; what runs reads it again.")  # fmt: skip
@click.option("--no-former", is_flag=True,
              help="Without the keys that boards had before. A reading signed with one of these "
              "goes to quarantine, and a board that holds it keeps it.")
def telemetry_keys(group, out, no_former):
    """Write the keys with which the pipeline checks readings, of the boards that were flashed with
    telemetry = "signed".

    A board that got another key may hold readings signed with the one before: the file has its
    former keys, too, and whoever has one of these can still sign in its name."""
    signers = [record for record in _records(group) if record.signs]
    found = made(signers, TELEMETRY) if no_former else with_former(signers)
    _write(out, found)
    click.echo(f"{out}: keys for the readings of {len(found)} boards that sign them; write it "
               "anew after flashing a board that is new or was erased")  # fmt: skip
    more = sum(isinstance(keys_of, list) for keys_of in found.values())
    if more:
        click.echo(f"  {more} of them had other keys before, which still count. When they have "
                   "delivered what they held: --no-former")  # fmt: skip
