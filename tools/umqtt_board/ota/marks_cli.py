"""The command `umqtt-board mark-keys`: the keys with which the bridge signs its marks.

Knows the terminal, and how such a key is made of a board's own (firmware/confirm.py). Must not
know what a mark is.
"""

import json
import os
from pathlib import Path

import click

from umqtt_board import private
from umqtt_board.ota import keys
from umqtt_board.ota.reports import hmac_sha256

PURPOSE = b"umqtt marks"


def mark_keys(records):
    """{"fleet/GROUP/DEVICE": key, hexadecimal} of keys.Records. Who has these can sign marks, and
    can neither command a board nor find its key."""
    return {f"fleet/{record.group}/{record.device}": hmac_sha256(record.key, PURPOSE)
            for record in records}  # fmt: skip


@click.command("mark-keys")
@click.option("--group", help="Boards of this group alone (default: all boards known here).")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="File to write, for `umqtt-pipeline bridge --mark-keys`; a bridge that runs "
              "reads it again.")  # fmt: skip
def command(group, out):
    """Write the keys with which the bridge signs marks, for boards with marks = "signed"."""
    groups = [group] if group else keys.groups()
    found = mark_keys([record for name in groups for record in keys.members(name)])
    aside = out.with_name(f".{out.name}.new")
    private.write(aside, json.dumps(found, indent=1, sort_keys=True).encode() + b"\n")
    os.replace(aside, out)
    click.echo(f"{out}: keys for the marks of {len(found)} boards; write it anew after flashing "
               "a board that is new or was erased")  # fmt: skip
