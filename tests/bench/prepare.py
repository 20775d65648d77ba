"""A frozen and planned export, ready to be transferred any number of times.

Plan, slices and table come from the product itself, so that exactly what an export does is
measured; what is left out is what happens once for a job: freezing, claiming, committing.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.source import ClickHouseSource
from catalog.iceberg.catalogs import open_catalog
from spark_ext.engine.tasks import installed_versions
from tableformat.export.destination import fit
from tableformat.export.plan import plan_table
from tableformat.export.slices import FileFormat, Slice, SliceTarget, WritePlan, slices
from tableformat.names import LakeName, PartitionId, TableName
from tests.bench.data import PARTITIONS, Dataset, fill

__all__ = ["Prepared", "prepare"]

# Larger than any part here: one slice for each partition.
_ONE_FILE = 1 << 40


@dataclass(frozen=True, slots=True)
class Prepared:
    """The plan of an export and one slice for each partition, as values that pickle."""

    plan: WritePlan
    slices: tuple[Slice, ...]

    @property
    def together(self) -> Slice:
        """All partitions as if they were one slice: what one query of ClickHouse reads."""
        ranges = tuple(part for slice_ in self.slices for part in slice_.ranges)
        return replace(self.slices[0], ranges=ranges, rows=self.rows)

    @property
    def rows(self) -> int:
        """The rows of all slices."""
        return sum(slice_.rows or 0 for slice_ in self.slices)

    def into(self, directory: Path) -> Prepared:
        """Return the same export into another directory."""
        plan = replace(
            self.plan, data_location=f"{directory}/data", receipts_location=f"{directory}/receipts"
        )
        return Prepared(plan, self.slices)

    def save(self, path: Path) -> None:
        """Write it down for the processes that are measured."""
        path.write_bytes(pickle.dumps(self))

    @staticmethod
    def load(path: Path) -> Prepared:
        """Read what `save` wrote."""
        loaded: Prepared = pickle.loads(path.read_bytes())  # noqa: S301  written by ourselves
        return loaded


def prepare(directory: Path, dataset: Dataset, rows: int) -> Prepared:
    """Fill a table with `rows` rows for each partition, freeze it, and plan its export.

    Raises:
        TableFormatError: a step of the product failed.
    """
    clickhouse = directory / "clickhouse"
    with EmbeddedConnection(clickhouse, create=True) as connection:
        fill(connection, dataset, rows)
    source = ClickHouseSource(lambda _: EmbeddedConnection(clickhouse))
    with source:
        table = source.describe(TableName.parse(dataset.table))
        planned = plan_table(table, conversions={}, strict=False, partition_spec=None)
        ids = tuple(PartitionId(str(p)) for p in PARTITIONS)
        frozen = source.snapshot(table, ids, job="bench", probes=planned.probes)
    name = LakeName.parse(f"lake.{dataset.table}")
    lake = open_catalog("lake", warehouse=directory / "warehouse").create(
        name,
        schema=planned.schema,
        spec=planned.partition_spec,
        order=planned.sort_order,
        properties=planned.properties,
    )
    fmt = FileFormat(target_file_bytes=_ONE_FILE)
    destination = fit(planned, name, lake, lake.load(), fmt)
    cut: list[Slice] = []
    for partition in frozen.partitions:
        target = SliceTarget("k" * 26, 1, "1", f"p={partition.partition_id}", ())
        cut += slices(
            partition,
            target,
            fmt=fmt,
            bytes_ratio=1.0,
            columns=len(dataset.columns),
            first_number=len(cut),
        )
    return Prepared(destination.write_plan(frozen, "bench", installed_versions()), tuple(cut))
