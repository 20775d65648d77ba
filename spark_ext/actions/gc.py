"""Finds or removes garbage of abandoned exports in a lake table and in its sources.

`tableformat.export.gc` proves which files of a lake table or Hive tree may be removed.
This module adds the staging tables of sources, on every host of the given addresses. All
interfaces use it.

Each replica has its own staging tables. A host that fails does not stop the check of the others.
A staging table may be dropped when no export can resume with it and its run has ended.
This process cannot tell whether a run has ended if the run is on another host or began before the
last start of this host. Then the age in `--older-than` decides (docs/operating/staging.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import HiveTable
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.processes import can_judge, job_may_be_alive, may_be_alive, new_owner
from catalog.sources import SourcePlace, open_source
from spark_ext.actions.export_ports import commit_ports
from spark_ext.actions.logs import LoggedEffects
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import NotFoundError, SourceError, UsageError
from tableformat.export.cleanup import Cleaning, staging_in_use
from tableformat.export.gc import DroppedSnapshots, Garbage, Kind, Sweeping
from tableformat.export.leases import Leases
from tableformat.iceberg.properties import refuse_kept_files
from tableformat.ledger import LeaseHeld, Ledger
from tableformat.messages import Option
from tableformat.source import Leftover

__all__ = ["StagedAtHost", "StagingSweep", "Swept", "sweep", "sweep_sources"]


@dataclass(frozen=True, slots=True)
class StagedAtHost:
    """The staging tables of one host; `failure` has the error messages of that host, or ''."""

    garbage: tuple[Garbage, ...]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class StagingSweep:
    """Lists the staging tables of sources, and with `drops` drops those that are garbage.

    `ledger` records which exports can be resumed. `older_than` is an age in milliseconds, 0 if the
    user gave none. `now` is in milliseconds since 1970.
    """

    ledger: Ledger
    effects: Effects
    older_than: int
    now: int
    drops: bool

    def everywhere(self, places: Iterable[SourcePlace]) -> tuple[StagedAtHost, ...]:
        """Return the staging tables of each host, including those that were dropped.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return tuple(self._at(one) for one in places)

    def _at(self, place: SourcePlace) -> StagedAtHost:
        where = f" at {place.hosts[0].url}" if place.hosts else ""
        garbage: list[Garbage] = []
        failures: list[str] = []
        with open_source(place) as source:
            try:
                left = source.leftovers()
                # The ledger is read after the list of tables, so that it knows every table in the
                # list whose export began in between.
                in_use = staging_in_use(self.ledger)
                for one in left:
                    item = self._judged(one, in_use, where)
                    if self.drops and item.may_go:
                        item = self._dropped(source, one, item)
                        failures += [item.why] if not item.may_go else []
                    garbage.append(item)
            except (SourceError, UsageError) as error:
                failures.append(error.message)
        return StagedAtHost(tuple(garbage), " ".join(failures))

    def _dropped(self, source: ClickHouseSource, one: Leftover, item: Garbage) -> Garbage:
        """Drop a staging table; if ClickHouse refuses, return the item with its message."""
        drop = partial(source.release_staging, (one.name,))
        try:
            self.effects(Step.SWEEP_SOURCE, drop)
        except ClickHouseError as error:
            return replace(item, may_go=False, why=error.message)
        return item

    def _judged(self, one: Leftover, in_use: frozenset[str], where: str) -> Garbage:
        location = f"{one.name}{where}"
        item = Garbage(Kind.STAGING_TABLE, location, one.bytes_on_disk, may_go=False, why="")
        by = f" ({one.made_by})" if one.made_by else ""
        if one.name in in_use:
            return replace(item, why="its export can be resumed or cancelled")
        is_old = one.created <= self.now - self.older_than
        if job_may_be_alive(one.job):
            return self._judged_by_age(item, one, by, is_old=is_old)
        if not is_old:
            return replace(
                item, why=f"of a run that has ended{by}, and younger than {Option.OLDER_THAN}"
            )
        return replace(item, may_go=True, why="its run has ended, and no export can resume with it")

    def _judged_by_age(self, item: Garbage, one: Leftover, by: str, *, is_old: bool) -> Garbage:
        """Classify a staging table whose run may still be alive."""
        judge = can_judge(one.job)
        if judge is None and one.table is None:
            return replace(item, why="nothing shows that mergeberg made it")
        if judge:
            return replace(item, why=f"the run that made it is running{by}")
        if not self.older_than:
            why = f"the run that made it may be running elsewhere{by}: {Option.OLDER_THAN} decides"
            return replace(item, why=why)
        if not is_old:
            why = f"of a run elsewhere{by}, and younger than {Option.OLDER_THAN}"
            return replace(item, why=why)
        why = (
            f"of a run elsewhere{by}, older than {Option.OLDER_THAN}, and no export can resume "
            "with it"
        )
        return replace(item, may_go=True, why=why)


@dataclass(frozen=True, slots=True)
class Swept:
    """The garbage of a lake table, and the staging tables of each host of its sources."""

    in_table: tuple[Garbage, ...]
    staged: tuple[StagedAtHost, ...]

    @property
    def garbage(self) -> tuple[Garbage, ...]:
        """All items: first those that may be removed, then those that stay."""
        found = (*self.in_table, *(t for host in self.staged for t in host.garbage))
        return (*(t for t in found if t.may_go), *(t for t in found if not t.may_go))

    def check_every_host(self) -> None:
        """Check that every host could be examined.

        Raises:
            SourceError: some hosts could not be read, or did not drop a table.
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
    """Find the garbage of abandoned exports into a lake table, and remove it if `removes` is set.

    Args:
        lake: the lake table, or the Hive tree.
        ledger: the ledger of its exports.
        places: every host of the sources whose staging tables are examined too.
        older_than: an age in milliseconds; younger garbage stays. 0 if the user gave none.
        removes: whether to remove the garbage.
        dropped: an age in milliseconds. Snapshots before DROP statements of at least this age are
            expired, and files that no other snapshot refers to are removed. None expires none.

    Raises:
        RefusedError: the table belongs to another ledger, or its owner forbids to expire snapshots.
        DestinationError: the table or its files cannot be read, or a file cannot be removed.
        LedgerError: the ledger cannot be read or written.
    """
    ports = commit_ports(lake, ledger)
    expired: tuple[Garbage, ...] = ()
    if dropped is not None and isinstance(lake, IcebergTable):
        way = "let gc expire no dropped partitions"
        refuse_kept_files(lake.load().properties, lake.name, way)
        snapshots = DroppedSnapshots(ports, lake, dropped, milliseconds())
        expired = snapshots.expire() if removes else snapshots.find()
    location = lake.load().location
    cleaning = Cleaning(ports, lake.storages, location)
    with Leases(ledger, new_owner(), effects=ports.effects, is_alive=may_be_alive) as leases:
        sweeping = Sweeping(cleaning, leases, _holder(ledger), older_than, milliseconds())
        found = sweeping.sweep() if removes else sweeping.find()
        staging = StagingSweep(ledger, ports.effects, older_than, sweeping.now, drops=removes)
        return Swept((*expired, *found), staging.everywhere(places))


def sweep_sources(
    ledger: Ledger, places: Iterable[SourcePlace], *, older_than: int, removes: bool
) -> Swept:
    """Find staging tables of abandoned exports in sources, and drop them if `removes` is set.

    Args:
        ledger: the ledger of the exports, which records the exports that can be resumed.
        places: every host of the sources.
        older_than: an age in milliseconds; younger tables stay. 0 if the user gave none.
        removes: whether to drop the tables.

    Raises:
        NotFoundError: the ledger does not exist.
        LedgerError: the ledger cannot be read.
    """
    if not ledger.is_made():
        message = (
            "Cannot clean up staging tables: there is no ledger here, and only the ledger knows "
            f"which exports can resume with them. Name it by {Option.LEDGER} or "
            f"{Option.WAREHOUSE}, or a lake table of the exports by {Option.TO}."
        )
        raise NotFoundError(message)
    effects = LoggedEffects(Direct())
    staging = StagingSweep(ledger, effects, older_than, milliseconds(), drops=removes)
    return Swept((), staging.everywhere(places))


def _holder(ledger: Ledger) -> Callable[[str], LeaseHeld | None]:
    def running(key: str) -> LeaseHeld | None:
        held = ledger.holder(key)
        return held if held is not None and may_be_alive(held.owner) else None

    return running
