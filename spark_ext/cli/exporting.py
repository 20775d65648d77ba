"""How commands run exports: with a Spark of their own, progress, and SIGTERM heard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import click

from catalog.ledgers.uris import open_ledger
from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.cli.asking import refuse_unless_confirmed
from spark_ext.cli.output import Output
from spark_ext.cli.rehearsal import forecasts_of, show_rehearsal
from spark_ext.failing_over import export_from_any
from spark_ext.metrics import CountingObserver, CountingWriter, Figures
from spark_ext.running_exports import exit_code
from spark_ext.session import SparkSettings, slots
from spark_ext.sharding import each_table
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, SparkWhenNeeded, open_ports
from tableformat.export.exit_codes import worst
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Observer, ObserverAround, SliceWriter
from tableformat.quantities import counted

__all__ = ["Exporting"]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Landing(ObserverAround):
    """An observer that keeps the ids of partitions which were exported, and passes all on."""

    landed: list[str]

    def finished(self, outcome: Outcome) -> None:
        """Keep the id of a partition that is in the lake by this command."""
        if outcome.status in (Status.COMMITTED, Status.REPLACED):
            self.landed.append(outcome.partition_id)
        self.observer.finished(outcome)


def _landing(observer: Observer, tables: Sequence[LocalTable]) -> Observer:
    """Return an observer that keeps for the end of the command which partitions were exported.

    Not of several shards: a partition of one that is exported says nothing of those of the others.
    """
    context = click.get_current_context(silent=True)
    if context is None or len(tables) > 1:
        return observer
    return _Landing(observer, context.ensure_object(list))


class Exporting:
    """The exports of one command; Spark starts when the first of them has work for it."""

    def __init__(
        self,
        settings: SparkSettings,
        output: Output,
        *,
        as_json: bool,
        observer: Observer | None = None,
        figures: Figures | None = None,
        said: Callable[[str], str] = str,
    ) -> None:
        """Begin to look for Java.

        Args:
            settings: of Spark.
            output: of the command.
            as_json: whether it is for a program.
            observer: hears how the exports go; `output` when None.
            figures: count what is written, None for not at all.
            said: a message of a rehearsal in the words of who asked; as it is by default.
        """
        self._spark = SparkWhenNeeded(settings)
        self._slots = slots(settings.master)
        self._output = output
        heard: Observer = output if observer is None else observer
        self._observer = heard if figures is None else CountingObserver(heard, figures)
        self._figures = figures
        self._said = said
        self._as_json = as_json

    def rehearse(self, request: ExportRequest, places: Places, tables: Sequence[LocalTable]) -> int:
        """Print what an export would do; return the exit code that it would have.

        Raises:
            TableFormatError: it would be refused as a whole, or a side cannot be read.
        """
        return worst(
            show_rehearsal(
                request.of_table(one.table, len(tables)),
                replace(places, source=one.place),
                self._output,
                slots=self._slots,
                as_json=self._as_json,
                said=self._said,
            )
            for one in tables
        )

    def ask(self, request: ExportRequest, places: Places, tables: Sequence[LocalTable]) -> None:
        """Ask whether rows may leave main, where any would for what comes.

        Raises:
            RefusedError: they may not.
            TableFormatError: it would be refused as a whole, or a side cannot be read.
        """
        found = [
            forecast
            for one in tables
            for forecast in forecasts_of(
                request.of_table(one.table, len(tables)),
                replace(places, source=one.place),
                slots=self._slots,
                note=lambda _: None,
            ).forecasts
            if forecast.left_rows
        ]
        if not found:
            return
        left, size = sum(f.left_rows for f in found), sum(f.left_bytes for f in found)
        came = sum(f.rows for f in found)
        named = ", ".join(f.partition_id for f in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        said = (
            f"{counted(len(found), 'partition')} of {request.to} would be replaced ({named}{more}):"
            f" {counted(left, 'row')}, {size:,} bytes, leave main; {counted(came, 'row')} come."
        )
        refuse_unless_confirmed(f"export {request.table} to {request.to}", said)

    def run(
        self,
        request: ExportRequest,
        places: Places,
        tables: Sequence[LocalTable],
        stopping: Stopping,
        *,
        verify: bool = False,
    ) -> int:
        """Export; return the exit code.

        Args:
            request: what was asked for; of each of the tables.
            places: where everything is; the source is each table's own.
            tables: one, or one of each shard.
            stopping: says when nothing more is to be begun.
            verify: compare every export with its source after the commit.

        Raises:
            TableFormatError: it was refused as a whole, or failed before any partition.
        """
        heard = _landing(self._observer, tables)

        def export_one(one: LocalTable) -> int:
            def opened(place: SourcePlace) -> JobPorts:
                at = replace(places, source=place)
                ports = open_ports(at, self._spark, heard, verify=verify)
                return replace(
                    ports,
                    writer=lambda: self._counting(ports.writer()),
                    should_stop=lambda: stopping.is_told() or ports.should_stop(),
                )

            wanted = request.of_table(one.table, len(tables))
            return exit_code(export_from_any(wanted, one.place, opened, slots=self._slots))

        with self._asking(places):
            return each_table(tables, export_one, self._output.note, doing="export from")

    @contextlib.contextmanager
    def _asking(self, places: Places) -> Iterator[None]:
        """Let the figures ask the ledger as long as exports run."""
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
