"""Whole exports without Spark into trees of Hive directories: one of each table's own name."""

from __future__ import annotations

from pathlib import Path

from catalog.hive import OpenedTree, open_tree
from tableformat.names import HiveName, TableName
from tests.support.real_export import RealExport

__all__ = ["RealTree"]


class RealTree(RealExport):
    """A ClickHouse and a directory of trees; everything else is as for lake tables."""

    @classmethod
    def alongside(cls, exports: RealExport) -> RealTree:
        """Return exports of the same ClickHouse."""
        return cls(exports.clickhouse.connection, exports.warehouse.parent)

    def root(self, name: TableName) -> Path:
        """Return the directory of the tree of a table."""
        return self.warehouse.parent / "trees" / name.name

    def name_of(self, name: TableName) -> HiveName:
        """Return the destination of a table."""
        return HiveName.at(f"file://{self.root(name)}")

    def destination_of(self, name: TableName) -> OpenedTree:
        """Open the tree of a table."""
        return open_tree(self.name_of(name), warehouse=self.warehouse)

    def committed(self, name: TableName) -> set[str]:
        """Return the paths of the files that commit files name, from the tree's root."""
        return {f.path for c in self.destination_of(name).commit_files() for f in c.files}

    def on_disk(self, name: TableName) -> set[str]:
        """Return the paths of the Parquet files in the tree, from its root."""
        root = self.root(name)
        return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}
