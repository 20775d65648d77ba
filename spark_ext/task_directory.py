"""A directory for a while, into which tasks write and from which others read, wherever they run."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import SparkContext

from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from tableformat.file_names import views_directory

__all__ = ["TaskDirectory", "task_directory"]


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """A location; `at_hand` tells that it is a path of this host, where all tasks run, too."""

    location: str
    at_hand: bool


@contextmanager
def task_directory(
    context: SparkContext, purpose: str, table_location: str, storages: Storages
) -> Iterator[TaskDirectory]:
    """Lend a directory, and remove it with what is in it.

    Args:
        context: of the session whose tasks write.
        purpose: a word for its name.
        table_location: of a lake table: where no directory of this host is that of all tasks, it is
            below that.
        storages: open what the table is in.

    Raises:
        DestinationError: the storage failed.
    """
    if (context.master or "").startswith("local"):
        with ScratchDirectory(purpose) as scratch:
            yield TaskDirectory(str(scratch.path), at_hand=True)
        return
    below = views_directory(table_location, int(time.time() * 1000), uuid.uuid4().hex)
    try:
        yield TaskDirectory(below, at_hand=False)
    finally:
        storage = storages(below)
        for one in storage.list(below):
            storage.delete(one.location)
