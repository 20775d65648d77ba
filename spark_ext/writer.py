"""The job's writer on Spark: `tableformat.export.ports.SliceWriter` over `runner.write`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from catalog.clickhouse.server.queries import kill_queries
from catalog.clickhouse.server.settings import ServerSettings
from spark_ext.runner import Progress, write
from spark_ext.tasks import installed_versions
from tableformat.errors import StoppedError
from tableformat.export.ports import JobPorts, SliceFailure, WriterAround, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.source import ServedLayout

__all__ = ["Cancellable", "InTurn", "SparkWriter", "with_files_in_turn"]


class SparkWriter:
    """Writes slices in the tasks of a Spark session."""

    def __init__(self, spark: SparkSession, server: ServerSettings | None = None) -> None:
        """Write by `spark`; `server` is where tasks read, with its secrets, None for files."""
        self._spark = spark
        # A broadcast, because the plan of a query is written to event logs and shown in the UI.
        self._access = None if server is None else spark.sparkContext.broadcast(server)
        self._server = server

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self._spark.sparkContext.defaultParallelism

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions that every executor must have: those of this process."""
        return installed_versions()

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Raises:
            SourceError: the tasks could not be run at all.
            StoppedError: their Spark job was cancelled.
        """

        def show(progress: Progress) -> None:
            on_rows(progress.rows)

        writing = write(
            self._spark, plan, tasks, on_progress=show, should_stop=should_stop, access=self._access
        )
        try:
            return (yield from writing)
        except BaseException:
            # Tasks that are cancelled leave their queries behind.
            if self._server is not None and isinstance(plan.layout, ServedLayout):
                kill_queries(self._server, plan.layout, plan.job)
            raise


@dataclass(frozen=True, slots=True)
class Cancellable(WriterAround):
    """Lets another writer write; calls `on_cancel` when somebody cancelled what that one did."""

    on_cancel: Callable[[], None]

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Raises:
            SourceError: the tasks could not be run at all.
            StoppedError: their job was cancelled.
        """
        try:
            return (
                yield from self.writer.write(plan, tasks, on_rows=on_rows, should_stop=should_stop)
            )
        except StoppedError:
            self.on_cancel()
            raise


@dataclass(frozen=True, slots=True)
class InTurn(WriterAround):
    """Writes one file after the other (ClickHouse's output_format_parallel_formatting = 0)."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return 1

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every task when the one before has ended; one receipt or failure for each slice."""
        together = Written((), ())
        for number, task in enumerate(tasks):
            if should_stop():
                return replace(together, failures=together.failures + _not_begun(tasks[number:]))
            before = sum(receipt.rows for receipt in together.receipts)

            def show(rows: int, before: int = before) -> None:
                on_rows(before + rows)

            written = yield from self.writer.write(
                plan, (task,), on_rows=show, should_stop=should_stop
            )
            together = Written(
                together.receipts + written.receipts, together.failures + written.failures
            )
        return together


def with_files_in_turn(ports: JobPorts) -> JobPorts:
    """Return ports whose writer writes one file after the other."""
    return replace(ports, writer=lambda: InTurn(ports.writer()))


def _not_begun(tasks: tuple[SliceTask, ...]) -> tuple[SliceFailure, ...]:
    """Return that the slices of some tasks are not to be begun any more."""
    message = (
        "Cannot begin another file: the export was told to stop. Run the same command again: it "
        "goes on with what is left."
    )
    error = StoppedError(message)
    return tuple(SliceFailure(slice_.number, error) for task in tasks for slice_ in task.slices)
