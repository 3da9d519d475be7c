"""The tables of README.md: what is on the page is what was found.

    .venv/bin/python tests/explore/campaign.py > build/explored       # make explore
    .venv/bin/python tests/explore/page.py build/explored

Knows: the rows that campaign.py prints, the tables of the page. Must not know: what they mean.
The words of the page stay, its numbers are renewed. Whether other tests find a new fault is told
by others.py: until somebody writes that down there is a question mark.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import planted  # noqa: E402

PAGE = HERE / "README.md"
CASE = re.compile(r"(\S+) +(\d+) states +(\d+) transitions +depth +(\d+) .* complete")
FAULT = re.compile(r"(.*?) +(\d+) states +(\d+) steps +(\S+) ")
CASES, SUBJECTS, FAULTS = "| case | states |", "| what | cases |", "| fault | states "


def table(text, head):
    """The rows of the table that begins so: lists of cells."""
    rows = text[text.index(head) :].split("\n\n")[0].split("\n")[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def with_table(text, head, rows):
    """The text with these rows in that table."""
    at = text.index(head)
    old = text[at:].split("\n\n")[0]
    new = old.split("\n")[:2] + ["| " + " | ".join(row) + " |" for row in rows]
    return text[:at] + text[at:].replace(old, "\n".join(line.rstrip() for line in new), 1)


def found_cases(lines):
    """{case: its cells} of what has been printed."""
    return {m[1]: [*m.groups(), "complete"] for m in map(CASE.fullmatch, lines) if m}


def found_faults(lines):
    """{fault: its cells without the last one}."""
    return {m[1]: list(m.groups()) for m in map(FAULT.match, lines) if m}


def subjects(text):
    """The rows of the table of subjects, with the numbers that the table of cases has."""
    states = {row[0]: row[1] for row in table(text, CASES)}
    return [[what, names, ", ".join(states[name] for name in names.split(", "))]
            for what, names, _ in table(text, SUBJECTS)]  # fmt: skip


def renewed(text, lines):
    """The page with the numbers of these lines."""
    rows = {row[0]: row for row in table(text, CASES)} | found_cases(lines)
    text = with_table(text, CASES, [rows[name] for name in cases.CASES if name in rows])
    rows = {row[0]: row for row in table(text, FAULTS)}
    for name, row in found_faults(line for line in lines if not CASE.fullmatch(line)).items():
        rows[name] = row + rows.get(name, ["?"])[-1:]
    text = with_table(text, FAULTS, [rows[name] for name in planted.FAULTS if name in rows])
    return with_table(text, SUBJECTS, subjects(text))


def main(words):
    """Renew the page."""
    lines = Path(words[0]).read_text().splitlines()
    PAGE.write_text(renewed(PAGE.read_text(), lines))


if __name__ == "__main__":
    main(sys.argv[1:])
