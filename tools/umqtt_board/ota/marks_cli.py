"""The commands `umqtt-board mark-keys` and `umqtt-board telemetry-keys`: the keys with which the
bridge signs its marks, and those with which the pipeline checks readings.

Knows the terminal, and how such a key is made of a board's own (firmware/confirm.py,
firmware/telemetry.py). Must not know what a mark or a reading is.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import click

from umqtt_board import plain, private
from umqtt_board.errors import BoardError
from umqtt_board.ota import counters, forgotten, keys
from umqtt_board.ota.reports import hmac_sha256

MARKS = b"umqtt marks"
TELEMETRY = keys.TELEMETRY

_DEVICE = re.compile("fleet/[^/]+/[^/]+")
_group = click.option("--group",
                      help="Boards of this group alone; others in the file stay as they are "
                      "(default: all boards known here).")  # fmt: skip


_replace = click.option("--replace", is_flag=True,
                        help="Write this computer's keys also of boards of which the file has a "
                        "key that it never gave them, and not by an earlier "
                        "flash.")  # fmt: skip


@dataclass
class File:
    """What a file has: {"fleet/GROUP/DEVICE": its key, or list of keys}, and of some of these with
    which counter the board got its key: see keys.Record.given."""

    keys: dict = field(default_factory=dict)
    given: dict = field(default_factory=dict)


def made(records, purpose):
    """{"fleet/GROUP/DEVICE": key, hexadecimal} of keys.Records. Who has these can do what they are
    made for, and can neither command a board nor find its key."""
    return {_topic(record): hmac_sha256(record.key, purpose) for record in records}


def of_readings(records, former, there):
    """{"fleet/GROUP/DEVICE": list of keys, its own first} with which readings may be signed.

    former  whether also with those that a board had before, those that another computer has given
            it, and those that the File `there` has of it; without those that were given up
    """
    found = {}
    for record in records:
        full = _in_use(record)
        if former:
            full += [one for one in _before(record, there) if not record.spends(one)]
        found[_topic(record)] = list(dict.fromkeys(full))[: keys.FORMER + 1]
    return found


def _in_use(record):
    """The keys of readings that the board has: its own, or the one before that."""
    # A board whose flash has not ended may still have the key before.
    return _made_of([record.key, *record.former[: record.fresh]], TELEMETRY)


def _before(record, there):
    """The keys of readings that the board may have had, by its Record and the File `there`."""
    return _made_of(record.every_key, TELEMETRY) + _listed(there.keys.get(_topic(record), []))


def _give_up(records, there):
    """Give up all keys that these boards had before; returns how many were not given up yet."""
    count = 0
    with keys.locked():
        for record in records:
            now = keys.load(record.group, record.device)
            more = {one for one in _before(now, there) if not now.spends(one)} - {*_in_use(now)}
            count += len(more)
            if more:
                now.spend(*more)
                keys.save(now)
    return count


def _take_back(records):
    """Have all keys that these boards had before count again; changes the Records, too."""
    with keys.locked():
        for record in records:
            record.spent = []
            now = keys.load(record.group, record.device)
            if now.spent:
                now.spent = []
                keys.save(now)


def of_marks(records, there):
    """({"fleet/GROUP/DEVICE": key} with which marks are signed, as in the File `there` where that
    has a key which this computer never gave or saw on the board: another one has flashed it;
    names of these)."""
    strange = _strange(records, there, MARKS)
    found = made(records, MARKS)
    return found | {name: there.keys[name] for name in strange}, strange


def _strange(records, there, purpose):
    """Names of the boards of which the File `there` has keys that this computer neither gave them
    nor saw on them, unless it has flashed the board after whoever did; sorted."""
    return sorted(
        _topic(record) for record in records
        if {*_listed(there.keys.get(_topic(record), []))}
        - {*_made_of([record.key, *record.former], purpose)}
        and not record.later(there.given.get(_topic(record), 0)))  # fmt: skip


def _newer(records, there, former):
    """Of boards with such keys, as _strange() has them, the names of those whose readings may be
    signed with no other key than another computer's, sorted: the file does not have this one's,
    or it would have this one's alone, or none."""
    strange = _strange(records, there, TELEMETRY)
    return sorted(
        _topic(record) for record in records if _topic(record) in strange
        and not (former and record.signs
                 and hmac_sha256(record.key, TELEMETRY)
                 in there.keys[_topic(record)]))  # fmt: skip


def _made_of(some, purpose):
    return [hmac_sha256(key, purpose) for key in some]


def _topic(record):
    return f"fleet/{record.name}"


def _listed(told):
    """What a file has of a board, one key or a list of them, as a list."""
    return told if isinstance(told, list) else [told]


def _records(group):
    if not group:
        return keys.every()
    return keys.members(group, missing_ok=any(_mine(_forgotten(), group)))


def _forgotten():
    return {f"fleet/{name}" for name in forgotten.names()}


_OTHER = {MARKS: TELEMETRY, TELEMETRY: MARKS}
_WORDS = {MARKS: "mark-keys", TELEMETRY: "telemetry-keys"}
# Members beside the boards' names (tools/umqtt_pipeline/decode/device_keys.py).
_OF, _GIVEN = "file", "given"


def _without_forgotten(there, records):
    """The File without the keys of boards that were forgotten, and have come back with another."""
    known = {_topic(record): record.name for record in records}
    void = forgotten.void()
    return File({name: [one for one in _listed(had)
                        if forgotten.line(known[name], one) not in void]
                 if name in known else had for name, had in there.keys.items()}, there.given)


def _there(out, records, purpose):
    """The File of an earlier run, an empty one if there is none. BoardError for another file: one
    of the other command, or one that has keys of boards while this computer has none."""
    if not out.is_file():
        return File()  # nothing, or what private.replace() refuses
    try:
        data = json.loads(out.read_bytes())
        found = File(given=data.pop(_GIVEN, {}))
        of, found.keys = data.pop(_OF, None), data
        if not (all(_DEVICE.fullmatch(name) for name in data)
                and all(type(when) is int for when in found.given.values())):
            raise ValueError
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise private.other_than(out, f"file of `umqtt-board {_WORDS[purpose]}`")
    except OSError as error:
        raise BoardError(f"{out} cannot be read: {error.strerror}.")
    other = made(records, _OTHER[purpose])
    # An older one does not say of which command it is.
    if of == _WORDS[_OTHER[purpose]] or any(
            key in _listed(data.get(name, [])) for name, key in other.items()):
        raise BoardError(f"{out} is the file of `umqtt-board {_WORDS[_OTHER[purpose]]}`. It stays "
                         "as it is: give another name.")  # fmt: skip
    if data and not records and not forgotten.names():
        raise BoardError(f"{out} has keys of {plain.counted(len(data), 'board')}, and this "
                         f"computer has none of these ({keys.root()}). It stays as it is: run "
                         "this where the keys are, or remove the file.")  # fmt: skip
    return found


def _mine(there, group):
    """Those names in a file that the command is about: all, or one group's. The others stay."""
    return {name for name in there if not group or name.startswith(f"fleet/{group}/")}


def _unknown(names):
    """(sorted list of those that were forgotten here, set of those that this computer has never
    had a key of: another one's)."""
    gone = _forgotten() & names
    return sorted(gone), names - gone


def _tell_kept(kept):
    if kept:
        some = sorted(kept)
        more = f" and {len(some) - 3} more" if len(some) > 3 else ""
        click.echo(plain.line(f"  as they were, for this computer has no keys of them: "
                              f"{', '.join(some[:3])}{more}"))  # fmt: skip


def _tell_newer(names):
    if names:
        click.echo(plain.line(f"  as they were, for another computer has given them a key: "
                              f"{', '.join(names)}. `umqtt-board keys import` of its copy "
                              "brings it; --replace here, if this computer has flashed them "
                              "last"))  # fmt: skip


def _tell_given_up(count):
    if count:
        some = "key that boards had before is" if count == 1 else "keys that boards had before are"
        click.echo(f"  {count} {some} given up: no later file has them, but by --with-former")


def _write(out, found, there, records, purpose):
    """Write the file: `found`, as File.keys. Of boards with this computer's key it says when they
    got that; of others what the File `there` says."""
    when = {name: given for name, given in there.given.items() if name in found}
    for record in records:
        name = _topic(record)
        if record.given and _made_of([record.key], purpose)[0] in _listed(found.get(name, [])):
            before = when.get(name, 0)  # by a clock that was far ahead: it tells nothing
            when[name] = max(record.given, 0 if counters.ahead(before) else before)
    data = found | {_OF: _WORDS[purpose], _GIVEN: when}
    with keys.locked():  # two at once have one name for what lies aside
        private.replace(out, json.dumps(data, indent=1, sort_keys=True).encode() + b"\n")


@click.command("mark-keys")
@_group
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="File to write, for `umqtt-pipeline bridge --mark-keys`; a bridge that runs "
              "reads it again.")  # fmt: skip
@_replace
def mark_keys(group, out, replace):
    """Write the keys with which the bridge signs marks, for boards with marks = "signed"."""
    records = _records(group)
    there = _there(out, records, MARKS)
    mine = _mine(there.keys, group)
    found, strange = of_marks(records, File() if replace else there)
    gone, kept = _unknown(mine - set(found))
    stay = {name: there.keys[name] for name in {*there.keys} - mine | kept}
    _write(out, stay | found, there, records, MARKS)
    if gone:
        click.echo(plain.line(f"  no longer in it, for they are forgotten: {', '.join(gone)}"))
    _tell_kept(kept)
    _tell_newer(strange)
    click.echo(f"{out}: keys for the marks of {plain.counted(len(found), 'board')}; write it "
               "anew after flashing a board that is new or was erased")  # fmt: skip


@click.command("telemetry-keys")
@_group
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="File to write, for --telemetry-keys of `umqtt-pipeline bridge`, `ingest` and "
              "`replay`; what runs reads it again.")  # fmt: skip
@click.option("--drop", is_flag=True,
              help="Leave out boards of an earlier file that this computer has no key of: anybody "
              "may publish readings in their names again.")
@click.option("--no-former", is_flag=True,
              help="Without the keys that boards had before, when the boards have delivered and "
              "ingest has taken it in: a reading signed with one of these goes to quarantine, and "
              "a board that holds it keeps it. These keys are in no later file, either.")
@click.option("--with-former", is_flag=True,
              help="Also with the keys that --no-former has given up, if that was too early: "
              "whoever has one can sign readings again.")
@_replace
def telemetry_keys(group, out, no_former, with_former, drop, replace):
    """Write the keys with which the pipeline checks readings, of the boards that were flashed with
    telemetry = "signed".

    A board that got another key may hold readings signed with the one before: the file has its
    former keys, too, and whoever has one of these can still sign in its name. A board that was
    forgotten here is in it without a key: no reading is taken in its name, be it signed or not.
    Boards of an earlier file that this computer never had a key of stay as they are, and those
    that another computer has given a key since."""
    if no_former and with_former:
        raise BoardError("--no-former or --with-former: one takes the former keys out, the other "
                         "brings them back.")  # fmt: skip
    records = _records(group)
    there = _without_forgotten(_there(out, records, TELEMETRY), records)
    _take_back(records if with_former else ())
    mine = _mine({*there.keys} | _forgotten(), group)
    gone, kept = _unknown(mine - set(made(records, TELEMETRY)))
    signers = [record for record in records if record.signs]
    newer = [] if replace else _newer(records, there, not no_former)
    gave_up = no_former and _give_up([one for one in records if _topic(one) not in newer], there)
    found = of_readings(signers, not no_former, there)
    found |= {name: _listed(there.keys[name]) for name in newer}
    strange = {*_strange(signers, there, TELEMETRY)} - {*newer}
    if not no_former:
        strange &= {*_strange(signers, File(found, there.given), TELEMETRY)}
    elsewhere = sorted(name for name in found if there.keys.get(name) == []
                       and not forgotten.is_known(name.partition("/")[2]))  # fmt: skip
    found |= {name: [] for name in elsewhere}
    plainly = sorted(mine - set(found) - {*gone} - kept)
    stay = {name: there.keys[name] for name in {*there.keys} - mine}
    if not drop:
        found |= {name: [] for name in gone}
        stay |= {name: there.keys[name] for name in kept}
    stay |= {name: one if len(one) != 1 else one[0] for name, one in found.items()}
    _write(out, stay, there, records, TELEMETRY)
    count = sum(map(bool, found.values()))
    click.echo(f"{out}: keys for the signed readings of {plain.counted(count, 'board')}; write "
               "it anew after flashing a board that is new or was erased")  # fmt: skip
    more = sum(len(keys_of) > 1 for keys_of in found.values())
    if more:
        click.echo(f"  {more} of them had other keys before, which still count. When they have "
                   "delivered what they held, and ingest is through: --no-former")  # fmt: skip
    if drop and (left := sorted({*gone, *kept})):
        click.echo(plain.line(f"  left out: {', '.join(left)}. Anybody may publish in their name"))
    elif gone:
        click.echo(plain.line(f"  without a key here: {', '.join(gone)}. No reading is taken in "
                              "their name; --drop leaves them out"))  # fmt: skip
    _tell_given_up(gave_up)
    if strange:
        what = "left out" if no_former else "in it, too"
        click.echo(plain.line(f"  {what}: keys that another computer has given to "
                              f"{', '.join(sorted(strange))}. `umqtt-board keys import` of its "
                              "copy brings them, if it has flashed them last"))  # fmt: skip
    _tell_newer(newer)
    if elsewhere:
        click.echo(plain.line(f"  without a key, for another computer has forgotten them: "
                              f"{', '.join(elsewhere)}. Import a copy of its keys (`umqtt-board "
                              "keys import`); if this computer has flashed such a board since, "
                              "run this again then"))  # fmt: skip
    if not drop:
        _tell_kept(kept)
    if waits := [one.name for one in signers if one.fresh or one.revoked]:
        click.echo(plain.line(f"  still to be flashed: {', '.join(waits)}. Whoever has the key "
                              "that such a board has can sign in its name"))  # fmt: skip
    if plainly:
        click.echo(plain.line(f"  flashed without telemetry = \"signed\" since then: "
                              f"{', '.join(plainly)}. Anybody may publish in their name"))
