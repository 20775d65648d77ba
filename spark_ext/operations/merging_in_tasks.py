"""OPTIMIZE TABLE in the tasks of a Spark session: each merges some of the groups of files.

It is what is done without Spark, of more groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from catalog.merged_files import HostMerger, Merged, MergeWriter
from catalog.storages.opening import Storages
from spark_ext.operations.files_in_tasks import (
    cost_of,
    is_worth_tasks,
    sent_storages,
    write_in_tasks,
)
from tableformat.iceberg.copies import Rewritten
from tableformat.iceberg.properties import RememberedSource
from tableformat.mergetree.row_merge import RowMerge

__all__ = ["MergingInTasks"]


@dataclass(frozen=True, slots=True)
class MergingInTasks:
    """Merges files in tasks, where that is worth it; a `catalog.merged_files.MergesElsewhere`.

    `what` begins messages: what cannot be done.
    """

    spark: SparkSession
    what: str
    storages: Storages
    source: RememberedSource
    merge: RowMerge

    def __call__(
        self, writer: MergeWriter, groups: tuple[Merged, ...], look: Callable[[], None]
    ) -> tuple[tuple[Rewritten, ...], ...] | None:
        """Merge groups of files; None where they are better merged here.

        Raises:
            StoppedError: `look` says so.
            TableFormatError: the error of the first group that has one, or Spark failed.
        """
        files = tuple(file for one in groups for file in one.of.files)
        if len(groups) == 1 or not is_worth_tasks(self.spark, files):
            return None
        places = (place.directory for one in groups for place in one.places)
        locations = (*(file.path for file in files), *places)
        sent = sent_storages(self.spark, self.storages, locations)
        form = writer.schema, writer.format, writer.order
        work = HostMerger(self.source, self.merge, sent, *form)
        return write_in_tasks(self.spark, self.what, groups, _cost, work, look)


def _cost(one: Merged) -> int:
    return cost_of(one.of.files)
