"""Runs the exports of a CLI command, with its own Spark session, progress and SIGTERM handling.

`show_rehearsal` is `mergeberg export --dry-run`: it prints the forecast of the export, and the free
space on every disk of the source and at the destination. It opens both sides for reading only. A
statement on the command line must wait for its exports (`check_it_waits`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import click

from catalog.ledgers.uris import open_ledger
from catalog.shards import LocalTable
from catalog.sources import SourcePlace, open_source
from spark_ext.actions.check import Space, lacking, measured_space
from spark_ext.actions.export import Stopping, export_tables
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, forecasts_of, open_ports
from spark_ext.actions.metrics import CountingObserver, CountingWriter, Figures
from spark_ext.cli.background import current_report, reporting
from spark_ext.cli.option_values import refuse_unless_confirmed
from spark_ext.cli.output import Output, error_printer
from spark_ext.cli.sections import Invocation
from spark_ext.engine.session import SparkSettings, slots
from spark_ext.sql.statement_exports import SessionExport
from spark_ext.sql.statement_settings import StatementSettings
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.errors import StoppedError, UnsupportedError
from tableformat.export.dry_run import (
    EXPORT,
    REPLACE,
    Forecast,
    Rehearsal,
    Replaced,
    check_replacements,
    comparison_note,
)
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import REFUSED, Outcome, Status, worst
from tableformat.export.ports import JobPorts, Observer, ObserverAround, SliceWriter
from tableformat.quantities import counted

__all__ = [
    "Exporting",
    "ask_before_replacing",
    "check_it_waits",
    "check_not_stopped",
    "show_rehearsal",
    "show_space",
]


def show_space(output: Output, spaces: tuple[Space, ...], *, as_json: bool) -> None:
    """Print one line or JSON object for each place."""
    for space in spaces:
        if as_json:
            output.record(asdict(space))
        else:
            output.say(f"{space}{'' if space.enough else ' - NOT ENOUGH'}")


_COLUMNS: Final = (
    "partition_id", "action", "files", "rows", "bytes", "left_rows", "left_bytes", "message"
)  # fmt: skip


def show_rehearsal(
    request: ExportRequest,
    places: Places,
    output: Output,
    *,
    slots: int,
    as_json: bool,
    reword: Callable[[str], str] = str,
    keep: Callable[[tuple[Forecast, ...]], None] | None = None,
) -> tuple[int, Replaced]:
    """Print the forecast of an export; return its exit code, and what it would replace.

    Args:
        request: the export request.
        places: the addresses of source, lake and ledger.
        output: the output of the command.
        slots: how many tasks could run at a time.
        as_json: whether the output is JSON.
        reword: rewords messages for the interface.
        keep: receives the forecasts, which the caller prints; the free space is then a notice, so
            that nothing else is printed as a result.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with open_source(places.source, is_exporting=True) as source:
        found = forecasts_of(
            request,
            places,
            slots=slots,
            note=lambda text: output.note(reword(text)),
            none=lambda text: (output.none_selected if keep is None else output.note)(reword(text)),
            source=source,
        )
        at_server = source.free_bytes()
    shown = tuple(replace(one, message=reword(one.message)) for one in found.forecasts)
    if keep is None:
        output.table(_COLUMNS, [{c: getattr(f, c) for c in _COLUMNS} for f in shown])
    else:
        keep(shown)
    spaces = measured_space(
        found.source_bytes,
        destination=found.destination_bytes,
        location=found.location,
        warehouse=lake.ledger_directory,
        at_server=at_server,
    )
    if keep is None:
        show_space(output, spaces, as_json=as_json)
    missing = lacking(request.table, spaces)
    for reason in missing:
        output.note(reason)
    output.note("nothing was done: this was a dry run")
    return worst((_exit_code(found), REFUSED if missing else 0)), found.replaced


def _exit_code(found: Rehearsal) -> int:
    return worst(
        Status(f.action).exit_code for f in found.forecasts if f.action not in (EXPORT, REPLACE)
    )


_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Landing(ObserverAround):
    """An observer that keeps the ids of exported partitions, and passes on every call."""

    landed: list[str]

    def finished(self, outcome: Outcome) -> None:
        """Keep the id of a partition that this command has committed."""
        if outcome.status in (Status.COMMITTED, Status.REPLACED):
            self.landed.append(outcome.partition_id)
        self.observer.finished(outcome)


def _landing(observer: Observer, tables: Sequence[LocalTable]) -> Observer:
    """Return an observer that keeps the exported partitions for the advice after an error.

    With several shards it keeps none, because the other shards may not have exported a partition.
    """
    context = click.get_current_context(silent=True)
    if context is None or len(tables) > 1:
        return observer
    return _Landing(observer, context.ensure_object(Invocation).landed)


def ask_before_replacing(
    request: ExportRequest, places: Places, tables: Sequence[LocalTable], *, slots: int
) -> None:
    """Ask the user for confirmation if the export of a command would replace rows in main.

    Args:
        request: the request of the command, which is applied to each table.
        places: the addresses of lake and ledger; each table has its own source.
        tables: one table, or one for each shard.
        slots: how many tasks could run at a time.

    Raises:
        RefusedError: the user declined, or more would be replaced than the request allows.
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    rehearsals = [
        forecasts_of(
            request.of_table(one.table, len(tables)),
            replace(places, source=one.place),
            slots=slots,
            note=lambda _: None,
        )
        for one in tables
    ]
    check_replacements(request, sum((one.replaced for one in rehearsals), Replaced()))
    found = [one for made in rehearsals for one in made.forecasts if one.left_rows]
    if not found:
        return
    left, size = sum(f.left_rows for f in found), sum(f.left_bytes for f in found)
    came = sum(f.rows for f in found)
    named = ", ".join(f.partition_id for f in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    effect = (
        f"{counted(len(found), 'partition')} of {request.to} would be replaced ({named}{more}):"
        f" {counted(left, 'row')}, {size:,} bytes, leave main; {counted(came, 'row')} come."
    )
    refuse_unless_confirmed(f"{request.options.action} {request.table} to {request.to}", effect)


class Exporting:
    """Runs the exports of one command; Spark starts when the first of them has files to write."""

    def __init__(
        self,
        settings: SparkSettings,
        output: Output,
        *,
        as_json: bool,
        observer: Observer | None = None,
        figures: Figures | None = None,
        reword: Callable[[str], str] = str,
    ) -> None:
        """Keep the settings, and begin to look for Java.

        Args:
            settings: the settings of Spark.
            output: the output of the command.
            as_json: whether the output is JSON.
            observer: receives progress and outcomes; None for `output`.
            figures: the metrics to update; None for none.
            reword: rewords messages of a dry run for the interface.
        """
        self._spark = SparkWhenNeeded(settings)
        self._slots = slots(settings.master)
        self._output = output
        heard: Observer = output if observer is None else observer
        self._observer = heard if figures is None else CountingObserver(heard, figures)
        self._figures = figures
        self._reword = reword
        self._as_json = as_json

    def rehearse(
        self,
        request: ExportRequest,
        places: Places,
        tables: Sequence[LocalTable],
        *,
        keep: Callable[[tuple[Forecast, ...]], None] | None = None,
    ) -> int:
        """Print the forecast of the exports; return the exit code that they would have.

        Args:
            request: the export request, which is applied to each table.
            places: the addresses of lake and ledger; each table has its own source.
            tables: one table, or one for each shard.
            keep: receives the forecasts of each table, which are then not printed.

        Raises:
            TableFormatError: the request would be refused as a whole, or a side cannot be read.
        """
        found = [
            show_rehearsal(
                request.of_table(one.table, len(tables)),
                replace(places, source=one.place),
                self._output,
                slots=self._slots,
                as_json=self._as_json,
                reword=self._reword,
                keep=keep,
            )
            for one in tables
        ]
        replaced = sum((of_table for _, of_table in found), Replaced())
        check_replacements(request, replaced)
        if note := comparison_note(request, replaced):
            self._output.note(self._reword(note))
        return worst(code for code, _ in found)

    def ask(self, request: ExportRequest, places: Places, tables: Sequence[LocalTable]) -> None:
        """Ask the user for confirmation as `ask_before_replacing` does."""
        ask_before_replacing(request, places, tables, slots=self._slots)

    def run(
        self,
        request: ExportRequest,
        places: Places,
        tables: Sequence[LocalTable],
        stopping: Stopping,
        *,
        verify: bool = False,
    ) -> int:
        """Run the exports; return the exit code.

        Args:
            request: the export request, which is applied to each table.
            places: the addresses of lake and ledger; each table has its own source.
            tables: one table, or one for each shard.
            stopping: tells whether SIGTERM was received.
            verify: compare every export with its source after the commit.

        Raises:
            TableFormatError: the request was refused as a whole, or failed before any partition.
        """
        report = current_report()
        heard = reporting(_landing(self._observer, tables), report)
        effects = None if report is None else report.claimed

        def opened(place: SourcePlace) -> JobPorts:
            ports = open_ports(
                replace(places, source=place),
                self._spark,
                heard,
                effects=effects,
                verify=verify,
                check_rows=request.options.check_rows,
            )
            return replace(
                ports,
                writer=lambda: self._counting(ports.writer()),
                should_stop=lambda: stopping.is_requested() or ports.should_stop(),
            )

        with self._asking(places):
            return export_tables(
                request,
                tables,
                opened,
                slots=self._slots,
                note=self._output.note,
                report=error_printer(self._output),
            )

    @contextlib.contextmanager
    def _asking(self, places: Places) -> Iterator[None]:
        """Connect the metrics to the ledger while the exports run."""
        if self._figures is None:
            yield
            return
        ledger = open_ledger(places.ledger, local_warehouse=places.lake.ledger_directory)
        with contextlib.closing(ledger):
            self._figures.counters = ledger.counters
            try:
                yield
            finally:
                self._figures.counters = None

    def _counting(self, writer: SliceWriter) -> SliceWriter:
        return writer if self._figures is None else CountingWriter(writer, self._figures)


def check_it_waits(settings: StatementSettings) -> None:
    """Check that the settings wait for the exports, which would end with the command.

    Raises:
        UnsupportedError: the settings ask not to wait.
    """
    if not settings.wait:
        message = (
            "Cannot export without waiting: `mergeberg alter` ends with its exports. Leave "
            "export_merge_tree_partition_wait = 0 out, or use `mergeberg export --no-wait`."
        )
        raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)


def check_not_stopped(export: SessionExport, stopping: Stopping) -> None:
    """Check that an export may begin.

    Raises:
        StoppedError: the command has received SIGTERM.
    """
    if stopping.is_requested():
        message = (
            f"Cannot export {export.request.table} to {export.request.to}: the command was stopped "
            "before it began. Run it again."
        )
        raise StoppedError(message)
