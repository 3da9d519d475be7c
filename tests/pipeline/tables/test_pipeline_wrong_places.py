"""A file of a log that was copied or moved over another one is named, and no sound one is."""

import shutil

import pyarrow as pa
import pytest
import test_pipeline_checkpoints
from test_pipeline_verify import commits, decided, wrong
from test_pipeline_wrong_commits import AGAIN
from umqtt_pipeline.tables import intents
from umqtt_pipeline.tables.places import rising
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import File, Tables, written

GOLD = ["gold_minute", "gaps"]
REMOVE = ". You may remove this table: the next `umqtt-pipeline gold` makes it again"
MOVE = ". When nobody writes to this log, move this file elsewhere"


class Gold:
    """Gold as it decides: each run adds a file to gold_minute, and replaces that of gaps."""

    def __init__(self, root):
        self.tables = Tables(root, {**ALL, **dict.fromkeys(GOLD, {"minute": "bigint"})})
        self.intents = intents.Intents(self.tables, "_gold/intents", GOLD, intents.NONE, "gold")

    def run(self, finish=True, anew=False, says=True):
        number, changes = self.intents.next(), {}
        for name in GOLD:
            rows = pa.table({"minute": [number]})
            new = written(self.tables.storage, name, number, None, rows)
            all_go = anew or name == "gaps"
            changes[name] = [new], self.tables.files(name) if all_go else []
        self.intents.decide("gold", changes, anew=anew if says else None)
        if finish:
            self.intents.finish()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables of five batches, and gold of three intents."""
    root = tmp_path_factory.mktemp("made")
    decided(root, 5)
    gold = Gold(root)
    for _ in range(3):
        gold.run()
    assert wrong(root) == []
    return root


root = test_pipeline_checkpoints.root  # a copy of what is made


def over(root, target, source):
    """Copy a commit over another one, or as a new one: (log, version) each."""
    path, old = (root / name / "_delta_log" / f"{version:020d}.json"
                 for name, version in (target, source))  # fmt: skip
    shutil.copy(old, path)
    return path


def lost(root, name, version):
    """Remove a commit, and rename those after it."""
    _, *after = commits(root, name)[version:]
    for path in after:
        path.rename(path.with_name(f"{version:020d}.json"))
        version += 1


@pytest.mark.parametrize("name,version,number", [
    ("gaps", 1, 1), ("gaps", 2, 2), ("gold_minute", 1, 1), ("silver", 3, 3)])  # fmt: skip
def test_a_commit_that_is_lost_and_whose_place_the_next_one_has(root, name, version, number):
    lost(root, name, version)
    what, more = ("batch", "") if name == "silver" else ("intent", REMOVE)
    assert wrong(root) == [
        f"{root / name}: its log has no commit of {what} {number - 1}: {version:020d}.json, which "
        f"is in its place, is of {what} {number}{more}"]  # fmt: skip


def test_a_commit_of_gold_that_removes_what_the_table_does_not_have(root):
    """No intent tells of the one that is lost."""
    gone = Tables(root, dict.fromkeys(GOLD, {})).files("gaps", 1)[0].path
    shutil.rmtree(root / "_gold")
    lost(root, "gaps", 1)
    path = commits(root, "gaps")[1]
    assert wrong(root) == [f"{path}: it removes {gone}, which the table does not have: a commit "
                           f"before it is lost{REMOVE}"]  # fmt: skip


@pytest.mark.parametrize("left,says", [(0, True), (1, True), (1, False)])
def test_gold_that_was_killed_and_has_made_all_anew(root, left, says):
    """Not each of its intents has its commits then. says: an older gold does not say so."""
    gold = Gold(root)
    gold.run(finish=False)
    if left:
        name, (added, removed) = GOLD[0], gold.intents.last["tables"][GOLD[0]]
        gold.tables.commit(name, 3, [File.of(*each) for each in added], removed, True)
    gold.run(anew=True, says=says)
    gold.run()
    assert wrong(root) == []


@pytest.mark.parametrize("target,source", [(3, 1), (4, 1), (4, 3)])
def test_an_older_commit_of_gold_behind_others(root, target, source):
    path = over(root, ("gaps", target), ("gaps", source))
    more = (". When no gold runs, move this file elsewhere; the next `umqtt-pipeline gold` makes "
            "that commit again") if target == 3 else MOVE
    assert wrong(root) == [f"{path}: an earlier commit is of intent {source - 1} already{more}"]


@pytest.mark.parametrize("target", [1, 2])
def test_a_later_commit_of_gold_over_an_earlier_one(root, target):
    path = over(root, ("gaps", target), ("gaps", 3))
    assert wrong(root) == [
        f"{path}: it is of intent 2, and the commit after it is of intent {target}: another "
        f"commit has taken its place{REMOVE}"]  # fmt: skip


def test_a_commit_of_another_table_in_the_place_of_the_newest_one_of_gold(root):
    path = over(root, ("gaps", 3), ("silver", 5))
    assert wrong(root) == [
        f"{path}: none of the files is there that it adds: another file has taken its place. When "
        "no gold runs, move this file elsewhere; the next `umqtt-pipeline gold` makes that commit "
        "again"]  # fmt: skip


@pytest.mark.parametrize("name,version", [("gaps", 2), ("gold_minute", 1), ("silver", 3)])
def test_an_intent_over_a_commit_of_a_table(root, name, version):
    path = over(root, (name, version), ("_gold/intents", 3))
    more = "" if name == "silver" else REMOVE
    assert wrong(root) == [f"{path}: it is an intent, and no commit of a table: another file has "
                           f"taken its place{more}"]  # fmt: skip


@pytest.mark.parametrize("log,version,todo", [
    ("bronze", 2, ""), ("bronze", 5, AGAIN), ("silver", 5, AGAIN), ("silver", 6, MOVE),
    ("_state/intents", 6, MOVE)])  # fmt: skip
def test_what_makes_a_table_in_the_place_of_a_commit(root, log, version, todo):
    path = over(root, ("silver", version), (log, 0))
    assert wrong(root) == [f"{path}: it is the commit that makes a table: another file has taken "
                           f"its place{todo}"]  # fmt: skip


@pytest.mark.parametrize("log,what", [("_gold/intents", "intent"), ("_state/intents", "batch")])
@pytest.mark.parametrize("target,source", [(0, 3), (1, 2), (1, 3), (2, 3)])
def test_a_later_intent_over_an_earlier_one(root, log, what, target, source):
    """It is named, and no sound one is, and no table."""
    path = over(root, (log, target), (log, source))
    assert wrong(root) == [f"{path}: it is {what} {source - 1} in the place of another one"]


FOREIGN = {"_gold/intents": ("_state/intents", "bronze", "gold"),
           "_state/intents": ("_gold/intents", "gold_minute", "ingest")}  # fmt: skip


@pytest.mark.parametrize("log,version", [
    ("_gold/intents", 4), ("_gold/intents", 9), ("_state/intents", 6), ("_state/intents", 9)])
def test_a_foreign_intent_behind_the_newest(root, tmp_path, log, version):
    other, table, program = FOREIGN[log]
    path = over(root, (log, version), (other, 3))
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and line.endswith(
        f"it is an intent on {table}, and this log is of other tables: another file has taken its "
        f"place. When no {program} runs, move this file elsewhere")  # fmt: skip
    path.rename(tmp_path / path.name)
    assert wrong(root) == []


@pytest.mark.parametrize("log", FOREIGN)
def test_a_foreign_intent_over_another_one(root, log):
    other, table, _ = FOREIGN[log]
    path = over(root, (log, 1), (other, 3))
    assert wrong(root) == [f"{path}: it is an intent on {table}, and this log is of other tables: "
                           "another file has taken its place"]  # fmt: skip


@pytest.mark.parametrize("log,source,version", [
    ("_gold/intents", 0, 6), ("_state/intents", 0, 9), ("silver", 2, 6)])  # fmt: skip
def test_what_is_no_intent_behind_the_newest(root, tmp_path, log, source, version):
    path = over(root, ("_state/intents", version), (log, source))
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and line.endswith(
        "it is no intent: another file has taken its place. When no ingest runs, move this file "
        "elsewhere")
    path.rename(tmp_path / path.name)
    assert wrong(root) == []


@pytest.mark.parametrize("ranks,strange", [
    ([0, 1, 2, 3], []), ([3, 1, 2, 3], [1]), ([0, 3, 2, 3], [2]), ([0, 1, 3, 3], [3]),
    ([0, 1, 0, 3], [3]), ([0, 1, 2, 1], [4]), ([0, 0], [2]), ([1, 1], [1]), ([1, 2, 3], []),
    ([0, 1, 1, 0, 2], [3, 4])])  # fmt: skip
def test_rising(ranks, strange):
    held = list(enumerate(ranks, 1))
    assert sorted({version for version, _ in held} - set(rising(held))) == strange
