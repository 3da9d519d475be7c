"""TABLES.md lists the columns that the tables have."""

import re
from pathlib import Path

import pytest
import umqtt_pipeline
from umqtt_pipeline.gold import schema
from umqtt_pipeline.tables.schema import ALL

PAGE = Path(umqtt_pipeline.__file__).with_name("TABLES.md").read_text()
LISTED = dict(re.findall(r"^\| (?!table )(\w+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))
TABLES = {**ALL, **schema.TABLES}


def test_each_table_is_there_and_no_other():
    assert set(LISTED) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_lists_the_columns_of_the_table(name):
    """What is in brackets explains. `date` is said of all at once."""
    text = LISTED[name]
    while "(" in text:
        text = re.sub(r" *\([^()]*\)", "", text)
    columns = [column for column in TABLES[name] if column != "date"]
    assert sorted(text.split(", ")) == sorted(columns)
