"""The commands `umqtt-board command` and `umqtt-board ota`: to one board, or to a group.

Knows the terminal. Exit status 0: all boards have taken it, 1: some have not, 2: it could not be
sent.
"""

import os
import re
import shlex
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from umqtt_board import plain
from umqtt_board.errors import BoardError
from umqtt_board.ota import fileset, keys
from umqtt_board.ota.send import BEFORE, VALID_S, Session
from umqtt_board.release import release_cli
from umqtt_board.settings.settings_file import firmware_settings

PASSWORD = "UMQTT_BROKER_PASSWORD"
# A trial that a reading ends is over by then, mostly: nobody has to be told of it.
TRIAL_S = 1.0
_SET = re.compile("[0-9a-f]{8}")  # the name of a set

_device = click.option("--device", "--board", "device", help="Name of one board.")
_group = click.option("--group", help="All boards of this group that there is a key for; with "
                                      "--device the group of that board (default: default).")
_broker = click.option("--broker", help="HOST or HOST:PORT (default: where the boards are flashed "
                                        "to go).")
_ca = click.option("--ca", type=click.Path(dir_okay=False),
                   help="CA certificate, a PEM file; switches TLS on.")  # fmt: skip
_cert = click.option("--cert", type=click.Path(dir_okay=False),
                     help="The operator's certificate, a PEM file, for a broker that asks for one "
                     "(`umqtt-board identity`).")  # fmt: skip
_key = click.option("--key", type=click.Path(dir_okay=False), help="And its key.")


def _records(device, group):
    if device is None and group is None:
        raise BoardError("Which board? Give --device NAME, or --group NAME for all of a group.")
    if device is not None:
        return [keys.load("default" if group is None else group, device)]
    return keys.members(group)


def _where(records, broker, ca, cert, key):
    """The broker to use: as given, else as the first board's settings say. Tells which one that
    is, and whose settings name another one: those boards would not be heard."""
    found = dict(records[0].broker)
    if broker:
        host, _, port = broker.rpartition(":") if ":" in broker else (broker, "", "")
        if not host or port and not (port.isdigit() and 0 < int(port) < 65536):
            raise BoardError(f"--broker {broker}: expected HOST or HOST:PORT.")
        found["host"] = host
        if port:
            found["port"] = int(port)
    if ca:
        found["ca"], found["tls"] = ca, True
    if key and not cert:
        raise BoardError("--key needs --cert.")
    if cert:
        found["cert"], found["key"], found["tls"] = cert, key, True
    if not found.get("host"):
        raise BoardError(f"Nothing is known of the broker of {records[0].device}: give --broker.")
    found.setdefault("port", 8883 if found.get("tls") else 1883)
    if not broker and len(records) > 1:
        _tell_of_broker(records, found)
    found["password"] = os.environ.get(PASSWORD)
    if found.get("user") and found["password"] is None:
        raise BoardError(f"The broker wants the password of {found['user']}: set {PASSWORD}.")
    return found


def _tell_of_broker(records, found):
    """Which broker the settings of the first of several boards name, and who names another."""
    click.echo(f"   broker {found['host']}:{found['port']}, by the settings of "
               f"{records[0].device}")  # fmt: skip
    others = [each.device for each in records if _has_another_broker(each, found)]
    if others:
        click.echo(f"   The settings of {', '.join(others)} name another broker. If that is not "
                   "this one by another address, run this again with --device or --broker",
                   err=True)


def _has_another_broker(record, where):
    """Whether the settings of a board name another broker than `where`, or another address."""
    named = record.broker.get("host"), record.broker.get("port")
    return bool(named[0]) and named != (where["host"], where["port"])


def _again(broker, ca, cert, key):
    """The options that lead another command to the same broker, as text for a shell."""
    given = {"--broker": broker, "--ca": ca, "--cert": cert, "--key": key}
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given.items() if value)


def _table(session, size=None):
    table = Table(box=None, pad_edge=False)
    for column in ("board", "state", "has") if size else ("board", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("")
    for member in session.members.values():
        row = [member.device, member.state]
        if size:
            row.append(f"{100 * member.have // size:3d} %" if member.state != "waiting" else "")
        # What the board says is no markup, and moves no cursor.
        table.add_row(*row, Text(plain.line(member.why)))
    return table


def _notices(session, told, again):
    """What is to be said once of boards that are on trial for longer, and of those that took the
    set back before: a list of lines.

    told   (what, board) of which it was said; those of now are added
    again  options that lead another command to the same broker
    """
    lines = []
    for member in session.members.values():
        waits = member.state == "on trial" and time.monotonic() - member.trial >= TRIAL_S
        if member.before and ("before", member.device) not in told:
            told.add(("before", member.device))
            lines.append(f"{member.device} took this set back before: {member.before}")
        if waits and ("trial", member.device) not in told:
            told.add(("trial", member.device))
            ends = ('with its update.trial = "commit" until it gets this'
                    if member.record.settings.get("update.trial") == "commit" else
                    'until a reading is acknowledged. With update.trial = "commit" this ends it')
            lines.append(f"{member.device} is on trial, {ends}: umqtt-board command "
                         f"--device {member.device} --group {session.group}{again} "
                         f"commit {member.status['set']}")  # fmt: skip
    return lines


def _has_another_key(record):
    """Whether this computer has given a board another key since it read this Record."""
    now = keys.find(record.group, record.device)
    return bool(now) and now.key != record.key


def _were(names):
    return f"{', '.join(names)} {'was' if len(names) == 1 else 'were'}"


def _tell_of_left(left, update):
    """Which boards have not taken what they were sent, as far as that is known. update: whether it
    is a set, of which a board has nothing that it does not say."""
    has = {}
    for member in left:
        if member.under_way:
            has.setdefault(member.state, []).append(member.device)
    taken = [member.device for member in left if member.state == "sent" and member.obeyed]
    lost = [member.device for member in left if member.unknown]
    silent = [member.device for member in left if member.silent]
    refused = [member.device for member in left if member.state not in has
               and member.device not in taken + lost + silent]  # fmt: skip
    for state, names in has.items():
        click.echo(f"umqtt-board: still {state} when --timeout was over: {', '.join(names)}",
                   err=True)  # fmt: skip
    if taken:
        click.echo(f"umqtt-board: taken by {', '.join(taken)}, without a sign of its effect when "
                   "--timeout was over: `umqtt-board command report` asks", err=True)  # fmt: skip
    if refused:
        click.echo(f"umqtt-board: not taken by {', '.join(refused)}", err=True)
    if silent and update:
        click.echo(f"umqtt-board: not taken by {', '.join(silent)}: no answer within --timeout. "
                   "The next ota goes on with what a board has by then", err=True)  # fmt: skip
    elif silent:
        click.echo(f"umqtt-board: no answer from {', '.join(silent)} within --timeout: it may "
                   "have been obeyed. `umqtt-board command report` asks", err=True)  # fmt: skip
    if lost:
        click.echo(f"umqtt-board: {', '.join(lost)} may have taken it, or not: more than {BEFORE} "
                   "commands of other computers have a higher counter, and the board's reports "
                   "name no others. `umqtt-board command report` asks what it does "
                   "now", err=True)  # fmt: skip


def _run(session, work, again, size=None):
    """Do the work under a table that shows how far it is; returns the exit status.

    session  Session with the boards
    work     function(show), which calls show() whenever something may have changed
    again    options that lead another command to the same broker
    size     bytes of an update, None: no update
    """
    console = Console()
    told = set()
    with Live(_table(session, size), console=console, refresh_per_second=4) as live:

        def show():
            for line in _notices(session, told, again):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            live.update(_table(session, size))

        work(show)
    if not console.is_terminal:
        console.print()  # there the table has no end of line
    left = [member for member in session.members.values() if member.state != "done"]
    _tell_of_left(left, bool(size))
    silent = [member for member in session.members.values()
              if member.state in ("waiting", "sent") and not member.start]  # fmt: skip
    for member in left:
        if member.state == "refused" and _SET.fullmatch(member.tries):
            click.echo(f"   {member.device} is still on trial with the set {member.tries}, "
                       "which came before this one: umqtt-board command --device "
                       f"{member.device} --group {session.group}{again} commit {member.tries} "
                       "ends the trial", err=True)  # fmt: skip
    since = [member.device for member in silent if _has_another_key(member.record)]
    silent = [member for member in silent if member.device not in since]
    elsewhere = [member.device for member in silent
                 if _has_another_broker(member.record, session.broker)]  # fmt: skip
    silent = [member for member in silent if member.device not in elsewhere]
    foreign = [member.device for member in silent if member.foreign]
    void = [member.device for member in silent if member.void and not member.foreign]
    silent = [member.device for member in silent if not (member.foreign or member.void)]
    if since:
        click.echo(f"   {_were(since)} given another key here while this command ran: run "
                   "it again", err=True)  # fmt: skip
    if elsewhere:
        click.echo(f"   Nothing was heard of {', '.join(elsewhere)}, whose settings name another "
                   "broker: run this again with --device", err=True)  # fmt: skip
    if foreign:
        click.echo(f"   {_were(foreign)} heard with a key that this computer does not "
                   "have: either another computer has flashed it since, or somebody forges its "
                   "reports. If you know of such a flash, `umqtt-board keys import` of that "
                   "computer's copy brings the key. Otherwise leave the keys as they are, "
                   "and see who may publish on its topics", err=True)  # fmt: skip
    if void:
        click.echo(f"   {_were(void)} heard with a key that is void here: this computer "
                   "has given it another one. If the board is on, it was not flashed to the end "
                   "since: `make flash` does it, and keeps the readings that it holds. "
                   "If it was flashed, it has not connected since, and this is what the "
                   "broker, or somebody, has kept", err=True)  # fmt: skip
    if silent:
        click.echo(f"   Nothing was heard of {', '.join(silent)}. A board may be off, or the "
                   "broker's access lists may not let this computer hear it (`umqtt-board "
                   "identity`, --cert and --key). For one that is gone for good, or has another "
                   "name now: `umqtt-board keys forget --device NAME "
                   f"--group {session.group}`", err=True)  # fmt: skip
    return 1 if left else 0


@click.command()
@_device
@_group
@_broker
@_ca
@_cert
@_key
@click.option("--timeout", default=60, show_default=True, type=click.IntRange(1),
              help="Seconds to wait for the boards.")
@click.option("--valid", default=VALID_S, show_default=True, type=click.IntRange(1, 31536000),
              help="Seconds after which no board obeys it any more.")
@click.argument("name", type=click.Choice(["commit", "interval", "report", "restart"]))
@click.argument("value", required=False)
def command(device, group, broker, ca, cert, key, timeout, valid, name, value):
    """Send a signed command: interval SECONDS, report, restart, or commit SET.

    commit ends the trial of an update where the settings say update.trial = "commit"; SET is the
    set's name, as `umqtt-board ota` says it."""
    body = _body(name, value)
    records = _records(device, group)
    where = _where(records, broker, ca, cert, key)
    with Session(records[0].group, records, where, keys.next_count, valid) as session:
        status = _run(session, lambda show: session.command(name, body, timeout, show),
                      _again(broker, ca, cert, key))  # fmt: skip
        _tell_of_late(session)
    sys.exit(status)


def _tell_of_late(session):
    """Which boards may still obey a command after this program has ended, and how long."""
    # One whose counter is above that of the command obeys it no more.
    late = [member.device for member in session.members.values()
            if member.state == "sent" and not member.obeyed and member.seen <= member.last
            ]  # fmt: skip
    if late:
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + session.valid))
        click.echo(f"   The broker may keep the command: until {until} (--valid {session.valid}) "
                   f"{', '.join(late)} may still obey it on connecting", err=True)  # fmt: skip


def _body(name, value):
    got = "no value" if value is None else repr(value)
    if name == "commit":
        if not _SET.fullmatch(value or ""):
            raise BoardError("commit: expected the name of the set, eight hexadecimal digits, "
                             f"got {got}.")  # fmt: skip
        return {"set": value}
    if name != "interval":
        if value is not None:
            raise BoardError(f"{name} takes no value, got {got}.")
        return {}
    try:
        ms = round(float(value or "") * 1000)
    except (ValueError, OverflowError):
        ms = None
    rules = firmware_settings()
    if rules.validate({"broker.host": "-", "interval_ms": ms}):
        raise BoardError(f"interval: expected seconds between 0.001 and 86400, got {got}.")
    return {"interval_ms": ms}


@click.command()
@_device
@_group
@_broker
@_ca
@_cert
@_key
@click.option("--timeout", default=900, show_default=True, type=click.IntRange(1),
              help="Seconds to wait for the boards.")
@click.option("--boots", default=3, show_default=True, type=click.IntRange(1, 100),
              help="Starts within which the new firmware must get a publish acknowledged.")
@click.option("--seconds", default=300, show_default=True, type=click.IntRange(1, 86400),
              help="Time that each of these starts has.")
@click.option("--sign", type=click.Path(path_type=Path, dir_okay=False), metavar="KEY",
              help="Sign it first (umqtt-board signing-key); for a key that is kept elsewhere: "
              "umqtt-board bundle.")
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False),
              help="Send what is in this file instead (umqtt-board bundle).")  # fmt: skip
def ota(device, group, broker, ca, cert, key, timeout, boots, seconds, sign, bundle):
    """Send this project's library and firmware to boards, over MQTT."""
    if sign and bundle:
        raise BoardError("--sign or --bundle: what is in a bundle is signed.")
    records = _records(device, group)
    where = _where(records, broker, ca, cert, key)
    if bundle:
        made = release_cli.opened(bundle)
    else:
        made = release_cli.signed(sign) if sign else fileset.of_project()
    click.echo(f"  set {made.id}: version {made.version}, {len(made.files)} files, "
               f"{made.size} bytes")  # fmt: skip
    with Session(records[0].group, records, where, keys.next_count) as session:
        status = _run(session, lambda show: session.update(made, boots, seconds, timeout, show),
                      _again(broker, ca, cert, key), made.size)  # fmt: skip
        _tell_of_late(session)
    sys.exit(status)
