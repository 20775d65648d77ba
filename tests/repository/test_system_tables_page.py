"""docs/reference/system-tables.md says what the tables have, in the words of the code."""

from __future__ import annotations

import re

from spark_ext.actions.cancel import KillStatus
from spark_ext.sql.dispatch import TABLES
from tableformat.ledger import Standing
from tests.repository.source_files import ROOT

PAGE = (ROOT / "docs" / "reference" / "system-tables.md").read_text()


def documented() -> dict[str, list[tuple[str, str, str]]]:
    """Return the columns of each table on the page."""
    found = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        _, header, body = section.partition("| column | type | |\n|---|---|---|\n")
        if header:
            rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*) \|$", body, re.MULTILINE)
            found[section.splitlines()[0]] = rows
    return found


def test_the_page_has_every_table_and_column() -> None:
    there = {
        table.name: [(column.name, column.type, column.comment) for column in table.columns]
        for table in TABLES.values()
    }

    assert documented() == there
    assert [table.name for table in TABLES.values() if table.description not in PAGE] == []


def test_the_page_has_every_status_word() -> None:
    assert [word.value for word in Standing if f"`{word.value}`" not in PAGE] == []
    assert [word.value for word in KillStatus if f"`{word.value}`" not in PAGE] == []
