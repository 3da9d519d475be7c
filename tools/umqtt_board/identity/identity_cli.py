"""The command `umqtt-board identity`: certificates and access lists for the whole fleet.

Knows the terminal, and which file is for whom. Must not know X.509 nor the form of a rule.
"""

from pathlib import Path

import click

from umqtt_board import plain, private
from umqtt_board.errors import BoardError
from umqtt_board.identity import access
from umqtt_board.lock import whole
from umqtt_board.ota import forgotten, keys

RENEW_DAYS = 90
FORGOTTEN = "forgotten"  # keys that are void, for other computers that write here, too
_PASS = "publish and receive under its name"
BROKER = "broker"  # folder of what the broker's computer needs, and nothing else


def _boards(more, void):
    """(group, device) of all boards that this computer has keys for, and of `more`; and of those
    that are left out, for their keys here are void: lines as forgotten.void() has them."""
    found, left = set(), []
    for record in keys.every():
        if forgotten.line(record.name, record.key) in void:
            left.append((record.group, record.device))
        else:
            found.add((record.group, record.device))
    for text in more:
        group, slash, device = text.partition("/")
        if not slash:
            raise BoardError(f"--board {text}: expected GROUP/DEVICE, for instance "
                             f"default/{text}.")  # fmt: skip
        keys.find(group, device)  # raises BoardError for what is no name
        found.add((group, device))
    return sorted(found.difference(left)), left


class Files:
    """The folder with what is given away; tells what was made."""

    def __init__(self, out, days):
        self.out, self.days = out, days
        self.made, self.kept = [], 0

    def pair(self, authority, name, path, hosts=()):
        """Certificate and key of one user, unless what is there is right and good for
        RENEW_DAYS."""
        files = self.out / f"{path}.pem", self.out / f"{path}-key.pem"
        if all(file.exists() for file in files) and authority.holds(
                *(file.read_bytes() for file in files), name, min(RENEW_DAYS, self.days // 2),
                hosts):  # fmt: skip
            self.kept += 1
            return
        files[0].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file, data in zip(files, authority.issue(name, self.days, hosts)):
            private.replace(file, data)
        self.made.append(name)

    def others(self, boards):
        """GROUP/DEVICE of boards that have a certificate here and are not among these, sorted."""
        named = {access.user(*each) for each in boards}
        there = {path.relative_to(self.out / "boards").with_suffix("").as_posix()
                 for path in self.out.glob("boards/*/*.pem")
                 if path.with_name(f"{path.stem}-key.pem").exists()}  # fmt: skip
        return sorted(there - named)


@click.command("identity")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="Folder for certificates, keys and access lists.")
@click.option("--host", "hosts", multiple=True, metavar="NAME",
              help="Name or address by which boards reach the broker: it gets a certificate, "
              "too; several times (default: those that its certificate there has).")
@click.option("--board", "more", multiple=True, metavar="GROUP/DEVICE",
              help="A board that was not flashed here yet; several times.")
@click.option("--yes", is_flag=True,
              help="A board that was forgotten may come back by --board.")
@click.option("--broker-folder", metavar="PATH",
              help="Where the folder `broker` will lie on the broker's computer, for "
              "mosquitto.conf (default: as in the one that is there, or where it is written).")
@click.option("--days", default=730, show_default=True, type=click.IntRange(2, 7300),
              help="Time that a certificate is valid.")
@click.option("--new-authority", is_flag=True,
              help="Sign all clients anew with a new authority; the broker trusts both until you "
              "take the old one out of fleet-ca.pem.")  # fmt: skip
def command(out, hosts, more, yes, broker_folder, days, new_authority):
    """Write certificates for boards, bridge and operator, and the broker's access lists.

    The folder `broker` is for the broker, and all that it needs. What is there and good for 90
    days more stays; run it again for new boards and to renew."""
    void = forgotten.void() | keys.read_names(
        out / FORGOTTEN, "keys that are void",
        "run this command on the computer that forgot them, too")  # fmt: skip
    boards, left = _boards(more, void)
    if not boards and not left and not forgotten.names():
        raise BoardError("This computer has no key for any board: flash one, or name one with "
                         "--board GROUP/DEVICE.")  # fmt: skip
    known = {record.name for record in keys.every()}
    gone = (forgotten.names() | {line.split()[0] for line in void}) - known
    back = sorted(gone & {access.user(*each) for each in boards})
    if back and not yes:
        raise BoardError(f"Nothing was written. --board {back[0]}: it was forgotten (`umqtt-board "
                         f"keys forget`), and whoever has its old certificate would {_PASS}. If "
                         "it is to come back, another name for it is safe; --yes brings this one "
                         "back.")  # fmt: skip
    if any(ord(c) < 32 for c in broker_folder or ""):
        raise BoardError(f"--broker-folder {broker_folder!r}: expected a path in one line.")
    keys.first_use(lambda text: click.echo(f"  {text}"))
    with keys.locked():  # two at once would make two authorities of one name
        files = _write(out, boards, hosts, broker_folder, days, new_authority)
        if void:
            keys.write_names(out / FORGOTTEN, void)
    for name in back:
        click.echo(f"  {name} was forgotten and is in the lists again: whoever has its old "
                   f"certificate can {_PASS}. Flash it before the next run, which leaves it out "
                   "if this computer has no key of it by then")  # fmt: skip
    for name in files.others(boards + left):
        if name in gone:
            click.echo(f"  {name} was forgotten and is not in the lists: its certificate here is "
                       "of no use any more. If it is to come back: firmware/SECURITY.md, \"A "
                       "board is lost\"")  # fmt: skip
            continue
        click.echo(f"  {name} has a certificate here and is not in the lists: there is no key for "
                   f"it on this computer. --board {name} has it in them")  # fmt: skip
    for each in left:
        click.echo(f"  {access.user(*each)} is not in the lists, for another computer has "
                   "forgotten the key that is here. Forget it here, too (`umqtt-board keys "
                   "forget`), or flash it, which gives it another key")  # fmt: skip


def _write(out, boards, hosts, broker_folder, days, new_authority):
    """Write the whole folder; returns its Files."""
    from umqtt_board.identity.authority import Authority, host_name

    for host in hosts:
        host_name(host)  # before anything is written
    word = keys.authorities_word()
    held = keys.authorities_folder()
    number = len({path.name.replace("-key", "") for path in held.glob("fleet-*.pem")})
    for name in (f"fleet-{number}", "broker-ca"):
        if any(held.glob(f"{name}*.pem")):
            Authority(name, held, word)  # BoardError for one that is damaged
    _check_trust(out, held)
    for folder in (held, out, out / BROKER):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fleet = Authority(f"fleet-{number + 1 if new_authority else max(1, number)}", held, word)
    files = Files(out, days)
    _trust(fleet, out / BROKER / "fleet-ca.pem")
    for name in (access.BRIDGE, access.OPERATOR):
        files.pair(fleet, name, name)
    for group, device in boards:
        files.pair(fleet, access.user(group, device), f"boards/{group}/{device}")
    broker = Authority("broker-ca", held, word)
    private.replace(out / "broker-ca.pem", broker.pem)
    hosts = hosts or _hosts_there(out / BROKER / "broker.pem")
    if hosts:
        files.pair(broker, "broker", f"{BROKER}/broker", hosts)
    rights = access.fleet(boards)
    listener = access.mosquitto_listener(broker_folder or _folder_there(out / BROKER))
    for name, text in (("mosquitto.acl", access.mosquitto(rights)), ("mosquitto.conf", listener),
                       ("emqx-acl.conf", access.emqx(rights))):  # fmt: skip
        private.replace(out / BROKER / name, text.encode())
    click.echo(f"{out}: {len(files.made)} certificates made, {files.kept} kept; access lists for "
               f"{plain.counted(len(boards), 'board')}, the bridge and the operator")  # fmt: skip
    return files


def _hosts_there(path):
    """The hosts of the broker's certificate that is there, () for none: a renewal renews it."""
    from umqtt_board.identity.authority import hosts

    if not path.exists():
        return ()
    found = hosts(path.read_bytes())
    if not found:
        click.echo(f"  {path} is damaged, and stays as it is: --host makes another one")
    return found


def _folder_there(folder):
    """Where the files of the broker lie by the mosquitto.conf that is there."""
    own, path = str(folder.absolute()), folder / "mosquitto.conf"
    found = access.folder_of(path.read_text(errors="replace")) if path.exists() else None
    if found and found != own:
        click.echo(f"  mosquitto.conf names {found}, as before; --broker-folder {own} has it name "
                   "this folder")  # fmt: skip
    return found or own


def _check_trust(out, held):
    """BoardError for a folder whose newest authorities this computer never had: it would bring its
    own back, which may be stolen, and shut out every board that has a certificate of the others.
    """
    from umqtt_board.identity.authority import stranger

    own = {path.read_bytes() for path in held.glob("*.pem")}
    for path in (out / BROKER / "fleet-ca.pem", out / "broker-ca.pem"):
        name = path.exists() and stranger(
            path.read_bytes(), lambda pem: pem in own or whole.is_revoked(pem))
        if name:
            raise BoardError(f"{path} names an authority {plain.line(name)} that this computer "
                             "does not have: another one has made it, or its key is lost. Nothing "
                             "was changed. Bring its key from a copy (`umqtt-board keys import`), "
                             "or give a new folder: all certificates in it are "
                             "new.")  # fmt: skip


def _trust(fleet, path):
    """Have the file of authorities that the broker trusts name this one."""
    from umqtt_board.identity.authority import with_trust

    before = path.read_bytes() if path.exists() else b""
    data, gone = with_trust(before, fleet, whole.is_revoked)
    if data != before:
        private.replace(path, data)
    if gone is None:
        click.echo(f"  {path} was damaged: {fleet.name} is the only authority in it now")
    elif gone:
        click.echo(f"  {path} trusts no longer {plain.line(', '.join(gone))}: revoked, or another "
                   "one has the name now. The broker does not either, once it has that file and "
                   "was restarted")  # fmt: skip
