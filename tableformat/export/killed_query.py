"""A statement that is killed begins nothing else (RQ…QueryCancellation, reading 11).

Whoever kills it gives up every partition that it has claimed, and says so on their rows. What it
would claim later, only its own run can leave: it looks at the rows of what was killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial

from tableformat.effects import Effects, Step
from tableformat.errors import StoppedError
from tableformat.export.destination import Destination
from tableformat.export.giving_up import QUERY_KILLED
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.ledger import Ledger, Row
from tableformat.names import PartitionId

__all__ = ["KilledQuery", "is_killed", "mark_killed"]


class KilledQuery:
    """Sees by the outcomes of one run whether its statement was killed."""

    def __init__(self, ports: JobPorts, to: Destination) -> None:
        """Begin with a statement that was not."""
        self._ports = ports
        self._to = to
        self._seen = False

    def passing(self, outcomes: Generator[Outcome, None, None]) -> Generator[Outcome, None, None]:
        """Yield the outcomes; closing this closes what they come from.

        Raises:
            LedgerError: it cannot say who gave a partition up.
        """
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                if outcome.status is Status.KILLED and not self._seen:
                    self._look(PartitionId(outcome.partition_id))
                yield outcome

    def _look(self, partition_id: PartitionId) -> None:
        key = self._to.key(partition_id).hash
        row = self._ports.effects(Step.READ_LEDGER, partial(self._ports.ledger.read, key))
        self._seen = row is not None and is_killed(row, self._ports.query_id)

    def check(self) -> None:
        """Go on, unless the statement was killed.

        Raises:
            StoppedError: it was.
        """
        if self._seen:
            message = (
                f"Cannot finish: the query {self._ports.query_id} was killed. What is exported "
                "stays, and nothing else of it becomes visible. Give the same statement again to "
                "export the rest."
            )
            raise StoppedError(message)


def is_killed(row: Row, query_id: str) -> bool:
    """Whether a row was given up because this statement was killed."""
    return row.claim.query_id == query_id and row.last_error.startswith(QUERY_KILLED)


def mark_killed(effects: Effects, ledger: Ledger, rows: Sequence[Row], now: int) -> tuple[Row, ...]:
    """Claim rows of a statement that is killed, all at once, so that its run stops; return them.

    To give each of them up takes longer (`giving_up.kill`), and meanwhile the run would go on with
    the others. What has moved on since it was read stays as it is.

    Args:
        effects: the port to the outside.
        ledger: that has the rows.
        rows: as they were read, under way.
        now: milliseconds since 1970.

    Raises:
        LedgerError: the ledger failed.
    """
    if not rows:
        return ()
    first = ledger.next_epoch(len(rows))
    marked = tuple(
        replace(
            row,
            claim=replace(row.claim, epoch=first + at),
            updated=now,
            last_error=QUERY_KILLED,
        )
        for at, row in enumerate(rows)
    )
    written = effects(Step.CLAIM, partial(ledger.write_all, marked))
    return tuple(row for row in written if isinstance(row, Row))
