"""The job's writer on Spark: `tableformat.export.ports.SliceWriter` over `runner.write`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from catalog.clickhouse.server.queries import kill_queries
from catalog.clickhouse.server.settings import ServerSettings
from spark_ext.runner import Progress, write
from spark_ext.tasks import installed_versions
from tableformat.export.ports import Writing
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.source import ServedLayout

__all__ = ["SparkWriter"]


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
        """Write every slice; return one receipt or one failure for each."""

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
