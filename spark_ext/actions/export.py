"""Runs an export for every shard, moves to another replica on failure, and handles SIGTERM.

`export_tables` is the one runner of the command line, SQL and Python. Each interface opens the
ports with its own Spark session and observer (`spark_ext.actions.export_ports`).

`export_from_any` repeats whole runs; each run is the same command at another host.
Finished files stay. A partition that is frozen nowhere any more is frozen again under a new
epoch. A partition that has an outcome is left out of the next run. Each host is tried once; when
no host is left, the outcome is that of the runs so far. Only a lost host (`SourceGoneError`)
starts another run, because any other failure would occur on the other hosts too.

`each_table` runs a command for every table that a name stands for: one, or one of each shard.
A shard that fails costs only its own partitions. The command raises the errors after all shards
have run.

`ClaimedTransactions` hears which transactions an export has, for an answer before it ends.

`Stopping` handles SIGTERM as a shutdown, not as a cancel (docs/operating/stopping.md).
The first SIGTERM lets the files that are being written and a commit finish, and starts no other.
After the grace time the command is interrupted as by Ctrl-C. A second SIGTERM ends the process at
once. In all cases finished work stays, and the same command resumes.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Final, Self, TypeVar

from catalog.clickhouse.server.settings import Host
from catalog.clickhouse.server.source import ServerSource
from catalog.shards import LocalTable, other_replica
from catalog.sources import SourcePlace
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import (
    Advice,
    NotFoundError,
    RefusedError,
    SourceError,
    SourceGoneError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import FAILED, WORSE_THAN_FAILED, Outcome, worst
from tableformat.export.ports import JobPorts
from tableformat.ledger import Row
from tableformat.names import PartitionId

__all__ = [
    "ClaimedTransactions",
    "Stopping",
    "each_table",
    "export_from_any",
    "export_tables",
]

T = TypeVar("T")

_WHY: Final = re.compile(r"https?://\S+: (?P<why>.+?)[.;](?: |\Z)")


def export_tables(
    request: ExportRequest,
    tables: Sequence[LocalTable],
    opened: Callable[[SourcePlace], JobPorts],
    *,
    slots: int,
    note: Callable[[str], None],
    begin: Callable[[LocalTable], None] = lambda _: None,
    failed: Callable[[TableFormatError], None] = lambda _: None,
) -> int:
    """Export every table that a name stands for; return the exit code of all.

    Args:
        request: what was asked for; of each of the tables.
        tables: one, or one of each shard.
        opened: opens what a run acts on, with the source at a place.
        slots: how many tasks can run at a time.
        note: says which shard it is.
        begin: is called before a table is exported; what it raises ends the run.
        failed: hears why a table could not be read or was refused, also of one of several shards.

    Raises:
        TableFormatError: it was refused as a whole, or failed before any partition; of several
            shards as `each_table` says.
    """

    def export_one(one: LocalTable) -> int:
        begin(one)
        wanted = request.of_table(one.table, len(tables))
        try:
            outcomes = export_from_any(wanted, one.place, opened, slots=slots)
            return worst(outcome.status.exit_code for outcome in outcomes)
        except (SourceError, RefusedError) as error:
            failed(error)
            raise

    return each_table(tables, export_one, note, doing="export from")


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


def each_table(
    tables: Sequence[LocalTable],
    run_one: Callable[[LocalTable], int],
    note: Callable[[str], None],
    *,
    doing: str = "read from",
) -> int:
    """Run something for every table that a name stands for; return the exit code of all.

    A partition that was named may lie on some shards only; it is an error when none has it.

    Args:
        tables: one, or one of each shard.
        run_one: runs it for one of them, and returns its exit code.
        note: says which shard it is.
        doing: what the command does with shards, behind 'Cannot'.

    Raises:
        SourceError: shards could not be read; the others had their turn.
        RefusedError: shards refused it; the others had their turn.
        TableFormatError: what `run_one` raises for a table without shards, or beside these two.
    """
    codes: set[int] = set()
    failed: list[tuple[LocalTable, TableFormatError]] = []
    lacking: list[NotFoundError] = []
    for one in tables:
        if one.shard is None:
            codes.add(run_one(one))
            continue
        note(f"shard {one.shard}: {one.table} at {', '.join(h.place for h in one.place.hosts)}")
        try:
            codes.add(run_one(one))
        except (SourceError, RefusedError) as error:
            # A table, a database or a cluster that is not found has ClickHouse's code.
            if isinstance(error, NotFoundError) and error.code is None:
                note(f"shard {one.shard}: {error.message}")
                lacking.append(error)
            else:
                failed.append((one, error))
    if lacking and len(lacking) == len(tables):
        raise lacking[0]
    code = worst(codes)
    if not failed:
        return code
    together = _joined(failed, len(tables), doing)
    if code in WORSE_THAN_FAILED:
        note(together.message)
        return code
    raise together


def _joined(
    failed: Sequence[tuple[LocalTable, TableFormatError]], number: int, doing: str
) -> TableFormatError:
    """Return one error for all shards that failed; one that could not be read counts more."""
    said = " ".join(f"shard {one.shard}: {error.message}" for one, error in failed)
    message = f"Cannot {doing} {len(failed)} of {number} shards: {said}"
    codes = {error.code for _, error in failed}
    code = codes.pop() if len(codes) == 1 else None
    if any(isinstance(error, SourceError) for _, error in failed):
        return SourceError(message, code=code)
    advice = frozenset[Advice]().union(*(error.advice for _, error in failed))
    return RefusedError(message, code=code, advice=advice)


class ClaimedTransactions:
    """Effects that hear which transactions are claimed; for any number of threads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._direct: Effects = Direct()
        self._lock = threading.Lock()
        self._claimed: dict[str, str] = {}

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform an effect, and hear which transaction a partition has."""
        result = self._direct(step, act)
        if step is Step.CLAIM:
            rows = result if isinstance(result, tuple) else (result,)
            with self._lock:
                self._claimed.update(
                    (row.claim.transaction_id, row.key.partition_id)
                    for row in rows
                    if isinstance(row, Row)
                )
        return result

    def partitions(self) -> dict[str, str]:
        """Return the partition of each transaction, as of now."""
        with self._lock:
            return dict(self._claimed)


class Stopping:
    """Hears SIGTERM while it is entered; does nothing outside of the main thread.

    An interruption that comes from it leaves as StoppedError.
    """

    def __init__(self, grace: float, say: Callable[[str], None]) -> None:
        """Begin to listen when entered.

        Args:
            grace: seconds for what runs to be finished.
            say: tells the user that it was heard.
        """
        self._grace = grace
        self._say = say
        self._told = False
        self._before: tuple[object, object] | None = None

    def is_told(self) -> bool:
        """Whether the process was told to stop."""
        return self._told

    def __enter__(self) -> Self:
        """Begin to listen."""
        if threading.current_thread() is threading.main_thread():
            self._before = (
                signal.signal(signal.SIGTERM, self._heard),
                signal.getsignal(signal.SIGALRM),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listen no more.

        Raises:
            StoppedError: the grace was over before what ran was finished.
        """
        if self._before is not None:
            before, alarm = self._before
            if self._told:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, alarm)  # type: ignore[arg-type]
            signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
        if self._told and isinstance(error, KeyboardInterrupt):
            message = (
                f"Cannot finish: it was told to stop, and {self._grace:g} s were not enough for "
                "what ran. What is exported stays, and so do finished files. Run the same command "
                "again: it goes on with what is left."
            )
            raise StoppedError(message) from error

    def _heard(self, _signal: int, _frame: FrameType | None) -> None:
        if self._told:
            # Not by way of exceptions: whatever holds the process up now would hold that up too.
            os._exit(FAILED)
        self._told = True
        text = (
            f"SIGTERM: finishing files in progress (up to {self._grace:g} s); send it again to "
            "stop now"
        )
        # The thread that was interrupted to be told may be in the middle of saying something.
        threading.Thread(target=self._say, args=(text,), daemon=True).start()
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
