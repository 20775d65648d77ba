"""UPDATE, DELETE and CLEAR COLUMN in the tasks of a Spark session: looking at files, and writing.

Both are what is done without Spark, of more files at a time. It is worth it for many files, or
large ones: a task starts a ClickHouse, and the first ones of a session a Python each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from pyspark.sql import SparkSession

from catalog.changed_files import Anew, FileWriter
from catalog.looked_files import FileLooker, Looked, LookedFiles
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import ReachedStorages, Storages
from spark_ext.in_tasks import in_tasks
from spark_ext.task_directory import TaskDirectory, task_directory
from tableformat.branches import BranchFile
from tableformat.errors import SourceError, StoppedError
from tableformat.iceberg.copies import Rewritten
from tableformat.storage import Storage

__all__ = ["LEAST_BYTES", "LEAST_FILES", "ChangingInTasks", "is_worth_tasks"]

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


@dataclass(frozen=True, slots=True)
class _Writing:
    """What writes files on an executor, one after the other."""

    write: FileWriter

    def __call__(self, things: Iterable[Anew]) -> Iterator[Rewritten]:
        """Write them."""
        with ScratchDirectory("change") as scratch:
            yield from map(partial(self.write, scratch=scratch.path), things)


@dataclass(slots=True)
class ChangingInTasks:
    """Looks at files and writes them anew, in tasks of a session, where that is worth it.

    `what` begins messages: what cannot be done. `looker` looks as it does here. What is made for a
    while below `table_location`, or on this host, is removed with `stack`.
    """

    spark: SparkSession
    what: str
    table_location: str
    storages: Storages
    looker: FileLooker
    stack: ExitStack
    _directory: TaskDirectory | None = None

    def look(self, files: tuple[BranchFile, ...]) -> tuple[Looked, ...] | None:
        """Look at files; None where they are better looked at here.

        Raises:
            TableFormatError: the error of the first file that has one, or Spark failed.
        """
        if not is_worth_tasks(self.spark, files):
            return None
        if self._directory is None:
            context = self.spark.sparkContext
            made = task_directory(context, "left", self.table_location, self.storages)
            self._directory = self.stack.enter_context(made)
        kept, at_hand = self._directory.location, self._directory.at_hand
        sent = self._sent((*(file.path for file in files), kept))
        work = replace(self.looker, storages=sent, kept=kept, at_hand=at_hand)
        return in_tasks(self.spark, self.what, files, _cost, work)

    def write(
        self,
        looked: LookedFiles,
        writer: FileWriter,
        anew: tuple[Anew, ...],
        look: Callable[[], None],
    ) -> tuple[Rewritten, ...] | None:
        """Write files of which rows are left; None where they are better written here.

        Raises:
            StoppedError: `look` says so.
            TableFormatError: the error of the first file that has one, or Spark failed.
        """
        files = tuple(file for one in anew for file in one.of.files)
        kept = looked.kept
        at = {file.path: kept.at[file.path] for file in files}
        if not is_worth_tasks(self.spark, files) or not self._is_reached(at.values()):
            return None
        sent = self._sent((*at, *at.values(), *(one.place.directory for one in anew)))
        left = replace(kept, at=at, storages=sent)
        work = _Writing(replace(writer, storages=sent, changes=left))
        watched = _Watched(look)
        try:
            return in_tasks(self.spark, self.what, anew, _cost_of_new, work, watched)
        except StoppedError as error:
            if watched.told:
                raise
            # Nobody took the claims over: Spark's job was cancelled.
            raise SourceError(error.message) from error

    def _is_reached(self, locations: Iterable[str]) -> bool:
        """Whether tasks can read what is left of files: not all need have been looked at there."""
        made = self._directory
        if made is None:
            return False
        return made.at_hand or all(one.startswith(f"{made.location}/") for one in locations)

    def _sent(self, locations: Iterable[str]) -> _SentStorages:
        """Send how storages are reached: each time anew, for credentials may have been renewed."""
        reached = self.storages.reached(locations)
        return _SentStorages(self.spark.sparkContext.broadcast(reached))


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


def _cost(file: BranchFile) -> int:
    return file.bytes + _FILE_COST_BYTES


def _cost_of_new(one: Anew) -> int:
    return sum(_cost(file) for file in one.of.files)
