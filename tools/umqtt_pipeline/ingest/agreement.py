"""How far the spools were read, before ingest goes on: the tables, the reader's file in a spool
and Spark's checkpoint each say it, and each of the three may be an older copy, or begun anew.

Knows which of them is right: the tables, as only they have the readings. Must not know how a batch
is worked on.
"""

import json
import logging
import shutil

from ..spool import consumers, logs, offsets
from ..spool.files import SpoolError, refuse
from . import ledger
from .ledger import place

log = logging.getLogger("umqtt.ingest")


def reach(ingest, consumer, folders, skip_damaged):
    """Have Spark read again what the tables lack, as far as the spools have it.

    ingest         an Ingest, whose query does not run
    consumer       name of its reader of the spools in `folders`
    skip_damaged   whether what the tables lack, and the spools have no more, is left out

    Raises SpoolError if there is such a thing, and it is not to be left out.
    """
    again = False
    try:
        resumes = consumers.resumes(ingest.checkpoint)
    except ValueError as error:
        log.warning("%s: Spark's checkpoint is made anew, and the spool is read again; what the "
                    "tables have is left out", error)  # fmt: skip
        resumes, again = {}, True
    for key, folder in logs.by_id(folders).items():
        begin = logs.begin(folder)
        if _behind(ingest, consumer, key, folder, begin, resumes, skip_damaged):
            again = True
        elif key in resumes and resumes[key][0] < begin:
            log.warning("%s: Spark's checkpoint is from before position %d, where this spool "
                        "begins now: it is made anew", folder, begin)  # fmt: skip
            again = True
        elif begin and key not in resumes and key not in ingest.ledger.last["places"]:
            _deleted(folder, begin, consumer, skip_damaged)
    if again:
        shutil.rmtree(ingest.checkpoint, ignore_errors=True)


def _deleted(folder, begin, consumer, skip_damaged):
    """The beginning of a spool is gone before an ingest has read it. One that is refused is no
    reader: the bridge would keep everything for it."""
    said = f"{folder} begins at position {begin}: what was before it is deleted, because "
    if consumers.SHIP in consumers.positions(folder):
        if not skip_damaged:
            consumers.withdraw(folder, consumer)
        refuse(f"{said}its bridge ships it. The object store has all: --spool with the place that "
               "the bridge has as --ship", skip_damaged)  # fmt: skip
    else:
        log.warning("%sall readers that the spool had were done with it", said)


def apart(root, folders):
    """What `verify` notes of spools that do not go with the tables below `root`: sentences. One of
    the two may be an older copy, and ingest, which knows more, would say so. Raises SpoolError."""
    places, found = ledger.newest(root)["places"], []
    for key, folder in logs.by_id(folders).items():
        end, at = logs.extent(folder, True)[1], places.get(key, -1)
        ends = [each.get(key, ()) for each in consumers.committed(folder, place(root))]
        if at >= end:
            found.append(f"{folder} ends at {end}, and was read up to {at}, by the tables in "
                         f"{root}. {offsets.COPY}")  # fmt: skip
        elif any(len(each) >= 5 and at < each[2] for each in ends):
            found.append(f"{folder}: its reader has had more of it than is in the tables in {root}"
                         ". The next ingest reads it again, or says what is deleted")
    return found


def _behind(ingest, consumer, key, folder, begin, resumes, skip_damaged):
    """Whether the spool, which begins at `begin`, has to be read again, for the tables lack what
    was read of it. resumes: where Spark would go on."""
    place, own = ingest.ledger.last["places"].get(key, -1), _own(ingest).get(key)
    ahead = consumers.ahead(folder, consumer, key, place, resumes)
    # The last batch may have read again what is far behind their place.
    lost = max(own[0], place) < begin if own else ahead and begin > max(place, 0)
    if not ahead and not lost:
        return False
    root = ingest.tables.storage.root
    less = f"have it up to {place} only" if place >= 0 else "have nothing of it"
    said = f"{folder}: the tables in {root} {less}"
    if ahead:
        said = (f"{folder}: the reader {consumer!r} has had more of it than is in the tables in "
                f"{root}: they {less}")  # fmt: skip
    if not lost:
        log.warning("%s. All that they lack is still in the spool: it is read again", said)
        return True
    said = f"{said}, and its messages before position {begin} are deleted"
    if not skip_damaged:
        ships = consumers.SHIP in consumers.positions(folder)
        store = ("Its bridge ships it: --spool with the place that the bridge has as --ship may "
                 "have them. " if ships else "")  # fmt: skip
        raise SpoolError(f"{said}. {store}Put those tables back in which they are. If they are "
                         "lost, and you want to go on without them: start ingest once with "
                         "--skip-damaged")  # fmt: skip
    log.warning("%s: ingest goes on without them", said)
    return True


def _own(ingest):
    """The offset up to which the tables have the spools, as their last batch has noted it."""
    query = ingest.ledger.last["query"]
    end = json.loads(query["end"][0]) if query and query["end"] else {}
    return end if isinstance(end, dict) else {}
