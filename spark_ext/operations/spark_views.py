"""Temporary views of a Spark session: which names mean one, and their rows, evaluated once.

One Spark job evaluates a view, whose tasks write what they get as files: a view that has other rows
each time is looked at once, and no rows are held in memory. Only files that Spark has of a task
that ended count, so that one that it ran twice has its rows once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from catalog.rewriting.foreign_files import WrittenRows, write_rows
from catalog.storages.schemes import Access, Storages
from spark_ext.engine.jobs import task_directory
from spark_ext.sql.names import Parts, spark_name
from tableformat.errors import SourceError

__all__ = ["SparkView", "View", "no_view", "session_views"]

_ANSWER: Final = "location string, rows long, sha256 string"
_ARROW_ANSWER: Final = pa.schema(
    [("location", pa.string()), ("rows", pa.int64()), ("sha256", pa.string())]
)
_GLOBAL: Final = "spark.sql.globalTempDatabase"
_OF_GLOBAL: Final = 2


class View(Protocol):
    """A view of a session."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns; nothing is evaluated for them.

        Raises:
            SourceError: what it reads is not there any more.
        """
        ...

    @contextmanager
    def written(self, location: str, storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        """Evaluate it once, and lend the files of its rows.

        Args:
            location: of the lake table: where no directory of this host is that of all tasks, the
                files are below it for that time.
            storages: open what the table is in.

        Raises:
            SourceError: it cannot be evaluated.
        """
        ...


def no_view(_: Parts) -> View | None:
    """Return None: no name is that of a view where there is no session."""
    return None


def session_views(
    spark: SparkSession, conf: Mapping[str, str], taken: Iterable[str] = ()
) -> Callable[[Parts], View | None]:
    """Return what tells whether a name means a temporary view of a session, as Spark does.

    Args:
        spark: the session.
        conf: its settings.
        taken: names that mean something else in the statement.
    """
    database = conf.get(_GLOBAL, "global_temp").lower()

    def found(parts: Parts) -> View | None:
        if ".".join(parts) in taken:
            return None
        catalog = spark._jsparkSession.sessionState().catalog()  # noqa: SLF001  PySpark tells a view from a table nowhere else
        if len(parts) == 1:
            is_view = catalog.getTempView(parts[0]).isDefined()
        elif len(parts) == _OF_GLOBAL and parts[0].lower() == database:
            is_view = catalog.getGlobalTempView(parts[1]).isDefined()
        else:
            return None
        return SparkView(spark, spark_name(parts)) if is_view else None

    return found


@dataclass(frozen=True, slots=True)
class SparkView:
    """A temporary view, by its name in backticks."""

    spark: SparkSession
    name: str

    @property
    def schema(self) -> pa.Schema:
        """Its columns; nothing is evaluated for them.

        Raises:
            SourceError: what it reads is not there any more, or Arrow has no such type.
        """
        try:
            return to_arrow_schema(self._frame().schema)
        except (PySparkException, Py4JError) as error:
            raise self._failed(error) from error

    @contextmanager
    def written(self, location: str, storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        """Evaluate it once, and lend the files of its rows.

        Raises:
            SourceError: it cannot be evaluated.
            DestinationError: the storage failed.
        """
        context = self.spark.sparkContext
        with task_directory(context, "view", location, storages) as made:
            below = made.location
            access = storages.access(below)
            # A broadcast, because the plan of a query is written to event logs.
            sent = None if access is None else context.broadcast(access)
            try:
                told = self._frame().mapInArrow(_Writes(below, sent), _ANSWER).collect()
            except (PySparkException, Py4JError) as error:
                raise self._failed(error) from error
            yield tuple(WrittenRows(row.location, row.rows, row.sha256) for row in told)

    def _frame(self) -> DataFrame:
        return self.spark.table(self.name)

    def _failed(self, error: Exception) -> SourceError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[0] if lines else type(error).__name__
        message = (
            f"Cannot evaluate the temporary view {self.name}: {said.rstrip('.')}. Nothing was "
            "changed; look at SELECT * FROM it."
        )
        return SourceError(message)


class _Sent(Protocol):
    """Holds how to reach a storage, with its secrets: a broadcast."""

    @property
    def value(self) -> Access:
        """What is held."""
        ...


@dataclass(frozen=True, slots=True)
class _Writes:
    """What runs on executors: a task writes what it gets as one file, and says what it wrote."""

    below: str
    access: _Sent | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write them; the function of `mapInArrow`."""
        made = write_rows(batches, self.below, None if self.access is None else self.access.value)
        if made is not None:
            columns = ([made.location], [made.rows], [made.sha256])
            yield pa.record_batch(
                [
                    pa.array(column, field.type)
                    for column, field in zip(columns, _ARROW_ANSWER, strict=True)
                ],
                schema=_ARROW_ANSWER,
            )
