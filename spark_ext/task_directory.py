"""A directory for a while, into which tasks write and from which others read, wherever they run."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark import SparkContext

from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from tableformat.errors import DestinationError
from tableformat.file_names import views_directory
from tableformat.storage import Storage

__all__ = ["TaskDirectory", "task_directory"]

_LOGGER: Final = logging.getLogger("mergeberg")


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """A location; `at_hand` tells that it is a path of this host, where all tasks run, too."""

    location: str
    at_hand: bool


@contextmanager
def task_directory(
    context: SparkContext, purpose: str, table_location: str, storages: Storages
) -> Iterator[TaskDirectory]:
    """Lend a directory, and remove it with what is in it, or leave that to `mergeberg gc`.

    Args:
        context: of the session whose tasks write.
        purpose: a word for its name.
        table_location: of a lake table: where no directory of this host is that of all tasks, it is
            below that.
        storages: open what the table is in.
    """
    if (context.master or "").startswith("local"):
        with ScratchDirectory(purpose) as scratch:
            yield TaskDirectory(str(scratch.path), at_hand=True)
        return
    below = views_directory(table_location, int(time.time() * 1000), uuid.uuid4().hex)
    try:
        yield TaskDirectory(below, at_hand=False)
    finally:
        _remove(storages(below), below)


def _remove(storage: Storage, below: str) -> None:
    """Remove what is there; what it was for has ended, and does not fail with this."""
    try:
        for one in storage.list(below):
            storage.delete(one.location)
    except DestinationError as error:
        _LOGGER.warning("what is in %s stays: %s `mergeberg gc` removes it", below, error)
