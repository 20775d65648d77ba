"""What `mergeberg maintain` refuses, and what it says (docs/reference/errors/maintenance.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from pyspark.sql import SparkSession

from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.ledger import Row, State
from tests.support.iceberg_spark import catalog_settings
from tests.support.spark_application import SparkApplication
from tests.wrong.places import Places

__all__ = ["WRONG", "Maintained", "kept_files"]

_CATALOG: Final = "spark.sql.catalog.lake"


@dataclass(frozen=True)
class Maintained:
    """A lake table `lake.n.NAME` with exports, and the Spark session that maintains it."""

    root: Path
    application: SparkApplication
    spark: SparkSession
    name: str

    @contextlib.contextmanager
    def in_another_catalog(self) -> Iterator[SparkSession]:
        """Make a session the active one in which `lake` is another catalog, without tables."""
        conf = catalog_settings(
            "lake", type="jdbc", uri=f"jdbc:sqlite:{self.root}/{self.name}.db",
            jdbc__schema_version="V1", warehouse=f"{self.root.as_uri()}/{self.name}",
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            made = self.application.further_session(conf)
            patch.setattr(SparkSession, "_activeSession", made)
            yield made


@contextlib.contextmanager
def _no_catalog(of: Maintained) -> Iterator[None]:
    known = of.spark.conf.get(_CATALOG)
    assert known is not None
    of.spark.conf.unset(_CATALOG)
    try:
        yield
    finally:
        of.spark.conf.set(_CATALOG, known)


@contextlib.contextmanager
def _not_there(of: Maintained) -> Iterator[None]:
    with of.in_another_catalog():
        yield


@contextlib.contextmanager
def _namesake(of: Maintained) -> Iterator[None]:
    with of.in_another_catalog() as spark:
        spark.sql("CREATE NAMESPACE lake.n")
        spark.sql(f"CREATE TABLE lake.n.{of.name} AS SELECT 1 AS id")
        yield


def _with_property(key: str, value: str) -> Callable[[Maintained], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def _set(of: Maintained) -> Iterator[None]:
        of.spark.sql(f"ALTER TABLE lake.n.{of.name} SET TBLPROPERTIES ('{key}' = '{value}')")
        yield

    return _set


def kept_files(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Let the owner of a lake table forbid that its files are removed."""
    table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.by_day")
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    return ("gc", "--to", "lake.n.by_day", "--expire-dropped", "10m")


@contextlib.contextmanager
def _needed(of: Maintained) -> Iterator[None]:
    """The owner gave main an age of a millisecond, and an export has not ended."""
    ledger = SqliteLedger(of.root / "ledger.db")
    with contextlib.closing(ledger):
        rows = (one for one in ledger.rows() if one.destination_table == f"lake.n.{of.name}")
        row = next(one for one in rows if one.key.partition_id == "0")
        assert isinstance(ledger.write(replace(row, state=State.RUNNING)), Row)
    table = open_catalog("lake", warehouse=of.root).catalog.load_table(f"n.{of.name}")
    table.append(table.scan(limit=0).to_arrow())
    main = table.current_snapshot()
    assert main is not None
    table.manage_snapshots().create_branch(
        main.snapshot_id, "main", max_snapshot_age_ms=1, min_snapshots_to_keep=1
    ).commit()
    yield


WRONG: Final[Mapping[str, Callable[[Maintained], AbstractContextManager[None]]]] = MappingProxyType(
    {
        "`maintain` of a table whose catalog Spark does not know": _no_catalog,
        "`maintain` of a table that Spark's catalog does not have": _not_there,
        "`maintain` of a table that is another one in Spark": _namesake,
        "`maintain` of a table whose files must stay": _with_property("gc.enabled", "false"),
        "`maintain` with an age that is no number": _with_property(
            "history.expire.max-snapshot-age-ms", "5 days"
        ),
        "`maintain` where a branch has an age": _needed,
    }
)
"""What is wrong, and what makes it so."""
