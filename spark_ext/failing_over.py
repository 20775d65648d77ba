"""One export through any replica: when the host that it reads is gone, another one goes on.

Around whole runs: each does exactly what the same command would do if it were given again, at a
host that is known to be alive. What is finished is kept, what is frozen nowhere any more is frozen
anew under a new epoch, and partitions that have their answer are left out. A host is tried once;
when none is left, the outcome is that of the runs so far. Only a host that is gone
(`SourceGoneError`) brings a next run: whatever else fails would fail there as well.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from catalog.clickhouse.server.settings import Host
from catalog.clickhouse.server.source import ServerSource
from catalog.replicas import other_replica
from catalog.sources import SourcePlace
from tableformat.errors import SourceGoneError, TableFormatError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts
from tableformat.names import PartitionId

__all__ = ["export_from_any"]

_WHY: Final = re.compile(r"https?://\S+: (?P<why>.+?)[.;](?: |\Z)")


def export_from_any(
    request: ExportRequest,
    place: SourcePlace,
    open_ports: Callable[[SourcePlace], JobPorts],
    *,
    slots: int,
) -> tuple[Outcome, ...]:
    """Export what was asked for, tell the observer of each outcome at once, and return them all.

    Args:
        request: what the user asked for.
        place: of the source; the hosts of a server are replicas of one another.
        open_ports: opens what a run acts on, with the source at a place; their ledger is closed.
        slots: how many tasks can run at a time.

    Raises:
        TableFormatError: a run was refused as a whole, or failed before any partition.
    """
    runs = _Runs(request, place, slots)
    at = place
    while True:
        ports = open_ports(at)
        with contextlib.closing(ports.ledger):
            host = runs.run(ports)
        if host is None:
            return runs.outcomes
        at = replace(place, hosts=(host,))


@dataclass(slots=True)
class _Runs:
    """The runs of one export: their outcomes by partition, and the hosts that were tried.

    `lost` are outcomes of partitions whose host was gone: they are told only when no other run
    answers them.
    """

    request: ExportRequest
    place: SourcePlace
    slots: int
    told: dict[str, Outcome] = field(default_factory=dict)
    lost: dict[str, Outcome] = field(default_factory=dict)
    tried: list[Host] = field(default_factory=list)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of every partition."""
        return tuple(self.told.values())

    def run(self, ports: JobPorts) -> Host | None:
        """Run it once; return the host that can go on, None when it has ended.

        Raises:
            TableFormatError: it ended with that.
        """
        try:
            why = self._exported(ports)
        except SourceGoneError as error:
            host = self._next(ports, error.message)
            if host is None:
                self._tell_lost(ports)
                raise
            return host
        except TableFormatError:
            self._tell_lost(ports)
            raise
        host = self._next(ports, why) if why else None
        if host is None:
            self._tell_lost(ports)
        return host

    def _exported(self, ports: JobPorts) -> str:
        """Export what has no answer yet; return why partitions lost their host, '' for none did."""
        why = ""
        left = replace(self.request, leave_out=frozenset(map(PartitionId, self.told)))
        # Closed at once when interrupted: only then leases and staging tables are given back.
        with contextlib.closing(export(left, ports, slots=self.slots)) as running:
            for outcome in running:
                if outcome.source_gone:
                    self.lost[outcome.partition_id] = outcome
                    why = why or outcome.message
                else:
                    self.lost.pop(outcome.partition_id, None)
                    self._tell(ports, outcome)
        return why

    def _next(self, ports: JobPorts, why: str) -> Host | None:
        """Return another host to go on with, and say so; None when there is none."""
        source = ports.source
        if not isinstance(source, ServerSource) or source.host is None or ports.should_stop():
            return None
        self.tried.append(source.host)
        note = ports.observer.note
        host = other_replica(self.place, source, self.tried, self.request.table, note)
        if host is not None:
            said = _WHY.search(why)
            short = said["why"] if said else why
            note(f"{source.host.place} is gone ({short}); going on with {host.place}")
        return host

    def _tell_lost(self, ports: JobPorts) -> None:
        """Tell what the runs before said of partitions that no run has answered since."""
        for outcome in self.lost.values():
            self._tell(ports, outcome)
        self.lost.clear()

    def _tell(self, ports: JobPorts, outcome: Outcome) -> None:
        ports.observer.finished(outcome)
        self.told[outcome.partition_id] = outcome
