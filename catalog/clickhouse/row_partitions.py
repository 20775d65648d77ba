"""In which partitions the rows of a data file lie, by ClickHouse's own meaning.

A ClickHouse of our own, empty and gone afterwards, has a table with the partition key that a lake
table remembers. The distinct values of the key's columns are inserted there, as the source's types
again, and the table says in which partitions they are: hashes, zones and what a key's functions
mean are ClickHouse's business.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.clickhouse.connection import ClickHouseError, texts
from catalog.clickhouse.file_rows import ROW_NUMBER, numbered
from catalog.clickhouse.own import LEAST_SECONDS, OwnClickHouse
from catalog.clickhouse.partition_values import KeyTables
from catalog.closing import Closing
from catalog.storages.opening import Storages
from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError, RefusedError
from tableformat.iceberg.file_columns import FileColumn, file_columns
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.snapshot import table_of
from tableformat.mergetree.digest_sql import source_columns
from tableformat.mergetree.division import key_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.type_text import render_type
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    LowCardinality,
    Nullable,
    Simple,
    SimpleAggregateFunction,
)
from tableformat.names import PartitionId, quote_identifier, quote_string

__all__ = ["RowPartitions"]

_TABLE: Final = "default.rows"
_NUMBERED: Final = "default.numbered"
_ALL: Final = frozenset({PartitionId("all")})
_MICROSECONDS: Final = DateTime64(6, "UTC")
_SETTINGS: Final = "max_partitions_per_insert_block = 0, input_format_null_as_default = 0"


class RowPartitions(Closing):
    """A `tableformat.operations.partition_files.RowPartitions`.

    The ClickHouse is started by the first file, and ended by `close`; a context manager: leaving it
    closes.
    """

    def __init__(self, source: RememberedSource, storages: Storages) -> None:
        """Start nothing yet; `storages` open what locations belong to."""
        self._source = source
        self._storages = storages
        self._key = key_columns(source.table)
        self._held: OwnClickHouse | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the key reads, by name."""
        return tuple(column.name for column in self._key)

    def check(self, state: LakeTableState) -> None:
        """Refuse a table that has not every column that the key reads.

        Raises:
            RefusedError: others renamed or dropped one.
        """
        table = table_of(state)
        there = {field.name for field in table.schema().fields}
        lacking = ", ".join(name for name in self.columns if name not in there)
        if lacking:
            message = (
                f"Cannot tell in which partition of {'.'.join(table.name())} rows lie: it has no "
                f"column {lacking} any more, which its partition key reads. Rename it back."
            )
            raise RefusedError(message)

    def close(self) -> None:
        """End the ClickHouse, if it was started. Closing twice is the same as once."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def ids(self, location: str, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions that rows of a data file lie in, deleted ones included.

        Raises:
            RefusedError: the table has not every column that the key reads.
            DestinationError: the file cannot be read, or lacks a column of the key.
            UnsupportedError: its storage is not served.
        """
        if not self._key:
            return _ALL
        self.check(state)
        scratch = self._opened().directory
        path = self._storages(location).fetch(location, scratch)
        try:
            return self.ids_in(path, state)
        except OSError as error:
            raise _unknown(location, str(error)) from error
        finally:
            if path.parent == scratch:
                path.unlink(missing_ok=True)

    def ids_in(self, path: Path, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions that rows of a file of this host lie in.

        Raises:
            OSError: it cannot be read, lacks a column of the key, or has a value that is none.
        """
        if not self._key:
            return _ALL
        try:
            return self._asked(path, state)
        except (pa.ArrowException, ClickHouseError) as error:
            reason = error.reason if isinstance(error, ClickHouseError) else str(error)
            raise OSError(reason) from error

    def numbers_in(self, path: Path, wanted: PartitionId, state: LakeTableState) -> pa.Array:
        """Return the numbers of the rows of a file of this host that lie in a partition.

        Args:
            path: a file of the key's columns, at least one, and `file_rows.ROW_NUMBER`.
            wanted: the partition.
            state: of the table, whose field ids the columns have.

        Raises:
            OSError: it cannot be read, lacks a column of the key, has a value that is none, or not
                every row of it came to lie in a partition.
        """
        clickhouse = self._opened()
        found = clickhouse.directory / f"numbers-{uuid.uuid4().hex}.parquet"
        try:
            self._insert(path, state, _NUMBERED, (ROW_NUMBER,))
            (lie,) = texts(clickhouse, f"SELECT toString(count()) FROM {_NUMBERED}")
            if (rows := pq.read_metadata(path).num_rows) != int(lie):
                message = f"{int(lie):,} of {rows:,} rows were told their partition"
                raise OSError(message)
            clickhouse.command(
                f"INSERT INTO FUNCTION file({quote_string(str(found))}, Parquet)"
                f" SELECT {ROW_NUMBER} FROM {_NUMBERED}"
                f" WHERE _partition_id = {quote_string(str(wanted))} ORDER BY {ROW_NUMBER}"
            )
            return pq.read_table(found).column(ROW_NUMBER).combine_chunks().cast(pa.int64())
        except (pa.ArrowException, ClickHouseError) as error:
            reason = error.reason if isinstance(error, ClickHouseError) else str(error)
            raise OSError(reason) from error
        finally:
            found.unlink(missing_ok=True)

    def _opened(self) -> OwnClickHouse:
        if self._held is None:
            self._held = OwnClickHouse("partitions", seconds=LEAST_SECONDS)
            source = self._source.table
            tables, key = KeyTables(self._held, source), source.engine.partition_by
            tables.make(_TABLE, self._key, key)
            if self._key:
                tables.make(_NUMBERED, (*self._key, *numbered(ROW_NUMBER)), key)
        return self._held

    def _asked(self, path: Path, state: LakeTableState) -> frozenset[PartitionId]:
        self._insert(path, state, _TABLE)
        found = texts(self._opened(), f"SELECT DISTINCT _partition_id FROM {_TABLE}")
        return frozenset(PartitionId(one) for one in found)

    def _insert(
        self, path: Path, state: LakeTableState, into: str, more: tuple[str, ...] = ()
    ) -> None:
        """Let a table have the distinct values of the key's columns, and of numbers.

        Raises:
            OSError: the file lacks a column of the key.
            pa.ArrowException: it cannot be read.
            ClickHouseError: likewise, or a value is none.
        """
        clickhouse = self._opened()
        clickhouse.allow(pq.read_metadata(path).num_rows, path.stat().st_size)
        wanted = source_columns(self._key, self._source.conversions)
        schema = table_of(state).schema()
        read_as = file_columns(wanted, schema, pq.read_schema(path))
        lacking = ", ".join(column.name for column in read_as if column.written is None)
        if lacking:
            message = f"it lacks {lacking}, which the partition key reads"
            raise OSError(message)
        # A name of its own for each, so that nothing that was kept of another is read.
        link = clickhouse.directory / f"rows-{uuid.uuid4().hex}.parquet"
        link.symlink_to(path)
        structure = ", ".join((_read(read_as), *(f"{name} UInt64" for name in more)))
        names = ", ".join((*map(quote_identifier, self.columns), *more))
        values = ", ".join((self._values(read_as), *more))
        try:
            clickhouse.command(f"TRUNCATE TABLE {into}")
            clickhouse.command(
                f"INSERT INTO {into} ({names}) SETTINGS {_SETTINGS} SELECT DISTINCT {values}"
                f" FROM file({quote_string(str(link))}, Parquet, {quote_string(structure)})"
                f"{self._where(read_as)}"
            )
        finally:
            link.unlink()

    def _values(self, read_as: tuple[FileColumn, ...]) -> str:
        """Return the key's columns as the source's types; what is no value of one is refused."""
        written = {one.name: quote_identifier(one.written or "") for one in read_as}
        return ", ".join(
            f"accurateCast({written[one.name]}, {quote_string(one.type_text)})" for one in self._key
        )

    def _where(self, read_as: tuple[FileColumn, ...]) -> str:
        """Return the clause that refuses times which the source's types cannot hold.

        ClickHouse checks numbers and texts, and lets a Date or a DateTime begin anew after its end:
        9999-12-31 becomes a day of 2105.
        """
        odd = (_beyond(*pair) for pair in zip(read_as, self._key, strict=True))
        conditions = [f"NOT throwIf({of}, {quote_string(text)})" for of, text in filter(None, odd)]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _beyond(read: FileColumn, column: Column) -> tuple[str, str] | None:
    """Return the condition of values that a column cannot hold, and what is said of one."""
    kept = _innermost(column.type)
    name = quote_identifier(read.written or "")
    cast = f"accurateCast({name}, {quote_string(column.type_text)})"
    if kept == Simple("Date") and _innermost(read.type) == Simple("Date32"):
        odd = f"toDate32({cast}) != {name}"
    elif isinstance(kept, DateTime | DateTime64) and _innermost(read.type) == _MICROSECONDS:
        precision = kept.precision if isinstance(kept, DateTime64) else 0
        unit = 10 ** max(6 - precision, 0)
        micros = f"toUnixTimestamp64Micro(toDateTime64({cast}, 6, 'UTC'))"
        # What is finer than its unit is cut off downwards.
        odd = f"toUnixTimestamp64Micro({name}) - {micros} NOT BETWEEN 0 AND {unit - 1}"
    else:
        return None
    text = f"column {column.name} has a value that {column.type_text} cannot hold"
    return f"ifNull({odd}, 0)", text


def _innermost(of: DataType) -> DataType:
    while isinstance(of, Nullable | LowCardinality | SimpleAggregateFunction):
        of = of.of
    return of


def _read(columns: tuple[FileColumn, ...]) -> str:
    return ", ".join(
        f"{quote_identifier(one.written or '')} {render_type(one.type)}" for one in columns
    )


def _unknown(location: str, reason: str) -> DestinationError:
    return DestinationError(
        f"Cannot tell which partition {location} lies in: {reason}. Only its rows "
        "tell it: no export of this ledger from a table of this partition key wrote it. Make it "
        "readable, or rewrite it with the engine that wrote it, and run the statement again."
    )
