"""What the lake holds after the export: the files of main by its manifests, and their receipts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tableformat.receipt import Receipt

__all__ = ["Lake", "LakeFile", "load_lake"]


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A data file of main: the source's partition, its place, and what main says of it."""

    partition_id: str
    path: str
    entry: DataFile
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class Lake:
    """The exported table, and the files of its current snapshot."""

    table: Table
    files: tuple[LakeFile, ...]

    def of(self, partition_id: str) -> tuple[LakeFile, ...]:
        """Return the files of one partition."""
        return tuple(f for f in self.files if f.partition_id == partition_id)


def load_lake(warehouse: Path, name: str) -> Lake:
    """Read the table through PyIceberg, as any other reader would.

    Args:
        warehouse: the directory of the local catalog.
        name: catalog.namespace.table.
    """
    catalog_name, _, identifier = name.partition(".")
    catalog: Catalog = load_catalog(
        catalog_name,
        type="sql",
        uri=f"sqlite:///{warehouse / (catalog_name + '.db')}",
        warehouse=warehouse.as_uri(),
    )
    table = catalog.load_table(identifier)
    snapshot = table.current_snapshot()
    entries = [
        entry.data_file
        for manifest in (snapshot.manifests(table.io) if snapshot else ())
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]
    receipts = _receipts(table)
    return Lake(table, tuple(_file(entry, receipts) for entry in entries))


def _file(entry: DataFile, receipts: dict[str, Receipt]) -> LakeFile:
    # Months since 1970 are how Iceberg keeps the partition value of a month.
    year, month = divmod(int(entry.partition[0]), 12)
    return LakeFile(
        f"{1970 + year}{month + 1:02d}",
        entry.file_path.removeprefix("file://"),
        entry,
        receipts.get(entry.file_path),
    )


def _receipts(table: Table) -> dict[str, Receipt]:
    """Return the stored receipts by the file that they speak of."""
    root = Path(table.location().removeprefix("file://")) / "metadata" / "mergeberg"
    found = (Receipt.from_json(p.read_text(encoding="utf-8")) for p in root.glob("*/*/*.json"))
    return {receipt.file_path: receipt for receipt in found}
