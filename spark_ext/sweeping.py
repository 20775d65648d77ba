"""What dead exports left behind, in a lake table and in sources: told, or removed.

For every front door; the proofs are those of `tableformat.export.sweeping` and `spark_ext.staging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from catalog.hive import HiveTable
from catalog.iceberg_table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, this_process
from catalog.sources import SourcePlace
from spark_ext.logs import LoggedEffects
from spark_ext.staging import StagedAtHost, StagingSweep
from spark_ext.wiring import commit_ports
from tableformat.effects import Direct
from tableformat.errors import NotFoundError, SourceError
from tableformat.export.cleaning import Cleaning
from tableformat.export.dropped import DroppedSnapshots
from tableformat.export.leases import Leases
from tableformat.export.sweeping import Sweeping, Thing
from tableformat.ledger import LeaseHeld, Ledger

__all__ = ["Swept", "sweep", "sweep_sources"]


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found in the table, and what at each host of its sources."""

    in_table: tuple[Thing, ...]
    staged: tuple[StagedAtHost, ...]

    @property
    def things(self) -> tuple[Thing, ...]:
        """Everything, what goes before what stays."""
        found = (*self.in_table, *(t for host in self.staged for t in host.things))
        return (*(t for t in found if t.may_go), *(t for t in found if not t.may_go))

    def check_every_host(self) -> None:
        """Check that every host could be looked at.

        Raises:
            SourceError: some could not.
        """
        failed = [host.failure for host in self.staged if host.failure]
        if failed:
            number = len(self.staged)
            message = (
                f"Cannot clean up staging tables at {len(failed)} of {number} "
                f"{'host' if number == 1 else 'hosts'}: {' '.join(failed)}"
            )
            raise SourceError(message)


def sweep(
    lake: IcebergTable | HiveTable,
    ledger: Ledger,
    places: Iterable[SourcePlace],
    *,
    older_than: int,
    removes: bool,
    dropped: int | None = None,
) -> Swept:
    """Find what dead exports into a table left, and remove what may go where that is wanted.

    Args:
        lake: the table, or tree.
        ledger: of its exports.
        places: every host of a source whose staging tables are looked at, too.
        older_than: an age in milliseconds; what is younger stays. 0 when the user named none.
        removes: whether what may go goes.
        dropped: an age in milliseconds; the snapshots before DROPs that are older are expired, and
            what nothing else refers to goes. None for no snapshot.

    Raises:
        RefusedError: the table is of another ledger.
        DestinationError: the table or its files cannot be read, or a file does not go.
        LedgerError: the ledger cannot be read or written.
    """
    ports = commit_ports(lake, ledger)
    expired: tuple[Thing, ...] = ()
    if dropped is not None and isinstance(lake, IcebergTable):
        snapshots = DroppedSnapshots(ports, lake, dropped, milliseconds())
        expired = snapshots.expire() if removes else snapshots.find()
    location = lake.load().location
    cleaning = Cleaning(ports, lake.storages, location)
    with Leases(ledger, this_process(), effects=ports.effects, is_alive=may_be_alive) as leases:
        sweeping = Sweeping(cleaning, leases, _holder(ledger), older_than, milliseconds())
        found = sweeping.sweep() if removes else sweeping.find()
        staging = StagingSweep(ledger, ports.effects, older_than, sweeping.now, drops=removes)
        return Swept((*expired, *found), staging.everywhere(places))


def sweep_sources(
    ledger: Ledger, places: Iterable[SourcePlace], *, older_than: int, removes: bool
) -> Swept:
    """Find what dead exports into any table of a ledger left in sources, and drop what may go.

    Args:
        ledger: of the exports that are made from there: it says which can be gone on with.
        places: every host of a source.
        older_than: an age in milliseconds; what is younger stays. 0 when the user named none.
        removes: whether what may go goes.

    Raises:
        NotFoundError: there is no such ledger.
        LedgerError: the ledger cannot be read.
    """
    if not ledger.is_made():
        message = (
            "Cannot clean up staging tables: there is no ledger here that says with which of them "
            "an export can be gone on. Name it by --ledger or --warehouse, or a lake table of the "
            "exports by --to."
        )
        raise NotFoundError(message)
    effects = LoggedEffects(Direct())
    staging = StagingSweep(ledger, effects, older_than, milliseconds(), drops=removes)
    return Swept((), staging.everywhere(places))


def _holder(ledger: Ledger) -> Callable[[str], LeaseHeld | None]:
    def living(key: str) -> LeaseHeld | None:
        held = ledger.holder(key)
        return held if held is not None and may_be_alive(held.owner) else None

    return living
