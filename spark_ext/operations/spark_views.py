"""Resolves names to temporary views of a Spark session, and evaluates a view once.

One Spark job evaluates a view, and its tasks write the rows to files. So a nondeterministic view is
read only once, and no rows are held in memory. Only files of the task attempts that Spark reports
as successful count, so that a task that ran twice contributes its rows once.
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
from spark_ext.engine.jobs import spark_reason, task_directory
from spark_ext.sql.names import Parts, spark_name
from tableformat.errors import SourceError

__all__ = ["SparkView", "View", "no_view", "session_views"]

_RESULT: Final = "location string, rows long, sha256 string"
_ARROW_RESULT: Final = pa.schema(
    [("location", pa.string()), ("rows", pa.int64()), ("sha256", pa.string())]
)
_GLOBAL: Final = "spark.sql.globalTempDatabase"
_OF_GLOBAL: Final = 2


class View(Protocol):
    """A view of a session."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the view, without evaluating it.

        Raises:
            SourceError: a table that the view reads does not exist any more.
        """
        ...

    @contextmanager
    def written(self, location: str, storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        """Evaluate the view once, and provide the files of its rows while the context is open.

        Args:
            location: the location of the lake table; the files are below it, unless Spark runs in
                local mode.
            storages: open the storage of the table.

        Raises:
            SourceError: the view cannot be evaluated.
        """
        ...


def no_view(_: Parts) -> View | None:
    """Return None: without a Spark session there are no views."""
    return None


def session_views(
    spark: SparkSession, conf: Mapping[str, str], taken: Iterable[str] = ()
) -> Callable[[Parts], View | None]:
    """Return a function that resolves a name to a temporary view, by Spark's rules.

    Args:
        spark: the session.
        conf: the settings of the session.
        taken: names that have another meaning in the statement.
    """
    database = conf.get(_GLOBAL, "global_temp").lower()

    def found(parts: Parts) -> View | None:
        if ".".join(parts) in taken:
            return None
        catalog = spark._jsparkSession.sessionState().catalog()  # noqa: SLF001  PySpark has no other way to find views
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
        """The columns of the view, without evaluating it.

        Raises:
            SourceError: a table that the view reads does not exist any more, or a column has a
                type that Arrow lacks.
        """
        try:
            return to_arrow_schema(self._frame().schema)
        except (PySparkException, Py4JError) as error:
            raise self._failed(error) from error

    @contextmanager
    def written(self, location: str, storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        """Evaluate the view once, and provide the files of its rows while the context is open.

        Raises:
            SourceError: the view cannot be evaluated.
            DestinationError: the storage failed.
        """
        context = self.spark.sparkContext
        with task_directory(context, "view", location, storages) as made:
            below = made.location
            access = storages.access(below)
            # A broadcast keeps the secrets out of the query plan, which event logs show.
            sent = None if access is None else context.broadcast(access)
            try:
                rows = self._frame().mapInArrow(_Writes(below, sent), _RESULT).collect()
            except (PySparkException, Py4JError) as error:
                raise self._failed(error) from error
            yield tuple(WrittenRows(row.location, row.rows, row.sha256) for row in rows)

    def _frame(self) -> DataFrame:
        return self.spark.table(self.name)

    def _failed(self, error: Exception) -> SourceError:
        message = (
            f"Cannot evaluate the temporary view {self.name}: {spark_reason(error)}. Nothing was "
            "changed; look at SELECT * FROM it."
        )
        return SourceError(message)


class _Sent(Protocol):
    """Holds the access to a storage with its secrets; a broadcast."""

    @property
    def value(self) -> Access:
        """The access."""
        ...


@dataclass(frozen=True, slots=True)
class _Writes:
    """The function on executors: a task writes its rows to one file, and returns its location."""

    below: str
    access: _Sent | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the batches; the function for `mapInArrow`."""
        made = write_rows(batches, self.below, None if self.access is None else self.access.value)
        if made is not None:
            columns = ([made.location], [made.rows], [made.sha256])
            yield pa.record_batch(
                [
                    pa.array(column, field.type)
                    for column, field in zip(columns, _ARROW_RESULT, strict=True)
                ],
                schema=_ARROW_RESULT,
            )
