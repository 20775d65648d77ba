"""Fixtures of this package's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tableformat.mergetree.clickhouse_process import ClickHouse


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[ClickHouse]:
    """Give a real ClickHouse to the tests of one file."""
    with ClickHouse() as started:
        yield started
