"""ALTER TABLE … FORGET PARTITION: an empty partition may be exported anew at once.

As in ClickHouse, one that is not empty is refused (code 716), and so is one that nobody ever knew
(code 999). It ends the refusal only: what landed stays known (coverage.md reading 30).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tableformat.clickhouse_codes import CANNOT_FORGET_PARTITION, KEEPER_EXCEPTION
from tableformat.effects import Step
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.forgetting import forget
from tableformat.export.loading import load_table
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import Row
from tableformat.operations.partition_files import Partitions
from tableformat.operations.statement import OperationPorts
from tableformat.operations.which import OnePartition

__all__ = ["Forget"]


@dataclass(frozen=True, slots=True)
class Forget:
    """The request: which partition is forgotten."""

    which: OnePartition

    def __str__(self) -> str:
        """Return the statement."""
        return f"FORGET {self.which}"

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Forget the exports of it; return what became of it.

        Raises:
            RefusedError: main has files of it (code 716), or an export of it runs.
            NotFoundError: nothing was ever exported of it (code 999).
            TableFormatError: the table or the ledger failed.
        """
        commit, partition_id = ports.commit, self.which.partition_id
        state = load_table(commit)
        there = partitions.files(state, partition_id)
        named = partitions.files(state, partition_id, by_name=True)
        rows = tuple(row for row in partitions.rows_named(state, partition_id) if row.done)
        if keys := there.keys or named.keys:
            files = sum(len(one.files) for one in keys)
            message = (
                f"Cannot run {self} on {partitions.name}: partition {partition_id} is not empty: "
                f"main has {files} file(s) of it. DROP PARTITION or DETACH PARTITION first."
            )
            raise RefusedError(message, code=CANNOT_FORGET_PARTITION)
        if not rows:
            message = (
                f"Cannot run {self} on {partitions.name}: this ledger knows no export of "
                f"partition {partition_id}, so that there is nothing to forget."
            )
            raise NotFoundError(message, code=KEEPER_EXCEPTION)
        said = "it would be forgotten"
        for row in () if dry_run else rows:
            said = commit.effects(Step.SETTLE, partial(_forgotten, ports, row))
        return Outcome(str(partition_id), Status.FORGOTTEN, str(partitions.name), said)


def _forgotten(ports: OperationPorts, row: Row) -> str:
    ledger, now = ports.commit.ledger, ports.commit.clock()
    return forget(ledger, row, owner=ports.owner, is_alive=ports.is_alive, now=now)
