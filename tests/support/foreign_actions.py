"""What people do to a lake table by other engines and by the catalog, as PyIceberg does it.

None of it knows of keys, ledgers and marks. Where there is no such table, or nothing that it could
be done to, nothing is done. Which file is taken depends on its rows alone, so that two worlds with
the same rows stay alike.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import IntegerType, LongType

from tests.places.found import place_at
from tests.support.other_engines import rewrite
from tests.support.scenarios import TO, ledger_rows

__all__ = [
    "add_column",
    "append",
    "compact",
    "delete_file",
    "delete_rows",
    "divide",
    "drop_column",
    "drop_table",
    "move_back",
    "numbers",
    "opened",
    "promote_column",
    "rename_column",
    "rename_numbers",
    "undo",
]

_NUMBERS_ID = 1
_MORE = "more"
_WIDTH = 1_000_000


def opened(directory: Path) -> Table | None:
    """Open the table, None when there is none."""
    catalog = place_at(directory).lake().catalog
    return catalog.load_table(TO.identifier) if catalog.table_exists(TO.identifier) else None


def numbers(path: str) -> list[int]:
    """Return the rows of a file, whatever their column is called by now."""
    found: list[int] = pq.read_table(path.removeprefix("file://")).column(0).to_pylist()
    return found


def append(directory: Path) -> None:
    """INSERT a hundred rows."""
    table = opened(directory)
    if table is not None:
        schema = table.schema().as_arrow()
        rows = [
            pa.array(range(100)) if at == 0 else pa.nulls(100, field.type)
            for at, field in enumerate(schema)
        ]
        table.append(pa.table([a.cast(f.type) for a, f in zip(rows, schema, strict=True)], schema))


def compact(directory: Path) -> None:
    """Rewrite all data files (rewrite_data_files)."""
    table = opened(directory)
    if table is not None and table.current_snapshot() is not None:
        rewrite(directory)


def delete_file(directory: Path) -> None:
    """DELETE all rows of one file of p1, without writing another one."""
    table = opened(directory)
    if table is None or table.current_snapshot() is None:
        return
    keys = {r.key.hash for r in ledger_rows(directory) if r.key.partition_id == "p1"}
    found = [t.file for t in table.scan().plan_files() if _is_of(t.file.file_path, keys)]
    if found:
        one = min(found, key=lambda f: (f.record_count, sorted(numbers(f.file_path))))
        with table.transaction() as changes, changes.update_snapshot().overwrite() as update:
            update.delete_data_file(one)


def _is_of(path: str, keys: set[str]) -> bool:
    return any(key in path for key in keys)


def delete_rows(directory: Path) -> None:
    """DELETE the rows of one number, copy on write: files are rewritten without them."""
    table = opened(directory)
    if table is None or table.current_snapshot() is None:
        return
    which = f"{table.schema().find_column_name(_NUMBERS_ID)} = 2"
    if table.scan(row_filter=which).count():
        table.delete(which)


def add_column(directory: Path) -> None:
    """ADD COLUMN."""
    table = opened(directory)
    if table is not None and len(table.schema().fields) == 1:
        with table.update_schema() as update:
            update.add_column(_MORE, IntegerType())


def divide(directory: Path) -> None:
    """ADD PARTITION FIELD; the numbers of all worlds have the same value of it, zero."""
    table = opened(directory)
    if table is not None:
        with table.update_spec() as update:
            update.add_field("n", TruncateTransform(_WIDTH), "n_trunc")


def promote_column(directory: Path) -> None:
    """Make the added column a wider one."""
    table = opened(directory)
    found = table.schema().fields[1:] if table is not None else ()
    if table is not None and found and found[0].field_type == IntegerType():
        with table.update_schema() as update:
            update.update_column(found[0].name, LongType())


def rename_column(directory: Path) -> None:
    """RENAME the added column."""
    table = opened(directory)
    if table is not None and _MORE in table.schema().column_names:
        with table.update_schema() as update:
            update.rename_column(_MORE, "renamed")


def rename_numbers(directory: Path) -> None:
    """RENAME the column that exports write."""
    table = opened(directory)
    if table is not None and table.schema().find_column_name(_NUMBERS_ID) == "n":
        with table.update_schema() as update:
            update.rename_column("n", "m")


def drop_column(directory: Path) -> None:
    """DROP the added column."""
    table = opened(directory)
    if table is not None and len(table.schema().fields) > 1:
        with table.update_schema() as update:
            update.delete_column(table.schema().fields[1].name)


def drop_table(directory: Path) -> None:
    """DROP TABLE; its files stay."""
    if opened(directory) is not None:
        place_at(directory).lake().catalog.drop_table(TO.identifier)


def move_back(directory: Path) -> None:
    """Move main back to before its last export, or what others did last; statements do not count.

    So it goes to the same snapshot whether a statement has landed by then or not.
    """
    table = opened(directory)
    now = table.current_snapshot() if table is not None else None
    while table is not None and now is not None and now.parent_snapshot_id is not None:
        parent = table.snapshot_by_id(now.parent_snapshot_id)
        if "mergeberg.statement" not in (now.summary or {}):
            change = table.manage_snapshots()
            change.set_current_snapshot(snapshot_id=now.parent_snapshot_id).commit()
            return
        now = parent


def undo(directory: Path) -> None:
    """Move main back to before the last snapshot that did more than rewrite files."""
    table = opened(directory)
    now = table.current_snapshot() if table is not None else None
    while table is not None and now is not None and now.parent_snapshot_id is not None:
        if now.summary is None or now.summary.operation is not Operation.REPLACE:
            change = table.manage_snapshots()
            change.set_current_snapshot(snapshot_id=now.parent_snapshot_id).commit()
            return
        now = table.snapshot_by_id(now.parent_snapshot_id)
