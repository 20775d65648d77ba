"""A ClickHouse with data for tests of the source, and a way to open frozen parts as files."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.source import ClickHouseSource
from tableformat.names import PartitionId, TableName, quote_string
from tableformat.source import FrozenPartition, PartsLayout, Probe, ServedLayout, SourceSnapshot

__all__ = ["Clickhouse", "config_text", "hard_links", "ids", "rows_as_files"]

_NUMBERS: Final = itertools.count(1)

KEYS = "PARTITION BY p ORDER BY k"
COLUMNS = (
    "p UInt8, k UInt64, s String, sign Int8 DEFAULT 1, Path String, Time DateTime,"
    " Value Float64, Timestamp DateTime"
)


class Through:
    """A connection that passes everything on, and stays open; tests change what they need."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.address = connection.address
        self.staging_database = connection.staging_database

    def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
        return self.connection.rows(sql)

    def command(self, sql: str) -> None:
        self.connection.command(sql)

    def close(self) -> None: ...


class Clickhouse:
    """A source whose directory stays open, so that a test may change the data at any moment."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.source = ClickHouseSource(lambda _: connection)
        self.command("CREATE DATABASE IF NOT EXISTS db")

    def command(self, sql: str) -> None:
        self.connection.command(sql)

    def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
        return self.connection.rows(sql)

    def table(self, clauses: str, columns: str = "p UInt8, k UInt64, s String") -> TableName:
        """Make an empty table of its own name; `clauses` are all from ENGINE on."""
        name = TableName("db", f"t{next(_NUMBERS)}")
        self.command(f"CREATE TABLE {name.sql} ({columns}) {clauses}")
        return name

    def filled(self, clauses: str = "ENGINE = MergeTree PARTITION BY p ORDER BY k") -> TableName:
        """Make a table with two partitions of 50 rows each, in one part each."""
        name = self.table(clauses)
        self.insert(name)
        return name

    def copy(self, name: TableName) -> TableName:
        """Make another table of the same columns, clauses and rows."""
        other = TableName("db", f"t{next(_NUMBERS)}")
        self.command(f"CREATE TABLE {other.sql} AS {name.sql}")
        self.command(f"INSERT INTO {other.sql} SELECT * FROM {name.sql}")
        return other

    def insert(self, name: TableName, first: int = 0, rows: int = 100) -> None:
        """Insert numbers; even ones into partition 0, odd ones into partition 1."""
        self.command(
            f"INSERT INTO {name.sql} (p, k, s) SETTINGS optimize_on_insert = 0"
            f" SELECT number % 2, number, toString(number) FROM numbers({first}, {rows})"
        )

    def snapshot(
        self, name: TableName, *partition_ids: str, job: str = "job", probes: tuple[Probe, ...] = ()
    ) -> SourceSnapshot:
        """Describe a table and freeze partitions of it, both (0 and 1) when none is named."""
        return self.source.snapshot(
            self.source.describe(name), ids(*(partition_ids or "01")), job=job, probes=probes
        )

    def staging_tables(self) -> tuple[object, ...]:
        found = self.rows(
            "SELECT name FROM system.tables WHERE database = 'mergeberg_staging' ORDER BY name"
        )
        return tuple(row[0] for row in found)


def ids(*values: str) -> tuple[PartitionId, ...]:
    return tuple(PartitionId(value) for value in values)


def config_text(disks: Path) -> str:
    """Return a server configuration with disks of every kind and a replica's macros."""
    return f"""<clickhouse>
  <macros><shard>s1</shard><replica>r1</replica></macros>
  <graphite_rollup><default><function>avg</function>
    <retention><age>0</age><precision>60</precision></retention></default></graphite_rollup>
  <storage_configuration>
    <disks>
      <hot><path>{disks}/hot/</path></hot>
      <cold><path>{disks}/cold/</path></cold>
      <secret><type>encrypted</type><disk>hot</disk><path>e/</path>
        <key>0123456789abcdef</key></secret>
      <bare><type>encrypted</type><disk>hot</disk><key>0123456789abcdef</key></bare>
      <objects><type>object_storage</type><object_storage_type>local</object_storage_type>
        <metadata_type>local</metadata_type><path>{disks}/objects/</path></objects>
      <blobs><type>object_storage</type><object_storage_type>local</object_storage_type>
        <metadata_type>local</metadata_type><path>{disks}/blobs/</path></blobs>
      <cached><type>cache</type><disk>blobs</disk><path>blobs/</path>
        <max_size>1000000</max_size></cached>
    </disks>
    <policies>
      <jbod><volumes><all><disk>hot</disk><disk>cold</disk></all></volumes></jbod>
      <tiered><volumes><h><disk>hot</disk></h><c><disk>cold</disk></c></volumes></tiered>
      <secret><volumes><all><disk>secret</disk></all></volumes></secret>
      <objects><volumes><all><disk>objects</disk></all></volumes></objects>
      <bare><volumes><all><disk>bare</disk></all></volumes></bare>
      <far><volumes><h><disk>hot</disk></h><c><disk>objects</disk></c></volumes></far>
      <cached><volumes><all><disk>cached</disk></all></volumes></cached>
    </policies>
  </storage_configuration>
</clickhouse>"""


def hard_links(partition: FrozenPartition, directory: Path) -> None:
    """Link the parts of a frozen partition into a directory, as a task does."""
    for frozen in partition.parts:
        shutil.copytree(frozen.part.path, directory / frozen.part.name, copy_function=os.link)


def rows_as_files(
    reader: EmbeddedConnection,
    layout: PartsLayout | ServedLayout,
    partitions: Iterable[FrozenPartition],
    directory: Path,
    select: str,
) -> tuple[tuple[object, ...], ...]:
    """Open frozen parts as files, in another ClickHouse, and select from them as `__src`."""
    assert isinstance(layout, PartsLayout)
    for partition in partitions:
        hard_links(partition, directory)
    name = f"default.opened{next(_NUMBERS)}"
    keys = (("PARTITION BY", layout.partition_by), ("PRIMARY KEY", layout.primary_key))
    clauses = "".join(f" {word} {text}" for word, text in keys if text)
    settings = "".join(f", {key} = {value}" for key, value in layout.settings)
    reader.command(
        f"CREATE TABLE {name} ({layout.columns}) ENGINE = MergeTree{clauses}"
        f" ORDER BY {layout.order_by or 'tuple()'} SETTINGS table_disk = 1, disk = disk("
        "readonly = 1, type = 'object_storage', object_storage_type = 'local',"
        f" metadata_type = 'plain', path = {quote_string(f'{directory}/')}){settings}"
    )
    found = reader.rows(f"SELECT {select} FROM {name} AS __src")
    reader.command(f"DROP TABLE {name} SYNC")
    return found


def frozen(snapshot: SourceSnapshot) -> tuple[FrozenPartition, ...]:
    """Return the partitions of a snapshot in which none was refused."""
    assert snapshot.refused == ()
    return snapshot.partitions


def as_files(
    reader: EmbeddedConnection, snapshot: SourceSnapshot, directory: Path, select: str
) -> tuple[tuple[object, ...], ...]:
    """Return the result from the frozen parts of a snapshot, opened as files."""
    return rows_as_files(reader, snapshot.layout, frozen(snapshot), directory, select)


def assert_same_rows(
    clickhouse: Clickhouse,
    reader: EmbeddedConnection,
    name: TableName,
    path: Path,
    select: str,
) -> SourceSnapshot:
    """Freeze a whole table and compare with the result from the table itself."""
    snapshot = clickhouse.snapshot(name)
    expected = clickhouse.rows(f"SELECT {select} FROM {name.sql} AS __src")
    assert as_files(reader, snapshot, path, select) == expected
    return snapshot
