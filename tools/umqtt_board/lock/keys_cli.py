"""The commands `umqtt-board keys ...`: the keys of this computer, locked, copied and revoked.

Knows the terminal. Must not know how a key is sealed.
"""

from pathlib import Path

import click

from umqtt_board import plain
from umqtt_board.backup.backup_cli import confirmed_by
from umqtt_board.errors import BoardError
from umqtt_board.lock import lock as locks
from umqtt_board.lock import whole
from umqtt_board.lock.passphrase import Passphrase
from umqtt_board.ota import forgotten, keys

_EXPORT = Passphrase("UMQTT_EXPORT_PASSPHRASE", "the exported file")
_file = click.argument("path", type=click.Path(path_type=Path, dir_okay=False))


@click.group("keys")
def keys_group():
    """The keys of this computer: of boards, and of the authorities of certificates.

    The passphrase of a lock is asked for, or comes from UMQTT_KEYS_PASSPHRASE, or from the file
    that UMQTT_KEYS_PASSPHRASE_FILE names."""


@keys_group.command("list")
def list_():
    """Say which boards this computer has keys for, and which of them are revoked."""
    found = keys.each()
    wrong = [record for _, record in found if isinstance(record, BoardError)]
    if locks.path(keys.home()).exists():
        how = "locked with a passphrase"
        if open_ := keys.in_clear():
            how += (f", but {open_} of them are still in clear: `umqtt-board keys lock` has not "
                    "ended, run it again")  # fmt: skip
    elif any(isinstance(error, keys.NoLock) for error in wrong):
        how = f"locked, and {locks.path(keys.home()).name}, which opens them, is not there"
    else:
        how = "no passphrase"
    click.echo(f"{keys.home()}: {how}")
    for name, record in found:
        if isinstance(record, BoardError):
            note = f"  {record}"
        else:
            note = ("  revoked: flash it" if record.revoked else
                    "  its last flash has not ended: flash it" if record.fresh else "")
        click.echo(plain.line(f"  {name}{note}"))
    if wrong:
        raise BoardError(f"{len(wrong)} of {len(found)} keys cannot be read.")


@keys_group.command("lock")
@click.option("--change", is_flag=True,
              help="Another passphrase (or UMQTT_KEYS_NEW_PASSPHRASE). Who has a copy of the old "
              "lock.pem and its passphrase still opens later copies: unlock and lock then.")
def lock(change):
    """Lock the keys with a passphrase; what makes keys later locks them, too."""
    there = locks.of(keys.home())
    if change and not there:
        raise BoardError("The keys have no passphrase yet: leave out --change.")
    boards, authorities = whole.lock("" if there else locks.PASSPHRASE.new())
    if change:
        locks.put(keys.home(), there, locks.NEW.new())
    click.echo(f"{boards} keys of boards and {authorities} of authorities are locked. Nobody "
               "opens them without the passphrase, not even you. `umqtt-board keys export` makes "
               "a copy of them")  # fmt: skip


@keys_group.command("unlock")
def unlock():
    """Keep the keys without a passphrase again, in files that only you can read."""
    boards, authorities = whole.unlock()
    click.echo(f"{boards} keys of boards and {authorities} of authorities have no passphrase "
               "now")  # fmt: skip


@keys_group.command("export")
@click.option("--no-passphrase", is_flag=True,
              help="Leave the file open, for a store of secrets that locks it itself.")
@_file
def export(no_passphrase, path):
    """Write all keys into the file PATH, to keep elsewhere or for another computer.

    It opens with the passphrase of the keys. Where they have none one is asked for, or comes from
    UMQTT_EXPORT_PASSPHRASE."""
    if no_passphrase and locks.path(keys.home()).exists():
        raise BoardError("The keys are locked, and so is a copy of them: leave out "
                         "--no-passphrase.")  # fmt: skip
    count, more = whole.export(path, lambda: "" if no_passphrase else _EXPORT.new())
    click.echo(f"{path}: keys of {plain.counted(count, 'board')}"
               f"{', and of the authorities of certificates' if more else ''}")  # fmt: skip


@keys_group.command("import")
@click.option("--yes", is_flag=True,
              help="Do not ask whether to take a file without passphrase, or a file's lock in the "
              "place of one that does not open.")
@click.option("--replace", is_flag=True,
              help="Take the file's keys also of boards that have another one here, and were not "
              "flashed by the other computer later, as far as is known; or were forgotten here.")
@_file
def import_(yes, replace, path):
    """Take the keys in the file PATH, which `umqtt-board keys export` has written.

    Its passphrase is asked for, or comes from UMQTT_EXPORT_PASSPHRASE. A computer without keys
    takes it over, unless UMQTT_KEYS_PASSPHRASE says another one, or none ("" there); any other
    keeps its own. Of a board that both computers have flashed, the key
    of the later flash counts, if the file has a passphrase."""
    came = whole.bring(path, _EXPORT, confirmed_by(yes), replace)
    kept = len(came.older) + len(came.other)
    stay = f", {kept} {'stays as it is' if kept == 1 else 'stay as they are'} here" if kept else ""
    click.echo(f"{len(came.new)} keys are new here, {len(came.same)} were here"
               f"{f', {len(came.newer)} take the place of others' if came.newer else ''}"
               f"{stay}")  # fmt: skip
    if came.opens:
        click.echo(f"  the keys of this computer are locked: {came.opens} opens them. "
                   "`umqtt-board keys lock --change` gives them another one, `unlock` "
                   "none")  # fmt: skip
    if came.ahead:
        click.echo(f"  taken without their counters, which are a month ahead of this computer's "
                   f"clock: {', '.join(came.ahead)}. A board with such a counter obeys nobody "
                   "until `umqtt-board keys revoke` and a flash")  # fmt: skip
    if came.new and not locks.path(keys.home()).exists():
        click.echo("  the keys of this computer have no passphrase: `umqtt-board keys lock`")
    _tell_of_removed(came)
    _tell_of_left(came)


def _tell_of_removed(came):
    if came.gone:
        click.echo(f"  removed, for the other computer has revoked them: {', '.join(came.gone)}. "
                   "Let `umqtt-board identity` write into the folder that it uses "
                   "now")  # fmt: skip
    if came.lost:
        click.echo(f"  removed, for the other computer has forgotten them: "
                   f"{', '.join(came.lost)}. Let `umqtt-board identity` and `telemetry-keys` "
                   "write anew; a flash gives such a board another key")  # fmt: skip
    if came.kept:
        click.echo(f"  forgotten by the other computer, which did not know the keys of here: "
                   f"{', '.join(came.kept)}. `umqtt-board keys forget`, unless you have flashed "
                   "them since")  # fmt: skip


def _tell_of_left(came):
    if came.revoked:
        click.echo(f"  not taken, for they were revoked here: {', '.join(came.revoked)}")
    if came.forgotten:
        click.echo(f"  not taken, for they were forgotten here: {', '.join(came.forgotten)}. A "
                   "flash gives such a board a key again, or --replace takes the "
                   "file's")  # fmt: skip
    if came.newer:
        click.echo(f"  the file's keys take the place of those here: {', '.join(came.newer)}. "
                   "Write mark-keys and telemetry-keys anew")  # fmt: skip
    if came.older:
        click.echo(f"  kept as they are here, for the keys here are of a later flash: "
                   f"{', '.join(came.older)}")  # fmt: skip
    if came.other:
        click.echo(f"  kept as they are here, for nothing proves that the file's are later: "
                   f"{', '.join(came.other)}. If the other computer has flashed them last, "
                   "--replace takes its keys")  # fmt: skip
    if came.spent:
        click.echo("  the other computer has given up former keys of readings, and they count no "
                   f"more here, either: {', '.join(came.spent)}. If that was too early: "
                   "telemetry-keys --with-former")  # fmt: skip
    if came.other or came.older:
        click.echo("  write telemetry-keys anew: boards may hold readings that they have signed "
                   "with the file's keys")  # fmt: skip


@keys_group.command("revoke")
@click.option("--device", help="Name of one board.")
@click.option("--group", help="All boards of this group; with --device the group of that board "
              "(default: default).")
@click.option("--all", "every", is_flag=True, help="All boards of all groups.")
@click.option("--authorities", is_flag=True,
              help="Remove the authorities of certificates; `umqtt-board identity` makes others.")
def revoke(device, group, every, authorities):
    """Void the keys of boards: each gets a new one when it is flashed the next time.

    Until then a board obeys the old key, whoever has it."""
    if device is None and group is None and not (every or authorities):
        raise BoardError("Which keys? Give --device NAME, --group NAME, --all or --authorities.")
    if every and (device is not None or group is not None):
        raise BoardError("--all voids the keys of all groups: give it alone, or leave it out.")
    if device is not None:
        records = [keys.load("default" if group is None else group, device)]
    elif every or group is not None:
        records = keys.every() if every else keys.members(group)
    else:
        records = []
    keys.revoke(records)
    if every and not records:
        click.echo("  This computer has no keys of boards: nothing to revoke.")
    for record in records:
        click.echo(f"  {record.name}: revoked. It obeys the old key until you "
                   "flash it")  # fmt: skip
    if records:
        click.echo("Flash them over the cable, then write mark-keys and telemetry-keys anew.")
    if authorities:
        names = ", ".join(whole.revoke_authorities())
        click.echo(f"  removed authorities: {names}. The broker trusts them until it has another "
                   "fleet-ca.pem and was restarted. Run `umqtt-board identity` for others: into "
                   "a new folder, or on this computer into the old one, from which it removes "
                   "these" if names else "  This computer has no authorities: nothing to "
                   "remove.")  # fmt: skip


@keys_group.command("forget")
@click.option("--device", required=True, help="Name of the board.")
@click.option("--group", default="default", show_default=True, help="Its group.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(device, group, yes):
    """Remove the key of a board that is gone for good; or, without a key of it, its name.

    Commands to its group no longer wait for it. A board that is still there obeys the old key,
    which nobody here has any more, until it is flashed over the cable."""
    if keys.find(group, device):
        question = f"Remove the only key here of {group}/{device}?"
    else:
        known = ", ".join(one.device for one in keys.members(group, missing_ok=True)) or "none"
        question = (f"This computer has no key of {group}/{device} (known there: {known}). Forget "
                    "the name all the same?")  # fmt: skip
    if not yes:
        click.confirm(question, abort=True)
    forgotten.forget(group, device)
    click.echo(f"  {group}/{device}: forgotten. Have `umqtt-board identity` write the access "
               "lists again, without it, and `telemetry-keys`: no reading is taken in its name "
               "then")  # fmt: skip
