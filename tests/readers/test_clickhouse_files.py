"""The tables that readers are asked for, and ClickHouse's own Parquet files next to ours."""

from __future__ import annotations

import pytest

from tests.readers import native_parquet
from tests.readers.conftest import World
from tests.readers.tables import TABLES

pytestmark = pytest.mark.nightly


def test_what_clickhouse_writes_itself_is_as_the_page_says(world: World) -> None:
    """Harm prevented: somebody chooses between the two files by what was true once."""
    assert world.compared == native_parquet.load()


def test_every_table_has_its_rows_and_is_asked_for_every_column_of_one_value(world: World) -> None:
    """Harm prevented: a table that is empty by accident agrees with every reader."""
    assert [truth.table.name for truth in world.truths] == [table.name for table in TABLES]
    for source, truth in zip(TABLES, world.truths, strict=True):
        assert len(truth.rows) == (0 if source.name == "empty" else len(source.rows))
        asked = {of[1] for of, _ in truth.filters if isinstance(of[1], str)}
        assert asked == {n for n, of in truth.table.types.items() if isinstance(of, str)}
        assert source.name == "empty" or any(found for _, found in truth.filters)
