"""Frozen parts for tests: what FREEZE leaves of a real table, and the statement that made it."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from catalog.clickhouse.frozen.definition import FrozenSettings
from catalog.clickhouse.frozen.source import FrozenPartsSource
from tableformat.names import PartitionId, TableName
from tableformat.source import Probe, SourceSnapshot
from tests.support.clickhouse_source import Clickhouse

__all__ = ["Folders", "freeze", "listing"]

_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True)
class Folders:
    """Part folders of a table, which a test may spoil, and the file with its statement.

    `shadow` is where FREEZE left what they were copied from.
    """

    table: TableName
    settings: FrozenSettings
    shadow: Path

    @property
    def directory(self) -> Path:
        return self.settings.directory

    def statement(self, text: str) -> Folders:
        """Have another statement in the file."""
        self.settings.ddl_file.write_text(text)
        return self

    def replaced(self, old: str, new: str) -> Folders:
        """Have another text in the statement."""
        ddl = self.settings.ddl_file.read_text()
        assert old in ddl, ddl
        return self.statement(ddl.replace(old, new))

    def with_settings(self, **options: str | bool | Path) -> Folders:
        """Say more in the source's text."""
        return replace(self, settings=replace(self.settings, **options))  # type: ignore[arg-type]

    def source(self) -> FrozenPartsSource:
        return FrozenPartsSource(self.settings)

    def snapshot(self, *partition_ids: str, probes: tuple[Probe, ...] = ()) -> SourceSnapshot:
        """Describe and freeze; all partitions when none is named."""
        with self.source() as source:
            described = source.describe(self.table)
            found = tuple(p.partition_id for p in source.partitions(self.table))
            ids = tuple(PartitionId(one) for one in partition_ids) or found
            return source.snapshot(described, ids, job="job", probes=probes)

    def refusals(self) -> dict[str, str]:
        """Return what a snapshot refuses: messages by partition id."""
        return {str(one): error.message for one, error in self.snapshot().refused}


def freeze(clickhouse: Clickhouse, table: TableName, directory: Path) -> Folders:
    """Freeze a table and copy its part folders into a directory that the test may change."""
    name = f"frozen{next(_NUMBERS)}"
    clickhouse.command(f"ALTER TABLE {table.sql} FREEZE WITH NAME '{name}'")
    ((root,),) = clickhouse.rows("SELECT path FROM system.disks WHERE name = 'default'")
    ((uuid,),) = clickhouse.rows(
        f"SELECT toString(uuid) FROM system.tables WHERE database = '{table.database}'"
        f" AND name = '{table.name}'"
    )
    (shadow,) = (Path(str(root)) / "shadow" / name).glob("store/*/*")
    parts = directory / "parts"
    shutil.copytree(shadow, parts)
    ((statement,),) = clickhouse.rows(f"SHOW CREATE TABLE {table.sql}")
    file = directory / "table.sql"
    file.write_text(str(statement))
    return Folders(table, FrozenSettings(parts, file, identity=f"uuid:{uuid}"), shadow)


def listing(directory: Path) -> list[tuple[str, int, int, int, int]]:
    """Return all that a reader could have changed: names, inodes, links, times, sizes."""
    return sorted(
        (str(p), s.st_ino, s.st_nlink, s.st_mtime_ns, s.st_size)
        for p in (directory, *directory.rglob("*"))
        for s in (p.stat(),)
    )
