"""Whole exports without Spark: a real ClickHouse that stays open, real tasks, a real catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlparse

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.ledgers import uris
from catalog.sources import SourcePlace, open_source, server_of
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.actions.verify import Verifying, VerifyRequest
from spark_ext.engine.session import SparkSettings
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import Silent
from tableformat.export.request import AllPartitions, ExportOptions, Limits, Selection
from tableformat.export.slices import FileFormat, SliceTask, WritePlan
from tableformat.export.verification import Comparison, LakeDigests
from tableformat.ledger import Row
from tableformat.messages import plain
from tableformat.names import LakeName, TableName
from tableformat.source import Source
from tests.support.child_writer import ChildWriter
from tests.support.clickhouse_source import Clickhouse, Through

__all__ = ["Exports", "RealExport", "Rows", "of_server"]

Rows = list[tuple[object, ...]]

_EVERYTHING = AllPartitions()
_FORMAT = FileFormat()
_LIMITS = Limits()
_NO_CONVERSIONS: Mapping[str, str] = MappingProxyType({})
_NOT_FAR: Mapping[str, str] = MappingProxyType({})


class Noting(Silent):
    """An observer that passes notes on."""

    def __init__(self, note_to: Callable[[str], None]) -> None:
        self._note_to = note_to

    def note(self, text: str) -> None:
        """Hear one sentence."""
        self._note_to(text)


class RealExport:
    """A ClickHouse and a warehouse; a table is exported to the lake table of its own name.

    `place` is where a user says that the ClickHouse is, when it is a server. `far` are PyIceberg's
    properties of a catalog `lake` that is not the local one.
    """

    def __init__(
        self,
        connection: Connection,
        root: Path,
        place: SourcePlace | None = None,
        far: Mapping[str, str] = _NOT_FAR,
    ) -> None:
        self.clickhouse = Clickhouse(connection)
        self.place = place
        self.warehouse = root / "warehouse"
        self.far = far
        self.ledger = f"sqlite:{root}/ledger.db" if far else None
        self.before: Callable[[WritePlan, tuple[SliceTask, ...]], None] = lambda *_: None
        """Called when the source is frozen, before the first file; tests set it."""

    def run(  # noqa: PLR0913  one for each option of the command
        self,
        name: TableName,
        selection: Selection = _EVERYTHING,
        *,
        partition_spec: str | None = None,
        directories: Mapping[str, str] = _NO_CONVERSIONS,
        conversions: Mapping[str, str] = _NO_CONVERSIONS,
        evolve_schema: bool = False,
        backfill: bool = False,
        ttl: int = 0,
        note: Callable[[str], None] = lambda _: None,
        alongside: bool = False,
        force: bool = False,
        same_as: str = "",
        shards: int = 1,
        file_format: FileFormat = _FORMAT,
        limits: Limits = _LIMITS,
        verify: bool = False,
        check_rows: bool = False,
        source: Source | None = None,
        to: TableName | None = None,
    ) -> list[Outcome]:
        """Export as a new process would, from the ClickHouse unless another source is given.

        It goes to the lake table of the name `to`, if that is another one.
        """
        of = to or name
        places = Places(SourcePlace("chdb:unused"), self.destination_of(of), self.ledger)
        observer = Noting(note)
        spark = SparkWhenNeeded(SparkSettings())
        ports = open_ports(places, spark, observer, verify=verify, check_rows=check_rows)
        if source is None:
            source = self._source()
        server = None if self.place is None else server_of(self.place)
        writer = ChildWriter(self.before, server, places.lake.storages)
        without_spark = replace(
            ports,
            source=source,
            writer=lambda: writer,
            begin_writer=lambda: None,
            check_writer=lambda: None,
        )
        options = ExportOptions(
            force, ttl, overwrite_file_if_exists=alongside, check_rows=check_rows
        )
        request = ExportRequest(
            name,
            self.name_of(of),
            selection,
            replace(options, same_as=same_as, shards=shards),
            conversions,
            partition_spec=partition_spec,
            directories=directories,
            evolve_schema=evolve_schema,
            backfill=backfill,
            format=file_format,
            limits=limits,
        )
        return list(export(request, without_spark, slots=1))

    def verify(
        self, name: TableName, digests: LakeDigests, selection: Selection = _EVERYTHING
    ) -> list[Comparison]:
        """Compare a table with its destination as a new process would."""
        source = self._source()
        to = self.name_of(name)
        lake = self.destination_of(name).table(to)
        assert lake is not None
        ledger = uris.open_ledger(self.ledger, local_warehouse=self.warehouse)
        request = VerifyRequest(name, to, selection, {})
        with contextlib.closing(ledger):
            return list(Verifying(request, source, lake, ledger, digests).run())

    def _source(self) -> ClickHouseSource:
        if self.place is not None:
            return open_source(self.place, is_exporting=True)
        return ClickHouseSource(lambda _: Through(self.clickhouse.connection))

    def statuses(
        self, name: TableName, selection: Selection = _EVERYTHING
    ) -> dict[str, tuple[str, str]]:
        """Export; return status word and message by partition id."""
        found = self.run(name, selection)
        return {o.partition_id: (o.status.value, plain(o.message)) for o in found}

    def in_source(self, name: TableName, columns: str = "p, k, s") -> Rows:
        """Return the rows that the source shows, sorted."""
        return sorted(self.clickhouse.rows(f"SELECT {columns} FROM {name.sql}"))

    def in_lake(self, name: TableName, columns: str = "p, k, s") -> Rows:
        """Return the rows of the lake table, sorted."""
        wanted = columns.split(", ")
        found = self.lake(name).scan().to_arrow().select(wanted).to_pylist()
        return sorted(tuple(row[c] for c in wanted) for row in found)

    def lake(self, name: TableName) -> Table:
        """Return the lake table as another engine opens it."""
        return self.catalog("lake").catalog.load_table(f"n.{name.name}")

    def data_files(self, name: TableName) -> list[DataFile]:
        """Return what main knows of each file."""
        return [task.file for task in self.lake(name).scan().plan_files()]

    def files_on_disk(self, name: TableName) -> set[str]:
        """Return the Parquet files below the table, referred to or not."""
        location = Path(urlparse(self.lake(name).location()).path)
        return {path.name for path in location.rglob("*.parquet")}

    def ledger_rows(self, name: TableName) -> list[Row]:
        """Return what the ledger has of a source table."""
        ledger = uris.open_ledger(self.ledger, local_warehouse=self.warehouse)
        return [row for row in ledger.rows() if row.source_table == str(name)]

    def destination_of(self, name: TableName) -> OpenedCatalog | OpenedTree:
        """Open what has the destination of a table."""
        return self.catalog(self.name_of(name).catalog)

    def catalog(self, name: str) -> OpenedCatalog:
        """Open a catalog as a new process would."""
        return open_catalog(name, warehouse=self.warehouse, properties=self.far)

    def name_of(self, name: TableName) -> LakeName:
        """Return the destination of a table."""
        return LakeName("lake", ("n",), name.name)


Exports = Callable[[str], RealExport]
"""Makes exports whose source is the server of an address."""


def of_server(uri: str, root: Path) -> RealExport:
    """Return exports from a server into a warehouse below `root`; http is allowed."""
    place = SourcePlace(uri, allow_insecure=True)
    settings = server_of(place)
    assert settings is not None
    connection = ServerConnection(ServerClient(settings, settings.hosts[0]))
    return RealExport(connection, root, place)
