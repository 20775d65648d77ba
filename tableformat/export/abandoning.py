"""What an interrupted replacement had frozen is let go once the source is what main holds again.

Nothing of it can be exported any more but by freezing the same parts anew, whose finished files are
then found by their receipts. Without this the frozen parts would stay on the source's disks until
somebody cancels the export, or it expires.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tableformat.effects import Step
from tableformat.errors import LedgerError, SourceError
from tableformat.export.leftovers import staging_in_use
from tableformat.export.outcome import Status
from tableformat.export.ports import JobPorts
from tableformat.ledger import Row, Stale, State

__all__ = ["Abandoning"]

_MAIN_HOLDS_IT = (Status.UNCHANGED, Status.ALREADY_EXPORTED)


@dataclass(frozen=True, slots=True)
class Abandoning:
    """Lets go of what interrupted exports of one source had frozen."""

    ports: JobPorts

    def after(self, row: Row | None, status: Status) -> None:
        """Let go of what a claim had frozen, under its lease; what goes wrong is only told.

        Args:
            row: of the partition, None when it has none.
            status: what was answered, from the source and main as they are now.
        """
        begun = row is not None and row.state is State.RUNNING and bool(row.claim.staging)
        if row is None or not begun or status not in _MAIN_HOLDS_IT:
            return
        ports = self.ports
        after = replace(row, claim=replace(row.claim, staging=()))
        try:
            written = ports.effects(Step.CLEAN_CLAIM, partial(ports.ledger.write, after))
            if isinstance(written, Stale):
                return
            of_use = staging_in_use(ports.ledger)
            ports.effects(
                Step.SWEEP_SOURCE,
                partial(ports.source.sweep_leftovers, ports.job_is_alive, of_use),
            )
        except (LedgerError, SourceError) as error:
            self.ports.observer.note(
                f"partition {row.key.partition_id}: what an interrupted run had frozen stays: "
                f"{error} The next run drops it"
            )
