"""Makes the source tables and exports them; returns what ClickHouse itself reads from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.export.outcome import Status
from tableformat.export.request import AllPartitions, ById, Selection
from tableformat.export.slices import FileFormat
from tableformat.iceberg.schema import map_columns
from tableformat.names import PartitionId, TableName, quote_identifier
from tests.readers.canonical import Cell, IcebergTypeJson, canonical
from tests.readers.columns import Column, rows
from tests.readers.filters import Filter
from tests.readers.tables import ADDED, DIVIDED, EMPTY, EVERYTHING, GROWN, NESTED, SourceTable
from tests.support.real_export import RealExport

__all__ = ["ID", "Exported", "ReadersLake", "open_lake"]

ID: Final = Column("id", "Int32", ())
_DATABASE: Final = "db"
_FORMAT: Final = FileFormat()
_EVERYTHING: Final = AllPartitions()
_NOT_FAR: Final[Mapping[str, str]] = MappingProxyType({})
# Types and columns that ClickHouse asks a permission for, and texts of instants that keep the zone.
_SETTINGS: Final = (
    "allow_suspicious_low_cardinality_types = 1",
    "enable_time_time64_type = 1",
    "date_time_output_format = 'iso'",
    # The number -0 would lose its sign in JSON.
    "output_format_json_quote_64bit_floats = 1",
)


@dataclass(frozen=True, slots=True)
class Exported:
    """A table that is in the lake.

    Attributes:
        name: of the table, on both sides.
        metadata: location of the lake table's metadata file.
        columns: all of them, `id` first.
        types: of the columns, as in Iceberg's metadata.
        late: columns that the rows up to `late_until` do not have in the lake.
        late_until: the first number of a row that has them.
    """

    name: str
    metadata: str
    columns: tuple[Column, ...]
    types: dict[str, IcebergTypeJson]
    late: tuple[Column, ...] = ()
    late_until: int = 0

    def column(self, name: str) -> Column:
        """Return the column of a name."""
        return next(c for c in self.columns if c.name == name)


class ReadersLake:
    """A ClickHouse with the tables of `tables.py`, and the warehouse that they are exported to."""

    def __init__(self, exports: RealExport, directory: Path) -> None:
        self.exports = exports
        self.directory = directory
        for setting in _SETTINGS:
            self.exports.clickhouse.command(f"SET {setting}")

    def make_all(self) -> tuple[Exported, ...]:
        """Make and export every table."""
        tables = [self.make(table) for table in (EVERYTHING, NESTED, *DIVIDED)]
        return (*tables, self._make_grown(), self._make_empty())

    def make(self, table: SourceTable, file_format: FileFormat = _FORMAT) -> Exported:
        """Make a table and export all of it."""
        self._create(table)
        self._insert(table.name, table.rows)
        self._export(table, file_format=file_format)
        return self._exported(table.name, (ID, *table.columns))

    def rows(self, table: Exported) -> list[list[Cell]]:
        """Return all rows as ClickHouse has them, as the lake must show them, by `id`."""
        texts = ", ".join(_truth(c) for c in table.columns)
        found = self._ask(f"SELECT {texts} FROM {_DATABASE}.{table.name} ORDER BY id")
        return [
            [
                None
                if c in table.late and row[0] < table.late_until
                else canonical(value, table.types[c.name])
                for c, value in zip(table.columns, row, strict=True)
            ]
            for row in found
        ]

    def ids(self, table: Exported, of: Filter, cells: Sequence[Sequence[Cell]]) -> list[int]:
        """Return for which rows ClickHouse says that a filter holds, by `id`.

        Values are taken from the row of the table that has them: no literal stands between.
        """
        where = self._where(table, of, cells)
        return [row[0] for row in self._ask(
            f"SELECT id FROM {_DATABASE}.{table.name} WHERE {where} ORDER BY id"
        )]  # fmt: skip

    def _where(self, table: Exported, of: Filter, cells: Sequence[Sequence[Cell]]) -> str:
        if of[0] == "and":
            return " AND ".join(f"({self._where(table, part, cells)})" for part in of[1:])
        column = table.column(of[1])
        sql = _truth(column)
        if column in table.late:
            sql = f"if(id < {table.late_until}, NULL, {sql})"
        if of[0] == "null":
            return f"isNull({sql})"
        place = table.columns.index(column)

        def value(cell: Cell) -> str:
            row = next(r for r in cells if r[place] == cell)
            found = f"SELECT {_truth(column)} FROM {_DATABASE}.{table.name} WHERE id = {row[0]}"
            return f"(SELECT assumeNotNull(x) FROM ({found}) AS s(x))"

        if of[0] == "in":
            return " OR ".join(f"{sql} = {value(cell)}" for cell in of[2])
        return f"{sql} {of[0]} {value(of[2])}"

    def _make_grown(self) -> Exported:
        table = GROWN
        half = len(table.rows) // 2
        self._create(table)
        self._insert(table.name, table.rows[:half])
        self._export(table)
        name = TableName(_DATABASE, table.name)
        for column in ADDED:
            self._command(f"ALTER TABLE {name.sql} ADD COLUMN {_declared(column)}")
        self._insert(table.name, _with_added(table.rows[half:], half))
        mapped = map_columns(self.exports.clickhouse.source.describe(name))
        with self.exports.lake(name).update_schema() as update:
            for found in mapped.columns:
                if found.name in (c.name for c in ADDED):
                    update.add_column((found.name,), found.type, found.doc, required=False)
        self._export(table, ById(PartitionId("1")))
        columns = (ID, *table.columns, *ADDED)
        return self._exported(table.name, columns, late=ADDED, late_until=half)

    def _make_empty(self) -> Exported:
        self._create(EMPTY)
        self._insert(EMPTY.name, EMPTY.rows)
        self._command(f"DELETE FROM {_DATABASE}.{EMPTY.name} WHERE true")
        self._export(EMPTY, status=Status.EMPTY)
        return self._exported(EMPTY.name, (ID, *EMPTY.columns))

    def _create(self, table: SourceTable) -> None:
        columns = ", ".join(_declared(c) for c in (ID, *table.columns))
        self._command(
            f"CREATE TABLE {_DATABASE}.{table.name} ({columns}) ENGINE = MergeTree"
            f" PARTITION BY {table.partition_by} ORDER BY id"
        )

    def _insert(self, name: str, values: Sequence[str]) -> None:
        self._command(f"INSERT INTO {_DATABASE}.{name} VALUES {', '.join(values)}")

    def _export(
        self,
        table: SourceTable,
        selection: Selection = _EVERYTHING,
        *,
        file_format: FileFormat = _FORMAT,
        status: Status = Status.COMMITTED,
    ) -> None:
        outcomes = self.exports.run(
            TableName(_DATABASE, table.name),
            selection,
            partition_spec=table.partition_spec,
            file_format=file_format,
        )
        wrong = [o for o in outcomes if o.status is not status]
        assert outcomes, f"nothing of {table.name} was exported"
        assert not wrong, wrong

    def _exported(
        self,
        name: str,
        columns: tuple[Column, ...],
        late: tuple[Column, ...] = (),
        late_until: int = 0,
    ) -> Exported:
        lake = self.exports.lake(TableName(_DATABASE, name))
        fields = lake.schema().model_dump(by_alias=True, mode="json")["fields"]
        types = {field["name"]: field["type"] for field in fields}
        return Exported(name, lake.metadata_location, columns, types, late, late_until)

    def _command(self, sql: str) -> None:
        self.exports.clickhouse.command(sql)

    def _ask(self, sql: str) -> list[list[Any]]:
        return [list(row) for row in self.exports.clickhouse.rows(sql)]


@contextmanager
def open_lake(root: Path, far: Mapping[str, str] = _NOT_FAR) -> Iterator[ReadersLake]:
    """Start a ClickHouse on an empty directory, with a warehouse next to it.

    Args:
        root: the directory.
        far: PyIceberg's properties of a catalog whose warehouse is elsewhere.
    """
    with EmbeddedConnection(root / "data", create=True) as connection:
        yield ReadersLake(RealExport(connection, root, far=far), root)


def _declared(column: Column) -> str:
    return f"{quote_identifier(column.name)} {column.type}"


def _truth(column: Column) -> str:
    return column.truth.format(quote_identifier(column.name))


def _with_added(half: Sequence[str], first: int) -> list[str]:
    """Return rows with values of the columns that were added."""
    return [
        f"{row.removesuffix(')')}, {added.partition(', ')[2]}"
        for row, added in zip(half, rows(ADDED, first + len(half))[first:], strict=True)
    ]
