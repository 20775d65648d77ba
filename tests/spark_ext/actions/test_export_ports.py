"""What a job acts on is opened so that nothing stays open when it cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions import export_ports
from spark_ext.actions.export_ports import (
    LEAST_TO_START,
    DigestSessions,
    Places,
    SparkWhenNeeded,
    _NotedRows,
    open_ports,
)
from spark_ext.engine.session import SparkSettings
from tableformat.committer import FileInMain
from tableformat.errors import NotFoundError, TableFormatError, UsageError
from tableformat.export.ports import Silent
from tests.support.other_hosts import OfCluster


@pytest.mark.parametrize("uri", ["https://", "nonsense:there", "parts:/x"])
def test_a_source_that_cannot_be_opened_leaves_no_ledger_open(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a session in Keeper for every statement with a wrong source."""
    opened: list[object] = []
    monkeypatch.setattr(export_ports, "open_ledger", lambda *_, **__: opened.append("a ledger"))
    lake = open_catalog("lake", warehouse=tmp_path)

    with pytest.raises(UsageError):
        open_ports(Places(SourcePlace(uri), lake), SparkWhenNeeded(SparkSettings()), Silent())

    assert opened == []


@dataclass
class _Provider:
    """A Spark that runs, or one that does not run yet and may not start."""

    runs: bool
    begun: int = 0
    fails: TableFormatError | None = None

    def check(self) -> None: ...

    def begin(self) -> None: ...

    def done(self) -> bool:
        return self.runs

    def result(self) -> SparkSession:
        self.begun += 1
        if self.fails is not None:
            raise self.fails
        return OfCluster({}).session


SMALL = (FileInMain("a", 1, deletes=False, bytes=10),) * 3
LARGE = (FileInMain("a", 1, deletes=False, bytes=LEAST_TO_START),) * 2


@pytest.mark.parametrize(
    ("runs", "files", "in_tasks", "begun"),
    [
        (False, SMALL, False, 0),
        (False, LARGE, True, 1),
        (False, LARGE[:1], False, 0),
        (True, SMALL, False, 1),
        (True, LARGE, True, 1),
    ],
)
def test_spark_is_started_to_compare_large_files_alone(
    files: tuple[FileInMain, ...], begun: int, *, runs: bool, in_tasks: bool
) -> None:
    """Harm prevented: ten seconds of Spark's start before a comparison of one second."""
    spark, notes = _Provider(runs), list[str]()

    found = DigestSessions(spark, notes.append)(files)

    assert (found is not None, spark.begun) == (in_tasks, begun)
    assert len(notes) == (begun and not runs)


def test_where_spark_cannot_start_this_process_compares() -> None:
    """Harm prevented: a verification that needs Java, which it did not need for small files."""
    spark, notes = _Provider(runs=False, fails=NotFoundError("Cannot find Java.")), list[str]()

    assert DigestSessions(spark, notes.append)(LARGE) is None
    assert notes[-1] == "comparing in this process alone: Cannot find Java."


def test_a_long_comparison_of_an_export_is_noted_at_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(export_ports, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    notes: list[str] = []
    rows = _NotedRows(notes.append, noted=100.0)

    for _ in range(21):
        clock.seconds += 1
        rows(1_000_000)

    assert notes == [
        "10,000,000 rows of the lake compared so far",
        "20,000,000 rows of the lake compared so far",
    ]
