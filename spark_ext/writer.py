"""The job's writer on Spark: `tableformat.export.ports.SliceWriter` over `runner.write`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from catalog.clickhouse.server.queries import kill_queries
from catalog.clickhouse.server.settings import ServerSettings
from catalog.storages.opening import Storages
from spark_ext.runner import Progress, write
from spark_ext.tasks import installed_versions
from tableformat.errors import StoppedError
from tableformat.export.ports import WriterAround, Writing
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.source import ServedLayout

__all__ = ["Cancellable", "SparkWriter"]


class SparkWriter:
    """Writes slices in the tasks of a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        server: ServerSettings | None = None,
        storages: Storages | None = None,
    ) -> None:
        """Write by `spark`.

        Args:
            spark: the session.
            server: where tasks read, with its secrets; None for files.
            storages: say how tasks reach where they write; None for files.
        """
        self._spark = spark
        # A broadcast, because the plan of a query is written to event logs and shown in the UI.
        self._access = None if server is None else spark.sparkContext.broadcast(server)
        self._server = server
        self._storages = Storages() if storages is None else storages

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

        # Each time anew: the credentials of a table may have been renewed.
        storage = self._storages.access(plan.receipts_location)
        sent = None if storage is None else self._spark.sparkContext.broadcast(storage)
        writing = write(
            self._spark,
            plan,
            tasks,
            on_progress=show,
            should_stop=should_stop,
            access=self._access,
            storage=sent,
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
