"""The commands `umqtt-board signing-key` and `umqtt-board bundle`: a key for releases, a release.

Knows the terminal, and what `umqtt-board ota` needs of a release. Must not know how signing goes.
"""

from pathlib import Path

import click

from umqtt_board import plain
from umqtt_board.lock.passphrase import Passphrase
from umqtt_board.ota import fileset

PASSPHRASE = Passphrase("UMQTT_SIGNING_PASSPHRASE", "the signing key")


def _settings_lines(print_):
    return f'[update]\nkey = "{print_}"        # or spare = ...: boards take two'


@click.command("signing-key")
@click.option("--no-passphrase", is_flag=True,
              help="Write it unlocked, for a store of secrets that locks it itself.")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
def signing_key(no_passphrase, path):
    """Make a key that signs releases, in the file PATH; for a file that is there, say what boards
    need to know of it.

    The passphrase is asked for, or comes from UMQTT_SIGNING_PASSPHRASE, or from the file that
    UMQTT_SIGNING_PASSPHRASE_FILE names."""
    from umqtt_board.release.signing_key import SigningKey, fingerprint

    if path.exists():
        key = SigningKey.load(path, PASSPHRASE)
    else:
        word = "" if no_passphrase else PASSPHRASE.new()
        key = SigningKey.new()
        key.save(path, word)
        click.echo(f"{path}: a new signing key. Keep it off the network, and a copy elsewhere.")
    click.echo("In the boards' settings.toml:\n")
    click.echo(_settings_lines(fingerprint(key.modulus)))


_limits = (
    click.option("--project", default="umqtt_min", show_default=True,
                 help="As in the boards' settings, update.project."),
    click.option("--chip", default="", help="sys.platform of the boards that may take it: esp32, "
                 "rp2 (default: any)."),
    click.option("--machine", default="", help="What the interpreter's banner says of the board "
                 "that may take it (default: any)."),
    click.option("--security", type=click.IntRange(0, 65535),
                 help="Security version (default: SECURITY of firmware/release.py)."),
    click.option("--days", default=365, show_default=True, type=click.IntRange(0, 36500),
                 help="Days until boards that know the time take it no more; 0: never."),
)  # fmt: skip


def limits_options(function):
    """Give a command the options of what a release is for."""
    for option in reversed(_limits):
        function = option(function)
    return function


def signed(path, **limits):
    """The project's set, signed with the key in a file; limits as of bundle.Limits."""
    from umqtt_board.release import bundle
    from umqtt_board.release.signing_key import SigningKey

    key = SigningKey.load(path, PASSPHRASE)
    made = fileset.of_project()
    bundle.sign(made, key, bundle.Limits(**limits))
    return made


def opened(path):
    """The set in a bundle; tells what was signed."""
    from umqtt_board.release import bundle

    made, said, print_ = bundle.load(path)
    click.echo(plain.line(f"  signed {said['project']} {said['version']}, security version "
                          f"{said['security']}, with the key {print_[:16]}..."))  # fmt: skip
    return made


@click.command("bundle")
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="Signing key.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="File to write.")
@limits_options
def bundle_command(key, out, project, chip, machine, security, days):
    """Sign this project's library and firmware: a file for `umqtt-board ota --bundle`.

    Needs no network and no board; who sends the file needs no signing key."""
    from umqtt_board.release import bundle

    made = signed(key, project=project, chip=chip, board=machine, security=security, days=days)
    bundle.save(made, out)
    click.echo(f"{out}: set {made.id}, version {made.version}, {len(made.files)} files, "
               f"{made.size} bytes")  # fmt: skip
