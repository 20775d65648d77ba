"""Statements in the small world: as a new process, on a real table without ClickHouse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from catalog.iceberg import IcebergTable
from tableformat.committer import LakeTableState
from tableformat.effects import Direct, Effects
from tableformat.export.settling import Ports
from tableformat.ledger import Owner
from tableformat.names import PartitionId, TransactionId
from tableformat.operations.drop import DropPartition
from tableformat.operations.partition_files import Partitions
from tableformat.operations.running import OperationPorts, Running
from tests.places.found import place_at
from tests.scenarios import CLOCK, TO, lake

__all__ = ["SaidOfRows", "drop", "running"]

_PIDS = itertools.count(70_000)


@dataclass
class SaidOfRows:
    """Says of files of others, by their path, in which partitions they lie."""

    of: dict[str, frozenset[str]] = field(default_factory=dict)

    def ids(self, location: str, _state: LakeTableState) -> frozenset[PartitionId]:
        return frozenset(PartitionId(one) for one in self.of[location])


def running(
    directory: Path,
    *,
    effects: Effects | None = None,
    rows: SaidOfRows | None = None,
    clock: Callable[[], int] = CLOCK.__next__,
    table: IcebergTable | None = None,
) -> Running:
    """Return what runs statements, in a process to which all others are dead."""
    ledger = place_at(directory).ledger(clock)
    acts, found = effects or Direct(), table or lake(directory)
    owner = Owner("host", next(_PIDS), "now")
    ports = OperationPorts(
        Ports(acts, found, ledger, clock, lambda _: None),
        owner,
        lambda other: other == owner,
        lambda epoch: TransactionId(str(5000 + epoch)),
        lambda _: None,
    )
    return Running(ports, TO, Partitions(TO, found, ledger, rows or SaidOfRows(), acts))


def drop(partition: str) -> DropPartition:
    """Return the statement that drops a partition."""
    return DropPartition(PartitionId(partition))
