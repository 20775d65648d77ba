"""Table after table through the real job: one ClickHouse, one process of tasks, one warehouse.

Only what would cost each table a new process stays open between them: the connection, the process
that runs the task code, and the ClickHouse that `verify` reads files with.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.table import Table

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.rows.digests import FileDigests
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import ServerSettings, parse_server
from catalog.clickhouse.source import ClickHouseSource
from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.actions.verify import Verifying, VerifyRequest
from spark_ext.engine.session import SparkSettings
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import Silent, SliceWriter
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.export.verification import Comparison
from tableformat.names import LakeName, TableName
from tests.properties.duckdb_reader import DuckDBReader
from tests.properties.task_worker import TaskWorker
from tests.services.clickhouse_front import clickhouse_front
from tests.support.clickhouse_source import config_text

__all__ = ["ManyTables", "Way"]

_TABLES_OF_A_WAREHOUSE: Final = 200
# Small queries by the thousand: threads and compiling cost more than they save.
_SMALL_QUERIES: Final = (
    "SET max_threads = 1, compile_expressions = 0, compile_aggregate_expressions = 0, "
    "compile_sort_description = 0"
)


class Way(enum.Enum):
    """How rows leave ClickHouse: as files, or from a server in one of two formats."""

    FILES = "files"
    ARROW = "arrow"
    NATIVE = "native"


class _Lasting(ClickHouseSource):
    """A source that stays open when a job is done with it."""

    def close(self) -> None: ...


class _LastingDigests(FileDigests):
    """Digests whose ClickHouse stays open when a job is done with it."""

    def close(self) -> None: ...

    def end(self) -> None:
        super().close()


class ManyTables:
    """Exports tables of ClickHouse, each to a lake table of its name; a context manager."""

    def __init__(self, writer: SliceWriter | None = None, way: Way = Way.FILES) -> None:
        """Prepare; everything starts on entry.

        Args:
            writer: of the files; a process with the task code when None.
            way: how its rows leave ClickHouse.
        """
        self._given_writer = writer
        self._way = way
        self._count = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mergeberg-")))
            for disk in ("hot", "cold"):
                (self._root / disk).mkdir()
            server = self._open_clickhouse(stack)
            self.clickhouse.command("CREATE DATABASE db")
            self.clickhouse.command("SET allow_deprecated_database_ordinary = 1")
            self.clickhouse.command("CREATE DATABASE plain ENGINE = Ordinary")
            self.writer = self._given_writer or stack.enter_context(TaskWorker(server))
            self._digests = _LastingDigests()
            stack.callback(self._digests.end)
            self._duckdb = DuckDBReader()
            stack.callback(self._duckdb.close)
            self._open_warehouse()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ledger.close()
        self._stack.close()

    def new_name(self, database: str = "db") -> TableName:
        """Return a name that no table has; now and then also a new warehouse begins.

        Args:
            database: `db`, or `plain`, whose engine is Ordinary.
        """
        self._count += 1
        if self._count % _TABLES_OF_A_WAREHOUSE == 0:
            self._ledger.close()
            shutil.rmtree(self._warehouse)
            self._open_warehouse()
        return TableName(database, f"t{self._count}")

    def export(
        self,
        name: TableName,
        conversions: Mapping[str, str],
        partition_spec: str | None = None,
        *,
        force: bool = False,
    ) -> list[Outcome]:
        """Export a whole table as `mergeberg export --verify` does, with `--force` if asked."""
        request = ExportRequest(
            name,
            _lake_name(name),
            AllPartitions(),
            ExportOptions(manifest_ttl=0, force=force),
            conversions,
            partition_spec=partition_spec,
        )
        return list(export(request, self._ports, slots=1))

    def verify(self, name: TableName) -> list[Comparison]:
        """Compare a table with its lake table as `mergeberg verify` does."""
        lake = self._catalog.table(_lake_name(name))
        assert lake is not None
        request = VerifyRequest(name, _lake_name(name), AllPartitions(), {})
        return list(Verifying(request, self._source, lake, self._ledger, self._digests).run())

    def is_in_lake(self, name: TableName) -> bool:
        """Whether there is a lake table."""
        return self._catalog.table(_lake_name(name)) is not None

    def by_pyiceberg(self, name: TableName, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of the lake table; days and instants as numbers."""
        scan = self._loaded(name).scan(selected_fields=tuple(columns))
        # PyIceberg cannot make a table of no rows of every type.
        return counted(scan.to_arrow()) if list(scan.plan_files()) else []

    def by_duckdb(self, name: TableName, columns: Sequence[str]) -> list[dict[str, Any]]:
        """As `by_pyiceberg`, by another reader."""
        return counted(self._duckdb.read(self._loaded(name), columns))

    def forget(self, name: TableName) -> None:
        """Drop a table, and the files of its lake table."""
        self.clickhouse.command(f"DROP TABLE IF EXISTS {name.sql} SYNC")
        if self.is_in_lake(name):
            shutil.rmtree(urlparse(self._loaded(name).location()).path)

    def _open_clickhouse(self, stack: contextlib.ExitStack) -> ServerSettings | None:
        """Open a ClickHouse of our own; return how tasks reach it, None when they open files."""
        config = config_text(self._root)
        self.clickhouse: Connection
        if self._way is Way.FILES:
            file = self._root / "config.xml"
            file.write_text(config)
            data = self._root / "clickhouse"
            self.clickhouse = stack.enter_context(
                EmbeddedConnection(data, create=True, config_file=file)
            )
            self.clickhouse.command(_SMALL_QUERIES)
            return None
        inside = config.removeprefix("<clickhouse>").removesuffix("</clickhouse>")
        front = stack.enter_context(clickhouse_front(config=inside))
        server = parse_server(front.url, environment={}, allow_insecure=True)
        if self._way is Way.NATIVE:
            unable = mock.patch.object(Capabilities, "makes_wire_values", new=False)
            stack.enter_context(unable)
        client = ServerClient(server, server.hosts[0])
        self.clickhouse = stack.enter_context(ServerConnection(client))
        return server

    def _open_warehouse(self) -> None:
        self._warehouse = self._root / f"warehouse{self._count}"
        self._catalog = open_catalog("lake", warehouse=self._warehouse)
        places = Places(SourcePlace("chdb:unused"), self._catalog)
        ports = open_ports(places, SparkWhenNeeded(SparkSettings()), Silent(), verify=True)
        self._source = _Lasting(lambda _: self.clickhouse)
        self._ledger = ports.ledger
        self._ports = replace(
            ports,
            source=self._source,
            writer=lambda: self.writer,
            begin_writer=lambda: None,
            check_writer=lambda: None,
            digests=self._digests,
        )

    def _loaded(self, name: TableName) -> Table:
        return self._catalog.catalog.load_table(f"n.{name.name}")


def counted(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with days and instants as numbers: they may lie outside Python's calendar."""
    columns = [_values(c.combine_chunks()) for c in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(array: pa.Array) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in _values(chunk)]
    of = array.type
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage)
    if isinstance(array, pa.MapArray):
        pairs = list(zip(_values(array.keys), _values(array.items), strict=True))
        return _sliced(array, pairs)
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        return _sliced(array, _values(array.values))
    if isinstance(array, pa.StructArray):
        members = [_values(array.field(i)) for i in range(of.num_fields)]
        rows = zip(*members, strict=True)
        names = [f.name for f in of]
        return [
            dict(zip(names, row, strict=True)) if there else None
            for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    number = pa.int64() if pa.types.is_timestamp(of) else pa.int32() if of == pa.date32() else of
    found: list[Any] = array.cast(number).to_pylist()
    return found


def _sliced(array: pa.Array, values: list[Any]) -> list[Any]:
    offsets, there = array.offsets.to_pylist(), array.is_valid().to_pylist()
    return [
        values[begin:end] if valid else None
        for begin, end, valid in zip(offsets, offsets[1:], there, strict=False)
    ]


def _lake_name(name: TableName) -> LakeName:
    return LakeName("lake", ("n",), name.name)
