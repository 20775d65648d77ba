"""Runs an export for every shard, moves to another replica on failure, and handles SIGTERM.

`export_tables` is the one runner of the command line, SQL and Python. Each interface opens the
ports with its own Spark session and observer (`spark_ext.actions.export_ports`). With the option
`max_replace` it first looks at all tables, and refuses the command before the first export.

`export_from_any` repeats whole runs; each run is the same command at another host.
Finished files stay. A partition that is frozen nowhere any more is frozen again under a new
epoch. A partition that has an outcome is left out of the next run. Each host is tried once; when
no host is left, the outcome is that of the runs so far. Only a lost host (`SourceGoneError`)
starts another run, because any other failure would occur on the other hosts too.

`each_table` runs a command for every table that a name stands for: one, or one of each shard.
A shard that fails costs only its own partitions. The command raises the errors after all shards
have run.

`ClaimedTransactions` records the transactions that an export claims, so that an interface can
report them before the export ends.

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
from tableformat.export.dry_run import Rehearsal, Replaced, check_replacements, rehearse
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import FAILED, WORSE_THAN_FAILED, Outcome, Status, worst
from tableformat.export.ports import JobPorts
from tableformat.export.request import ReplaceLimit
from tableformat.ledger import Row
from tableformat.names import PartitionId

__all__ = [
    "ClaimedTransactions",
    "Stopping",
    "each_table",
    "export_from_any",
    "export_tables",
    "limited",
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
    report: Callable[[TableFormatError], None] | None = None,
) -> int:
    """Export one table, or the table of each shard; return one exit code for all.

    Args:
        request: the export request, which is applied to each table.
        tables: one table, or one for each shard.
        opened: opens the ports of an export job whose source is at the given address.
        slots: how many tasks can run at a time.
        note: receives the name of each shard before its export.
        begin: called before each table. An error that it raises ends the export.
        failed: receives the error of each table that could not be read or was refused.
        report: see `each_table`.

    Raises:
        TableFormatError: the request was refused as a whole, or failed before any partition. For
            several shards, see `each_table`.
    """
    opened = limited(request, tables, opened, slots=slots)

    def export_one(one: LocalTable) -> int:
        begin(one)
        wanted = request.of_table(one.table, len(tables))
        try:
            outcomes = export_from_any(wanted, one.place, opened, slots=slots)
            return worst(outcome.status.exit_code for outcome in outcomes)
        except (SourceError, RefusedError) as error:
            failed(error)
            raise

    return each_table(tables, export_one, note, report, doing="export from")


def limited(
    request: ExportRequest,
    tables: Sequence[LocalTable],
    opened: Callable[[SourcePlace], JobPorts],
    *,
    slots: int,
) -> Callable[[SourcePlace], JobPorts]:
    """Return what opens ports with which all exports of a command share its `max_replace`.

    Without that option this is `opened` itself. With it, all tables are looked at first.

    Args:
        request: the request of the command, which is applied to each table.
        tables: one table, or one for each shard.
        opened: opens the ports of an export job whose source is at the given address.
        slots: how many tasks can run at a time.

    Raises:
        RefusedError: the exports would replace more partitions than `max_replace` allows.
        TableFormatError: the only table, its lake table or the ledger cannot be read.
    """
    most = request.options.max_replace
    if most is None:
        return opened
    _check_replacements(request, tables, opened, slots, most)
    limit = ReplaceLimit(most)
    return lambda place: replace(opened(place), replacements=limit)


def _check_replacements(
    request: ExportRequest,
    tables: Sequence[LocalTable],
    opened: Callable[[SourcePlace], JobPorts],
    slots: int,
    most: int,
) -> None:
    """Check that the exports of a command replace no more partitions than it allows.

    Rows are compared only if the limit depends on them. The ledger then notes which are equal; the
    lake is not changed.

    Raises:
        RefusedError: they would replace more.
        TableFormatError: the only table, its lake table or the ledger cannot be read. One of
            several shards is not counted: its export has the same error, and raises it.
    """
    planned: list[tuple[LocalTable, Rehearsal]] = []
    for one in tables:
        try:
            planned.append((one, _forecast(request.of_table(one.table, len(tables)), one, opened)))
        except (SourceError, RefusedError):
            if len(tables) == 1:
                raise
    found = sum((made.replaced for _, made in planned), Replaced())
    check_replacements(request, found)
    if len(found.certain) + len(found.compared) <= most:
        return
    for one, made in planned:
        if made.replaced.compared:
            wanted = request.of_table(one.table, len(tables))
            found += Replaced(_differing(wanted, one, made, opened, slots))
    check_replacements(request, found)


def _forecast(
    request: ExportRequest, one: LocalTable, opened: Callable[[SourcePlace], JobPorts]
) -> Rehearsal:
    """Return what the export of one table would do."""
    ports = opened(one.place)
    with contextlib.ExitStack() as closing:
        for port in (ports.ledger, ports.source, ports.digests, ports.compares):
            if port is not None:
                closing.callback(port.close)
        return rehearse(
            request,
            ports.source,
            ports.lake,
            ports.ledger,
            now=ports.clock(),
            slots=1,
            note=lambda _: None,
            storage=ports.storage,
        )


def _differing(
    request: ExportRequest,
    one: LocalTable,
    planned: Rehearsal,
    opened: Callable[[SourcePlace], JobPorts],
    slots: int,
) -> tuple[str, ...]:
    """Compare rows with the exported rows; return the ids of partitions that have other rows.

    Args:
        request: the request for this table.
        one: the table.
        planned: its forecast; only the partitions that the export would compare are compared.
        opened: opens the ports of a job.
        slots: how many tasks can run at a time.
    """
    others = {f.partition_id for f in planned.forecasts} - {*planned.replaced.compared}
    comparing = replace(
        request,
        options=replace(request.options, compares_only=True),
        leave_out=frozenset(map(PartitionId, others)),
        abandoned_ttl=0,
    )
    ports = opened(one.place)
    with (
        contextlib.closing(ports.ledger),
        contextlib.closing(export(comparing, ports, slots=slots)) as running,
    ):
        return tuple(one.partition_id for one in running if one.status is Status.REFUSED)


def export_from_any(
    request: ExportRequest,
    place: SourcePlace,
    open_ports: Callable[[SourcePlace], JobPorts],
    *,
    slots: int,
) -> tuple[Outcome, ...]:
    """Export one table; continue with another replica of the source when the host is lost.

    The observer gets each outcome at once. The call returns all of them.

    Args:
        request: the export request.
        place: the address of the source. The hosts of a server are replicas of each other.
        open_ports: opens the ports of an export job whose source is at the given address. Their
            ledger is closed here.
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
    """The runs of one export: the outcomes by partition, and the hosts that were tried.

    `reported` has the outcomes that the observer has received. `lost` has the outcomes of
    partitions whose host was lost; the observer receives them if no later run has an outcome for
    the partition.
    """

    request: ExportRequest
    place: SourcePlace
    slots: int
    reported: dict[str, Outcome] = field(default_factory=dict)
    lost: dict[str, Outcome] = field(default_factory=dict)
    tried: list[Host] = field(default_factory=list)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The reported outcomes of all runs."""
        return tuple(self.reported.values())

    def run(self, ports: JobPorts) -> Host | None:
        """Run the export once; return the next host to try, None if the export has ended.

        Raises:
            TableFormatError: the run failed, and no other host is left or would help.
        """
        try:
            why = self._export(ports)
        except SourceGoneError as error:
            host = self._next(ports, error.message)
            if host is None:
                self._report_lost(ports)
                raise
            return host
        except TableFormatError:
            self._report_lost(ports)
            raise
        host = self._next(ports, why) if why else None
        if host is None:
            self._report_lost(ports)
        return host

    def _export(self, ports: JobPorts) -> str:
        """Export the partitions without an outcome; return why a host was lost, '' if none was."""
        why = ""
        left = replace(self.request, leave_out=frozenset(map(PartitionId, self.reported)))
        # An interrupted generator releases leases and staging tables only when it is closed.
        with contextlib.closing(export(left, ports, slots=self.slots)) as running:
            for outcome in running:
                if outcome.source_gone:
                    self.lost[outcome.partition_id] = outcome
                    why = why or outcome.message
                else:
                    self.lost.pop(outcome.partition_id, None)
                    self._report(ports, outcome)
        return why

    def _next(self, ports: JobPorts, why: str) -> Host | None:
        """Return a host that was not tried yet and notify the observer; None if none is left."""
        source = ports.source
        if not isinstance(source, ServerSource) or source.host is None or ports.should_stop():
            return None
        self.tried.append(source.host)
        note = ports.observer.note
        host = other_replica(self.place, source, self.tried, self.request.table, note)
        if host is not None:
            reason = _WHY.search(why)
            short = reason["why"] if reason else why
            note(f"{source.host.place} no longer responds ({short}); continuing with {host.place}")
        return host

    def _report_lost(self, ports: JobPorts) -> None:
        """Report the lost outcomes: no later run has another outcome for these partitions."""
        for outcome in self.lost.values():
            self._report(ports, outcome)
        self.lost.clear()

    def _report(self, ports: JobPorts, outcome: Outcome) -> None:
        ports.observer.finished(outcome)
        self.reported[outcome.partition_id] = outcome


def each_table(
    tables: Sequence[LocalTable],
    run_one: Callable[[LocalTable], int],
    note: Callable[[str], None],
    report: Callable[[TableFormatError], None] | None = None,
    *,
    doing: str = "read from",
) -> int:
    """Run a command for one table, or for the table of each shard; return one exit code for all.

    A named partition may be on some of the shards only. It is an error if no shard has it.

    Args:
        tables: one table, or one for each shard.
        run_one: runs the command for one table, and returns its exit code.
        note: receives the name of each shard before its run.
        report: receives an error that does not end the command, because another result is worse;
            None for a note of it.
        doing: the verb of error messages, after 'Cannot'.

    Raises:
        SourceError: some shards could not be read. The command has run for the others.
        RefusedError: some shards refused the command. It has run for the others.
        TableFormatError: `run_one` raised another error, or its table has no shards.
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
            # Only a missing partition has no code; missing tables and databases have ClickHouse's.
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
    if code not in WORSE_THAN_FAILED:
        raise together
    if report is None:
        note(together.message)
    else:
        report(together)
    return code


def _joined(
    failed: Sequence[tuple[LocalTable, TableFormatError]], number: int, doing: str
) -> TableFormatError:
    """Return one error for all failed shards: SourceError if any could not be read."""
    reasons = " ".join(f"shard {one.shard}: {error.message}" for one, error in failed)
    message = f"Cannot {doing} {len(failed)} of {number} shards: {reasons}"
    codes = {error.code for _, error in failed}
    code = codes.pop() if len(codes) == 1 else None
    if any(isinstance(error, SourceError) for _, error in failed):
        return SourceError(message, code=code)
    advice = frozenset[Advice]().union(*(error.advice for _, error in failed))
    return RefusedError(message, code=code, advice=advice)


class ClaimedTransactions:
    """Effects that record the transactions that an export claims; thread-safe."""

    def __init__(self) -> None:
        """Create it without transactions."""
        self._direct: Effects = Direct()
        self._lock = threading.Lock()
        self._claimed: dict[str, str] = {}

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform an effect; if it is a claim, record its transaction and partition."""
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
        """Return the partition id of each transaction that is claimed so far."""
        with self._lock:
            return dict(self._claimed)


class Stopping:
    """A context that handles SIGTERM; outside the main thread it has no effect.

    If the grace time ends first, the interrupted command raises StoppedError.
    """

    def __init__(self, grace: float, say: Callable[[str], None]) -> None:
        """Keep the grace time; the handler is installed on entry.

        Args:
            grace: seconds to finish the files and commits in progress.
            say: prints the notice that the signal was received.
        """
        self._grace = grace
        self._say = say
        self._requested = False
        self._before: tuple[object, object] | None = None

    def is_requested(self) -> bool:
        """Whether the process has received SIGTERM."""
        return self._requested

    def __enter__(self) -> Self:
        """Install the handler."""
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
        """Restore the handlers that were installed before.

        Raises:
            StoppedError: the grace time ended before the work in progress was finished.
        """
        if self._before is not None:
            before, alarm = self._before
            if self._requested:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, alarm)  # type: ignore[arg-type]
            signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
        if self._requested and isinstance(error, KeyboardInterrupt):
            message = (
                f"Cannot finish: the command was stopped, and the grace time of {self._grace:g} s "
                "was not enough for the running work. Exported partitions and finished files are "
                "kept. Run it again: it continues with the rest."
            )
            raise StoppedError(message) from error

    def _heard(self, _signal: int, _frame: FrameType | None) -> None:
        if self._requested:
            # An exception would wait for the same call that blocks the process now.
            os._exit(FAILED)
        self._requested = True
        text = (
            f"SIGTERM: finishing files in progress (up to {self._grace:g} s); send it again to "
            "stop now"
        )
        # The signal may have interrupted the main thread while it printed; printing here could
        # enter the same buffer a second time.
        threading.Thread(target=self._say, args=(text,), daemon=True).start()
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
