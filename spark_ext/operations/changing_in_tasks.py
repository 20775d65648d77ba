"""UPDATE, DELETE and CLEAR COLUMN in the tasks of a Spark session: looking at files, and writing.

Both are what is done without Spark, of more files at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from catalog.changed_files import Anew, FileWriter
from catalog.looked_files import FileLooker, Looked, LookedFiles
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from spark_ext.in_tasks import in_tasks
from spark_ext.operations.files_in_tasks import (
    cost_of,
    is_worth_tasks,
    sent_storages,
    write_in_tasks,
)
from spark_ext.task_directory import TaskDirectory, task_directory
from tableformat.branches import BranchFile
from tableformat.iceberg.copies import Rewritten

__all__ = ["ChangingInTasks"]


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
        places = (*(file.path for file in files), kept)
        sent = sent_storages(self.spark, self.storages, places)
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
        places = (*at, *at.values(), *(one.place.directory for one in anew))
        sent = sent_storages(self.spark, self.storages, places)
        left = replace(kept, at=at, storages=sent)
        work = _Writing(replace(writer, storages=sent, changes=left))
        return write_in_tasks(self.spark, self.what, anew, _cost_of_new, work, look)

    def _is_reached(self, locations: Iterable[str]) -> bool:
        """Whether tasks can read what is left of files: not all need have been looked at there."""
        made = self._directory
        if made is None:
            return False
        return made.at_hand or all(one.startswith(f"{made.location}/") for one in locations)


def _cost(file: BranchFile) -> int:
    return cost_of((file,))


def _cost_of_new(one: Anew) -> int:
    return cost_of(one.of.files)
