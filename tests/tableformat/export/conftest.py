"""A real local table and a ledger in memory, which the tests of the commit protocol share."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import MemoryLedger
from tests.support.lake import prepared


@pytest.fixture
def ledger() -> MemoryLedger:
    """Return an empty ledger."""
    return MemoryLedger()


@pytest.fixture
def table(tmp_path: Path, ledger: MemoryLedger) -> IcebergTable:
    """Return a table that has its first, empty snapshot."""
    return prepared(tmp_path, ledger)
