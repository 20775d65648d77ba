"""Two processes that are the first in a new warehouse, at the same moment."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import event

from catalog.iceberg.catalogs import open_catalog


def test_two_that_open_a_new_warehouse_at_once_both_can(tmp_path: Path) -> None:
    """Harm prevented: of two schedules that begin together one fails in the first night."""
    others: list[object] = []

    # Between the look whether the table is there, and its creation.
    @event.listens_for(IcebergTables.__table__, "before_create", once=True)
    def another(*_: object, **__: object) -> None:
        others.append(open_catalog("lake", warehouse=tmp_path).catalog)

    mine = open_catalog("lake", warehouse=tmp_path).catalog

    assert len(others) == 1
    mine.create_namespace("n")
    assert open_catalog("lake", warehouse=tmp_path).catalog.list_namespaces() == [("n",)]
