"""What `gc` finds in the staging database of a source, and drops, on every host that it is given.

Each replica has staging tables of its own, and a host that is down keeps none of the others from
being looked at. A table goes when no export can go on with it and its run is dead; of a run on
another host, or before this host's last start, nobody here can say whether it is: there the age
that the user named decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.source import ClickHouseSource
from catalog.processes import can_judge, job_may_be_alive
from catalog.sources import SourcePlace, open_source
from tableformat.effects import Effects, Step
from tableformat.errors import SourceError, UsageError
from tableformat.export.leftovers import staging_in_use
from tableformat.export.thing import Kind, Thing
from tableformat.ledger import Ledger
from tableformat.source import Leftover

__all__ = ["StagedAtHost", "StagingSweep"]


@dataclass(frozen=True, slots=True)
class StagedAtHost:
    """The staging tables of one host; `failure` says what could not be done there, '' nothing."""

    things: tuple[Thing, ...]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class StagingSweep:
    """Tells of staging tables, and with `drops` drops those that may go.

    `ledger` says which exports can be gone on with. `older_than` is an age in milliseconds, 0 when
    the user named none; `now` is since 1970.
    """

    ledger: Ledger
    effects: Effects
    older_than: int
    now: int
    drops: bool

    def everywhere(self, places: Iterable[SourcePlace]) -> tuple[StagedAtHost, ...]:
        """Return what every one of some hosts has, and has no more.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return tuple(self._at(one) for one in places)

    def _at(self, place: SourcePlace) -> StagedAtHost:
        where = f" at {place.hosts[0].url}" if place.hosts else ""
        things: list[Thing] = []
        failures: list[str] = []
        with open_source(place) as source:
            try:
                left = source.leftovers()
                # After the tables: of what begins meanwhile either the ledger knows, or nobody.
                in_use = staging_in_use(self.ledger)
                for one in left:
                    thing = self._judged(one, in_use, where)
                    if self.drops and thing.may_go:
                        thing = self._dropped(source, one, thing)
                        failures += [thing.why] if not thing.may_go else []
                    things.append(thing)
            except (SourceError, UsageError) as error:
                failures.append(error.message)
        return StagedAtHost(tuple(things), " ".join(failures))

    def _dropped(self, source: ClickHouseSource, one: Leftover, thing: Thing) -> Thing:
        """Drop a staging table; return what became of it where ClickHouse does not let it go."""
        drop = partial(source.release_staging, (one.name,))
        try:
            self.effects(Step.SWEEP_SOURCE, drop)
        except ClickHouseError as error:
            return replace(thing, may_go=False, why=error.message)
        return thing

    def _judged(self, one: Leftover, in_use: frozenset[str], where: str) -> Thing:
        location = f"{one.name}{where}"
        thing = Thing(Kind.STAGING_TABLE, location, one.bytes_on_disk, may_go=False, why="")
        by = f" ({one.made_by})" if one.made_by else ""
        if one.name in in_use:
            return replace(thing, why="its export can be gone on with, or cancelled")
        is_old = one.created <= self.now - self.older_than
        if job_may_be_alive(one.job):
            return self._judged_by_age(thing, one, by, is_old=is_old)
        if not is_old:
            return replace(thing, why=f"of a dead run{by}, and younger than --older-than")
        return replace(thing, may_go=True, why="its run is dead, and no export can go on with it")

    def _judged_by_age(self, thing: Thing, one: Leftover, by: str, *, is_old: bool) -> Thing:
        """Judge a table whose run may be alive, as far as this process can tell."""
        judge = can_judge(one.job)
        if judge is None and one.table is None:
            return replace(thing, why="nothing says that we made it")
        if judge:
            return replace(thing, why=f"the run that made it is at work{by}")
        if not self.older_than:
            why = f"the run that made it may be at work elsewhere{by}: --older-than AGE decides"
            return replace(thing, why=why)
        if not is_old:
            why = f"of a run elsewhere{by}, and younger than --older-than"
            return replace(thing, why=why)
        why = f"of a run elsewhere{by}, older than --older-than, and no export can go on with it"
        return replace(thing, may_go=True, why=why)
