"""What holds for every test: fast ones first, and no deadlines on a busy machine."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# In CI Hypothesis has a profile of its own: the same examples in every run.
settings.register_profile("development", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("development")

# Whole jobs, real data directories, many processes: seconds each, or minutes together.
_SLOW = (
    "tests/bench/",
    "tests/faults/",
    "tests/integration/",
    "tests/properties/",
    "tests/readers/test_all_readers.py",
    "tests/readers/test_clickhouse_files.py",
    "tests/spark_ext/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is slow by where it lies."""
    if item.nodeid.startswith(_SLOW):
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what is fast before what is slow, and that before what starts Spark; else as shuffled."""
    items.sort(key=lambda item: [m in item.keywords for m in ("spark", "slow")])
