"""After every statement on partitions each reader shows the rows that ClickHouse has after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.readers.each_engine import each_engine
from tests.readers.engines import Engine, Reader
from tests.readers.statements import (
    COLUMNS,
    STATEMENTS,
    TABLES,
    Shown,
    by_partition,
    in_clickhouse,
    metadata_of,
    run_all,
)
from tests.support.both_sides import BothSides
from tests.support.real_export import RealExport

# The smoke of each reader; test_all_readers.py asks them everything.
pytestmark = [each_engine(), pytest.mark.representative]


@dataclass(frozen=True, slots=True)
class AfterAll:
    """A table of the lake: its metadata, and the rows that ClickHouse has."""

    metadata: str
    there: Shown


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AfterAll]]:
    root = tmp_path_factory.mktemp("statements")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        sides = BothSides(RealExport(connection, root))
        run_all(sides)
        yield [AfterAll(metadata_of(sides, one), in_clickhouse(sides, one)) for one in TABLES]


def test_after_each_statement_a_reader_shows_what_clickhouse_has(
    tables: list[AfterAll], engine: Engine
) -> None:
    """Harm prevented: a statement is right for one reader, and hides or doubles rows in another."""
    with Reader(engine) as reader:
        shown = [by_partition(reader.read(one.metadata, tuple(COLUMNS))) for one in tables]

    for found, table in zip(shown, tables, strict=True):
        different = {
            name: (found.get(number), table.there.get(number))
            for number, name in enumerate(STATEMENTS)
            if found.get(number) != table.there.get(number)
        }
        assert different == {}
        assert sum(map(len, found.values())) > 40 * len(STATEMENTS)
