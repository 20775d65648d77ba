"""The command `mergeberg show`: shows a lake table, and the lines to read it with each reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.network import TimeOuts
from spark_ext.cli.destination import destination_name, open_iceberg
from spark_ext.cli.output import output_for
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import NotFoundError
from tableformat.names import LakeName, quote_string
from tableformat.quantities import counted, human_bytes

__all__ = ["show"]

_MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A lake table to show: its state, the files of main, and its branches and tags."""

    name: LakeName
    state: LakeTableState
    files: tuple[BranchFile, ...]
    references: Mapping[str, int]

    @property
    def rows(self) -> int:
        """The number of rows in main, including rows that delete files remove."""
        return sum(one.rows for one in self.files)

    @property
    def bytes(self) -> int:
        """The size of the files in main."""
        return sum(one.bytes for one in self.files)

    @property
    def partitions(self) -> int:
        """The number of lake partitions with files."""
        return len({(one.spec_id, one.partition) for one in self.files})


def show(table: str, warehouse: Path, time_outs: TimeOuts, *, as_json: bool) -> int:
    """Run `mergeberg show`; return the exit code."""
    output = output_for(as_json=as_json)
    name = destination_name(table)
    catalog = open_iceberg(name, f"show {name}", warehouse=warehouse, time_outs=time_outs)
    found = catalog.table(name)
    if found is None:
        message = (
            f"Cannot show {name}: the catalog {name.catalog} has no such table. The first export "
            "creates it; `mergeberg exports list` shows the destinations of exports."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    shown = _look(name, found)
    lines = dict(_reading(shown, catalog))
    if as_json:
        output.record({**_record(shown), "read": lines})
        return 0
    output.page(_page(shown))
    for reader, line in lines.items():
        output.step(reader)
        output.detail("\n".join(f"  {one}" for one in line.splitlines()))
    return 0


def _look(name: LakeName, table: IcebergTable) -> _Shown:
    state = table.load()
    files = table.files_on(state, _MAIN) if state.main is not None else ()
    return _Shown(name, state, files, table.references(state))


def _record(shown: _Shown) -> dict[str, object]:
    state = shown.state
    return {
        "table": str(shown.name),
        "location": state.location,
        "metadata_location": state.metadata_location,
        "format_version": state.format_version,
        "snapshot_id": None if state.main is None else str(state.main),
        "snapshots": len(state.snapshots),
        "references": {name: str(one) for name, one in shown.references.items()},
        "partitions": shown.partitions,
        "rows": shown.rows,
        "data_files": len(shown.files),
        "bytes": shown.bytes,
    }


def _page(shown: _Shown) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    state = shown.state
    yield "table", f"{shown.name} (Iceberg, format version {state.format_version})"
    yield "location", state.location
    yield "metadata", state.metadata_location
    rows, partitions = counted(shown.rows, "row"), counted(shown.partitions, "partition")
    files = f"{counted(len(shown.files), 'file')}, {human_bytes(shown.bytes)}"
    yield "holds", f"{rows}, {partitions}, {files}"
    yield "snapshots", f"{len(state.snapshots):,}{_current(shown)}"
    others = [name for name in shown.references if name != _MAIN]
    if others:
        yield "branches, tags", ", ".join(sorted(others))


def _current(shown: _Shown) -> str:
    seen = shown.state.snapshots.get(shown.state.main or 0)
    if seen is None:
        return ""
    at = datetime.fromtimestamp(seen.made / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f", the current one is {seen.snapshot_id} of {at} UTC"


def _reading(shown: _Shown, catalog: OpenedCatalog) -> Iterator[tuple[str, str]]:
    """Yield the name of each reader with the lines to read the table."""
    metadata, name = shown.state.metadata_location, shown.name
    identifier = ".".join(name.identifier)
    query = f"SELECT count(*) FROM iceberg_scan({quote_string(metadata)});"
    yield "DuckDB", f"INSTALL iceberg; LOAD iceberg;\n{query}"
    yield "Polars", f"import polars as pl\npl.scan_iceberg({metadata!r}).head().collect()"
    scan = f"{_load_catalog(catalog)}.load_table({identifier!r}).scan(limit=5).to_arrow()"
    yield "PyIceberg", f"from pyiceberg.catalog import load_catalog\n{scan}"
    warehouse = f" --warehouse {catalog.local_warehouse}" if catalog.local_warehouse else ""
    yield "Spark", f'mergeberg spark{warehouse} -- -e "SELECT count(*) FROM {name}"'
    yield "ClickHouse", f"SELECT count() FROM {_clickhouse(shown.state.location)};"
    yield "Trino", _trino(shown)


def _load_catalog(catalog: OpenedCatalog) -> str:
    root = catalog.local_warehouse
    if root is None:
        return f"load_catalog({catalog.name!r})"
    uri = f"sqlite:///{root / f'{catalog.name}.db'}"
    return f"load_catalog({catalog.name!r}, type='sql', uri={uri!r}, warehouse={root.as_uri()!r})"


def _clickhouse(location: str) -> str:
    parts = urlsplit(location)
    if parts.scheme in ("file", ""):
        return f"icebergLocal({quote_string(unquote(parts.path))})"
    if parts.scheme in ("s3", "s3a", "s3n"):
        address = f"s3://{parts.netloc}{parts.path}"
        return f"icebergS3({quote_string(address)}, 'KEY', 'SECRET')"
    return f"iceberg({quote_string(location)}, 'KEY', 'SECRET')"


def _trino(shown: _Shown) -> str:
    *namespace, table = shown.name.identifier
    location = shown.state.location
    if urlsplit(location).scheme in ("file", ""):
        return "-- does not read tables in local files"
    schema = ".".join(namespace)
    file = shown.state.metadata_location.rpartition("/")[2]
    return (
        "-- in the same catalog as this one; in another one of Trino's first:\n"
        f"CALL iceberg.system.register_table(schema_name => {quote_string(schema)}, "
        f"table_name => {quote_string(table)},\n"
        f"    table_location => {quote_string(location)}, "
        f"metadata_file_name => {quote_string(file)});\n"
        f'SELECT count(*) FROM iceberg."{schema}"."{table}";'
    )
