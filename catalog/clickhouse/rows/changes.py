"""Runs statements that change rows on data files, in our own ClickHouse.

The temporary ClickHouse has two tables. The first is an empty copy of the lake table's source, with
its keys. The statement runs there first, so that ClickHouse refuses what it refuses on the source,
such as a change of a key column (code 420). The second table gets the columns that the statement
reads and sets, from one data file after the other (`files.py`), and the statement runs on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError, whole
from catalog.clickhouse.embedded import LEAST_SECONDS, OwnClickHouse
from catalog.clickhouse.rows.files import ROW_NUMBER, FileRows, numbered
from catalog.clickhouse.rows.partitions import KeyTables
from catalog.processes import Closing
from catalog.storages.schemes import Opens
from tableformat.committer import BranchFile
from tableformat.errors import RefusedError
from tableformat.export.data_checks import broken, checks_sql, data_checks
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.definition_sql import evaluated_zone
from tableformat.mergetree.row_change import (
    RowChange,
    columns_of_change,
    columns_set,
    without_default,
)
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_string
from tableformat.operations.statement import Rewrite
from tableformat.parquet.columns import select_list

__all__ = ["RowChanges"]

_AS_IS: Final = "default.as_is"
_ROWS: Final = "default.rows"
_NOW: Final = "mutations_sync = 2, allow_nondeterministic_mutations = 1"


class RowChanges(Closing):
    """Computes the changes of a statement in data files, one after the other.

    Leaving the context closes it.
    """

    def __init__(
        self,
        source: RememberedSource,
        storages: Opens,
        schema: Schema,
        change: RowChange,
        *,
        threads: int = 0,
    ) -> None:
        """Start a ClickHouse, and run the statement on an empty table.

        Args:
            source: the ClickHouse table, as the lake table stores it.
            storages: open the storages of locations.
            schema: of the table, for reading the files.
            change: the statement.
            threads: of the ClickHouse, 0 for the number of processors.

        Raises:
            RefusedError: ClickHouse refuses the statement (its code and text), or the statement
                reads more than its rows, or runs longer than allowed.
            SourceError: ClickHouse does not start.
        """
        self._source, self._change = source, change
        self._columns = columns_of_change(change, source.table.columns)
        self._stored = tuple(c for c in self._columns if c.stored)
        self.sets: Final = columns_set(change, self._columns)
        mapped = map_columns(source.table, source.conversions)
        self._checks = tuple(c for c in data_checks(mapped) if c.column in self.sets)
        zone = evaluated_zone(source.table.server_zone) or "UTC"
        self._held = OwnClickHouse("change", zone=zone, seconds=LEAST_SECONDS)
        what = self._change.command
        names = frozenset(c.name for c in self._stored)
        of_table = self._held, storages, source, schema, self._stored
        self._rows = FileRows(*of_table, what, (_ROWS,), names)
        try:
            self._held.command(f"SET max_threads = {threads}")
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """A directory for temporary files, removed by `close`."""
        return self._held.directory

    def close(self) -> None:
        """End the ClickHouse, and remove its directory. Closing again does nothing."""
        self._held.close()

    def __call__(self, file: BranchFile, left: Path) -> Rewrite | None:
        """Return the changes in a file, None for none.

        Args:
            file: the data file.
            left: the file to write the remaining rows of a changed file to, as an Arrow stream in
                order: `ROW_NUMBER`, and the columns that it sets, as ClickHouse exports them.

        Raises:
            RefusedError: ClickHouse refuses a value, or the file's values do not fit the source's
                types.
            DestinationError: the file cannot be read.
        """
        self._held.allow(file.rows, file.bytes)
        try:
            self._rows.begin()
        except ClickHouseError as error:
            raise self._refused(error) from error
        self._rows.insert(file, _ROWS)
        try:
            return self._changed(file, left)
        except ClickHouseError as error:
            raise self._refused(error) from error

    def _begin(self) -> None:
        tables = KeyTables(self._held, self._source.table)
        needed = {c.name: c for c in self._columns}
        columns = (needed.get(c.name, without_default(c)) for c in self._source.table.columns)
        try:
            tables.make_as_is(_AS_IS, tuple(columns))
            self._held.command(f"ALTER TABLE {_AS_IS} {self._change.command} SETTINGS {_NOW}")
            tables.make(_ROWS, (*self._columns, *numbered(ROW_NUMBER)), "")
        except ClickHouseError as error:
            raise self._refused(error) from error

    def _refused(self, error: ClickHouseError) -> RefusedError:
        message = f"Cannot run {self._change.command}: {error.reason.rstrip('.')}."
        return RefusedError(message, code=error.code)

    def _changed(self, file: BranchFile, left: Path) -> Rewrite | None:
        """Run the statement on the loaded rows, and write the result."""
        condition = self._change.condition
        where = f" WHERE {condition}" if condition else ""
        # A column that need not exist (IF EXISTS), or is not stored, changes nothing.
        sets_nothing = bool(self._change.sets) and not self.sets
        changed = 0 if sets_nothing else self._count(where)
        if not changed:
            return None
        self._held.command(f"ALTER TABLE {_ROWS} {self._change.command} SETTINGS {_NOW}")
        rows = self._count("")
        if not self._change.sets:
            # The condition may be nondeterministic, so the earlier count may be wrong.
            changed = file.rows - rows
        self._refuse_values()
        columns = [c for c in self._rows.shown if c.name in self.sets]
        values = select_list(columns, self._source.conversions)
        number = f"{SOURCE_ALIAS}.{ROW_NUMBER} AS {ROW_NUMBER}"
        self._held.command(
            f"INSERT INTO FUNCTION file({quote_string(str(left))}, ArrowStream)"
            f" SELECT {', '.join(part for part in (number, values) if part)}"
            f" FROM {_ROWS} AS {SOURCE_ALIAS} ORDER BY {SOURCE_ALIAS}.{ROW_NUMBER}"
            f" SETTINGS {WIRE_SETTINGS}, engine_file_truncate_on_insert = 1"
        )
        return Rewrite((file,), changed, (rows,) if rows else ()) if changed else None

    def _refuse_values(self) -> None:
        """Refuse values that do not fit the lake's types, as an export does.

        Raises:
            RefusedError: the statement set some.
        """
        if not self._checks:
            return
        (found,) = self._held.rows(
            f"SELECT {checks_sql(self._checks)} FROM {_ROWS} AS {SOURCE_ALIAS}"
        )
        if reasons := broken(self._checks, found):
            raise RefusedError(f"Cannot run {self._change.command}: {reasons}")

    def _count(self, where: str) -> int:
        ((found,),) = self._held.rows(f"SELECT count() FROM {_ROWS}{where}")
        return whole(found)
