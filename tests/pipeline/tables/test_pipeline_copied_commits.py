"""Whatever file of a log is copied over another one, exchanged with one, removed or cut: `verify`
names it, and no file that is whole; and it advises to remove none that is whole."""

import itertools
import random
import re
import shutil

import pyarrow as pa
import pytest
import test_pipeline_checkpoints
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from test_pipeline_verify import commits
from umqtt_pipeline.gold.schema import MADE
from umqtt_pipeline.ingest.ledger import Ledger, finished, state_files
from umqtt_pipeline.tables import intents, verifying
from umqtt_pipeline.tables.schema import ALL, PARTITION
from umqtt_pipeline.tables.store import Tables, written

LOGS = ["silver", "bronze", "clock", "_state/intents", "gold_minute", "gaps", "gold_day",
        "_gold/intents"]  # fmt: skip
GOLD = {"gold_minute": "count", "gaps": "first", "gold_day": "batch"}
INGEST = {"silver": "sequence", "bronze": "offset", "batches": "batch"}
KNOWN = {**ALL, **MADE}
SAMPLE = 28  #: damages that are tried, of some 3,200


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables of seven batches, and gold of six intents. Silver, the state and a table of gold have
    two checkpoints each, and the table `clock` has nothing."""
    root = tmp_path_factory.mktemp("made")
    ledger = Ledger(Tables(root, ALL))
    for number in range(7):
        names = [name for name in INGEST if name != "bronze" or number % 3 != 1]
        old = {"silver": ledger.tables.files("silver")[:1]} if number == 2 else {}
        ledger.decide("batch", {name: ([row(ledger.tables, name, number, INGEST[name])],
                                       old.get(name, [])) for name in names})  # fmt: skip
        ledger.finish()
    tables = Tables(root, {**ALL, **{name: MADE[name] for name in GOLD}}, owner="gold")
    held = intents.Intents(tables, "_gold/intents", list(GOLD), intents.NONE, "gold")
    for number in range(6):
        names = [name for name in GOLD if name != "gold_day" or number not in (2, 3)]
        held.decide("gold", {name: ([row(tables, name, number, GOLD[name])],
                                    tables.files(name) if name == "gaps" else [])
                             for name in names}, anew=not number)  # fmt: skip
        held.finish()
    for log, version in itertools.product(("silver", "_state/intents", "gold_minute"), (3, 5)):
        DeltaTable(str(root / log), version=version).create_checkpoint()
    assert wrong(root) == []
    return root


root = test_pipeline_checkpoints.root  # a copy of what is made


def row(tables, name, number, column):
    """A File of one row."""
    day = f"2026-01-{number + 1:02d}" if PARTITION in KNOWN[name] else None
    return written(tables.storage, name, number, day, pa.table({column: [number]}))


def look(root):
    return verifying.verify(root, lambda: state_files(root), lambda told: finished(root, told),
                            KNOWN)  # fmt: skip


def wrong(root):
    return look(root).wrong


def of(root, log, version):
    return root / log / "_delta_log" / f"{version:020d}.json"


def damages(root):
    """(function of the damage, log, its arguments) of all that are there."""
    last = {log: len(commits(root, log)) - 1 for log in LOGS}
    every = [(log, version) for log in LOGS for version in range(last[log] + 1)]
    for log in LOGS:
        for version in range(last[log] + 2):
            yield from ((over, log, version, *each) for each in every if each != (log, version))
        for one, other in itertools.combinations(range(last[log] + 1), 2):
            yield exchanged, log, one, other
        for version in range(last[log] + 1):
            yield from ((how, log, version) for how in (closed_up, gone, emptied, zeroed, cut))


def over(root, log, version, other, source):
    shutil.copy(of(root, other, source), of(root, log, version))
    return {of(root, log, version)}


def exchanged(root, log, version, other):
    one, two = of(root, log, version), of(root, log, other)
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    return {one, two}


def closed_up(root, log, version):
    """A commit is lost, and those after it have the numbers before theirs."""
    after = commits(root, log)[version + 1 :]
    of(root, log, version).unlink()
    for at, path in enumerate(after, version):
        path.rename(of(root, log, at))
    return {of(root, log, version)}


def gone(root, log, version):
    of(root, log, version).unlink()
    return {of(root, log, version + 1)}


def emptied(root, log, version):
    of(root, log, version).write_bytes(b"")
    return {of(root, log, version)}


def zeroed(root, log, version):
    size = of(root, log, version).stat().st_size
    of(root, log, version).write_bytes(bytes(size))
    return {of(root, log, version)}


def cut(root, log, version):
    path = of(root, log, version)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return {path}


def as_read(root):
    """What a reader finds: of each table its files, columns and number, of intents the newest."""
    found = {}
    for log in LOGS:
        try:
            held = DeltaTable(str(root / log))
            newest = of(root, log, held.version())
            found[log] = newest.read_bytes() if log.endswith("intents") else (
                sorted(held.file_uris()), str(held.schema()), held.metadata().partition_columns,
                held.transaction_version("umqtt-ingest"))  # fmt: skip
        except (DeltaError, OSError) as error:
            found[log] = type(error)
    return found


@pytest.mark.parametrize("part", range(4))
def test_what_is_damaged_is_named_and_nothing_else(root, made, part):
    every = list(damages(made))
    whole = as_read(root)
    for how, log, *more in random.Random(7).sample(every, SAMPLE)[part::4]:
        shutil.rmtree(root)
        shutil.copytree(made, root)
        hurt, case = how(root, log, *more), (how.__name__, log, *more)
        found = look(root)
        there = {str(path) for path in (*hurt, root / log, root / log.partition("/")[0])}
        for line in found.wrong:
            assert line.partition(": ")[0] in there, (case, line)
            if re.search("remove it|move this file", line):
                assert line.partition(": ")[0] in set(map(str, hurt)), (case, line)
        assert found.wrong or found.notes or as_read(root) == whole, case


@pytest.mark.parametrize("how,log,more,says", [
    (over, "bronze", (0, "silver", 0), "it makes a table with a column 'batch'"),
    (over, "clock", (0, "gaps", 0), "it makes a table with a column 'after_boot'"),
    (over, "clock", (0, "_state/intents", 0), "it makes a table with a column 'none'"),
    (over, "silver", (0, "silver", 3), "it does not make the table, as the first commit of a log"),
    (over, "_state/intents", (0, "clock", 0), "it is not what makes this log"),
    (over, "_gold/intents", (0, "silver", 3), "it is not what makes this log"),
    (over, "clock", (1, "gaps", 4), "none of the files is there that it adds"),
    (closed_up, "_state/intents", (1,), "it is batch 1, and batch 0, whose place it has, is lost"),
    (closed_up, "_state/intents", (5,), "it is batch 5, and batch 4, whose place it has, is lost"),
    (closed_up, "_gold/intents", (2,), "it is intent 2, and intent 1, whose place it has, is lo"),
    (closed_up, "_gold/intents", (1,), "it is intent 1, and intent 0, whose place it has, is lo"),
])
def test_it_is_said_what_is_wrong_with_it(root, how, log, more, says):
    how(root, log, *more)
    (line,) = wrong(root)
    assert line.startswith(f"{of(root, log, more[0])}: {says}")


def test_a_commit_that_makes_a_table_is_of_one_with_the_same_columns_by_the_checkpoint(root):
    """No checkpoint is accused that is whole."""
    Tables(root / "another", {"silver": ALL["silver"]})
    shutil.copy(of(root / "another", "silver", 0), of(root, "silver", 0))
    shutil.rmtree(root / "another")
    assert wrong(root) == [
        f"{of(root, 'silver', 0)}: it makes another table than the checkpoint says: another file "
        "has taken its place"]  # fmt: skip


def test_the_two_that_are_exchanged_are_named(root):
    one, two = sorted(exchanged(root, "silver", 1, 3))
    assert wrong(root) == [
        f"{one}: it is of batch 2, and the commit after it is of batch 1: another commit has "
        "taken its place",
        f"{two}: it is of batch 0, and the commit before it is of batch 1: another commit has "
        "taken its place"]  # fmt: skip


def test_a_state_without_a_batch_beside_tables_that_have_some(root):
    for path in commits(root, "_state/intents")[1:]:
        path.unlink()
    for path in (root / "_state/intents/_delta_log").glob("*checkpoint*"):
        path.unlink()
    assert wrong(root) == [f"{root / '_state/intents'}: no batch is in it, and there are batches "
                           "in batches, bronze, silver"]  # fmt: skip


def test_gold_that_went_on_from_an_older_copy_of_its_intents(root):
    """It has made all anew, as it says: nothing is wrong with what was made before."""
    for path in commits(root, "_gold/intents")[4:]:
        path.unlink()
    tables = Tables(root, {**ALL, **{name: MADE[name] for name in GOLD}}, owner="gold")
    held = intents.Intents(tables, "_gold/intents", list(GOLD), intents.NONE, "gold")
    held.last = {**held.last, "number": 5}
    held.decide("gold", {name: ([row(tables, name, 6, GOLD[name])], tables.files(name))
                         for name in GOLD}, anew=True)  # fmt: skip
    held.finish()
    assert wrong(root) == []


@pytest.mark.parametrize("log,version,source", [
    ("silver", 7, "bronze"), ("bronze", 3, "gaps"), ("gold_minute", 6, "gaps")])  # fmt: skip
def test_no_sound_commit_is_named_for_columns_of_one_that_only_delta_lake_reads(
    root, log, version, source
):
    """It takes zero bytes within what nobody heeds, and then these columns."""
    data = of(root, source, 0).read_bytes()
    assert data.count(b"delta-rs")
    of(root, log, version).write_bytes(data.replace(b"delta-rs", bytes(8)))
    assert DeltaTable(str(root / log)).schema() == DeltaTable(
        str(root / source), version=0).schema()
    assert [line.partition(": ")[0] for line in wrong(root)] == [str(of(root, log, version))]
