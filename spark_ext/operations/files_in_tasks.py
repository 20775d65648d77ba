"""Files of a lake table in the tasks of a Spark session: where that is worth it, and what is sent.

A task starts a ClickHouse, and the first ones of a session a Python each: few files end sooner in
the process that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pyspark.sql import SparkSession

from catalog.storages.opening import Opens, ReachedStorages, Storages
from spark_ext.in_tasks import in_tasks
from tableformat.branches import BranchFile
from tableformat.errors import SourceError, StoppedError
from tableformat.storage import Storage

__all__ = [
    "LEAST_BYTES",
    "LEAST_FILES",
    "cost_of",
    "is_worth_tasks",
    "sent_storages",
    "write_in_tasks",
]

T = TypeVar("T")
R = TypeVar("R")

LEAST_FILES: Final = 64
LEAST_BYTES: Final = 128 * 1024 * 1024
# What beginning and ending one more file costs, as bytes of it.
_FILE_COST_BYTES: Final = 1024 * 1024


def is_worth_tasks(spark: SparkSession, files: Iterable[BranchFile]) -> bool:
    """Whether tasks end sooner with files than this process: there are many, or large ones."""
    sizes = [file.bytes for file in files]
    many = len(sizes) >= LEAST_FILES or (len(sizes) > 1 and sum(sizes) >= LEAST_BYTES)
    return many and spark.sparkContext.defaultParallelism > 1


class _Sent(Protocol):
    """Holds how to reach storages, with their secrets: a broadcast."""

    @property
    def value(self) -> ReachedStorages:
        """What is held."""
        ...


@dataclass(frozen=True, slots=True)
class _SentStorages:
    """Opens storages on an executor."""

    sent: _Sent

    def __call__(self, location: str) -> Storage:
        """Open the storage that a location belongs to."""
        return self.sent.value(location)


def sent_storages(spark: SparkSession, storages: Storages, locations: Iterable[str]) -> Opens:
    """Send how storages are reached: each time anew, for credentials may have been renewed.

    Raises:
        UsageError: one is not served, or nobody says how to reach it.
    """
    return _SentStorages(spark.sparkContext.broadcast(storages.reached(locations)))


def cost_of(files: Iterable[BranchFile]) -> int:
    """Return what reading files, and writing them anew, costs, in bytes of them."""
    return sum(file.bytes + _FILE_COST_BYTES for file in files)


def write_in_tasks(
    spark: SparkSession,
    what: str,
    things: Sequence[T],
    cost: Callable[[T], int],
    work: Callable[[Iterable[T]], Iterator[R]],
    look: Callable[[], None],
) -> tuple[R, ...]:
    """Write files for claims in tasks, as `in_tasks` does; what was told to stop has stopped.

    Raises:
        StoppedError: `look` says that it is not needed any more.
        TableFormatError: the error of the first thing that has one, or Spark failed.
    """
    watched = _Watched(look)
    try:
        return in_tasks(spark, what, things, cost, work, watched)
    except StoppedError as error:
        if watched.told:
            raise
        # Nobody took the claims over: Spark's job was cancelled.
        raise SourceError(error.message) from error


@dataclass(slots=True)
class _Watched:
    """Looks, and knows whether that said to stop."""

    look: Callable[[], None]
    told: bool = False

    def __call__(self) -> None:
        """Look.

        Raises:
            StoppedError: it is to stop.
        """
        try:
            self.look()
        except StoppedError:
            self.told = True
            raise
