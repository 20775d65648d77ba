"""The number of an error leads to what ClickHouse's documentation says of it."""

from __future__ import annotations

import ast
from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat import clickhouse_codes
from tests.repository.source_files import PACKAGES, source_files


def test_every_code_has_the_name_that_clickhouse_gives_it(tmp_path: Path) -> None:
    ours = {getattr(clickhouse_codes, name): name for name in clickhouse_codes.__all__}

    with EmbeddedConnection(tmp_path, create=True) as connection:
        rows = connection.rows(
            "SELECT number, errorCodeToName(toUInt32(number)) FROM numbers(2000)"
            f" WHERE number IN {tuple(ours)}"
        )

    assert {int(str(code)): name for code, name in rows} == ours


def test_no_error_carries_a_code_as_a_bare_number() -> None:
    """One that is written out is not found by who looks for its name."""
    bare = [
        f"{file.path}:{node.value.lineno}"
        for file in source_files(*PACKAGES)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.keyword) and node.arg == "code"
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
    ]

    assert bare == []
