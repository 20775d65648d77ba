"""The SQLite ledger agrees with the ledger in memory, through two handles on one file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings

from catalog.ledgers.sqlite import SqliteLedger
from conformance.suites.ledger import ledger_agreement

_DIRECTORY = tempfile.TemporaryDirectory(prefix="mergeberg-ledgers-")
_KEPT = 7
"""Fewer events than a run of the test notes, so that the oldest are given up."""


def _open(clock: Callable[[], int], name: str) -> SqliteLedger:
    return SqliteLedger(Path(_DIRECTORY.name) / f"{name}.db", clock=clock, most_events=_KEPT)


TestSqliteAgrees = ledger_agreement(_open, most_events=_KEPT).TestCase
TestSqliteAgrees.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
