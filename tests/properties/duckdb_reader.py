"""DuckDB as a reader of lake tables: `iceberg_scan`, and its results as Arrow.

Maps are asked for as lists of pairs: DuckDB's own Arrow of a map inside a list says that keys are
NULL, which pyarrow cannot hold and ends the process.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from spark_ext.demo.readers import find_duckdb
from tableformat.names import quote_string

__all__ = ["DuckDBReader"]


class DuckDBReader:
    """One DuckDB, for many tables."""

    def __init__(self) -> None:
        """Open it with its Iceberg extension."""
        found = find_duckdb()
        self._session: Any = found.module.connect(
            config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        )
        self._session.execute("SET TimeZone = 'UTC'; SET threads = 1")
        for extension in found.extensions:
            self._session.execute(f"LOAD {quote_string(str(extension))}")

    def close(self) -> None:
        """Close it."""
        self._session.close()

    def read(self, table: Table, columns: Sequence[str], where: str = "true") -> pa.Table:
        """Return columns of a lake table, of the rows for which a condition holds."""
        selected = []
        for name in columns:
            of = table.schema().find_field(name).field_type
            sql = _paired(_quoted(name), of, itertools.count()) if _has_map(of) else _quoted(name)
            selected.append(f"{sql} AS {_quoted(name)}")
        place = quote_string(table.metadata_location)
        found = self._session.execute(
            f"SELECT {', '.join(selected)} FROM iceberg_scan({place}) WHERE {where}"
        )
        return found.to_arrow_table()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _has_map(of: IcebergType) -> bool:
    match of:
        case MapType():
            return True
        case ListType():
            return _has_map(of.element_type)
        case StructType():
            return any(_has_map(f.field_type) for f in of.fields)
        case _:
            return False


def _paired(sql: str, of: IcebergType, numbers: itertools.count[int]) -> str:
    """Return SQL of a value in which every map is a list of pairs."""
    match of:
        case _ if not _has_map(of):
            return sql
        case MapType():
            e = f"e{next(numbers)}"
            key, value = (
                _paired(f"{e}.{member}", t, numbers)
                for member, t in (("key", of.key_type), ("value", of.value_type))
            )
            pair = f"{{'key': {key}, 'value': {value}}}"
            return f"list_transform(map_entries({sql}), lambda {e}: {pair})"
        case ListType():
            e = f"e{next(numbers)}"
            return f"list_transform({sql}, lambda {e}: {_paired(e, of.element_type, numbers)})"
        case StructType():
            members = ", ".join(
                f"{_quoted(f.name)} := {_paired(f'{sql}.{_quoted(f.name)}', f.field_type, numbers)}"
                for f in of.fields
            )
            return f"CASE WHEN {sql} IS NULL THEN NULL ELSE struct_pack({members}) END"
        case _:
            raise AssertionError(of)
