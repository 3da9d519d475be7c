"""Whatever `verify` says, RECOVERY.md has a row on it: each text in the code has its words in
ROWS, and each of ROWS is in the first column of a row."""

import ast
from pathlib import Path

import pytest
import umqtt_pipeline

PACKAGE = Path(umqtt_pipeline.__file__).parent
SAYING = ["tables/verifying.py", "tables/table_look.py", "tables/commits.py",
          "tables/decisions.py", "tables/checkpoints.py", "tables/large.py", "spool/verifying.py",
          "spool/recovery.py", "spool/segment.py", "spool/shipped.py"]  # fmt: skip
DATA = "names a file of bronze, silver, clock, duplicates, quarantine or batches"
COMMIT = "or a commit in `_delta_log`"
CHECKPOINT = "names a checkpoint in a `_delta_log`"
SPOOL = "names a segment, or an object of a log"
SMALL = "names another small file of a spool"
#: {words in a text of `verify`: words in the first column of the row on it}
ROWS = {
    "bytes, the log says": DATA, "its bytes are not those": DATA,
    "the log of its table says": DATA,
    "nothing else was looked at": "is no plain file",
    "which {} does not know": "_state does not know",
    "and there are batches in": "`_state/intents` \"is gone\" or has \"no batch\"",
    "no batch is in it": "`_state/intents` \"is gone\" or has \"no batch\"",
    "has no commit in": "has no commit in",
    "this table is gone, {}": "is gone, which batch",
    "which batch {} has changed": "is gone, which batch",
    "to which no batch has brought anything": "is gone, to which no batch has brought anything",
    "tables of gold are gone": "tables of gold are gone",
    "another version of umqtt-pipeline": "another version of umqtt-pipeline",
    "it has lost what was decided on": "has lost what was decided on",
    "the checkpoint in its log has other files": CHECKPOINT,
    "an action of it is not whole": COMMIT, "it is a commit of a batch": COMMIT,
    "it does not say what": COMMIT, "has changed this table": COMMIT,
    "no action of Delta Lake": COMMIT, "is nothing that Delta Lake says": COMMIT,
    "is not what was written": COMMIT, "Delta Lake cannot read it": COMMIT,
    "it says of {}": COMMIT, "it says that it is of {} {}": COMMIT,
    "it says: {}, and {} has it": COMMIT, "makes that commit again": COMMIT,
    "its log cannot be read": "its log \"cannot be read\"",
    "its log has no commit of": "\"has no commit\"", "it has no commit": "\"has no commit\"",
    "its log has lost its commit of": "has lost its commit",
    "the {} missing": "\"is missing\"",
    "; the table is whole as it is now": "is whole as it is now, but not as it was",
    "it is not the intent that was written": "a file of `_state`",
    "it is {} {} in the place of another one": "a file of `_state`",
    "it is an intent on {}, and this log": "a file of `_state`",
    "it is no intent: another file": "a file of `_state`",
    "it is not what makes this log": "a file of `_state`",
    "whose place it has": "a file of `_state`",
    "When no {} runs, move this file": "a file of `_state`",
    "it is of {} {}, and the commit {} it is of": COMMIT,
    "it does not make the table, as": COMMIT, "it makes a table with a column": COMMIT,
    "it makes another table than": COMMIT, "none of the files is there that it adds": COMMIT,
    "it cannot be read": CHECKPOINT, "the commits up to it say": CHECKPOINT,
    "none of the files is there that it names": CHECKPOINT,
    "it is of batch {}, and a commit that it sums up": CHECKPOINT,
    "is not in it, an older one has taken its place": CHECKPOINT,
    "the commit after it removes {}, which it does not have": CHECKPOINT,
    "it and the commits after it do not say": CHECKPOINT, "put both back as they were": CHECKPOINT,
    "for earlier versions alone": CHECKPOINT,
    "All commits that readers need": CHECKPOINT, "All commits are there": CHECKPOINT,
    "the checkpoint of version": CHECKPOINT, "is none of Delta Lake": CHECKPOINT,
    "a row of it {}, by the": CHECKPOINT, "a checkpoint of this form": CHECKPOINT,
    "is there twice": CHECKPOINT, "it is no JSON object": CHECKPOINT,
    "of a form that nobody writes": CHECKPOINT,
    "that lead up to it are": CHECKPOINT, "which it sums up, is": CHECKPOINT,
    "an earlier commit is of {} {} already": COMMIT,
    "it is an intent, and no commit": COMMIT, "it is the commit that makes a table": COMMIT,
    "another file has taken its place": COMMIT,
    "it removes {}, which the table does not have": COMMIT,
    "You may remove this table": "names a gold table",
    "When nobody writes to this log, move": COMMIT, "it takes the column {} away": COMMIT,
    "it makes the column {} of type": COMMIT, "no reader here knows {}, which": COMMIT,
    "it lacks what {} decided": "\"lacks\" what a batch",
    "it is gone, and {} to it": "names a file of `_large`",
    "put it back; if the spool still has its packet": "names a file of `_large`",
    "positions {} to {} are missing": SPOOL, "the segment before it has": SPOOL,
    "its header is damaged": SPOOL, "are no whole block": SPOOL, "both have positions": SPOOL,
    "the spool is whole up to": SPOOL, "damaged from byte {} to": SPOOL,
    "was deleted while": SPOOL,
    "was removed while": SPOOL, "were listed": SPOOL, "no block at byte": SPOOL,
    "wrong check value of the block": SPOOL, "damaged behind byte": SPOOL,
    "format {}, this program reads": "\"this program reads\"",
    "is missing or damaged, though the spool": "`durable` is missing or damaged",
    "/spool.json is gone": SMALL, "/spool.json was missing": SMALL, "/deleted is": SMALL,
    "is damaged: the bridge makes": SMALL, "is gone: the bridge makes": SMALL,
    "{} is damaged": SMALL, "/consumers has no reader": "has no reader",
    "/durable said {}": "`durable` \"said\"", "is no spool, and not empty": "is no spool",
}  # fmt: skip
#: words of texts that only stand within another one, or that `verify` does not say
PARTS = (
    "the numbers of batches", "the names of files", "the names and bytes", "what it says of",
    "the removed file", "is of {} actions at once", "is of no action", "it has {} twice",
    "as added and as", "rows, and it has", "bytes, and it has",
    "and it lies in", "and it has {} to {}",
    "before it are", "before it is", "is just making it", "still see what", "do not see what",
    "see the same rows", "compact or ingest", "{} of {} files", "{} of {} commits",
    "the log of {}", "earlier versions of", "the state of ingest", "reader {} has had",
    "`marks` are of position", "all registered readers", "the spool begins at",
    "no file of %s is removed", "is no log of a bridge", "damaged file:",
    "are damaged: left out", "the log begins", "`durable` says")  # fmt: skip
WHOLE = ("no column {}", "it is gone", "{} to {}", "up to {}", "{} {} has", "{} {} to {} {} have",
         "and {} more", "; and {} more", "; and {}", ", and remove {}", "after {} {}",
         "of any {}", "of {} {}", "{}: {}: {}")  # fmt: skip


def texts(path):
    """The texts of several words in a module, docstrings apart; {} for what is filled in."""
    tree = ast.parse(path.read_text())
    held = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    pieces = {id(each) for node in held for each in ast.walk(node) if each is not node}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in pieces or id(node) in docs:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}"
                          for part in node.values)  # fmt: skip
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("name", SAYING)
def test_each_text_of_verify_has_a_row(name):
    said = [text for text in texts(PACKAGE / name) if text.strip().count(" ") > 1]
    assert said
    assert [text for text in said if text.strip() not in WHOLE
            and not any(words in text for words in (*ROWS, *PARTS))] == []  # fmt: skip


def test_the_rows_are_there():
    page = (PACKAGE / "RECOVERY.md").read_text().partition("\n## ")[0]
    first = " ".join(line.split(" | ")[0] for line in page.splitlines() if line.startswith("| "))
    assert [words for words in ROWS.values() if words not in first] == []
