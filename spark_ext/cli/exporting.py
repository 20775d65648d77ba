"""How commands run exports: with a Spark of their own, progress, and SIGTERM heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.cli.output import Output
from spark_ext.cli.rehearsal import show_rehearsal
from spark_ext.exporting import exit_code, slots
from spark_ext.failing_over import export_from_any
from spark_ext.session import SparkSettings
from spark_ext.sharding import each_table
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, SparkWhenNeeded, open_ports
from spark_ext.writer import with_files_in_turn
from tableformat.export.exit_codes import worst
from tableformat.export.job import ExportRequest
from tableformat.export.ports import JobPorts, Observer

__all__ = ["Exporting"]


class Exporting:
    """The exports of one command; Spark starts when the first of them has work for it."""

    def __init__(
        self,
        settings: SparkSettings,
        output: Output,
        *,
        as_json: bool,
        observer: Observer | None = None,
    ) -> None:
        """Begin to look for Java.

        Args:
            settings: of Spark.
            output: of the command.
            as_json: whether it is for a program.
            observer: hears how the exports go; `output` when None.
        """
        self._spark = SparkWhenNeeded(settings)
        self._slots = slots(settings.master)
        self._output = output
        self._observer: Observer = output if observer is None else observer
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
            )
            for one in tables
        )

    def run(
        self,
        request: ExportRequest,
        places: Places,
        tables: Sequence[LocalTable],
        stopping: Stopping,
        *,
        verify: bool = False,
        in_turn: bool = False,
    ) -> int:
        """Export; return the exit code.

        Args:
            request: what was asked for; of each of the tables.
            places: where everything is; the source is each table's own.
            tables: one, or one of each shard.
            stopping: says when nothing more is to be begun.
            verify: compare every export with its source after the commit.
            in_turn: write one file after the other.

        Raises:
            TableFormatError: it was refused as a whole, or failed before any partition.
        """

        def export_one(one: LocalTable) -> int:
            def opened(place: SourcePlace) -> JobPorts:
                at = replace(places, source=place)
                ports = open_ports(at, self._spark, self._observer, verify=verify)
                return replace(
                    with_files_in_turn(ports) if in_turn else ports,
                    should_stop=lambda: stopping.is_told() or ports.should_stop(),
                )

            wanted = request.of_table(one.table, len(tables))
            count = 1 if in_turn else self._slots
            return exit_code(export_from_any(wanted, one.place, opened, slots=count))

        return each_table(tables, export_one, self._output.note, doing="export from")
