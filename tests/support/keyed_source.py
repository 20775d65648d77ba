"""A source that is partitioned by a column, and so is its lake table: `p1` holds the value p1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.types import Simple
from tableformat.names import PartitionId, TableName
from tableformat.source import LeftSnapshot, Probe, ProbedValue, SourceSnapshot
from tests.support.fakes import TABLE
from tests.support.scenarios import pyiceberg
from tests.support.scene import Lightly

__all__ = ["KEYED", "Keyed", "append_to"]

KEYED = replace(
    TABLE,
    engine=Engine("MergeTree", partition_by="k", order_by="n"),
    columns=(*TABLE.columns, Column("k", Simple("String"), "String")),
)


@dataclass
class Keyed(Lightly):
    """The partitions of `Lightly`, each of which has its own name in the column `k`."""

    table: MergeTreeTable = field(default_factory=lambda: KEYED)

    def probe(
        self, _table: TableName, partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        if partition_id.value in self.hidden:
            return None
        text = partition_id.value.encode().hex()
        return tuple(ProbedValue(text, text, 0) for _ in probes)

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        made = super().snapshot(table, partition_ids, job=job, probes=(), digest=digest)
        return self._probed(made, probes)

    def find_snapshot(
        self,
        table: MergeTreeTable,
        wanted: Mapping[PartitionId, LeftSnapshot],
        *,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        return self._probed(super().find_snapshot(table, wanted, probes=(), digest=digest), probes)

    def _probed(self, made: SourceSnapshot, probes: tuple[Probe, ...]) -> SourceSnapshot:
        nothing = tuple(ProbedValue(None, None, 0) for _ in probes)
        found = (
            replace(p, probed=self.probe(made.table.name, p.partition_id, probes) or nothing)
            for p in made.partitions
        )
        return replace(made, partitions=tuple(found))


def append_to(directory: Path, value: str, rows: int) -> None:
    """Append rows to one lake partition as another engine does."""
    table = pyiceberg(directory)
    columns = [pa.array(range(rows)), pa.array([value] * rows)]
    table.append(pa.table(columns, table.schema().as_arrow()))
