"""The readers of a spool: how far each is done with it, so that segments may be deleted.

Knows the files consumers/NAME.json, and which files of a streaming query's checkpoint say what
can no longer be asked for. Must not know blocks, brokers or tables.

    {"position": n,      the reader will never ask for anything below it
     "committed": {...}, offset (the source's) of the last batch that Spark has said to be done
     "stored": {...},    {id of a spool: position} up to which the tables have it; for the metrics
     "tables": "/...",   whose reader it is
     "check": n}         crc32 of NAME and the rest: a wrong position would delete too early

Which batches Spark may run again. It writes offsets/N before batch N, commits/N after it, and says
`commit` for N when offsets/N+1 is written: never, then, for the last batch of a run. Started again
it runs the batch that has offsets and no commit, and plans nothing before that. It fsyncs none of
these files, and a power cut may take the last ones: `advance` therefore stays one batch behind,
and remembers that one over the end of a run. `finish` need not wait: it fsyncs the files first.
"""

import errno
import json
import logging
import os
import re
import zlib
from pathlib import Path

from . import objects, offsets
from .files import (
    SpoolError,
    make_folder,
    read_plain,
    replace_file,
    spool_id,
    sync_folder,
    write_over,
)

log = logging.getLogger("umqtt.consumers")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
#: Under such a name, see bridge_name(), another bridge of a shared subscription reads for its
#: marks. It keeps nothing of what it reads.
SHIP = "ship"  #: as which a bridge keeps segments that are not shipped yet
BRIDGE = re.compile(r"bridge-[0-9a-f]{16}")


def _path(folder, name):
    if not NAME.fullmatch(name):
        raise ValueError(f"consumer name {name!r}: letters, digits, - and _ only, at most 64")
    if objects.is_place(folder):
        return objects.Object(folder, f"consumers/{name}.json")
    return Path(folder, "consumers", f"{name}.json")


def _files(folder):
    """The files of the readers of a spool, or the objects of those of a log."""
    if objects.is_place(folder):
        return [objects.Object(folder, name) for name, _ in objects.listed(folder, "consumers")]
    return sorted(Path(folder, "consumers").glob("*.json"))


def _held(path):
    """What a reader's file says, as a dict; empty if there is none or it is damaged. Raises
    Unreachable."""
    try:
        raw = read_plain(path) if isinstance(path, Path) else path.read_text()
        told = json.loads(raw)
    except objects.Unreachable:
        raise
    except (OSError, ValueError):
        return {}
    if not isinstance(told, dict):
        return {}
    check = told.pop("check", None)
    return told if check == _check(path.stem, told) else {}


def _check(name, told):
    return zlib.crc32(json.dumps([name, told], sort_keys=True).encode())


def positions(folder):
    """{name: position} of every registered reader of the spool in `folder`."""
    found = {}
    for path in _files(folder):
        position = _held(path).get("position")
        # Unreadable: keep everything rather than guess.
        found[path.stem] = position if isinstance(position, int) else 0
    return found


def done_with(folder, full=False):
    """The position up to which every reader of the spool in `folder` is done with it; 0 if it has
    none but other bridges: nobody has stored anything. full: these are not waited for."""
    found = positions(folder)
    storing = [found[name] for name in found if not BRIDGE.fullmatch(name)]
    return min(storing if full else found.values()) if storing else 0


def has_reader(folder):
    """Whether the spool in `folder` has a reader, other bridges aside."""
    return any(not BRIDGE.fullmatch(name) for name in positions(folder))


def give_up_bridges(folder, ids):
    """Remove the files of bridges that have read the spool in `folder`, of those whose spools have
    these ids; returns their names."""
    names = {bridge_name(key) for key in ids}
    old = [path for path in _files(folder) if path.stem in names]
    for path in old:
        path.unlink()
    return [path.stem for path in old]


def bridge_name(key):
    """The name under which the bridge of the spool with the id `key` reads other spools."""
    return f"bridge-{key}"


def unreadable(folder):
    """The files of readers that are damaged; nothing is deleted until they are written again."""
    return [path for path in _files(folder) if not isinstance(_held(path).get("position"), int)]


def reached(folder, key):
    """{name: position} up to which each reader has once had the spool in `folder`, whose id is
    `key`: all that was durable then."""
    found = positions(folder)
    for path in _files(folder):
        committed = _held(path).get("committed")
        if isinstance(committed, dict) and key in committed:
            found[path.stem] = max(found.get(path.stem, 0), committed[key][0])
    return found


def committed(folder, tables):
    """The offsets up to which readers that work for these tables are done, as far as their files
    say it."""
    held = [_held(path) for path in _files(folder)]
    return [each["committed"] for each in held if each.get("tables") == tables
            and "committed" in each]  # fmt: skip


def lag(folder, key, position):
    """{name: bytes up to `position` that a reader has not stored yet} of the spool in `folder`,
    whose id is `key`. It may have stored more than it has released."""
    found = positions(folder)
    for path in _files(folder):
        stored = _held(path).get("stored")
        if isinstance(stored, dict) and isinstance(stored.get(key), int):
            found[path.stem] = max(found.get(path.stem, 0), stored[key])
    return {name: max(0, position - at) for name, at in found.items()}


def stored(folder, name, end):
    """Say that the tables of reader `name` have all up to the offset `end`: Spark says so only
    when the next batch begins, which may be never."""
    key, held = spool_id(folder), _held(_path(folder, name))
    if key in end:
        known = {"committed": held["committed"]} if "committed" in held else {}
        register(folder, name, held.get("position", 0), **known, stored={key: end[key][0]})


def register(folder, name, position, **more):
    """Say that reader `name` will never ask for anything below `position` again.

    more: what else its file says from now on; of what it said, "tables" and "stored" stay.
    Raises ValueError for a name that cannot be a file's.
    """
    path = _path(folder, name)
    kept = {key: value for key, value in _held(path).items() if key in ("tables", "stored")}
    told = {**kept, "position": position, **more}
    data = json.dumps({**told, "check": _check(name, told)}).encode()
    if objects.is_place(folder):
        path.write(data)
    else:
        make_folder(path.parent)
        try:
            replace_file(path, data)
        except OSError as error:
            if error.errno != errno.ENOSPC or not path.exists():
                raise
            write_over(path, data)  # else nobody could ever make room


def ahead(folder, name, key, place, end):
    """Whether reader `name` has once had more of the spool in `folder`, whose id is `key`, than up
    to the packet at `place` (-1: none), by its file or by `end`, see resumes()."""
    committed = _held(_path(folder, name)).get("committed")
    ends = (each.get(key, ()) for each in (committed, end) if isinstance(each, dict))
    return any(len(at) >= 5 and place < at[2] for at in ends)


def resumes(checkpoint):
    """The offset at which the query of a checkpoint goes on; {} if that is the beginning, or
    nothing says it.

    Spark runs the newest batch that it has planned again, from the end of the one before, unless
    that very batch is committed. Raises ValueError, which names the file, where Spark cannot have
    left these files so: they are damaged, or of different times.
    """
    planned, done = (_newest(Path(checkpoint, part)) for part in ("offsets", "commits"))
    if planned is None and done is None:
        return {}
    if planned is None or done is not None and done > planned:
        raise ValueError(f"{checkpoint}/commits has batch {done}, which offsets lacks")
    before = planned if planned == done else planned - 1
    _sound(Path(checkpoint, "metadata"))
    for number in sorted({before, planned} - {-1}):
        _sound(Path(checkpoint, "offsets", str(number)))
    if done is not None:
        _sound(Path(checkpoint, "commits", str(done)))
    path = Path(checkpoint, "offsets", str(before))
    if before < 0 or not path.read_text().startswith("v1\n"):
        return {}
    if len(path.read_text().splitlines()) != 3:
        raise ValueError(f"{path} is not whole")
    return _offset(path)


def _sound(path):
    """Raises ValueError for a file of a checkpoint that is missing, but for the metadata, which
    Spark makes again, or is not as it was written: it ends with JSON, and Hadoop's check values
    are beside it."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if path.name == "metadata":
            return
        raise ValueError(f"{path} is missing")
    try:
        json.loads(raw.splitlines()[-1])
    except (ValueError, IndexError):
        raise ValueError(f"{path} is damaged")
    try:
        check = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return
    each = int.from_bytes(check[4:8], "big")
    if check[:4] == b"crc\0" and each:  # Hadoop takes no other one for one, either
        right = b"".join(zlib.crc32(raw[at : at + each]).to_bytes(4, "big")
                         for at in range(0, len(raw), each))  # fmt: skip
        if check[8:] != right:
            raise ValueError(f"{path} is damaged: its check value is another one")


def advance(folder, name, key, end):
    """Spark has said `commit` for the batch that ends at offset `end` ({spool id: [position,
    packets to skip, ...]}); `key` is the id of this spool. Releases the batch before, if the spool
    still has what was read."""
    if key in end and not offsets.stands(folder, end[key]):
        return
    held = _held(_path(folder, name))
    position, before = held.get("position", 0), held.get("committed")
    if before and before != end and key in before:
        position = min(before[key][0], end[key][0])
    register(folder, name, position, committed=end)


def finish(checkpoint, folders, name):
    """Release all that the query of `checkpoint` has committed. To be called while no batch of it
    runs.

    checkpoint  folder of the query's checkpoint;   folders: of the spools it reads

    It releases nothing of a spool whose block that was read last is gone. Raises SpoolError for a
    spool that is not the one which the query has read.
    """
    done = _newest(Path(checkpoint, "commits"))
    if done is None:
        return
    files = [Path(checkpoint, part, str(done)) for part in ("commits", "offsets")]
    _sync(Path(checkpoint, "metadata"))  # and its folder, which has the names of the others
    sync_folder(Path(checkpoint).absolute().parent)
    end = _offset(files[1])
    for file in files:
        _sync(file)
        _sync(file.with_name(f".{file.name}.crc"))  # Hadoop's check values
    for folder in folders:
        key = spool_id(folder)
        if key in end:
            offsets.check(folder, end[key])
            if offsets.stands(folder, end[key]):
                register(folder, name, end[key][0], committed=end)


def _newest(folder):
    """The highest number that a log of Spark's has a file for, or None."""
    try:
        return max((int(n) for n in os.listdir(folder) if n.isdigit()), default=None)
    except FileNotFoundError:
        return None


def _offset(path):
    """The offset of the spools in a file of Spark's log of offsets: a version, a line about the
    batch, a line for each source. Empty where that is not so."""
    version, *lines = path.read_text().splitlines()
    if version != "v1" or len(lines) != 2:
        log.warning("%s: format %s is not known here: the spool is released with a later batch",
                    path, version)  # fmt: skip
        return {}
    return json.loads(lines[1])


def _sync(file):
    """fsync a file that another process has written, if it is there, and its name."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(file.parent)


def check(folder, name, tables, there):
    """Raises SpoolError if reader `name` of the spool in `folder` works for other tables that are
    still there: what one of the two is done with would be deleted before the other has read it.

    tables  their place, in one form only;   there: function of a place: whether tables are there
    """
    path = _path(folder, name)
    other = _held(path).get("tables", tables)
    if other != tables and there(other):
        raise SpoolError(f"{folder}: the reader {name!r} works for the tables in {other}. If you "
                         f"have given these up, delete {path}; otherwise choose another name with "
                         "--consumer")  # fmt: skip


def adopt(folder, others, position):
    """The readers of the spools in `others` are readers of the one in `folder`, too, from
    `position` on: one of them may be down when it begins."""
    here = set(positions(folder))
    for other in others:
        for path in _files(other):
            if path.stem not in here:
                held = _held(path)
                tables = {"tables": held["tables"]} if "tables" in held else {}
                register(folder, path.stem, position, **tables)
                here.add(path.stem)


def withdraw(folder, name):
    """Reader `name` of the spool in `folder` will not begin: nothing is kept for it."""
    if not positions(folder).get(name):
        _path(folder, name).unlink(missing_ok=True)


def claim(folder, name, tables, there):
    """Reader `name` of the spool in `folder` works for these tables. Arguments and what is raised
    are those of check()."""
    check(folder, name, tables, there)
    held = _held(_path(folder, name))
    if held.get("tables") != tables:
        known = {"committed": held["committed"]} if "committed" in held else {}
        register(folder, name, held.get("position", 0), **known, tables=tables)
