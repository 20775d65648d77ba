"""Lake tables of a session without Spark: statements about them, and what they hold."""

from __future__ import annotations

from pyiceberg.table import Table

from catalog.iceberg.catalogs import open_catalog
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

__all__ = ["ALLOWED", "alter", "export_all", "opened", "rows_of"]

ALLOWED = "SETTINGS allow_experimental_export_merge_tree_part = 1"


def opened(places: Places, name: str) -> Table:
    """Open a lake table as another engine does."""
    table: Table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table(f"n.{name}")
    return table


def rows_of(places: Places, name: str, snapshot_id: int | None = None) -> int:
    """Return the rows of a lake table, now or as it was."""
    scan = opened(places, name).scan(snapshot_id=snapshot_id)
    return sum(task.file.record_count for task in scan.plan_files())


def alter(session: NoSpark, statement: str) -> list[Row]:
    """Run a statement; return its rows."""
    return session.call("execute_alter", statement=statement)


def export_all(session: NoSpark, table: str, to: str) -> list[Row]:
    """Export every partition of a table of the source."""
    return alter(
        session, f"ALTER TABLE ch.db.{table} EXPORT PARTITION ALL TO TABLE lake.n.{to} {ALLOWED}"
    )
