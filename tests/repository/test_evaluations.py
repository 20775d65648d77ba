"""SECURITY.md says what is evaluated of lake tables, and the code does that and nothing else."""

from __future__ import annotations

import ast
import re

from catalog.clickhouse.embedded import BYTES_A_SECOND, LEAST_SECONDS, MEMORY, ROWS_A_SECOND
from tableformat.mergetree.row_functions import REFUSED
from tests.repository.source_files import ROOT, source_files

TEXT = (ROOT / "SECURITY.md").read_text().partition("## What is evaluated")[2]
PAGE = " ".join(TEXT.split())
TABLE = [
    [cell.strip() for cell in line.split("|")]
    for line in TEXT.partition("|---|---|")[2].splitlines()
    if line.startswith("|")
]
OF_LAKE_TABLES = {
    "catalog/rewriting/merged_files.py",
    "catalog/clickhouse/rows/partitions.py",
    "catalog/rewriting/changed_rows.py",
}
"""Where a ClickHouse of our own gets what a lake table remembers, or a statement on it."""
OTHERS = {
    "catalog/clickhouse/rows/digests.py": "data files, by columns and types that we write",
    "catalog/clickhouse/frozen/folders.py": "parts and their statement, from the operator",
    "catalog/clickhouse/row_format.py": "rows of our own answers",
    "catalog/clickhouse/server/embedded_query.py": "rows of the source",
}
"""Where one gets nothing of that, and what it gets."""


def calls_of(name: str) -> dict[str, list[ast.Call]]:
    """Return the calls of something in the packages, by file."""
    found: dict[str, list[ast.Call]] = {}
    for file in source_files("catalog", "spark_ext", "tableformat"):
        if name not in file.text:
            continue
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name):
                found.setdefault(file.path, []).append(node)
    return found


def test_each_clickhouse_of_ours_is_known_by_what_it_gets() -> None:
    """Another one has to be written into one of the two lists, and into SECURITY.md if need be."""
    assert calls_of("OwnClickHouse").keys() == OF_LAKE_TABLES | OTHERS.keys()


def test_those_of_lake_tables_are_bounded_and_make_tables_of_checked_text() -> None:
    made, tables = calls_of("OwnClickHouse"), calls_of("KeyTables")

    assert tables.keys() == OF_LAKE_TABLES
    for file in OF_LAKE_TABLES:
        for call in made[file]:
            assert "seconds=LEAST_SECONDS" in ast.unparse(call), file


def test_the_page_says_what_they_may_take() -> None:
    bounds = (LEAST_SECONDS, ROWS_A_SECOND, BYTES_A_SECOND, MEMORY)

    assert bounds == (60, 10_000, 1 << 20, 0.5)
    assert "may take one minute, and one more second for each 10,000 rows or MiB" in PAGE
    assert "may use half of the host's memory" in PAGE


def test_the_page_says_why_functions_are_refused() -> None:
    rows = {why: names for _, why, names, _ in TABLE}

    assert rows.keys() == set(REFUSED.values())
    for why, names in rows.items():
        for name in re.findall(r"`(\w+)`", names):
            assert REFUSED[name.lower()] == why, name
